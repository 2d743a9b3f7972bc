"""What a number rests on, and how far it may be from the truth.

Every leaf of a time tree has an evidence and, from the residuals of what it rests on, intervals that hold
half and nine tenths of the cases. Families of kernels and communication err independently of each other, so
half-widths add up as squares. A whole step is as sure as runs were that nobody had seen when they were
predicted: by one model of their error (catalog/error_models.py), wider the more is new about a question.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from foretell.catalog.error_models import error_model
from foretell.network.library_catalog import doublings_beyond, evidence_of
from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.specs.corrections import TRAINING
from foretell.specs.plan import USUAL_SCHEDULES, Plan
from foretell.specs.result import Evidence, Leaf
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.uncertainty.novelty import novelty_of, seen_together, training_facts
from foretell.uncertainty.posterior import MeasuredRun, prior_interval

MECHANISMS: Mapping[str, str] = {
    "gemm": "gemm",
    "grouped-gemm": "experts",
    "attention": "attention",
    "tensor_parallel": "tensor_parallel",
    "context_parallel": "context_parallel",
    "expert_parallel": "expert_parallel",
    "pipeline_parallel": "pipeline_parallel",
    "data_parallel": "data_parallel",
    "host": "host",
    "fixed": "fixed",
    "bubble": "gemm",
}
"""Leaf -> the mechanism that it goes with; the rest are passes over memory."""
PLACES = {name: i for i, name in enumerate(TRAINING)}


def mechanism_of(leaf: str) -> str:
    """The mechanism of a leaf by its name."""
    return MECHANISMS.get(leaf, "memory_bound")


def shares_of(tree: Leaf) -> Array:
    """Share of a step's time that is of each mechanism; (mechanisms,)."""
    found = np.zeros(len(TRAINING))
    for child in tree.children or (tree,):
        for end in child.children or (child,):
            found[PLACES[mechanism_of(end.name)]] += end.value
    total = float(found.sum())
    return found / total if total > 0.0 else found


Spread = tuple[float, ...]
"""5, 25, 50, 75 and 95 % quantiles of ln(measured / predicted)."""

FABRIC: Mapping[Evidence, Spread] = {
    "measured": (-0.20, -0.07, 0.0, 0.07, 0.20),
    "fitted": (-0.30, -0.09, 0.0, 0.10, 0.45),
    "transferred": (-0.65, -0.20, 0.0, 0.25, 0.65),
    "datasheet": (-0.80, -0.35, 0.0, 0.35, 0.80),
}
"""Of a collective: residuals over the multi-node tables as fitted, and with systems left out of the fit
(`validate collectives --leave-one-out system`); without any library, supposed wider still."""
HOST: Spread = (-0.9, -0.4, 0.0, 0.4, 0.9)
"""Of waiting for the host: one machine was measured, and frameworks differ by a factor of three."""
EXCHANGES = (
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "pipeline_parallel",
    "data_parallel",
)
"""Leaves of a step that wait for other ranks."""
ORDER: tuple[Evidence, ...] = ("measured", "fitted", "transferred", "datasheet")
"""Best first."""
KERNELS = {"attention": "prefill", "grouped-gemm": "grouped", "gemm": "gemm", "scan": "scan"}
"""Kernel family of an operation's family; the rest are passes over memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """Evidence and spread of the leaves of one scenario."""

    kernels: Mapping[str, tuple[Evidence, Spread]]
    """By kernel family."""
    collectives: tuple[Evidence, Spread]
    """Of communication."""

    def of(self, family: str) -> tuple[Evidence, Spread]:
        """What an operation's family rests on."""
        return self.kernels.get(KERNELS.get(family, "pointwise"), self.kernels["pointwise"])


def grounds_of(
    kernels: Mapping[str, tuple[Evidence, Spread]], system: System, gpus: float = 1.0
) -> Grounds:
    """What the kernels and collectives of a scenario of so many chips rest on."""
    return Grounds(kernels=kernels, collectives=(evidence_of(system), fabric_spread(system, gpus)))


def fabric_spread(system: System, gpus: float = 1.0) -> Spread:
    """Residuals of a collective of so many chips: half as wide again for each doubling beyond those held."""
    wider = 1.0 + 0.5 * doublings_beyond(system, gpus)
    return tuple(wider * end for end in FABRIC[evidence_of(system)])


def leaf(name: str, value: float, grounds: tuple[Evidence, Spread], joules: float | None) -> Leaf:
    """A leaf with its evidence and interval."""
    evidence, (low90, low50, _, high50, high90) = grounds
    interval = {
        "p50": (value * math.exp(low50), value * math.exp(high50)),
        "p90": (value * math.exp(low90), value * math.exp(high90)),
    }
    return Leaf(
        name=name, value=value, unit="s", evidence=evidence, joules=joules, interval=interval
    )


def node(name: str, children: Sequence[Leaf], value: float | None = None) -> Leaf:
    """Leaves together: the weakest evidence, intervals by squares, joules summed."""
    total = sum([child.value for child in children]) if value is None else value
    some = [child for child in children if child.value > 0.0]
    found = {child.evidence or "datasheet" for child in some}
    weakest = ORDER[max(map(ORDER.index, found), default=0)]
    known = [child.joules for child in children if child.joules is not None]
    return Leaf(
        name=name,
        value=total,
        unit="s",
        evidence=weakest,
        joules=sum(known) if len(known) == len(children) else None,
        interval=join_intervals(total, some),
        children=tuple(children),
    )


def whole(
    step: Leaf,
    scenario: Scenario,
    plan: Plan,
    *,
    bubble_s: float = 0.0,
    others_s: Sequence[float] = (),
) -> Leaf:
    """A step with the interval of first contacts: by its mechanisms and by what is new about it.

    It is fitted at best, and that only where this software ran this kind of model on this generation of
    chips. A generation of which no run was seen is no surer than its kernels and links. The low end
    allows for stages that are interleaved and wait less than these (`bubble_s`); both ends for steps as
    other recipes of the software have them (`others_s`).
    """
    facts = training_facts(scenario, plan)
    left_out = scenario.software.left_out, scenario.system.chip.left_out
    evidence = step_evidence(step, seen_together("training", facts, *left_out))
    value, spread = step.value, scenario.system.step_spread
    if spread:  # runs on this very system were measured
        ends = {"p50": (spread[1], spread[2]), "p90": (spread[0], spread[3])}
    else:
        novelty = novelty_of("training", facts, *left_out)
        run = MeasuredRun(slopes=shares_of(step), novelty=novelty)
        model = error_model("training", left_out[0][0] if len(left_out[0]) == 1 else "")
        ends = dict(prior_interval(model, TRAINING, run))
        if novelty["generation"] == 1.0:
            ends = _no_surer(ends, value, join_intervals(value, step.children))
    saved = math.log1p(-interleaving_saves(scenario, plan, bubble_s) / max(value, 1e-30))
    moved = [math.log(max(other, 1e-30) / max(value, 1e-30)) for other in others_s]
    less, more = min(moved, default=0.0), max(moved, default=0.0)
    found = {
        key: (
            value * math.exp(-math.hypot(low, saved, min(less, 0.0))),
            value * math.exp(math.hypot(high, max(more, 0.0)) if high > 0.0 else high),
        )
        for key, (low, high) in ends.items()
    }
    return replace(step, interval=found, evidence=evidence)


def interleaving_saves(scenario: Scenario, plan: Plan, bubble_s: float) -> float:
    """Seconds of waiting that interleaved stages spare, where the plan has one run of layers a stage."""
    if not (plan.vpp == 1 and plan.schedule in USUAL_SCHEDULES):
        return 0.0
    return bubble_s * (1.0 - 1.0 / max(len(scenario.model.stack.layers) / plan.pp, 1.0))


def _no_surer(
    ends: Mapping[str, tuple[float, float]], value: float, parts: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """Ends in logarithm, at least as far out as the intervals of the parts."""
    return {
        key: (
            min(low, math.log(max(parts[key][0] / value, 0.05))),
            max(high, math.log(parts[key][1] / value)),
        )
        for key, (low, high) in ends.items()
    }


def step_evidence(step: Leaf, seen: int) -> Evidence:
    """What a step rests on: datasheet if a leaf does, fitted if its software was seen with chips and kind."""
    if any(child.evidence == "datasheet" for child in step.children if child.value > 0.0):
        return "datasheet"
    return "fitted" if seen else "transferred"


def join_intervals(value: float, parts: Sequence[Leaf]) -> dict[str, tuple[float, float]]:
    """Intervals of a sum of independent parts, on each side of their values."""
    found = {}
    for key in ("p50", "p90"):
        below = above = 0.0
        for part in parts:
            if part.interval is not None:
                low, high = part.interval[key]
                below += max(part.value - low, 0.0) ** 2
                above += max(high - part.value, 0.0) ** 2
        found[key] = (max(value - math.sqrt(below), 0.0), value + math.sqrt(above))
    return found


ENDS = {"p50": 0.674, "p90": 1.645}
"""Ends of an interval in standard deviations."""


def tree_of(
    tree: Leaf, deviations: Mapping[str, float], whole: Mapping[str, tuple[float, float]]
) -> Leaf:
    """The tree with intervals from the standard deviations of log-factors; the root has its own."""
    return replace(_with_intervals(tree, deviations), interval=dict(whole))


def _with_intervals(tree: Leaf, deviations: Mapping[str, float]) -> Leaf:
    if not tree.children:
        wide = deviations[mechanism_of(tree.name)]
        interval = {
            key: (tree.value * math.exp(-z * wide), tree.value * math.exp(z * wide))
            for key, z in ENDS.items()
        }
        return replace(tree, interval=interval)
    children = tuple(_with_intervals(child, deviations) for child in tree.children)
    return replace(tree, children=children, interval=join_intervals(tree.value, children))
