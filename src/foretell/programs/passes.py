"""What one micro-batch takes in every part: kernels, waiting for the host, exchanges; each pass apart."""

import numpy as np
from numpy.typing import NDArray

from foretell.cost.fusion import SIDE_BY_SIDE
from foretell.estimate import LISTED, Rows
from foretell.simulate.program import EXCHANGES, Pass
from foretell.specs.plan import Plans
from foretell.tables import Tables

Array = NDArray[np.float64]


def part_passes(
    plans: Plans, tables: Tables, rows: Rows
) -> tuple[tuple[Pass, ...], tuple[Pass, ...], tuple[Pass, ...]]:
    """Forward, backward and, of it, the products for weights of every part, for one micro-batch."""
    parts, group = tables.parts, int(tables.group[0])
    slower = tables.pace / float(rows.clock[0])
    mode, many = float(plans.recompute[0]), len(parts.names)
    is_layer = (np.arange(many) < parts.kinds).astype(float)
    exchanged = tables.exchanges.by_name
    none = np.zeros(many)

    def one(which: str, shares: Array | float, runs: Array | float) -> dict[str, Array]:
        """A pass through every part, stretched to the clock that is held; `shares` of its exchanges."""
        costs = getattr(parts, which)
        kernels = costs.seconds[0] - costs.host_s[0]
        ways = {"forward": "forward_s", "backward": "backward_s", "again": "forward_s"}
        found = {
            "chip_s": (kernels + (slower - 1.0) * costs.clocked_s[0]) * runs,
            "clocked_s": slower * costs.clocked_s[0] * runs,
            "wait_s": costs.host_s[0] * runs,
            "launch_s": launch_s(costs.seconds[0], kernels) * runs,
        }
        for name in EXCHANGES:
            e = exchanged.get(name)
            found[name] = none if e is None else getattr(e, ways[which])[group] * shares
        return found

    forward, backward = one("forward", 1.0, 1.0), one("backward", 1.0, 1.0)
    more = []
    if mode == 2.0:
        more.append(one("forward", is_layer, is_layer))
    if mode == LISTED and parts.again is not None:
        again = one("again", 1.0, is_layer)
        for name in EXCHANGES:
            again[name] = again[name] * is_layer * parts.waits_again.get(name, 0.0)
        more.append(again)
    if mode == 1.0:
        more.append({**dict.fromkeys(forward, none), "chip_s": parts.core_s[0]})
    backward = {k: v + sum((m[k] for m in more), none) for k, v in backward.items()}
    weight = dict.fromkeys(backward, none)
    if parts.weight_s is not None:
        products, clocked = parts.weight_s[0][0], parts.weight_s[1][0]
        weight["chip_s"] = products + (slower - 1.0) * clocked
        weight["clocked_s"] = slower * clocked
    return _records(forward, many), _records(backward, many), _records(weight, many)


def _records(columns: dict[str, Array], many: int) -> tuple[Pass, ...]:
    plain = ("chip_s", "clocked_s", "wait_s", "launch_s")
    return tuple(
        Pass(
            **{name: float(columns[name][i]) for name in plain},
            exchange_s=(
                float(columns[EXCHANGES[0]][i]),
                float(columns[EXCHANGES[1]][i]),
                float(columns[EXCHANGES[2]][i]),
            ),
        )
        for i in range(many)
    )


def launch_s(seconds: Array, kernels_s: Array) -> Array:
    """The host's time, from kernels alone and with the host (joined by the norm of cost/fusion.py)."""
    share = np.clip(kernels_s / np.maximum(seconds, 1e-30), 0.0, 1.0)
    return np.asarray(seconds * (1.0 - share**SIDE_BY_SIDE) ** (1.0 / SIDE_BY_SIDE))
