"""The 2024 study's days from its model to ours: every search again with one more mechanism of ours.

Below the rungs is our model under the study's assumptions: every kernel at 0.8 of its peak and the whole
memory bandwidth, nothing fused, exposed gathers of keys, no power limit, rings at 0.7 of the links, memory
without a framework, plain 1F1B, ZeRO-1 alone, no recomputation. Flash attention, 1-D, SUMMA and split
sequences are searched on every rung: both models have them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.inputs.question import plan_of
from foretell.lab.reference import search
from foretell.lab.reference.records import CHIPS, STRATEGIES, Quirks
from foretell.lab.reproduce.nersc_layers import PUBLISHED_PARTS as COLUMNS
from foretell.lab.reproduce.nersc_ours import (
    SUMMA,
    Fastest,
    OurTask,
    days_of,
    estimate_of,
    fastest_plans,
    parts_of,
    scenario_of,
    spaces_of,
)
from foretell.lab.reproduce.records import Ladder, described, ladder_of
from foretell.records import dataclass
from foretell.search.differences import interval_of
from foretell.search.space import Space, take_candidates
from foretell.specs.chip import Surface
from foretell.specs.corrections import AS_PREDICTED
from foretell.specs.scenario import Scenario
from foretell.specs.software import Host
from foretell.training.answer import answer_of

STUDY = CHIPS["B200"]
"""The study's efficiencies, launches and latencies are the same for all chips."""
SOFTMAX_FLOP = 5.0
"""Plain operations of a pair in the study's attention (lab/reference/ops.py)."""
FAST = 1e9
"""A rate or a limit that never binds."""
NO_HOST = Host(operation_s=0.0, kernel_s=0.0, backward=1.0, collective_s=0.0, step_s=0.0)
"""The study has no host."""


def _surface(family: str, table: Mapping[str, Any]) -> Surface:
    """A family of kernels as the study has it."""
    named = {"$launch_s": STUDY.launch_s, "$efficiency": STUDY.compute_efficiency}
    named["$softmax"] = SOFTMAX_FLOP
    return Surface(
        family=family,
        dtype="bf16",
        chip="study",
        architecture="study",
        software="torch",
        version="",
        coefficients={name: named.get(value, value) for name, value in table.items()},
        points=0,
        **dict.fromkeys(("median_ape", "p90_ape", "left_out_median_ape", "left_out_p90_ape"), 0.0),
        residuals=(0.0,) * 5,
        source="arXiv 2410.00273",
        date="2024-10-01",
    )


FLAT_KERNELS = tuple(
    _surface(family, table) for family, table in described("nersc-2024")["surface"].items()
)
"""Every kernel at one share of the peak and the whole memory bandwidth, the larger of the two times."""


def flat_kernels(scenario: Scenario) -> Scenario:
    """One efficiency for all kernels, and no host."""
    chip = replace(scenario.system.chip, kernels=FLAT_KERNELS)
    return replace(scenario, system=replace(scenario.system, chip=chip, host=NO_HOST))


def unlimited(scenario: Scenario) -> Scenario:
    """No power limit."""
    chip = scenario.system.chip
    rated = chip.rated_watts or chip.tdp_watts
    chip = replace(chip, tdp_watts=FAST, rated_watts=rated)
    return replace(scenario, system=replace(scenario.system, chip=chip))


def flat_links(scenario: Scenario) -> Scenario:
    """Two flat tiers with one share of their bandwidth and one latency each, and no library."""
    system = scenario.system
    latencies = (STUDY.fast_latency_s, STUDY.slow_latency_s)
    tiers = tuple(
        replace(
            tier,
            efficiency=STUDY.link_efficiency,
            latency_s=latency_s,
            taper=1.0,
            topology="switch",
            in_network_reduction=False,
        )
        for tier, latency_s in zip(system.network.tiers, latencies, strict=True)
    )
    chip = replace(system.chip, id="study")
    return replace(
        scenario, system=replace(system, chip=chip, network=replace(system.network, tiers=tiers))
    )


def no_framework(scenario: Scenario) -> Scenario:
    """Tensors alone in the memory."""
    bare = replace(AS_PREDICTED, overhead=1.0 / FAST)
    return replace(scenario, system=replace(scenario.system, corrections=bare))


def _some(space: Space, field: str, value: float) -> Space:
    column = np.broadcast_to(getattr(space.plans, field), len(space.plans))
    return take_candidates(space, np.flatnonzero(column == value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """What our model has and the published one has not, or has otherwise."""

    name: str
    """In tables and sentences."""
    without: Callable[[Scenario], Scenario] = lambda scenario: scenario
    """The question without it."""
    words: str = ""
    """Words of plans without it."""
    narrow: Callable[[Space], Space] = lambda space: space
    """Candidates without it."""


MECHANISMS = (
    Mechanism(name="kernels' measured rates", without=flat_kernels),
    Mechanism(name="fused kernels", words="no-fused"),
    Mechanism(name="overlap of gathered keys with attention", words="cp_mode=allgather"),
    Mechanism(name="the power limit", without=unlimited),
    Mechanism(name="measured collectives", without=flat_links),
    Mechanism(
        name="memory of frameworks and fp32 gradients",
        without=no_framework,
        words="gradients=bf16",
    ),
    Mechanism(name="interleaved stages", narrow=lambda space: _some(space, "vpp", 1.0)),
    Mechanism(
        name="ZeRO 2 and 3",
        narrow=lambda space: replace(space, stages=np.minimum(space.stages, 2.0)),
    ),
    Mechanism(name="recomputation", narrow=lambda space: _some(space, "recompute", 0.0)),
)
"""In the order of the rungs."""
PUBLISHED, CORRECTED, SPACE = "published", "its code corrected", "our space of plans"
"""The rungs before them."""
EQUATIONS: Mapping[str, Sequence[str]] = described("nersc-2024")["equations"]
"""The plan of the published search in our equations, one part of the time after the other."""
KINDS = ("any", "1d")
"""Whose days are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """One search on every rung."""

    days: Mapping[str, Mapping[str, float]]
    """Rung -> days of the fastest plan of any strategy (any), and of 1d; infinite where none fits."""
    plans: Mapping[str, str]
    """Our plans on the last rung, by the same names."""


def climb(task: OurTask) -> Climb:
    """One search on every rung."""
    corrected = _published(task, Quirks.corrected())
    days = {
        PUBLISHED: {kind: _days(row) for kind, row in _published(task, Quirks()).items()},
        CORRECTED: {kind: _days(row) for kind, row in corrected.items()},
    }
    parts = {kind: _by_parts(task, row) for kind, row in corrected.items()}
    days |= {name: {kind: parts[kind][name] for kind in KINDS} for name in EQUATIONS}
    spaces = spaces_of(task)
    best: Mapping[str, Fastest] = {}
    for done, name in enumerate((SPACE, *(one.name for one in MECHANISMS))):
        best = {one.strategy: one for one in _ours(task, spaces, MECHANISMS[done:])}
        best = {"any": min(best.values(), key=lambda one: one.step_s), **best} if best else {}
        days[name] = {
            kind: days_of(task.model, best[kind].step_s) if kind in best else np.inf
            for kind in KINDS
        }
    return Climb(days=days, plans={k: str(best[k].plan) for k in KINDS if k in best})


def _published(task: OurTask, quirks: Quirks) -> dict[str, Mapping[str, Any] | None]:
    """The fastest plan of the published model, of any strategy and of 1d; None where none fits."""
    found: dict[str, Mapping[str, Any]] = {}
    for strategy in STRATEGIES:
        plans = search(
            model=task.model,
            strategy=strategy,
            chip=task.study_chip,
            fast_domain=task.domain,
            gpus=task.gpus,
            top=1,
            quirks=quirks,
        ).plans
        if plans:
            parts = {n: days_of(task.model, float(str(plans[0][c]))) for n, c in COLUMNS.items()}
            found[strategy] = {**plans[0], "strategy": strategy, "parts": parts}
    return {"any": min(found.values(), key=_days, default=None), "1d": found.get("1d")}


def _days(row: Mapping[str, Any] | None) -> float:
    return np.inf if row is None else sum(row["parts"].values())


def _by_parts(task: OurTask, row: Mapping[str, Any] | None) -> dict[str, float]:
    """Days of a published plan with one more part of its time by our equations, without our mechanisms."""
    if row is None:
        return dict.fromkeys(EQUATIONS, np.inf)
    summa = SUMMA if row["strategy"] == "2d" else ""
    first, second = (row["tp"], 1) if row["strategy"] == "1d" else (row["tp1"], row["tp2"])
    split = f"tp{first * second} tp2={second} {summa}" if summa else f"tp{first} cp{second}"
    words = f"{split} pp{row['pp']} dp{row['dp']} mbs{row['mbs']} zero1 recompute=none"
    scenario, plan = plan_of(scenario_of(task), f"{_words(MECHANISMS)} {words}", ())
    ours = parts_of(task.model, answer_of(_without(scenario, MECHANISMS), plan, chosen=False))
    parts: dict[str, float] = dict(row["parts"])
    found: dict[str, float] = {}
    for name, taken in EQUATIONS.items():
        parts |= {part: ours.get(part, 0.0) for part in taken}
        found[name] = sum(parts.values())
    return found


def _words(missing: Sequence[Mechanism]) -> str:
    """Words of plans without some mechanisms."""
    return " ".join(one.words for one in missing if one.words)


def _without(scenario: Scenario, missing: Sequence[Mechanism]) -> Scenario:
    """The question without some mechanisms."""
    for one in missing:
        scenario = one.without(scenario)
    return scenario


def _ours(
    task: OurTask, spaces: Mapping[str, Space], missing: Sequence[Mechanism]
) -> Iterable[Fastest]:
    """Our search without some mechanisms."""
    asked = scenario = scenario_of(task)
    words = _words(missing)
    narrowed = {}
    for strategy, space in spaces.items():
        grid = SUMMA if strategy == "2d" else ""
        scenario, base = plan_of(asked, f"{words} {grid}".strip() or None, ())
        space = replace(space, plans=replace(space.plans, base=base))
        for one in missing:
            space = one.narrow(space)
        narrowed[strategy] = space
    return fastest_plans(_without(scenario, missing), narrowed).values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The days of one search."""

    task: OurTask
    """The search."""
    kind: str = "any"
    """any, or 1d."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotient:
    """A number that a statement is about: days over days."""

    above: Spot
    """Days."""
    below: Spot | None = None
    """What they are over; None for days as they are."""
    scale: float = 1.0
    """Times this."""

    @property
    def spots(self) -> tuple[Spot, ...]:
        """Every search that it needs."""
        return (self.above,) if self.below is None else (self.above, self.below)

    def ladder(self, climbs: Mapping[OurTask, Climb]) -> Ladder:
        """From the published model to ours."""
        sides = [{n: d[one.kind] for n, d in climbs[one.task].days.items()} for one in self.spots]
        below = sides[-1] if self.below is not None else dict.fromkeys(sides[0], 1.0)
        return ladder_of({n: self.scale * value / below[n] for n, value in sides[0].items()})

    def width(self, climbs: Mapping[OurTask, Climb]) -> float:
        """Upper over lower end of its 90 % interval, what may be wrong with both shared."""
        found = [
            estimate_of(one.task, climbs[one.task].plans.get(one.kind, "")) for one in self.spots
        ]
        above, below = found[0], found[-1] if self.below is not None else None
        if above is None or above.interval is None:
            return 1.0
        low, high = above.interval["p90"]
        if below is not None and below.breakdown is not None:
            assert above.breakdown is not None
            change = interval_of(below.breakdown, above.breakdown)["p90"]
            low, high = (below.step_s + end for end in change)
        return max(high / low, 1.0)
