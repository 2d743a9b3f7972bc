"""What every pipeline schedule says: how long the slowest rank waits, what it holds, and its order of work.

A rank holds one or more chunks of the model, and a micro-batch passes over them along a route. The work on
one chunk for one micro-batch is a task: forward (F), the backward pass to the inputs (B), to the weights
(W), both at once (D), or a forward pass and a whole backward pass of another micro-batch side by side (P).

Times in closed form are by distinct rank, arrays over (plans, ranks); `Pipe` holds one number per plan.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
Does = Literal["F", "B", "W", "D", "P"]
Layout = Literal["loop", "v", "both"]
"""Which chunks stand on a rank: every pp-th, the two arms of a V, or a stage of each of two directions."""

WEIGHT_SHARE = 32.0 / 34.0
"""Of what a layer keeps for its backward pass, what the pass to the weights still needs when the one to the
inputs is done: 32 of 34 s b h bytes (Qi et al. 2024, table 1, without the scores)."""


class Task(NamedTuple):
    """One piece of work on a rank."""

    does: Does
    """F forward, B backward to inputs, W to weights, D both, P forward beside a whole backward."""
    chunk: int
    """Chunk of the rank."""
    micro_batch: int
    """Micro-batch, counted on its route."""
    other_chunk: int = -1
    """Of a P: the chunk whose backward pass runs beside the forward pass."""
    other_micro_batch: int = -1
    """Of a P: its micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """Sizes of the pipeline of each plan; arrays are (plans,)."""

    micro_batches: Array
    """Micro-batches per step."""
    pp: Array
    """Ranks."""
    vpp: Array
    """Chunks on a rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimes:
    """Seconds of one micro-batch on each distinct rank, all its chunks; arrays are (plans, ranks)."""

    whole_s: Array
    """Forward and backward pass, sends and receives included."""
    forward_s: Array
    """Forward pass with its half of the sends."""
    weight_s: Array
    """Backward pass to the weights: what may wait."""
    saved_s: Array
    """What a forward pass saves when it runs beside a backward pass."""
    multiplicity: Array
    """How many ranks are alike; 0 pads."""
    slowest: Index
    """The rank that sets the pace; (plans,)."""

    @property
    def input_s(self) -> Array:
        """Backward pass to the inputs with its half of the sends."""
        return self.whole_s - self.forward_s - self.weight_s

    def own(self, values: Array) -> Array:
        """A quantity of the slowest rank; (plans,)."""
        return values[np.arange(len(values)), self.slowest]

    def others(self, values: Array) -> Array:
        """Its sum over all ranks but the slowest; (plans,)."""
        return np.asarray((values * self.multiplicity).sum(axis=1) - self.own(values))

    def largest(self, values: Array) -> Array:
        """Its largest over the ranks; (plans,)."""
        return np.asarray(np.where(self.multiplicity > 0, values, -np.inf).max(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRule:
    """A condition on the pipeline's sizes."""

    holds: Callable[[Pipe], Mask]
    """Where it is satisfied."""
    says: str
    """What is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A pipeline schedule, in closed form for a batch of plans and as an order of tasks for one."""

    name: str
    """Its word in a plan's text."""
    layout: Layout
    """Which chunks stand on a rank."""
    weight_copies: float
    """Copies of the model's weights that all ranks hold together."""
    splits_backward: bool
    """Whether it runs the backward pass to inputs and to weights apart."""
    bubble_s: Callable[[RankTimes, Pipe], Array]
    """Waiting of the slowest rank in a step; (plans,)."""
    in_flight: Callable[[Pipe, Array], Array]
    """Micro-batches (in units of the whole rank) held at the peak, by position; (plans, ranks)."""
    tasks: Callable[[int, int, int, int], list[Task]]
    """Order of work of one rank: of (rank, pp, vpp, micro_batches)."""
    rules: tuple[ScheduleRule, ...]
    """What the sizes must satisfy."""


def routes(layout: Layout, pp: int, vpp: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The (rank, chunk) places that micro-batches pass over, for each direction there is."""
    down = tuple((rank, 0) for rank in range(pp))
    if layout == "both":
        return down, tuple((rank, 1) for rank in reversed(range(pp)))
    if layout == "v":
        return (down + tuple((rank, 1) for rank in reversed(range(pp))),)
    return (tuple((rank, chunk) for chunk in range(vpp) for rank in range(pp)),)


ONE_CHUNK = ScheduleRule(holds=lambda p: p.vpp == 1, says="one chunk on each rank: vpp1")
EACH_ONCE = ScheduleRule(
    holds=lambda p: p.micro_batches >= 1, says="at least one micro-batch"
)
