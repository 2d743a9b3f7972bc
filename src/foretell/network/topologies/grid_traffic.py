"""Uneven traffic on a grid: what each link carries when routes correct one axis after another."""

from collections.abc import Sequence

import numpy as np

from foretell.network.topologies.base import Array, LineAxis


def axis_routes(axis: LineAxis) -> Array:
    """(from, to, links): share of a message on each link of one line; half each way where equal."""
    extent = int(axis.extent)
    if axis.full:
        others = (1.0 - np.eye(extent)).ravel()
        return np.diag(others).reshape(extent, extent, extent * extent)
    routes = np.zeros((extent, extent, 2, extent))
    for a in range(extent):
        for b in range(extent):
            # Steps up and, where the axis closes, down around it; the shorter way counts.
            ways = {0: (b - a) % extent, 1: (a - b) % extent}
            if not axis.wrap:
                ways = {0: b - a} if b > a else {1: a - b}
            least = min(ways.values())
            short = [way for way, steps in ways.items() if steps == least]
            for way in short:
                for step in range(least):
                    link = (a + step) % extent if way == 0 else (a - step) % extent
                    routes[a, b, way, link] += 1.0 / len(short)
    return routes.reshape(extent, extent, 2 * extent)


def busiest_s(axes: Sequence[LineAxis], matrix_bytes: Array) -> Array:
    """Seconds of the busiest link under (..., n, n) bytes from rows to columns."""
    extents = [int(a.extent) for a in axes]
    count = len(axes)
    lead = matrix_bytes.shape[:-2]
    # The last axis of the array is the first of the grid: ranks run along it.
    cells = matrix_bytes.reshape(*lead, *extents[::-1], *extents[::-1])
    busiest = np.zeros(lead)
    for i, axis in enumerate(axes):
        source = {j: len(lead) + count - 1 - j for j in range(count)}
        target = {j: source[j] + count for j in range(count)}
        # Earlier axes are corrected already, later ones not yet.
        gone = tuple(source[j] for j in range(i)) + tuple(target[j] for j in range(i + 1, count))
        moved = np.moveaxis(cells, (source[i], target[i]), (-2, -1))
        shift = [g - sum(x < g for x in (source[i], target[i])) for g in gone]
        flows = moved.sum(axis=tuple(shift))
        loads = np.einsum("...ab,abl->...l", flows, axis_routes(axis))
        # A ring of two is one link of twice the rate, so its two ways may be told apart.
        peak = loads.reshape(*lead, -1).max(-1)
        busiest = np.maximum(busiest, peak * float(axis.s_per_byte))
    return np.asarray(busiest)
