"""Pipeline parallelism: which layers are on which stage, as counts per layer kind.

L layers are dealt to pp x vpp chunks as evenly as possible; where they do not divide, the outer chunks,
which also hold embedding and head, get the fewer (126 layers on 16 stages: 7, 14 x 8, 7, as Llama 3.1
405B was trained). Chunk j is on stage j mod pp; schedules with another layout put them elsewhere.
A plan's word layout= says the layers of every chunk instead, where it is of these chunks.
Stages of equal content are one row with a multiplicity, so that no array is ragged.

Frameworks that deal by cost (nanotron) count the head as so many layers: a stage takes layers until the sum
passes its share of the whole, and the last stage may be left with the head alone.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.specs.plan_forms import even_sizes

Layout = Literal["loop", "v", "both"]
"""Chunks of a rank: every pp-th; one on each arm of a V (0 and 2 pp - 1 on the first rank); or, for micro-
batches from both ends, stage r for one half of them and stage pp - 1 - r for the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTable:
    """Distinct stages of each (pp, vpp): axes are (pairs, stages, parts)."""

    counts: Array
    """Parts on a stage: each layer kind, then embedding, then head; (pairs, stages, kinds + 2)."""
    multiplicity: Array
    """How many stages are like this one; 0 pads; (pairs, stages)."""
    position: Array
    """Index of the first stage of its kind; (pairs, stages)."""
    layers: Array
    """Layers on the stage; (pairs, stages)."""
    waiting: Array
    """Of a stage's time, what it waits for longer chunks of other stages; (pairs,)."""

    @property
    def distinct(self) -> NDArray[np.int64]:
        """Distinct stages of each pair; they are first."""
        return np.asarray((self.multiplicity > 0).sum(axis=1))

    def trim(self, width: int) -> "StageTable":
        """The table with its first `width` stages."""
        return StageTable(
            counts=self.counts[:, :width],
            multiplicity=self.multiplicity[:, :width],
            position=self.position[:, :width],
            layers=self.layers[:, :width],
            waiting=self.waiting,
        )


def chunk_sizes(layers: int, chunks: int) -> NDArray[np.int64]:
    """Layers in each chunk: even, the remainder to the inner chunks first."""
    return np.asarray(even_sizes(layers, chunks), dtype=np.int64)


def sizes_by_cost(layers: int, chunks: int, head: float) -> NDArray[np.int64]:
    """Layers in each chunk where the head costs as much as `head` layers.

    A chunk takes layer after layer until the sum so far is above its share of layers and head; what passes
    the end of a chunk still belongs to it (nanotron, models/base.py: thresholds of cumulative costs).
    """
    shares = (layers + head) * (np.arange(chunks) + 1.0) / chunks
    sizes = np.zeros(chunks, dtype=np.int64)
    chunk = 0
    for before in range(layers):
        sizes[chunk] += 1
        chunk = min(chunk + int(before + 1.0 > shares[chunk]), chunks - 1)
    return sizes


def sizes_of(
    layers: int, pp: int, vpp: int, layout: Layout, head: float, told: tuple[int, ...] = ()
) -> NDArray[np.int64]:
    """Layers in each chunk, first to last: as a plan's layout tells them where it is of this many chunks and
    layers, by cost where a head's is given and each rank has one chunk, else even."""
    if len(told) == pp * vpp and sum(told) == layers:
        return np.asarray(told, dtype=np.int64)
    if head > 0.0 and vpp == 1 and layout == "loop":
        return sizes_by_cost(layers, pp, head)
    return chunk_sizes(layers, pp * vpp)


def told_sizes(
    layers: int, chunks: int, layout: Layout, told: tuple[int, ...], tail: int, ahead: int = 0
) -> tuple[int, ...]:
    """The layout that a plan tells; else, of blocks behind the last layer that count as `tail` layers, the
    even one with these; empty where even sizes do. `ahead` are layers of towers, which the first chunk has
    besides."""
    even = told or not (tail or ahead) or (layout == "both" and not ahead)
    sizes = told if even else even_sizes(layers - ahead, chunks, tail)
    return (sizes[0] + ahead, *sizes[1:]) if ahead else sizes


WAITED = 0.5
"""Of what unequal chunks would wait in lockstep, what they do: ranks run ahead of each other by a few tasks.
From playing uneven chunks: with it the step is right to 3 % on average (tests/simulation/test_uneven.py)."""
BACKWARD = 2.0
"""Backward over forward time of a layer, where only layers are counted."""


@lru_cache(maxsize=4096)
def chunk_waiting(
    layers: int, pp: int, vpp: int, layout: Layout = "loop", told: tuple[int, ...] = ()
) -> float:
    """How much longer a round of unequal chunks takes than the fullest stage works, as a share.

    In the steady state rank s runs, turn by turn, a forward pass of one chunk and a backward pass of another
    (schedules/orders/interleaved.py says which). In lockstep a turn takes as long as the slowest rank's;
    here pp turns do, as long as a rank stays with one chunk, and ranks wait WAITED of it:

        WAITED (mean over turns of the largest sum of pp turns / the largest mean of a rank - 1)

    Zero for equal chunks and without interleaving. On a V the longer chunks meet on the same ranks, so that
    none waits.
    """
    sizes = sizes_of(layers, pp, vpp, layout, 0.0, told).reshape(vpp, pp).astype(float)
    if layout == "v" or vpp == 1 or sizes.min() == sizes.max():
        return 0.0
    turn, rank = np.arange(2 * pp * vpp), np.arange(pp)[:, None]
    ahead = 2 * (pp - rank - 1) + (vpp - 1) * pp
    forward = sizes[((turn + ahead) // pp) % vpp, rank]
    backward = sizes[vpp - 1 - (turn // pp) % vpp, rank]
    done = np.cumsum(forward + BACKWARD * backward, axis=1)
    longest = (done[:, pp:] - done[:, :-pp])[:, : pp * vpp].max(axis=0).mean()
    mean = (1.0 + BACKWARD) * sizes.sum(axis=0).max() / vpp * pp
    return float(WAITED * max(longest / mean - 1.0, 0.0))


def chunk_layers(
    order: tuple[int, ...],
    pp: int,
    vpp: int,
    layout: Layout = "loop",
    head: float = 0.0,
    told: tuple[int, ...] = (),
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Kinds of the layers of each chunk of each rank, in the order they run; DualPipe's two are its copies.

    The same as `stages_of` counts, rank by rank.
    """
    ends = np.concatenate(
        ([0], np.cumsum(sizes_of(len(order), pp, vpp, layout, head, told)))
    ).tolist()
    chunks = [order[a:b] for a, b in pairwise(ends)]
    if layout == "v":
        return tuple((chunks[r], chunks[2 * pp - 1 - r]) for r in range(pp))
    if layout == "both":
        return tuple((chunks[r], chunks[pp - 1 - r]) for r in range(pp))
    return tuple(tuple(chunks[c * pp + r] for c in range(vpp)) for r in range(pp))


@lru_cache(maxsize=4096)
def stages_of(
    order: tuple[int, ...],
    kinds: int,
    pp: int,
    vpp: int,
    layout: Layout = "loop",
    head: float = 0.0,
    told: tuple[int, ...] = (),
) -> tuple[Array, Array, Array]:
    """Distinct stages of one (pp, vpp): counts with the two ends, multiplicity, first position.

    `head` is the head's cost in layers where one chunk per rank is dealt by cost; 0: they are dealt evenly.

    With the layout "both" counts are means of a rank's two stages: what one micro-batch costs there on
    average. Its weights are twice that.
    """
    kind = np.asarray(order, dtype=np.int64)
    cumulative = np.zeros((len(kind) + 1, kinds))
    np.add.at(cumulative, (np.arange(1, len(kind) + 1), kind), 1.0)
    cumulative = np.cumsum(cumulative, axis=0)
    ends = np.concatenate(([0], np.cumsum(sizes_of(len(kind), pp, vpp, layout, head, told))))
    chunks = cumulative[ends[1:]] - cumulative[ends[:-1]]
    counts = np.zeros((pp, kinds + 2))
    if layout == "v":
        counts[:, :kinds] = chunks[:pp] + chunks[: pp - 1 : -1]
    else:
        counts[:, :kinds] = chunks.reshape(vpp, pp, kinds).sum(axis=0)
    counts[0, kinds] = 1.0
    counts[0 if layout == "v" else -1, kinds + 1] = 1.0
    if layout == "both":
        counts = 0.5 * (counts + counts[::-1])
    distinct, first, times = np.unique(counts, axis=0, return_index=True, return_counts=True)
    by_position = np.argsort(first)
    return distinct[by_position], times[by_position].astype(float), first[by_position].astype(float)


def stage_names(firsts: Sequence[float], alike: Sequence[float]) -> list[str]:
    """Names of distinct stages, from the first of each and how many are like it: `stages 1 to 14`.

    Stages of one kind follow each other where the next kind begins behind them, up to the first that does
    not.
    """
    names, together = list[str](), True
    for i, (first, many) in enumerate(zip(map(int, firsts), map(int, alike), strict=True)):
        together &= i + 1 == len(firsts) or firsts[i + 1] == first + many
        several = f"stages {first} to {first + many - 1}"
        apart = f"stage {first} and {many - 1} others like it"
        names.append(f"stage {first}" if many <= 1 else several if together else apart)
    return names


def stage_table(
    order: tuple[int, ...],
    kinds: int,
    pairs: tuple[tuple[int, int], ...],
    layout: Layout = "loop",
    head: float = 0.0,
    told: tuple[int, ...] = (),
    tail: int = 0,
    ahead: int = 0,
) -> StageTable:
    """The table for all (pp, vpp) of a batch, padded to the largest number of distinct stages.

    `told` is the layout that the plans' word names, layers of each chunk; empty: dealt by rule. `tail` is
    what blocks behind the last layer count for, in layers; the first `ahead` of the order are of towers.
    """
    sizes = [told_sizes(len(order), pp * vpp, layout, told, tail, ahead) for pp, vpp in pairs]
    rows = [
        stages_of(order, kinds, pp, vpp, layout, head, one)
        for (pp, vpp), one in zip(pairs, sizes, strict=True)
    ]
    width = max(len(times) for _, times, _ in rows)
    counts = np.zeros((len(rows), width, kinds + 2))
    multiplicity, position = np.zeros((len(rows), width)), np.zeros((len(rows), width))
    for i, (stage, times, first) in enumerate(rows):
        counts[i, : len(times)] = stage
        multiplicity[i, : len(times)] = times
        position[i, : len(times)] = first
    return StageTable(
        counts=counts,
        multiplicity=multiplicity,
        position=position,
        layers=counts[:, :, :kinds].sum(axis=2),
        waiting=np.array(
            [
                chunk_waiting(len(order), pp, vpp, layout, one)
                for (pp, vpp), one in zip(pairs, sizes, strict=True)
            ]
        ),
    )
