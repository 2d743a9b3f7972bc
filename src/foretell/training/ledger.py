"""The ledger of a step: seconds and bytes of every leaf, for a batch of plans; totals are sums of its leaves.

    step time      seconds.total of the slowest stage, its bubble, and what a step takes beside its work
    peak memory    memory.total of the fullest stage
    energy         base watts of all chips as long as the step, and the joules of what they do (totals.py)

The passes are one leaf here, since a batch needs no more; leaves.py takes those of a single plan apart by op
family, host and exchange, and breakdown.py draws the tree of them.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from foretell.kernels.memory import HeldBytes, StageMemory
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeconds:
    """Seconds of one rank of each stage in a step, all micro-batches; arrays are (plans, stages)."""

    passes: Array
    """Passes of all micro-batches, with their sends and the sums of their gradients."""
    data_parallel: Array
    """Exposed data-parallel communication."""
    optimizer: Array
    """Optimizer update."""
    hidden: Array | None = None
    """Less what exchanges of a forward beside a backward pass hide, so negative, or what shows of them where
    passes are alone; None where none run so."""
    offload: Array | None = None
    """Copies to and from the host that nothing hides; None where nothing is offloaded."""

    @property
    def total(self) -> Array:
        """What the stage is busy, in the order of the leaves."""
        found = self.passes
        for leaf in fields(self)[1:]:
            seconds = getattr(self, leaf.name)
            found = found if seconds is None else found + seconds
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A chunk of plans, fully evaluated; arrays are (plans, stages) unless stated otherwise."""

    micro_batches: Array
    """Micro-batches per step and replica; (plans,)."""
    counts: Array
    """Parts on each stage, by (pp, vpp); (pairs, stages, parts)."""
    pair: Index
    """(pp, vpp) of each plan; (plans,)."""
    multiplicity: Array
    """How many stages are alike; 0 pads."""
    position: Array
    """Index of the first of them."""
    send_s: Array
    """Sends and receives of one micro-batch; (plans, 1)."""
    sums_s: Array
    """Adding one micro-batch's gradients to the sum."""
    clock: Array
    """Clock that the step holds; (plans,)."""
    core_fall: Array
    """Factor on the cores' joules at that clock; (plans,)."""
    seconds: StageSeconds
    """What a stage is busy with."""
    busy_s: Array
    """The sum of these; 0 where there is no such stage."""
    memory: StageMemory
    """What a stage holds."""
    slowest: Index
    """The stage that sets the pace; (plans,)."""
    bubble_s: Array
    """Its waiting for the others; (plans,)."""
    fixed_s: Num
    """What a step takes beside its work; (plans,) where it differs."""
    fullest: Index
    """The stage that holds most; (plans,)."""
    held: HeldBytes
    """What the process holds there, and the most that tensors and the allocator take on any; (plans,)."""

    @property
    def peak_bytes(self) -> Array:
        """What the process holds on the fullest stage; (plans,)."""
        return np.asarray(self.held.peak_bytes)

    @property
    def step_s(self) -> Array:
        """Time of the step: leaves of the slowest stage, its waiting, what is beside the work; (plans,)."""
        busy_s = self.busy_s[np.arange(len(self.slowest)), self.slowest]
        return np.asarray(busy_s + self.bubble_s + self.fixed_s)

    @property
    def waits_s(self) -> Array:
        """What each stage waits for the others, so that all are done together; the slowest its bubble."""
        # Not below zero, as rounding might have it.
        return np.asarray(np.maximum((self.step_s - self.fixed_s)[:, None] - self.busy_s, 0.0))

    def row(self, place: int) -> "Ledger":
        """The ledger of one of the plans."""
        names = {f.name for f in fields(self)} - {"counts", "fixed_s"}
        own: dict[str, Any] = {name: _row(getattr(self, name), place) for name in names}
        return replace(self, **own)


def _row(value: Any, place: int) -> Any:
    """One row of an array, or of every array of a record."""
    if isinstance(value, StageSeconds | StageMemory | HeldBytes):
        own: dict[str, Any] = {f.name: _row(getattr(value, f.name), place) for f in fields(value)}
        return replace(value, **own)
    return value[place : place + 1] if isinstance(value, np.ndarray) else value
