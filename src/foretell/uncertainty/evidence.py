"""What a number stands on, and how far it may be from the truth.

Every leaf of a time tree has an evidence and, from the residuals of what it stands on, intervals that hold
half and nine tenths of the cases. Families of kernels and communication err independently of each other, so
half-widths add up as squares. A whole step is no surer than its parts, nor than published runs of its kind
were when their source was held out (catalog/spreads.toml): or their software, or their chip, where the
software of a question was never seen on its chip, or its chip with none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from foretell.catalog.spreads import Known, interval_ends, known_of
from foretell.kernels.families.choose import choose
from foretell.kernels.precision import linear_format
from foretell.network.library_catalog import doublings_beyond, evidence_of, inner_tiers
from foretell.records import dataclass
from foretell.specs.chip import Chip
from foretell.specs.plan import Plan
from foretell.specs.result import Evidence, Leaf
from foretell.specs.scenario import Scenario
from foretell.specs.system import System

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
WHOLE_STEP: Spread = (-0.14, -0.02, 0.05, 0.12, 0.30)
"""Of what differs between two steps beyond their kernels and collectives: host, allocator, stragglers,
framework. Residuals of 26 sources of published runs, each counting the same; what is not modelled takes time,
hence the sign."""
UNTRIED: Mapping[str, tuple[float, float]] = {"p50": (-0.08, 0.18), "p90": (-0.22, 0.40)}
"""Of steps on chips of which no run was measured, and whose maker is not the one that most coefficients come
from, whether tables of their products are at hand or not: logarithms of measured over
predicted. Published runs to which nothing was fitted took
1.2 to 1.45 times the prediction on MI250X and MI300X, 0.9 to 1.4 on Trainium (docs/decisions.md)."""
FITTED_MAKER = "NVIDIA"
"""The maker whose chips the tables of kernels are of."""
HOST: Spread = (-0.9, -0.4, 0.0, 0.4, 0.9)
"""Of waiting for the host: one machine was measured, and frameworks differ by a factor of three."""
MUCH = 0.2
"""Share of a step from which what it waits for makes its kind."""
EXCHANGES = (
    "tensor_parallel",
    "context_parallel",
    "expert_parallel",
    "pipeline_parallel",
    "data_parallel",
)
"""Leaves of a step that wait for other ranks."""
OF_SOFTWARE = ("host", "fixed")
"""Leaves of a step that are the software's own."""
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
        """What an operation's family stands on."""
        return self.kernels.get(KERNELS.get(family, "pointwise"), self.kernels["pointwise"])


def grounds_of(
    kernels: Mapping[str, tuple[Evidence, Spread]], system: System, gpus: float = 1.0
) -> Grounds:
    """What the kernels and collectives of a scenario of so many chips stand on."""
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


def kind_of(scenario: Scenario, plan: Plan, step: Leaf) -> str:
    """Kind of a run, by what is known of it before it is run and the tree of its predicted step.

    foreign    products that were measured on other chips alone
    experts    routed experts
    narrow     products in 8 bits or fewer
    host-nodes, host   a fifth of the step or more waits for the host, on several nodes or on one
    waiting    a fifth of it or more waits for exchanges
    plain      none of these
    """
    shares = {child.name: child.value / max(step.value, 1e-30) for child in step.children}
    if not chip_known(scenario.system.chip):
        return "foreign"
    ends = [end for child in step.children for end in child.children if end.value > 0.0]
    if any(end.name == "grouped-gemm" for end in ends):
        return "experts"
    if linear_format(plan):
        return "narrow"
    if shares.get("host", 0.0) >= MUCH:
        tiers = scenario.system.network.tiers
        inner = inner_tiers(tuple(tier.name for tier in tiers))
        room = math.prod(float(tier.size) for tier in tiers[:inner])
        return "host-nodes" if scenario.job.gpus > room else "host"
    return "waiting" if sum(shares.get(name, 0.0) for name in EXCHANGES) >= MUCH else "plain"


@lru_cache(maxsize=256)
def chip_known(chip: Chip) -> bool:
    """Whether products were measured on the chip itself."""
    return not choose(chip, "gemm", "bf16").foreign


@lru_cache(maxsize=256)
def is_untried(chip: Chip) -> bool:
    """Whether no run on the chip was measured, and its maker is not that of the kernel tables."""
    # No family of frameworks has this name: what is left is whether the chip was seen.
    return chip.vendor != FITTED_MAKER and known_of("-", chip.id, (), chip.left_out) == "new"


def whole(step: Leaf, kind: str, scenario: Scenario) -> Leaf:
    """A step of a kind: no surer than its parts and than runs of its kind, of whose software and chip as much
    is known. It is fitted at best, and that only where this software was seen on this chip."""
    found: dict[str, tuple[float, float]] = {}
    low, high = step.value, step.value
    # What is the software's own is in the residuals of runs, and nowhere else.
    of_parts = join_intervals(step.value, [c for c in step.children if c.name not in OF_SOFTWARE])
    sources, chips = scenario.software.left_out, scenario.system.chip.left_out
    known = known_to(scenario)
    if scenario.system.step_spread:
        # Runs on this very system were measured.
        ends = dict(
            zip(("low90", "low50", "high50", "high90"), scenario.system.step_spread, strict=True)
        )
        for level in ("50", "90"):
            low, high = (step.value * math.exp(ends[f"{side}{level}"]) for side in ("low", "high"))
            found[f"p{level}"] = (low, high)
        return replace(step, interval=found, evidence=step_evidence(step, known))
    for key, (below, above) in interval_ends(kind, known, sources, chips).items():
        parts = of_parts[key]
        low = min(low, parts[0], step.value * math.exp(below))
        high = max(high, parts[1], step.value * math.exp(above))
        if is_untried(scenario.system.chip):
            low = min(low, step.value * math.exp(UNTRIED[key][0]))
            high = max(high, step.value * math.exp(UNTRIED[key][1]))
        found[key] = (max(low, 0.0), high)
    return replace(step, interval=found, evidence=step_evidence(step, known))


def step_evidence(step: Leaf, known: Known) -> Evidence:
    """What a step rests on: datasheets where a leaf does, else fitted where runs of this software on this
    chip were seen end to end, and transferred elsewhere."""
    if any(child.evidence == "datasheet" for child in step.children if child.value > 0.0):
        return "datasheet"
    return "fitted" if known == "together" else "transferred"


def known_to(scenario: Scenario) -> Known:
    """What published runs show of a scenario's software on its chip."""
    software, chip = scenario.software, scenario.system.chip
    family = "" if software.unnamed else software.family
    return known_of(family, chip.id, software.left_out, chip.left_out)


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
