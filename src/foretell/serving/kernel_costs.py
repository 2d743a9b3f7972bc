"""What operations take: seconds and joules, under the usual power limit and under another one."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.names import exists
from foretell.kernels.families.base import DTYPES
from foretell.kernels.power import ChipPower, chip_power, clock_of
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.workload.ops import AttentionCore, Op

FUSED_CAST = 0.5
"""Share of the cast's traffic that is left where half of the casts ride on norms and activations."""


UNTUNED = ("trtllm",)
"""Software whose tables of 4-bit products were taken with one tactic for all sizes."""


SPLIT_S = 9e-6
"""Most that joining the parts of a split product takes an engine, which tries tactics until one serves;
tables of nvfp4 have none that splits (22 us at k 8192 whatever n)."""


NARROW_MEMORY = 0.75
"""Share of the bandwidth that such tactics reach at least."""


NARROW_COMPUTE = 0.65
"""Share of the peak of 4 bits that an engine's tactics reach at least. Tables have 0.54 to 0.57, 1.5 times
the rate in 8 bits; cuBLAS 12.9 reaches up to 2.3 times (developer.nvidia.com/blog/boosting-matrix-
multiplication-speed-and-flexibility-with-nvidia-cublas-12-9), and with 0.65 prompts of Llama-3.1-70B in 4 and
in 8 bits are as far off as each other, under TensorRT-LLM and under vLLM."""
PASSES: dict[str, tuple[float, float]] = {
    "norm": (1.5, 1.0),
    "residual": (0.5, 0.0),
    "act": (1.0, 1.0),
    "rotate": (1.5, 1.0),
    "scaled-rotate": (1.5, 1.0),
    "embedding": (1.0, 1.0),
    "routing": (1.0, 1.0),
    "other": (1.0, 1.0),
}
"""Kind of a pass over memory -> traffic over the least, and launches of one such pass: engines add the
residual in the norm's kernel, and write the cache in that of the rotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCost:
    """What operations take on one rank of a chip with its usual power limit; (points,)."""

    seconds: Array
    """Time."""
    joules: Array
    """Beyond those of a chip that waits; no more than the limit gives in the time."""
    clocked_s: Array
    """What of the time stretches when the clock falls."""
    core_joules: Array
    """What the cores would spend without a limit."""
    memory_joules: Array
    """What the device memory spends."""

    def __add__(self, other: "KernelCost") -> "KernelCost":
        return KernelCost(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    def times(self, many: Num) -> "KernelCost":
        """As often."""
        return KernelCost(**{f.name: getattr(self, f.name) * many for f in fields(self)})

    def or_faster(self, other: "KernelCost") -> "KernelCost":
        """At each point the one that takes less time."""
        better = other.seconds < self.seconds
        return KernelCost(
            **{
                f.name: np.where(better, getattr(other, f.name), getattr(self, f.name))
                for f in fields(self)
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimitedCost:
    """The same under the chip's own power limit."""

    seconds: Array
    """Time."""
    joules: Array
    """Beyond those of a chip that waits."""


def nothing(width: int) -> KernelCost:
    """No operations at so many points."""
    none = np.zeros(width)
    return KernelCost(
        seconds=none, joules=none, clocked_s=none, core_joules=none, memory_joules=none
    )


def limit_power(cost: KernelCost, waiting_s: Num, power: ChipPower) -> tuple[Array, Array]:
    """Seconds and joules of operations under a limit, from those at the clock of short bursts."""
    clocked, still = cost.clocked_s, cost.seconds - cost.clocked_s
    clock, fall = clock_of(still + waiting_s, clocked, cost.core_joules, cost.memory_joules, power)
    seconds, spent = still + clocked / clock, cost.core_joules * fall + cost.memory_joules
    # At the least clock a chip may still want too much: it then pauses between kernels.
    spare = np.maximum(np.asarray(power.limit_watts - power.base_watts), 1e-9)
    pause = np.maximum(1.0, spent / np.maximum(spare * (seconds + waiting_s), 1e-30))
    return np.asarray(seconds * pause), np.asarray(spent)


def usual_chip(chip: Chip) -> Chip:
    """The chip with the power limit that the catalogue has of it; one that it has not is as it is."""
    if not exists(chip.id, ("chip",)):
        return chip
    return replace(chip, tdp_watts=catalogue_chip(chip.id).tdp_watts)


def usual_power(chip: Chip) -> ChipPower:
    """Watts and joules of the chip under its usual limit."""
    return chip_power(usual_chip(chip))


def narrow_product(dtype: str, record: Any, plain: Any, untuned: bool) -> Any:
    """Products of a narrow format in a step: launched as those of 16 bits are.

    Tables of narrow formats launch the cast by itself (12 to 14 us in fp8), and some of 4 bits try no
    tactics; engines fuse casts into what comes before, and replay the best tactic from a graph.
    """
    changed = {
        "launch_s": np.minimum(record.launch_s, plain.launch_s),
        "quantise": FUSED_CAST * record.quantise,
    }
    if DTYPES[dtype].peak == "fp4":
        changed["compute"] = np.maximum(record.compute, NARROW_COMPUTE)
    if DTYPES[dtype].peak == "fp4" and untuned:
        changed["step_s"] = np.minimum(record.step_s, plain.step_s)
        changed["split_s"] = np.minimum(record.split_s, SPLIT_S)
        changed["memory"] = np.maximum(record.memory, NARROW_MEMORY)
    return replace(record, **changed)


def is_latent(op: Op) -> bool:
    """Whether keys and values are of different widths: latent attention in either form."""
    return isinstance(op, AttentionCore) and op.qk_dim != op.v_dim and op.v_dim > 0.0
