"""How results answer to each number that they depend on: the records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foretell.errors import bad_input
from foretell.records import Answer, JsonRecord, as_json

MOST_FACTOR = 1000.0
"""Numbers are made better or worse by no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Results with one number changed, over those now."""

    factor: float
    """What the number was multiplied with."""
    ratios: Mapping[str, float] | None
    """Result -> its ratio; none where the plan does not fit, or nothing does."""
    fits: str
    """Whether the plan fits."""
    plan: str
    """The plan, held or chosen anew."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberEffect:
    """How all results answer to one number."""

    path: str
    """Its `--set` path where it is one field."""
    words: str
    """What it is."""
    kind: str
    """rate, time, size, price, or joint: several at once."""
    value: float
    """What it is now."""
    unit: str
    """Its unit, the end of the field's name."""
    elasticities: Mapping[str, float]
    """Result -> d ln(result) / d ln(number), the plan held."""
    better: WhatIf | None
    """Better by the factor; none for prices."""
    worse: WhatIf | None
    """Worse by the factor."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivities(JsonRecord, Answer):
    """Every number's effect on every result."""

    verb = "sensitivity"

    about: Mapping[str, Any]
    """The question: model, system, gpus and the like."""
    plan: str
    """The plan now."""
    plan_chosen: bool
    """Whether Foretell chose it."""
    replanned: bool
    """Whether plans of the what-ifs were chosen anew."""
    factor: float
    """How much better and worse numbers are made."""
    results: Mapping[str, float]
    """What the results are now."""
    words: Mapping[str, str]
    """What they are called."""
    best_now: WhatIf | None
    """The best plan on the system as it is, where plans are chosen anew."""
    numbers: tuple[NumberEffect, ...]
    """The strongest on the first result first; several at once, then prices, last."""
    assumptions: tuple[str, ...]
    """Every default or guess."""
    overrides: Mapping[str, object]
    """Fields set by hand."""

    def __getitem__(self, path: str) -> NumberEffect:
        """The number of a path."""
        return {number.path: number for number in self.numbers}[path]

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        return {
            **self.about,
            "plan": self.plan,
            "plan_chosen": self.plan_chosen,
            "replanned": self.replanned,
            "factor": self.factor,
            "results": dict(self.results),
            "result_words": dict(self.words),
            "best_now": self.best_now.to_dict() if self.best_now else None,
            "numbers": [number.to_dict() for number in self.numbers],
            "assumptions": list(self.assumptions),
            "overrides": dict(self.overrides),
        }


def check_factor(factor: object) -> None:
    """Raise where numbers cannot be made better by it."""
    plain = isinstance(factor, int | float) and not isinstance(factor, bool)
    if not plain or not 1.0 < float(factor) <= MOST_FACTOR:  # type: ignore[arg-type]
        message, allowed = "not a usable number", f"a number above 1, to {MOST_FACTOR:g}"
        raise bad_input("factor", factor, message, allowed)


def strength(moved: NumberEffect, result: str) -> float:
    """How much a number moves a result: the larger of its slope and its what-ifs; all of it where nothing
    fits any more."""
    ratios = [w.ratios for w in (moved.better, moved.worse) if w is not None]
    changes = [1.0 if ratio is None else abs(ratio[result] - 1.0) for ratio in ratios]
    return max([abs(moved.elasticities[result]), *changes])
