"""From a published number to ours, one mechanism after the other, and what may be stated of the difference.

Every rung is the number with one more mechanism of ours; a factor is a rung over the one before it, so that
factors multiply to the whole. A mechanism is named as the reason only where it carries at least half of the
whole, on a logarithmic scale. Factors depend on the order of the rungs, which is the same for all numbers.
"""

from collections.abc import Mapping, Sequence
from math import exp, inf, isfinite, log

from foretell.records import as_json, dataclass

SAME = 0.02
"""Two numbers that differ by a smaller share are the same: nothing needs a reason."""
HALF = 0.5
"""Share of the whole from which on a mechanism is the reason."""
SEEN = 0.015
"""Least change of a factor that a sentence has."""
NARROW = 2.0
"""Upper end over lower end of an interval from which on a statement is not decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """The number with one more mechanism of ours."""

    mechanism: str
    """What was added."""
    value: float
    """The number; infinite where nothing fits."""
    factor: float
    """Over the rung before; 1 where both are infinite."""

    def to_dict(self) -> dict[str, str | float | None]:
        """The same as JSON; nothing for what is infinite."""
        numbers = {"value": self.value, "factor": self.factor}
        known = {name: one if isfinite(one) else None for name, one in numbers.items()}
        return {"mechanism": self.mechanism, **known}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """A number from a published model to ours."""

    rungs: tuple[Rung, ...]
    """The published number first, ours last."""

    to_dict = as_json()

    @property
    def first(self) -> float:
        """The published number."""
        return self.rungs[0].value

    @property
    def last(self) -> float:
        """Ours."""
        return self.rungs[-1].value

    @property
    def whole(self) -> float:
        """Ours over the published number."""
        return _over(self.last, self.first)

    @property
    def reason(self) -> Rung | None:
        """The mechanism that carries most, where that is at least half of the whole."""
        steps = self.rungs[1:]
        if not isfinite(self.first):
            return next((r for r in steps if isfinite(r.value)), None)
        if abs(log(self.whole)) < SAME:
            return None
        most = max(steps, key=lambda r: log(r.factor) / log(self.whole))
        return most if log(most.factor) / log(self.whole) >= HALF else None

    @property
    def because(self) -> str:
        """Why the two numbers differ, in a sentence."""
        if not isfinite(self.first):
            found = self.reason
            return "" if found is None else f"Because of {found.mechanism}: nothing fits without."
        if abs(log(self.whole)) < SAME:
            return "The two agree."
        steps = [r for r in self.rungs[1:] if abs(r.factor - 1.0) >= SEEN]
        reason = self.reason
        if reason is None:
            most = sorted(steps, key=lambda r: -abs(log(r.factor)))
            listed = ", ".join(_said(r) for r in most)
            return f"No mechanism carries half of x{self.whole:.2f}: {listed}."
        rest = ", ".join(_said(r) for r in steps if r is not reason)
        text = f"Because of {reason.mechanism}: x{reason.factor:.2f} of x{self.whole:.2f}"
        return f"{text} ({rest})." if rest else f"{text}."


def ladder_of(values: Mapping[str, float]) -> Ladder:
    """The ladder of a number: mechanism added -> the number then; the published one comes first."""
    before: float | None = None
    rungs = []
    for mechanism, value in values.items():
        factor = 1.0 if before is None else _over(value, before)
        rungs.append(Rung(mechanism=mechanism, value=value, factor=factor))
        before = value
    return Ladder(rungs=tuple(rungs))


def mean_ladder(ladders: Sequence[Ladder]) -> Ladder:
    """The geometric mean of some numbers, rung by rung."""
    names = [rung.mechanism for rung in ladders[0].rungs]
    columns = zip(*((rung.value for rung in one.rungs) for one in ladders), strict=True)
    return ladder_of(dict(zip(names, map(mean, columns), strict=True)))


def mean(values: Sequence[float]) -> float:
    """The geometric mean; 1 of nothing."""
    if not values:
        return 1.0
    if not all(map(isfinite, values)):
        return inf
    return exp(sum(map(log, values)) / len(values))


def ladder_rows(statement: str, ladders: Mapping[str, Ladder]) -> list[dict[str, object]]:
    """Rows of a table: every rung of the numbers that a statement is about, by case."""
    return [
        {"statement": statement, "case": case, "rung": place, **rung.to_dict()}
        for case, ladder in ladders.items()
        for place, rung in enumerate(ladder.rungs)
    ]


def _over(value: float, before: float) -> float:
    """One number over another; 1 where both are infinite."""
    return value / before if isfinite(value) or isfinite(before) else 1.0


def _said(rung: Rung) -> str:
    return f"{rung.mechanism} x{rung.factor:.2f}"
