"""Why one plan beats another: leaf by leaf, in time and memory, and whether the difference is certain.

Two plans of one model on one system share most of what may be wrong. Were the matrix kernels slower than
predicted, they would be so in both, and only the difference of the two plans' seconds in them would change.
So each cause (a kernel family, the fabric under one parallelism, the host, the optimizer's passes, and what a
whole step has besides) has one unknown factor, the same in both plans, with the spread that the leaf's own
interval shows. A cause adds (seconds of B - seconds of A) x (factor - 1); causes are independent, so that
half-widths add up as squares. The difference is certain where the interval of nine in ten cases leaves out
zero.
"""

import math
from collections import defaultdict
from dataclasses import fields
from typing import Any

from foretell.catalog.error_models import error_model
from foretell.records import Answer, JsonRecord, as_json, dataclass
from foretell.search.explain import ends
from foretell.specs.plan import Plan
from foretell.specs.result import Leaf, StepEstimate
from foretell.training.answer import estimate_json

KERNEL_NODES = ("compute", "memory_bound", "recompute")
"""Nodes whose leaves are kernel families: one family errs alike in all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One leaf of two plans."""

    name: str
    """Its name, with its parent's."""
    unit: str
    """s or bytes."""
    a: float
    """In plan A; 0 where it has none."""
    b: float
    """In plan B; 0 where it has none."""

    @property
    def difference(self) -> float:
        """B less A: negative where B is better."""
        return self.b - self.a

    to_dict = as_json(more=("difference",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(JsonRecord, Answer):
    """Two plans of one question."""

    verb = "compare-plans"

    a: StepEstimate
    """Plan A."""
    b: StepEstimate
    """Plan B."""
    only_a: tuple[str, ...]
    """Words that only A has."""
    only_b: tuple[str, ...]
    """Words that only B has."""
    difference_s: float
    """Step of B less step of A."""
    time: tuple[Difference, ...]
    """Leaves, the largest difference first; they sum to it."""
    memory: tuple[Difference, ...]
    """The same of the fullest stages."""
    interval: dict[str, tuple[float, float]]
    """Of difference_s: p50 and p90, each (low, high)."""
    certain: bool
    """Whether nine in ten cases have the same sign."""
    faster: str
    """a, b or same."""
    better: str
    """The faster one of those that fit: a, b, same, or neither where none fits."""
    conclusions: tuple[str, ...]
    """The same in sentences."""

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON; the plans without their trees."""
        trees = ("breakdown", "memory", "memory_by_stage", "assumptions", "overrides", "run")
        plans = [
            {k: v for k, v in estimate_json(plan).items() if k not in trees}
            for plan in (self.a, self.b)
        ]
        plain = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("a", "b", "time", "memory")
        }
        return {
            "a": plans[0],
            "b": plans[1],
            **plain,
            "time": [d.to_dict() for d in self.time],
            "memory": [d.to_dict() for d in self.memory],
            "assumptions": list(dict.fromkeys((*self.a.assumptions, *self.b.assumptions))),
            "overrides": dict(self.a.overrides or {}),
        }


def compare(a: StepEstimate, b: StepEstimate) -> Comparison:
    """Compare two estimates of one question."""
    assert a.breakdown is not None
    assert b.breakdown is not None
    time = differences(a.breakdown, b.breakdown)
    memory = differences(a.memory, b.memory) if a.memory and b.memory else ()
    change = b.step_s - a.step_s
    interval = interval_of(a.breakdown, b.breakdown)
    low, high = interval["p90"]
    words = [_words(plan) for plan in (a.plan, b.plan)]
    certain = low > 0.0 or high < 0.0
    faster = "same" if change == 0.0 else "b" if change < 0.0 else "a"
    fit = [name for name, e in (("a", a), ("b", b)) if e.fits != "no"]
    better = {0: "neither", 1: fit[0] if fit else "", 2: faster}[len(fit)]
    only_a = tuple(w for w in words[0] if w not in words[1])
    only_b = tuple(w for w in words[1] if w not in words[0])
    return Comparison(
        a=a,
        b=b,
        only_a=only_a,
        only_b=only_b,
        difference_s=change,
        time=time,
        memory=memory,
        interval=interval,
        certain=certain,
        faster=faster,
        better=better,
        conclusions=_conclusions((a, b), time, memory, interval, certain),
    )


def _words(plan: Plan) -> list[str]:
    """Every word of a plan."""
    return str(plan).split()


def differences(a: Leaf, b: Leaf) -> tuple[Difference, ...]:
    """Leaves of two trees, the largest difference first."""
    left, right = ends(a), ends(b)
    found = [
        Difference(
            name=name,
            unit=a.unit,
            a=left[name].value if name in left else 0.0,
            b=right[name].value if name in right else 0.0,
        )
        for name in dict.fromkeys((*left, *right))
    ]
    some = [d for d in found if d.a or d.b]
    return tuple(sorted(some, key=lambda d: -abs(d.difference)))


def interval_of(a: Leaf, b: Leaf) -> dict[str, tuple[float, float]]:
    """p50 and p90 of step B less step A, causes shared."""
    change = b.value - a.value
    seconds: dict[str, float] = defaultdict(float)
    spread: dict[str, dict[str, tuple[float, float]]] = {}
    for tree, sign in ((a, -1.0), (b, 1.0)):
        for name, leaf in ends(tree).items():
            cause = cause_of(name)
            seconds[cause] += sign * leaf.value
            if leaf.value > 0.0 and leaf.interval is not None:
                # Where the two plans' spreads differ (a bubble's goes with its mix), the wider one counts.
                known = spread.get(cause, {})
                spread[cause] = {
                    key: (
                        min(low / leaf.value - 1.0, known.get(key, (0.0, 0.0))[0]),
                        max(high / leaf.value - 1.0, known.get(key, (0.0, 0.0))[1]),
                    )
                    for key, (low, high) in leaf.interval.items()
                }
    model = error_model("training")
    apart = math.sqrt(2.0) * math.hypot(model.alike, model.own)  # of two runs of one place
    seconds["rest"] = change
    spread["rest"] = {
        key: (math.expm1(-z * apart), math.expm1(z * apart))
        for key, z in (("p50", 0.674), ("p90", 1.645))
    }
    found = {}
    for key in ("p50", "p90"):
        below = above = 0.0
        for cause, by in seconds.items():
            if cause in spread:
                moved = sorted(by * end for end in spread[cause][key])
                below, above = (
                    math.hypot(below, min(moved[0], 0.0)),
                    math.hypot(above, max(moved[1], 0.0)),
                )
        found[key] = (change - below, change + above)
    return found


def cause_of(name: str) -> str:
    """What may be wrong with a leaf: its kernel family, or itself."""
    node, _, family = name.partition(".")
    return family if node in KERNEL_NODES and family else name


def _conclusions(
    plans: tuple[StepEstimate, StepEstimate],
    time: tuple[Difference, ...],
    memory: tuple[Difference, ...],
    interval: dict[str, tuple[float, float]],
    certain: bool,
) -> tuple[str, ...]:
    """Which is faster, by what, at what price in memory, and how sure that is."""
    a, b = plans
    change = b.step_s - a.step_s
    if change == 0.0:
        return ("Both take the same time.",)
    name, other = ("B", "A") if change < 0.0 else ("A", "B")
    slow = max(a.step_s, b.step_s)
    sign = -1.0 if change < 0.0 else 1.0
    said = [
        f"{name} takes {abs(change) * 1e3:,.1f} ms ({abs(change) / slow:.1%}) less than {other}."
    ]
    for better, word in ((True, "It gains"), (False, "It loses")):
        parts = [d for d in time if (d.difference * sign > 0.0) == better and d.difference]
        parts = [d for d in parts if abs(d.difference) >= 0.02 * abs(change)][:3]
        if parts:
            told = ", ".join(f"{abs(d.difference) * 1e3:,.1f} ms in {d.name}" for d in parts)
            said.append(f"{word} {told}.")
    said.append(_memory_said(b.peak_memory_bytes - a.peak_memory_bytes, memory))
    said += [f"{n} does not fit." for n, e in (("A", a), ("B", b)) if e.fits == "no"]
    low, high = (end * 1e3 for end in interval["p90"])
    sure = "beyond" if certain else "within"
    said.append(
        f"Nine in ten cases put B at {low:+,.1f} to {high:+,.1f} ms against A, errors that both share "
        f"taken once: the difference is {sure} the uncertainty."
    )
    return tuple(said)


def _memory_said(more: float, leaves: tuple[Difference, ...]) -> str:
    """Which holds more, and most of what."""
    if more == 0.0:
        return "Both hold as much memory."
    top = next((d.name for d in leaves if d.difference * more > 0.0), "")
    word = "more" if more > 0.0 else "less"
    return f"B holds {abs(more) / 2**30:,.1f} GiB {word}, most of it {top}."
