"""What one micro-batch takes in every part: kernels, waiting for the host, exchanges; each pass apart."""

import numpy as np

from foretell.simulation.program import EXCHANGES, Pass
from foretell.specs.arrays import Array
from foretell.specs.plan import Plans
from foretell.training.ledger import Ledger
from foretell.training.memory import LISTED
from foretell.training.pass_times import late_launches, pass_times
from foretell.training.tables import Tables

Columns = dict[str, Array]
"""Field of a pass, or exchange -> its seconds in every part."""
HIDDEN, SLACK = "hidden", "slack"
"""Of an exchange, after its name: what runs behind kernels, and what that could take longer."""


def part_passes(
    plans: Plans, tables: Tables, rows: Ledger
) -> tuple[tuple[Pass, ...], tuple[Pass, ...], tuple[Pass, ...]]:
    """Forward, backward and, of it, the products for weights of every part, for one micro-batch."""
    parts, at = tables.parts, int(tables.shape[0])
    stretched = tables.pace / float(rows.clock[0])
    mode, many = float(plans.recompute[0]), len(parts.names)
    is_layer = (np.arange(many) < parts.kinds).astype(float)
    none = np.zeros(many)
    late_us = late_launches(plans, tables)
    spent = pass_times(tables, tables.shape[:1], tables.group[:1], late_us, plans.pp[:1])
    both_s = spent.of(stretched - 1.0)
    chip_s = spent.chip_s(stretched - 1.0)

    def one(whole_s: Array, alone_s: Array, waits: Columns) -> Columns:
        """Every part: `alone_s` of the chip, exchanges included, and `whole_s` with the host's launches."""
        kernels_s = alone_s - sum(waits.values(), none)
        return {"chip_s": kernels_s, "wait_s": whole_s - alone_s, **waits}

    ways = [_exchanged(tables, way) for way in ("forward_s", "backward_s")]
    behind = [_hidden(tables, way, ways[way]) for way in (0, 1)]
    forward = {**one(both_s[0][0], chip_s[0][0], ways[0]), **behind[0]}
    backward = {**one(both_s[1][0], chip_s[1][0], ways[1]), **behind[1]}
    forward["launch_s"] = spent.host_s.forward_s[0]
    backward["launch_s"] = spent.host_s.backward_s[0]
    more: list[Columns] = []
    if mode == 2.0:
        less_s, whole_s = (x[0] for x in spent.rerun(stretched - 1.0))
        rerun = {**forward, **one(whole_s, less_s, ways[0])}
        more.append({k: v * is_layer for k, v in rerun.items()})
    if mode == LISTED and parts.again is not None:
        waits = {k: v * parts.waits_again.get(k, 0.0) for k, v in ways[0].items()}
        slower = stretched - 1.0
        again = one(spent.again(slower)[0], spent.again_chip_s(slower)[0], waits)
        again["launch_s"] = parts.again.host_s[at]
        for name in EXCHANGES:
            share = parts.waits_again.get(name, 0.0)
            again |= {
                column: share * behind[0][column]
                for column in (_column(name, HIDDEN), _column(name, SLACK))
            }
        more.append({k: v * is_layer for k, v in again.items()})
    if mode == 1.0:
        more.append({**dict.fromkeys(forward, none), "chip_s": parts.core_s[at]})
    backward = {k: v + sum((m[k] for m in more), none) for k, v in backward.items()}
    weight = dict.fromkeys(backward, none)
    apart_s = spent.weight_s(stretched - 1.0)
    if apart_s is not None:
        weight["chip_s"] = apart_s[0]
    return _records(forward, many), _records(backward, many), _records(weight, many)


def _exchanged(tables: Tables, way: str) -> Columns:
    """Exchanges of every part by kind, one way."""
    group, none = int(tables.group[0]), np.zeros(len(tables.parts.names))
    known = tables.exchanges.by_name
    return {name: getattr(known[name], way)[group] if name in known else none for name in EXCHANGES}


def _hidden(tables: Tables, way: int, waits: Columns) -> Columns:
    """Of the exchanges of every part that run behind kernels, what is hidden, and their slack; by kind."""
    group, none = int(tables.group[0]), np.zeros(len(tables.parts.names))
    found: Columns = {}
    for name in EXCHANGES:
        known = tables.exchanges.by_name.get(name)
        hidden = slack = none
        if known is not None and known.behind is not None:
            one = known.behind[way]
            shown = np.maximum(waits[name] - one.fixed_s[group], 0.0)
            hidden = np.maximum(one.hidden_s[group] - shown, 0.0)
            slack = one.slack_s[group]
        found |= {_column(name, HIDDEN): hidden, _column(name, SLACK): slack}
    return found


def _column(name: str, what: str) -> str:
    """The column of something of an exchange; of what a pass waits for, its own name."""
    return f"{name} {what}" if what else name


def _kinds(columns: Columns, part: int, what: str = "") -> tuple[float, float, float]:
    """Seconds of each kind of exchange in a part."""
    tensor, context, experts = (float(columns[_column(name, what)][part]) for name in EXCHANGES)
    return tensor, context, experts


def _records(columns: Columns, many: int) -> tuple[Pass, ...]:
    plain = ("chip_s", "wait_s", "launch_s")
    return tuple(
        Pass(
            **{name: float(columns[name][i]) for name in plain},
            exchange_s=_kinds(columns, i),
            hidden_s=_kinds(columns, i, HIDDEN),
            slack_s=_kinds(columns, i, SLACK),
        )
        for i in range(many)
    )
