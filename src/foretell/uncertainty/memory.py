"""How far the peak of memory may be from the truth, and how probable it is that a plan fits.

What the allocator reserves is no surer than its parts, nor than the peaks that frameworks print were with
their source left out (catalog/memory_spreads.toml); the framework's own share stands beside it.

    weights, gradients, states   arithmetic: known
    activations, buffers         what layers keep, and what stands beside it at the worst moment
    allocator                    anything from nothing to twice the share that is said
    gathered                     inputs that sequence parallelism gathered, where a version or an option of a
                                 framework keeps them (specs/software.py): above, never below
    framework                    driver context and communicators, which nobody prints

Parts err independently of each other, so that their half-widths add up as squares. All of it is arithmetic
on arrays: one plan is a batch of one.
"""

import math
from collections.abc import Mapping
from functools import lru_cache, partial
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.spreads import memory_ends
from foretell.kernels.memory import kept_bytes
from foretell.kernels.precision import kept_width
from foretell.sharding.tensor import tensor_parallel
from foretell.specs._base import Num
from foretell.specs.model import Model
from foretell.specs.plan import Plan, activation_bytes
from foretell.specs.plan_forms import recompute_layers
from foretell.specs.result import Leaf
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software
from foretell.workload.build import build
from foretell.workload.roles import SavedRole

Array = NDArray[np.float64]
Ends = dict[str, tuple[float, float]]

BELOW: Mapping[str, Mapping[str, float]] = {
    "p50": {"activations": 0.04, "buffers": 0.2, "allocator": 0.4, "framework": 0.2},
    "p90": {"activations": 0.10, "buffers": 0.5, "allocator": 1.0, "framework": 0.5},
}
"""Of each part, what half and nine tenths of the cases are at most below it, as a share of it; judged. Bytes
that layers keep are met to a part in a thousand on one H200 and to 3 % on B200; scores and messages seldom
stand all at one moment; 30 runs on B200 reserve 3 to 7 % beyond their tensors where 5 are said."""
ABOVE: Mapping[str, Mapping[str, float]] = {
    "p50": {**BELOW["p50"], "buffers": 0.1, "gathered": 0.3},
    "p90": {**BELOW["p90"], "buffers": 0.3, "gathered": 1.0},
}
"""The same above it."""
Z = {"p50": 0.6744897501960817, "p90": 1.6448536269514722}
"""Standard deviations of a normal error to either end."""


def held_parts(tree: Leaf) -> dict[str, float]:
    """Bytes of one stage by the names of its parts, those of `lost` among them."""
    ends = [leaf for child in tree.children for leaf in (child.children or (child,))]
    return {leaf.name: leaf.value for leaf in ends}


def peak_ends(
    held: Mapping[str, Num], gathered: Num = 0.0, left_out: tuple[str, ...] = ()
) -> dict[str, tuple[Array, Array]]:
    """Where the sum of some parts lies in half and in nine tenths of the cases, around what is predicted.

    Parts that a measurement does not count are left out of `held`; `gathered` bytes come besides, if ever.
    """
    own = np.asarray(held.get("framework", 0.0), dtype=np.float64)
    total = np.asarray(sum(held.values()), dtype=np.float64)
    reserved = total - own
    doubtful = {**held, "gathered": gathered}
    found: dict[str, tuple[Array, Array]] = {}
    low, high = total, total
    for key, (less, more) in memory_ends(left_out).items():
        below = above = np.zeros_like(total)
        for name, value in doubtful.items():
            below = np.hypot(below, BELOW[key].get(name, 0.0) * np.asarray(value))
            above = np.hypot(above, ABOVE[key].get(name, 0.0) * np.asarray(value))
        low = np.minimum(low, np.minimum(total - below, own + reserved * math.exp(less)))
        high = np.maximum(high, np.maximum(total + above, own + reserved * math.exp(more)))
        found[key] = (np.maximum(low, 0.0), high)
    return found


def gathered_bytes(scenario: Scenario, plan: Plan, activations: Num) -> Num:
    """What gathered inputs would add to the activations of a plan, were they kept; 0 where none can be."""
    software, seq_len = scenario.software, scenario.job.seq_len
    known = software.gathered_kept and plan.sp
    if not known or plan.recompute == "full" or recompute_layers(plan.recompute):
        return 0.0
    return activations * _gathered_share(
        scenario.model, seq_len, software, plan.tp, plan.flash, plan.fused
    )


@lru_cache(maxsize=256)
def _gathered_share(
    model: Model, seq_len: int, software: Software, tp: int, flash: bool, fused: bool
) -> float:
    """Whole inputs of the regions, less this rank's part of them, over what its layers keep."""
    base = Plan(flash=flash, fused=fused)
    graph = build(model, batch=1.0, seq_len=float(seq_len), flash=flash)
    counts = np.bincount(np.asarray(graph.order), minlength=len(graph.kinds))
    width = partial(kept_width, plan=base, software=software)
    element = activation_bytes(base)
    kept = more = 0.0
    for count, kind in zip(counts.tolist(), graph.kinds, strict=True):
        rank = tensor_parallel(kind, float(tp), 1.0)
        kept += count * float(kept_bytes(rank, float(tp), width, element).whole)
        inputs = sum(float(s.elements) for s in rank.saved if s.role is SavedRole.ENTRY)
        more += count * element * (tp - 1.0) * inputs
    return more / max(kept, 1.0)


def peak_interval(scenario: Scenario, plan: Plan, held: Mapping[str, float]) -> Ends:
    """p50 and p90 of the sum of a stage's parts, each (low, high); bytes."""
    gathered = gathered_bytes(scenario, plan, held["activations"])
    ends = peak_ends(held, gathered, scenario.software.left_out)
    return {key: (float(low), float(high)) for key, (low, high) in ends.items()}


def fit_probability(peak_bytes: float, ends: Ends, capacity_bytes: float) -> float:
    """How probable it is that a peak with such an interval is within the capacity.

    ln(peak) is taken as normal piece by piece, each interval's end as far out as its level says, and beyond
    the last as the last piece goes on: so that it falls with the peak and rises with the capacity.
    """
    if capacity_bytes <= 0.0 or peak_bytes <= 0.0:
        return float(peak_bytes <= capacity_bytes)
    below = [(math.log(max(ends[key][0], 1e-3 * peak_bytes)), -Z[key]) for key in ("p90", "p50")]
    above = [(math.log(ends[key][1]), Z[key]) for key in ("p50", "p90")]
    points = [*below, (math.log(peak_bytes), 0.0), *above]
    at = math.log(capacity_bytes)
    # The piece that holds the capacity, or the outermost one; ends that meet leave no piece.
    pieces = [pair for pair in pairwise(points) if pair[1][0] > pair[0][0]]
    if not pieces:
        return float(peak_bytes <= capacity_bytes)
    (x0, z0), (x1, z1) = next((pair for pair in pieces if at <= pair[1][0]), pieces[-1])
    return NormalDist().cdf(z0 + (at - x0) * (z1 - z0) / (x1 - x0))
