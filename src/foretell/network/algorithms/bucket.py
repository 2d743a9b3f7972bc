"""Bucket algorithms on grids: rings or lines along one axis after another, or along all at once.

An all-gather runs over the first axis, then with d1 times as much over the second, and so on; a
reduce-scatter the other way round. Where all axes work at once the buffer is cut in as many parts as
there are axes, and each part takes them in an order turned by one (the chunk rotation of Themis).
"""

import numpy as np

from foretell.network.algorithms.base import (
    GATHERS,
    Algorithm,
    Collective,
    Gather,
    Item,
    MessageSchedule,
    gather_schedule,
    passes,
    side_by_side,
    whole,
)
from foretell.network.algorithms.direct import gather_direct
from foretell.network.algorithms.ring import gather_both_ways
from foretell.network.topologies.base import Cost, LineAxis, Topology
from foretell.specs.arrays import Array


def axis_cost(axis: LineAxis) -> Cost:
    """All-gather along one axis, of what it ends with.

    Ring floor(d/2) α + (d-1)/d S/(2b); line (d-1) α + (d-1)/d S/b; fully joined α + S/(d b).
    """
    extent = np.asarray(axis.extent, float)
    share = (extent - 1.0) / extent
    if axis.full:
        wide = extent > 1
        return Cost(
            latency_s=np.where(wide, axis.latency_s, 0.0),
            s_per_byte=np.where(wide, axis.s_per_byte / extent, 0.0),
        )
    wrap = np.asarray(axis.wrap)
    hops = np.where(wrap, np.floor(extent / 2.0), extent - 1.0)
    return Cost(
        latency_s=hops * axis.latency_s,
        s_per_byte=share * np.where(wrap, 0.5, 1.0) * axis.s_per_byte,
    )


def _loads(axes: tuple[LineAxis, ...], order: tuple[int, ...]) -> list[Array]:
    """Seconds per byte of each axis when they are taken in this order."""
    members = np.prod(np.broadcast_arrays(*(np.asarray(a.extent, float) for a in axes)), 0)
    gathered = 1.0 / members
    loads: dict[int, Array] = {}
    for i in order:
        gathered = gathered * np.asarray(axes[i].extent, float)
        loads[i] = np.asarray(axis_cost(axes[i]).s_per_byte * gathered)
    return [loads[i] for i in range(len(axes))]


def _orders(axes: tuple[LineAxis, ...]) -> list[tuple[int, ...]]:
    count = len(axes)
    return [tuple((first + i) % count for i in range(count)) for first in range(count)]


def _weights(axes: tuple[LineAxis, ...], *, balanced: bool) -> list[Array]:
    """Share of the buffer of each order: equal, or for two axes such that both end at once."""
    if not balanced or len(axes) != 2:
        return [np.asarray(1.0 / len(axes))] * len(axes)
    (a1, a2), (b1, b2) = (_loads(axes, order) for order in _orders(axes))
    # x a1 + (1-x) b1 = x a2 + (1-x) b2
    slope = (a1 - b1) - (a2 - b2)
    x = np.where(slope == 0.0, 0.5, (b2 - b1) / np.where(slope == 0.0, 1.0, slope))
    x = np.clip(x, 0.0, 1.0)
    return [x, 1.0 - x]


def axis_by_axis_cost(collective: Collective, topology: Topology) -> Cost:
    """The axes' all-gathers one after another."""
    axes = topology.axes()
    latency = np.sum(np.broadcast_arrays(*(axis_cost(a).latency_s for a in axes)), 0)
    loads = np.sum(np.broadcast_arrays(*_loads(axes, tuple(range(len(axes))))), 0)
    return Cost(latency_s=latency, s_per_byte=loads).times(passes(collective))


def rotated_cost(collective: Collective, topology: Topology, *, balanced: bool = False) -> Cost:
    """All axes at once: (n-1)/n S/(2 k b) on k equal axes; `balanced`: two unequal ones end together."""
    axes = topology.axes()
    latency = np.sum(np.broadcast_arrays(*(axis_cost(a).latency_s for a in axes)), 0)
    total = [np.asarray(0.0)] * len(axes)
    for weight, order in zip(_weights(axes, balanced=balanced), _orders(axes), strict=True):
        loads = _loads(axes, order)
        total = [t + weight * load for t, load in zip(total, loads, strict=True)]
    busiest = np.max(np.broadcast_arrays(*total), 0)
    return Cost(latency_s=latency, s_per_byte=busiest).times(passes(collective))


def balanced_cost(collective: Collective, topology: Topology) -> Cost:
    """Parts of the size that ends both axes at once; equal parts for other than two axes."""
    return rotated_cost(collective, topology, balanced=True)


def gather_line(members: int) -> Gather:
    """d - 1 steps on an open line: what came from one side goes on to the other."""
    return [
        [(x, x + 1, whole(x - t)) for x in range(members - 1) if x - t >= 0]
        + [(x, x - 1, whole(x + t)) for x in range(1, members) if x + t < members]
        for t in range(members - 1)
    ]


def gather_axis(axis: LineAxis) -> Gather:
    """The all-gather of one line of the axis."""
    extent = int(axis.extent)
    if extent == 1:
        return []
    if axis.full:
        return gather_direct(extent)
    return gather_both_ways(extent) if axis.wrap else gather_line(extent)


def gather_over(extents: tuple[int, ...], gathers: list[Gather], order: tuple[int, ...]) -> Gather:
    """All-gathers along axes in an order, every line of an axis at the same time."""
    strides = [int(np.prod(extents[:i])) for i in range(len(extents))]
    members = int(np.prod(extents))
    held: list[list[Item]] = [whole(m) for m in range(members)]
    steps: Gather = []
    for i in order:
        stride, extent = strides[i], extents[i]
        starts = [m for m in range(members) if m // stride % extent == 0]
        for step in gathers[i]:
            steps.append(
                [
                    (start + a * stride, start + b * stride, [
                        item
                        for place, half in items
                        for item in held[start + place * stride]
                        if item[1] == half
                    ])
                    for start in starts
                    for a, b, items in step
                ]
            )  # fmt: skip
        lines = {m: m - m // stride % extent * stride for m in range(members)}
        held = [
            [item for x in range(extent) for item in held[lines[m] + x * stride]]
            for m in range(members)
        ]
    return steps


def axis_by_axis_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """In the order of the axes."""
    axes = topology.axes()
    gather = _gather(axes, tuple(range(len(axes))))
    return gather_schedule(collective, gather, range(int(topology.members)))


def rotated_schedule(
    collective: Collective, topology: Topology, *, balanced: bool = False
) -> MessageSchedule:
    """One part of the buffer for each turn of the order, flowing side by side."""
    axes = topology.axes()
    nodes = range(int(topology.members))
    parts = [
        (float(w), gather_schedule(collective, _gather(axes, order), nodes, flows=True))
        for w, order in zip(_weights(axes, balanced=balanced), _orders(axes), strict=True)
    ]
    return side_by_side(parts)


def balanced_schedule(collective: Collective, topology: Topology) -> MessageSchedule:
    """With parts of the size that ends both axes at once."""
    return rotated_schedule(collective, topology, balanced=True)


def _gather(axes: tuple[LineAxis, ...], order: tuple[int, ...]) -> Gather:
    extents = tuple(int(a.extent) for a in axes)
    return gather_over(extents, [gather_axis(a) for a in axes], order)


ALGORITHMS = (
    Algorithm("bucket", GATHERS, ("axes",), axis_by_axis_cost, axis_by_axis_schedule),
    Algorithm("bucket-rotated", GATHERS, ("axes",), rotated_cost, rotated_schedule),
    Algorithm("bucket-balanced", GATHERS, ("axes",), balanced_cost, balanced_schedule),
)
