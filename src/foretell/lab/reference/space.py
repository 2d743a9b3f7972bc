"""The published candidates: every split, microbatch, placement and panel count, as arrays.

Memory depends on (dp, m1, m2, pp, b) alone, so those make up the bases, and placements and panels
stay unexpanded lists per base until the memory filter has run. Counting needs no expansion at all.
"""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from foretell.lab.reference.ops import LayerBatch
from foretell.lab.reference.records import Ints, Strategy, StudyModel
from foretell.records import dataclass

MIN_SHARD = 128
"""Smallest e/m1 (3e/m1 in 1d) and l/m2 that the published search allows."""
MIN_PANEL = 512
"""Smallest e/nb once SUMMA has a choice of panels."""
BLOCK_CELLS = 1 << 22
"""Largest table of splits x factorisations at once: odd domains cost time, not memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """A list for each base, all of them laid end to end; bases may share one."""

    values: Ints
    """The entries."""
    start: Ints
    """First entry of each base."""
    count: Ints
    """Entries of each base."""

    def of(self, bases: Ints) -> "Lists":
        """The lists of some bases."""
        return Lists(values=self.values, start=self.start[bases], count=self.count[bases])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSpace:
    """All candidates of one model, strategy and fast domain, for one or more GPU counts.

    The candidates of a base are all pairs of its placements and its panel counts.
    """

    gpus: Ints
    """GPU count of each base, ascending."""
    m1: Ints
    """First tensor-parallel dimension of each base."""
    m2: Ints
    """Second tensor-parallel dimension of each base."""
    pp: Ints
    """Pipeline stages of each base."""
    dp: Ints
    """Data-parallel replicas of each base."""
    b: Ints
    """Microbatch of each base, in samples."""
    places: Lists
    """Placements, one row each: members in one fast domain of the m1, m2, dp and pp groups."""
    panels: Lists
    """Values of nb."""

    @property
    def candidates_per_base(self) -> Ints:
        """Placements times panel counts."""
        return self.places.count * self.panels.count

    def candidates(self, gpus: int) -> int:
        """Candidates for one GPU count, before the memory filter."""
        return int(self.candidates_per_base[self.gpus == gpus].sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencePlans(LayerBatch):
    """Plans to evaluate, one entry each."""

    pp: Ints
    """Pipeline stages."""
    dp: Ints
    """Data-parallel replicas."""
    nv_dp: Ints
    """Replicas in one fast domain."""
    nv_pp: Ints
    """Stages in one fast domain."""

    @property
    def gpus(self) -> Ints:
        """GPUs of each plan."""
        return self.m1 * self.m2 * self.pp * self.dp


def divisors(number: int) -> Ints:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return np.array(sorted({*small, *(number // d for d in small)}), dtype=np.int64)


def enumerate_space(
    model: StudyModel, strategy: Strategy, gpus: int, fast_domain: int, global_batch: int
) -> ReferenceSpace:
    """Every candidate for one GPU count."""
    splits = splits_of(model, strategy, gpus)
    batches = divisors(global_batch)
    n, m1, m2, pp = splits.T
    dp = n // (m1 * m2 * pp)
    tokens_over = {"1d": m1, "2d": m2, "2d-seqp": m1 * m2}[strategy]
    legal = (global_batch % (dp[:, None] * batches) == 0) & (
        (batches * model.seq_len) % tokens_over[:, None] == 0
    )
    split, batch = np.nonzero(legal)
    return ReferenceSpace(
        gpus=n[split],
        m1=m1[split],
        m2=m2[split],
        pp=pp[split],
        dp=dp[split],
        b=batches[batch],
        places=_placements(strategy, splits, dp, fast_domain).of(split),
        panels=_panels(model, strategy, m1, m2).of(split),
    )


def join(spaces: Sequence[ReferenceSpace]) -> ReferenceSpace:
    """Spaces of ascending GPU counts as one."""
    columns = {
        field.name: [getattr(space, field.name) for space in spaces]
        for field in fields(ReferenceSpace)
    }
    places, panels = (_end_to_end(columns.pop(name)) for name in ("places", "panels"))
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    return ReferenceSpace(**joined, places=places, panels=panels)


def _end_to_end(some: Sequence[Lists]) -> Lists:
    """The lists of several spaces after each other."""
    before = np.cumsum([0, *(len(lists.values) for lists in some)])
    return Lists(
        values=np.concatenate([lists.values for lists in some]),
        start=np.concatenate(
            [at + lists.start for at, lists in zip(before[:-1], some, strict=True)]
        ),
        count=np.concatenate([lists.count for lists in some]),
    )


def splits_of(model: StudyModel, strategy: Strategy, gpus: int) -> Ints:
    """Rows (n, m1, m2, pp): m1 divides n, h and e, m2 divides n/m1 (and e in 2d), pp the rest and
    L.

    1d keeps 3e/m1 >= 128; the others e/m1 >= 128 and l/m2 >= 128.
    """
    m1 = divisors(int(np.gcd.reduce([gpus, model.heads, model.embed])))[:, None, None]
    m2 = (np.ones(1, np.int64) if strategy == "1d" else divisors(gpus))[:, None]
    pp = divisors(int(np.gcd(gpus, model.layers)))
    legal = gpus % (m1 * m2 * pp) == 0
    if strategy == "1d":
        legal &= 3 * model.embed // m1 >= MIN_SHARD
    else:
        legal &= (model.embed // m1 >= MIN_SHARD) & (model.seq_len // m2 >= MIN_SHARD)
    if strategy == "2d":
        legal &= model.embed % m2 == 0
    i1, i2, ip = np.nonzero(legal)
    m1_flat, m2_flat = m1[i1, 0, 0], m2[i2, 0]
    return np.stack([np.full(i1.shape, gpus, np.int64), m1_flat, m2_flat, pp[ip]], axis=1)


def _placements(strategy: Strategy, splits: Ints, dp: Ints, fast_domain: int) -> Lists:
    """Placements of each split.

    A job of at most one domain is all fast, in one way. Otherwise every ordered factorisation of
    the domain over (m1, m2, dp, pp) whose factors divide their groups; 1d has no second factor.
    """
    n, m1, m2, pp = splits.T
    groups = np.stack([m1, m2, dp, pp], axis=1)
    ways = _factorisations(fast_domain, strategy)
    inside = n <= fast_domain
    outside = np.nonzero(~inside)[0]
    block = max(BLOCK_CELLS // len(ways), 1)
    owners, places = [np.nonzero(inside)[0]], [groups[inside]]
    for start in range(0, len(outside), block):
        rows = outside[start : start + block]
        fits = np.ones((len(rows), len(ways)), dtype=np.bool_)
        for column in range(4):
            fits &= groups[rows, column, None] % ways[:, column] == 0
        row, way = np.nonzero(fits)
        owners.append(rows[row])
        places.append(ways[way])
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    count = np.bincount(owner, minlength=len(splits)).astype(np.int64)
    return Lists(values=np.concatenate(places)[order], start=np.cumsum(count) - count, count=count)


def _factorisations(number: int, strategy: Strategy) -> Ints:
    """Ordered products of four factors (the second 1 in 1d) that make the number, first factor slowest."""
    d = divisors(number)
    second = d[:1] if strategy == "1d" else d
    n1, n2, n3 = (grid.ravel() for grid in np.meshgrid(d, second, d, indexing="ij"))
    used = n1 * n2 * n3
    whole = number % used == 0
    ways: Ints = np.stack([n1, n2, n3, number // np.minimum(used, number)], axis=1)[whole]
    return ways


def _panels(model: StudyModel, strategy: Strategy, m1: Ints, m2: Ints) -> Lists:
    """Panel counts of each split.

    SUMMA starts from max(m1, m2); where e/start < 512 that is all, else its doublings below e that
    divide e into at least 512 each.
    """
    none = np.zeros(m1.shape, dtype=np.int64)
    if strategy != "2d":
        return Lists(values=np.ones(1, dtype=np.int64), start=none, count=none + 1)
    starts, owner = np.unique(np.maximum(m1, m2), return_inverse=True)
    lists = [panel_counts(model.embed, int(start)) for start in starts]
    sizes = np.array([len(values) for values in lists], dtype=np.int64)
    values = np.array([v for values in lists for v in values], dtype=np.int64)
    return Lists(values=values, start=np.cumsum(sizes) - sizes, count=sizes).of(owner)


def panel_counts(embed: int, start: int) -> list[int]:
    """Panel counts for one start."""
    if embed // start < MIN_PANEL:
        return [start]
    doublings = (start << k for k in range((embed // start).bit_length()))
    return [nb for nb in doublings if nb < embed and embed % nb == 0 and embed // nb >= MIN_PANEL]


def expand(space: ReferenceSpace, bases: Ints) -> ReferencePlans:
    """Every placement and panel count of the bases given, in order."""
    per_base = space.candidates_per_base[bases]
    owner = np.repeat(np.arange(len(bases)), per_base)
    within = np.arange(len(owner)) - (np.cumsum(per_base) - per_base)[owner]
    base = bases[owner]
    place_index, panel_index = np.divmod(within, space.panels.count[base])
    place = space.places.values[space.places.start[base] + place_index]
    return ReferencePlans(
        m1=space.m1[base],
        m2=space.m2[base],
        pp=space.pp[base],
        dp=space.dp[base],
        b=space.b[base],
        nb=space.panels.values[space.panels.start[base] + panel_index],
        t1=place[:, 0],
        t2=place[:, 1],
        nv_dp=place[:, 2],
        nv_pp=place[:, 3],
    )
