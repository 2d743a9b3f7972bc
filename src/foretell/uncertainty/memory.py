"""How far the memory of a step may be from the truth, and how probable it is that a plan fits.

Two numbers, two intervals: what tensors take, which is arithmetic and narrow, and what the process holds,
which the allocator makes wide. The logarithm of measured over predicted is a source's own part and a row's,
both of Student's t with 4 degrees of freedom; their scales (catalog/memory_errors.toml) are small where this
project has measured the software itself on one chip, and larger elsewhere.

A process takes more than it needs where there is room: of the free share of a chip, `room_shift` is expected
on top of what is reserved, and `room_scale` widens the interval. Whether a plan fits is asked at a full chip,
where neither counts. All of it is arithmetic on arrays: one plan is a batch of one.
"""

import math
from dataclasses import fields

import numpy as np

from foretell.catalog.memory_errors import LogError, MemoryErrors, memory_errors
from foretell.kernels.memory import HeldBytes
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario

Ends = dict[str, tuple[float, float]]
"""p50 and p90, each (low, high)."""

QUANTILES = {"p50": 0.7406970841, "p90": 2.1318467863}
"""Of Student's t with 4 degrees of freedom, to either end."""


def _errors_of(scenario: Scenario, plan: Plan) -> MemoryErrors:
    return memory_errors(scenario.software.id, scenario.job.gpus, plan.weights)


def scale_of(error: LogError) -> float:
    """Spread of the logarithm for a source that was never seen: its own part and a row's."""
    return math.hypot(error.source_scale, error.row_scale)


def held_intervals(
    scenario: Scenario, plan: Plan, held: HeldBytes, capacity_bytes: float
) -> dict[str, Ends]:
    """p50 and p90 of what tensors, the allocator and the process take, by the names of the outputs; bytes."""
    errors = _errors_of(scenario, plan)
    allocated, reserved_bytes, peak = (_number(getattr(held, f.name)) for f in fields(HeldBytes))
    own, room = peak - reserved_bytes, min(max(1.0 - peak / capacity_bytes, 0.0), 1.0)
    wide = scale_of(errors.held) * (1.0 + errors.held.room_scale * room)
    reserved = _ends(reserved_bytes, wide, errors.held.room_shift * room)
    return {
        "allocated_bytes": _ends(allocated, scale_of(errors.allocated)),
        "reserved_bytes": reserved,
        "peak_memory_bytes": {
            key: (own + low, own + high) for key, (low, high) in reserved.items()
        },
    }


def _number(value: Num) -> float:
    return float(np.ravel(value)[0])


def _ends(value: float, scale: float, shift: float = 0.0) -> Ends:
    """Ends around a number whose logarithm errs by so much, and holds it."""
    return {
        key: (value * math.exp(min(shift - q * scale, 0.0)), value * math.exp(shift + q * scale))
        for key, q in QUANTILES.items()
    }


def fit_probability(scenario: Scenario, plan: Plan, held: HeldBytes, capacity_bytes: Num) -> Array:
    """How probable it is that what the process needs is within the capacity: one half where what it is
    predicted to hold just fits."""
    errors = _errors_of(scenario, plan)
    own = np.asarray(held.peak_bytes) - np.asarray(held.reserved_bytes)
    room = np.maximum(np.asarray(capacity_bytes) - own, 1.0)
    return t_share(np.log(room / np.maximum(held.reserved_bytes, 1.0)) / scale_of(errors.held))


def probability_by_ends(peak_bytes: float, ends: Ends, capacity_bytes: float) -> float:
    """How probable it is that a peak with such an interval is within the capacity."""
    low, high = ends["p90"]
    scale = math.log(high / low) / (2.0 * QUANTILES["p90"]) if high > low > 0.0 else 0.0
    if scale == 0.0 or peak_bytes <= 0.0 or capacity_bytes <= 0.0:
        return float(peak_bytes <= capacity_bytes)
    return float(t_share(np.asarray(math.log(capacity_bytes / peak_bytes) / scale)))


def t_share(x: Array) -> Array:
    """Share of Student's t with 4 degrees of freedom below x."""
    y = 1.0 + 0.25 * np.square(x)
    return np.asarray(0.5 + 0.375 * x / np.sqrt(y) * (1.0 - np.square(x) / (12.0 * y)))
