"""What a number stands on, and how far it may be from the truth.

Every leaf of a time tree has an evidence and, from the residuals of what it stands on, intervals that hold
half and nine tenths of the cases. Families of kernels and communication err independently of each other, so
half-widths add up as squares; a whole step has, besides, what end-to-end runs showed beyond their kernels.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foretell.network.library_catalog import evidence_of
from foretell.specs.result import Evidence, Leaf
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
"""Of a step beyond its kernels and collectives: host, allocator, stragglers, framework. Residuals of 26
sources of published runs, each counting the same; what is not modelled takes time, hence the sign."""
HOST: Spread = (-0.9, -0.4, 0.0, 0.4, 0.9)
"""Of waiting for the host: one machine was measured, and frameworks differ by a factor of three."""
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


def grounds_of(kernels: Mapping[str, tuple[Evidence, Spread]], system: System) -> Grounds:
    """What the kernels and collectives of a scenario stand on."""
    found = evidence_of(system)
    return Grounds(kernels=kernels, collectives=(found, FABRIC[found]))


def leaf(name: str, value: float, grounds: tuple[Evidence, Spread], joules: float | None) -> Leaf:
    """A leaf with its evidence and interval."""
    evidence, spread = grounds
    low90, low50, _, high50, high90 = (value * math.exp(q) for q in spread)
    interval = {"p50": (low50, high50), "p90": (low90, high90)}
    return Leaf(
        name=name, value=value, unit="s", evidence=evidence, joules=joules, interval=interval
    )


def node(name: str, children: Sequence[Leaf], value: float | None = None) -> Leaf:
    """Leaves together: the weakest evidence, intervals by squares, joules summed."""
    total = sum(child.value for child in children) if value is None else value
    some = [child for child in children if child.value > 0.0]
    weakest = ORDER[max((ORDER.index(c.evidence or "datasheet") for c in some), default=0)]
    known = [child.joules for child in children]
    return Leaf(
        name=name,
        value=total,
        unit="s",
        evidence=weakest,
        joules=None if any(j is None for j in known) else sum(j or 0.0 for j in known),
        interval=_together(total, some),
        children=tuple(children),
    )


def whole(step: Leaf) -> Leaf:
    """A step with what end-to-end runs showed beyond their kernels."""
    rest = leaf("rest", step.value, ("fitted", WHOLE_STEP), None)
    return replace(step, interval=_together(step.value, [step, rest]))


def _together(value: float, parts: Sequence[Leaf]) -> dict[str, tuple[float, float]]:
    """Intervals of a sum of independent parts, on each side of their values."""
    found = {}
    for key in ("p50", "p90"):
        ends = [(p.value, *p.interval[key]) for p in parts if p.interval is not None]
        below = math.sqrt(sum(max(v - low, 0.0) ** 2 for v, low, _ in ends))
        above = math.sqrt(sum(max(high - v, 0.0) ** 2 for v, _, high in ends))
        found[key] = (max(value - below, 0.0), value + above)
    return found
