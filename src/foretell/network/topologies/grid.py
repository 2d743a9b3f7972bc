"""Members on a grid of axes: the mathematics that ring, torus, mesh, hypercube and HyperX share.

Ranks run along the first axis, then the second. Routes correct one axis after another; where two
ways around a ring are equally long, half goes each way. A link of axis i belongs to that axis alone,
so a pattern costs the sum of the axes' hops and the largest of their loads.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import ClassVar

import numpy as np

from foretell.network.topologies.base import (
    IMPOSSIBLE,
    Claim,
    Cost,
    LineAxis,
    Link,
    LinkGraph,
    Pattern,
    Topology,
    choose_cost,
    claims,
    cost_among,
    power_of_two,
)
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid(Topology):
    """A product of lines, rings or fully joined rows."""

    lines: tuple[LineAxis, ...]
    """The axes, the one along which ranks run first to begin with."""

    patterns: ClassVar[Mapping[Pattern, Claim]] = claims(
        exact="ring chain ring-both exchange shift spread axes"
    )

    @property
    def members(self) -> Num:  # type: ignore[override]
        """The product of the extents."""
        return np.asarray(np.prod(self._extents(), 0))

    def axes(self) -> tuple[LineAxis, ...]:
        """The axes."""
        return self.lines

    def ring(self) -> Cost:
        """One hop on a closed ring through all, two on a single line (0, 2, 4, ... 5, 3, 1).

        With two or more axes a ring of one hop is there if an extent is even or at most one axis is
        open. Where the axes' rates differ the slowest counts.
        """
        return self.chain().times(np.where(self._whole(), 1.0, 2.0), 1.0)

    def ring_both(self) -> Cost:
        """The other way has links of its own, but between two members or on a line."""
        shared = (np.asarray(self.members) == 2) | ~self._whole()
        return self.ring().times(1.0, np.where(shared, 2.0, 1.0))

    def chain(self) -> Cost:
        """One hop to the next on a path that winds through the grid from member 0."""
        closed = np.stack([_closes(a) for a in self.lines])
        double = (self.members == 2) & (closed & (self._extents() == 2)).any(0)
        return Cost(
            latency_s=self._latency_s(), s_per_byte=self._slowest() * np.where(double, 0.5, 1.0)
        )

    def chain_order(self) -> tuple[int, ...]:
        """Back and forth along the axes."""
        extents = tuple(int(a.extent) for a in self.lines)
        strides = [prod(extents[:i]) for i in range(len(extents))]
        return tuple(
            sum(x * s for x, s in zip(place, strides, strict=True)) for place in _snake(extents)
        )

    def exchange(self, distance: Num) -> Cost:
        """The partner is d = distance / stride away on one axis, and d cross its busiest link.

        Half as many where the axis is a ring of 2 d; one on a fully joined axis. Extents must be
        powers of two.
        """
        cost, stride = IMPOSSIBLE, np.ones_like(np.asarray(self.members))
        aligned = power_of_two(self._extents()).all(0)
        for axis in self.lines:
            here = aligned & (distance >= stride) & (distance < stride * axis.extent)
            apart = np.asarray(distance / stride)
            across = np.asarray(axis.wrap) & (2 * apart == axis.extent)
            load = np.ones_like(apart) if axis.full else np.where(across, apart / 2.0, apart)
            hop = Cost(latency_s=axis.latency_s, s_per_byte=axis.s_per_byte)
            cost = choose_cost(
                here, hop.times(np.ones_like(apart) if axis.full else apart, load), cost
            )
            stride = stride * axis.extent
        return cost_among(self.members, cost)

    def shift(self, distance: Num) -> Cost:
        """Along one axis: the shorter way round; on a line also back over its whole length."""
        alone = self._extents() == self.members
        count = np.asarray(self.members)
        apart = np.asarray(distance) % count
        near = np.minimum(apart, count - apart)
        cost = IMPOSSIBLE
        for i, axis in enumerate(self.lines):
            wrap = np.asarray(axis.wrap)
            across = wrap & (2 * near == count)
            hops = np.where(wrap, near, np.maximum(apart, count - apart))
            load = np.where(across, near / 2.0, near)
            if axis.full:
                hops, load = np.ones_like(near), np.ones_like(near)
            hop = Cost(latency_s=axis.latency_s, s_per_byte=axis.s_per_byte)
            cost = choose_cost(alone[i], hop.times(hops * (apart > 0), load), cost)
        return cost_among(self.members, cost)

    def spread(self) -> Cost:
        """Members x d/8 messages on the busiest link of a ring, d/4 on a line, 1/d on a full axis.

        Odd extents have (d²-1)/d in place of d. Hops add up over the axes: floor(d/2), d - 1 or 1.
        """
        hops, loads = [], []
        for axis in self.lines:
            extent = np.asarray(axis.extent, float)
            wrap, wide = np.asarray(axis.wrap), extent > 1
            length = (extent**2 - extent % 2) / extent
            load = 1.0 / extent if axis.full else length / np.where(wrap, 8.0, 4.0)
            far = wide * 1.0 if axis.full else np.where(wrap, np.floor(extent / 2), extent - 1)
            hops.append(far * axis.latency_s)
            loads.append(wide * load * axis.s_per_byte)
        load_s = np.max(np.stack(np.broadcast_arrays(*loads)), 0)
        return Cost(
            latency_s=np.sum(np.broadcast_arrays(*hops), 0),
            s_per_byte=self.members * load_s,
        )

    def injection_s_per_byte(self) -> Num:
        """All links of a member of the middle: two an axis, d - 1 on a full one."""
        rates = [_links_of_one(a) / np.asarray(a.s_per_byte) for a in self.lines]
        total = np.sum(np.broadcast_arrays(*rates), 0)
        return np.asarray(1.0 / np.maximum(total, 1e-300))

    def bisection_bytes_per_s(self) -> Num:
        """The least of the cuts across one axis; exact where that axis is even.

        A line is cut once, a ring twice, a full row floor(d/2) x ceil(d/2) times, in each of the
        members / d lines of the axis.
        """
        cuts = []
        for axis in self.lines:
            extent = np.asarray(axis.extent, float)
            half = np.floor(extent / 2.0)
            each = half * (extent - half) if axis.full else np.where(axis.wrap, 2.0, 1.0)
            links = np.where(extent > 1, each * self.members / extent, np.inf)
            cuts.append(links / axis.s_per_byte)
        return np.asarray(np.min(np.broadcast_arrays(*cuts), 0))

    def graph(self) -> LinkGraph:
        """The grid, member by member; a ring of two is one link of twice the rate."""
        extents = tuple(int(a.extent) for a in self.lines)
        places = [tuple(reversed(p)) for p in product(*(range(d) for d in reversed(extents)))]
        number = {place: i for i, place in enumerate(places)}
        links = [
            Link(source=number[p], target=number[q], bandwidth_bytes_per_s=rate, latency_s=latency)
            for p in places
            for i, axis in enumerate(self.lines)
            for x, rate, latency in _neighbours(p[i], axis)
            for q in [(*p[:i], x, *p[i + 1 :])]
        ]
        order = ring_order(extents, tuple(bool(_closes(a)) for a in self.lines))
        return LinkGraph(
            members=len(places),
            links=tuple(links),
            coordinates=tuple(places),
            order=tuple(number[p] for p in order),
        )

    def _whole(self) -> Mask:
        """Whether there is a ring of one hop through all members."""
        extents, closed = self._extents(), np.stack([_closes(a) for a in self.lines])
        wide = (extents > 1).sum(0)
        even = ((extents % 2 == 0) & (extents > 1)).any(0)
        opened = (~closed & (extents > 1)).sum(0)
        return np.asarray(
            (self.members == 2) | (opened == 0) | ((wide > 1) & (even | (opened == 1)))
        )

    def _extents(self) -> Array:
        return np.stack(np.broadcast_arrays(*(np.asarray(a.extent, float) for a in self.lines)))

    def _slowest(self) -> Array:
        """Seconds per byte of the slowest link of an axis with members."""
        links = [np.where(np.asarray(a.extent) > 1, a.s_per_byte, 0.0) for a in self.lines]
        return np.asarray(np.max(np.broadcast_arrays(*links), 0))

    def _latency_s(self) -> Array:
        """The largest latency of an axis with members."""
        hops = [np.where(np.asarray(a.extent) > 1, a.latency_s, 0.0) for a in self.lines]
        return np.asarray(np.max(np.broadcast_arrays(*hops), 0))


def _closes(axis: LineAxis) -> Mask:
    """Whether a line of the axis is a ring by itself, one member included."""
    extent = np.asarray(axis.extent)
    return np.asarray((extent == 1) | np.asarray(axis.wrap) | (axis.full & (extent > 2)))


def _links_of_one(axis: LineAxis) -> Array:
    extent = np.asarray(axis.extent, float)
    if axis.full:
        return extent - 1.0
    return np.where(extent > 2, 2.0, np.where(extent > 1, np.where(axis.wrap, 2.0, 1.0), 0.0))


def _neighbours(x: int, axis: LineAxis) -> list[tuple[int, float, float]]:
    """(neighbour, bytes per second, latency) of one place on an axis."""
    extent, rate, latency = int(axis.extent), 1.0 / float(axis.s_per_byte), float(axis.latency_s)
    if axis.full:
        return [(y, rate, latency) for y in range(extent) if y != x]
    if extent == 2:
        return [(1 - x, rate * (2.0 if axis.wrap else 1.0), latency)]
    around = [(x + 1) % extent, (x - 1) % extent] if extent > 1 else []
    return [(y, rate, latency) for y in around if abs(y - x) == 1 or axis.wrap]


def ring_order(extents: Sequence[int], closed: Sequence[bool]) -> list[tuple[int, ...]]:
    """Places along a ring through all members, each one hop from the last where there is such."""
    wide = [i for i, d in enumerate(extents) if d > 1]
    if not wide:
        return [(0,) * len(extents)]
    if len(wide) == 1:
        (axis,) = wide
        row = list(range(extents[axis]))
        if not closed[axis]:
            row = row[0::2] + row[1::2][::-1]
        return [tuple(x if i == axis else 0 for i in range(len(extents))) for x in row]
    even = [i for i in wide if extents[i] % 2 == 0]
    open_axes = [i for i in wide if not closed[i]]
    if not even and len(open_axes) > 1:
        line = _snake(extents)
        return line[0::2] + line[1::2][::-1]
    spine = (even or open_axes or wide)[0]
    # Teeth that are odd in number end at the far side: the rest must then be a ring itself.
    rest = [i for i in range(len(extents)) if i != spine]
    inner = [extents[i] for i in rest]
    path = _snake(inner) if even else ring_order(inner, [closed[i] for i in rest])
    places = []
    for x, step in _comb(extents[spine], len(path)):
        place = dict(zip(rest, path[step], strict=True)) | {spine: x}
        places.append(tuple(place[i] for i in range(len(extents))))
    return places


def _snake(extents: Sequence[int]) -> list[tuple[int, ...]]:
    """A path through a grid, each place one hop from the last."""
    if not extents:
        return [()]
    inner = _snake(extents[1:])
    return [
        (x, *place) for x in range(extents[0]) for place in (inner if x % 2 == 0 else inner[::-1])
    ]


def _comb(rows: int, length: int) -> list[tuple[int, int]]:
    """A closed path over rows x length: out along the teeth, back along column 0."""
    teeth = [
        (x, y)
        for x in range(rows)
        for y in (range(1, length) if x % 2 == 0 else range(length - 1, 0, -1))
    ]
    return teeth + [(x, 0) for x in range(rows - 1, -1, -1)]


def group_extents(shape: Sequence[int], members: Num) -> tuple[tuple[Array, ...], tuple[Mask, ...]]:
    """Extents of a group laid along the axes in order, and whether each fills its axis.

    An axis takes the largest common divisor of what is left and its extent; members that do not
    align make the last axis longer, as a line that winds through the grid.
    """
    left = np.asarray(members, float)
    extents, fills = [], []
    for extent in shape:
        taken = np.gcd(left.astype(np.int64), int(extent)).astype(float)
        extents.append(taken)
        fills.append((taken == extent) & (taken > 2))
        left = left / taken
    fills[-1] = fills[-1] & (left == 1)
    extents[-1] = extents[-1] * left
    return tuple(extents), tuple(fills)


def near_cube(size: int, axes: int) -> tuple[int, ...]:
    """Extents with this product and the least sum, the largest last."""
    if axes == 1:
        return (size,)
    divisors = [d for d in range(1, round(size ** (1.0 / axes)) + 1) if size % d == 0]
    shapes = [tuple(sorted((d, *near_cube(size // d, axes - 1)))) for d in divisors]
    return min(shapes, key=sum)
