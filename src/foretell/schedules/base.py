"""What every pipeline schedule says: how long the slowest rank waits, what it holds, and its order of work.

A rank holds one or more chunks of the model, and a micro-batch passes over them along a route. The work on
one chunk for one micro-batch is a task: forward (F), the backward pass to the inputs (B), to the weights
(W), both at once (D), or a forward pass with a whole backward pass of another micro-batch beside it (P).

Closed forms take times by distinct rank, arrays over (plans, ranks); `Pipe` holds one number per plan. With
t the whole time of a micro-batch on the slowest rank, a step takes

    mu t + bubble - pairs x (what one P saves against F and D one after the other)

Docstrings write f, b, w for forward, backward to inputs and backward to weights, p for ranks, mu for
micro-batches.

1F1B over stages of times t_s (forward and backward of one micro-batch, sends included): the slowest stage
works without pause once the pipeline is full, and the others' first and last micro-batch pass by it:

    T = mu max(t) + (sum(t) - max(t)) / v

For equal stages this is (mu + p - 1) t, exactly; v virtual stages shorten fill and drain by v (Narayanan et
al. 2021). GPipe has the same time and holds all micro-batches.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from foretell.records import dataclass
from foretell.sharding.pipeline import Layout
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index, Mask


def fill_and_drain_s(stage_s: Array, multiplicity: Array, slowest: Index, vpp: Array) -> Array:
    """The bubble seen from the slowest stage; arrays are (plans, stages)."""
    rows = np.arange(len(stage_s))
    around = (stage_s * multiplicity).sum(axis=1) - stage_s[rows, slowest]
    return np.asarray(around / vpp)


Does = Literal["F", "B", "W", "D", "P"]
Place = tuple[int, int]
"""A rank, and a chunk on it."""

WEIGHT_SHARE = 32.0 / 34.0
"""Of what a layer keeps for its backward pass, what the pass to the weights still needs after the one to the
inputs: 32 of 34 s b h bytes (Qi et al. 2024, table 1, scores not kept)."""


class Task(NamedTuple):
    """One piece of work on a rank."""

    does: Does
    """F forward, B backward to inputs, W to weights, D both, P forward beside a whole backward."""
    chunk: int
    """Chunk of the rank."""
    micro_batch: int
    """Micro-batch, counted on its route."""
    other_chunk: int = -1
    """Of a P: the chunk of the backward pass."""
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

    @property
    def columns(self) -> tuple[Array, Array, Array]:
        """Micro-batches, ranks and chunks, to be set against ranks; each (plans, 1)."""
        return self.micro_batches[:, None], self.pp[:, None], self.vpp[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimes:
    """Seconds of one micro-batch on each distinct rank, all its chunks; arrays are (plans, ranks)."""

    whole_s: Array
    """Forward and backward pass, sends and receives included."""
    multiplicity: Array
    """How many ranks are alike; 0 pads."""
    slowest: Index
    """The rank that sets the pace; (plans,)."""
    forward_s: Num = 0.0
    """Forward pass with its half of the sends; 1F1B and interleaving do not ask for it."""
    weight_s: Num = 0.0
    """Backward pass to the weights; only schedules that split the backward pass ask for it."""

    @property
    def input_s(self) -> Array:
        """Backward pass to the inputs, with its half of the sends."""
        return np.asarray(self.whole_s - self.forward_s - self.weight_s)

    def own(self, values: Num) -> Array:
        """A quantity of the slowest rank; (plans,)."""
        wide = np.broadcast_to(values, self.whole_s.shape)
        return np.asarray(wide[np.arange(len(wide)), self.slowest])

    def others(self, values: Num) -> Array:
        """Its sum over all ranks but the slowest; (plans,)."""
        return np.asarray((values * self.multiplicity).sum(axis=1) - self.own(values))

    def typical(self, values: Num) -> Array:
        """Its mean over all ranks but the slowest; (plans,)."""
        return np.asarray(
            self.others(values) / np.maximum(self.multiplicity.sum(axis=1) - 1.0, 1.0)
        )

    def largest(self, values: Num) -> Array:
        """Its largest over the ranks; (plans,)."""
        return np.asarray(np.where(self.multiplicity > 0, values, -np.inf).max(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRule:
    """A condition on the pipeline's sizes."""

    holds: Callable[[Pipe], Mask]
    """Where it is satisfied."""
    says: str
    """What is asked for."""


def no_pairs(pipe: Pipe) -> Array:
    """Nothing runs side by side."""
    return np.zeros_like(pipe.micro_batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A pipeline schedule, in closed form for a batch of plans and as an order of tasks for one."""

    name: str
    """Its word in a plan's text."""
    layout: Layout
    """Which chunks are on a rank."""
    bubble_s: Callable[[RankTimes, Pipe], Array]
    """Waiting of the slowest rank where all ranks begin a step together; (plans,)."""
    apart_s: Callable[[RankTimes, Pipe], Array]
    """Waiting of the slowest rank where each begins the next step when it is done: no norm over all
    gradients, or one that is checked afterwards (Qi et al. 2024, section 4)."""
    in_flight: Callable[[Pipe, Array], Array]
    """Micro-batches (in units of the whole rank) held at the peak, by position; (plans, ranks)."""
    tasks: Callable[[int, int, int, int], list[Task]]
    """Order of work of one rank: of (rank, pp, vpp, micro_batches)."""
    rules: tuple[ScheduleRule, ...]
    """What the sizes must satisfy."""
    pairs: Callable[[Pipe], Array] = no_pairs
    """Micro-batches of the step whose forward pass runs beside a backward pass; (plans,)."""
    weight_copies: float = 1.0
    """Copies of the model's weights on the ranks of one pipeline."""
    splits_backward: bool = False
    """Whether the backward pass to the weights runs apart, so that `RankTimes.weight_s` is asked for."""
    scores_wait: bool = False
    """Whether the head's scores of all micro-batches in flight are held, not of one alone."""
    host_waits: bool = False
    """Whether the host waits for the chip at every send: Megatron-LM synchronises the device after a batch of
    sends where it does not interleave (`batch_p2p_sync`)."""
    sends_beside: bool = False
    """Whether sends run beside the passes. Megatron-LM does so with interleaving too (`overlap_p2p_comm`),
    but published interleaved runs are met with sends that are waited for (5 % too fast without)."""

    def allows(self, pipe: Pipe) -> Mask:
        """Plans whose sizes satisfy every rule; (plans,)."""
        return np.asarray(np.logical_and.reduce([rule.holds(pipe) for rule in self.rules]))


def routes(layout: Layout, pp: int, vpp: int) -> tuple[tuple[Place, ...], ...]:
    """The places that micro-batches pass over, for each direction that there is."""
    down = tuple((rank, 0) for rank in range(pp))
    up = tuple((rank, 1) for rank in reversed(range(pp)))
    if layout == "both":
        return down, up
    if layout == "v":
        return (down + up,)
    return (tuple((rank, chunk) for chunk in range(vpp) for rank in range(pp)),)


def largest_form(
    forms: tuple[tuple[int, ...], ...], n: Array, f: Array, b: Array, w: Array
) -> Array:
    """max over forms of (f0 + f1 n) f + (b0 + b1 n) b + (w0 + w1 n) w; a form is its six numbers."""
    sums = [
        (f0 + f1 * n) * f + (b0 + b1 * n) * b + (w0 + w1 * n) * w
        for f0, f1, b0, b1, w0, w1 in forms
    ]
    return np.asarray(np.maximum.reduce(sums))


ONE_CHUNK = ScheduleRule(holds=lambda pipe: pipe.vpp == 1, says="one chunk on each rank: vpp1")
