"""What one micro-batch takes in every part, and which parts are on which chunk: the closed form's sums, dealt
out.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.schedules.base import Schedule
from foretell.sharding.pipeline import Layout, chunk_layers, told_sizes
from foretell.simulation.program import EXCHANGES, NOTHING, Chunk, Pass
from foretell.specs.arrays import Array
from foretell.specs.plan import Plan, Plans
from foretell.specs.plan_forms import layout_sizes
from foretell.specs.scenario import Scenario
from foretell.training.ledger import Ledger
from foretell.training.memory import LISTED, block_share
from foretell.training.pass_times import late_launches, pass_times
from foretell.training.tables import Stages, Tables, by_cost, tail_layers

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


Contents = tuple[tuple[tuple[int, ...], ...], ...]
"""Rank -> chunk -> parts in order: layer kinds, the embedding before the first, the head behind the last."""
Chunks = tuple[tuple[Chunk, ...], ...]
"""Rank -> its chunks."""


def contents_of(
    order: Sequence[int],
    kinds: int,
    pp: int,
    vpp: int,
    layout: Layout,
    head: float = 0.0,
    told: tuple[int, ...] = (),
) -> Contents:
    """Parts on each chunk of each rank; `head` is its cost in layers where layers are dealt by cost."""
    found = [list(rank) for rank in chunk_layers(tuple(order), pp, vpp, layout, head, told)]
    both = layout == "both"
    first = [(0, 0), (pp - 1, 1)] if both else [(0, 0)]
    last = [(0, 1)] if layout == "v" else [(pp - 1, vpp - 1)]
    for rank, chunk in first:
        found[rank][chunk] = (kinds, *found[rank][chunk])
    for rank, chunk in [(pp - 1, 0), (0, 1)] if both else last:
        found[rank][chunk] = (*found[rank][chunk], kinds + 1)
    return tuple(tuple(rank) for rank in found)


def stages_of_ranks(
    contents: Contents, rows: Ledger, many: int, schedule: Schedule
) -> tuple[int, ...]:
    """The distinct stage that each rank is: the one with the same parts."""
    known = rows.counts[rows.pair[0]]
    share = 0.5 if schedule.layout == "both" else 1.0
    found = []
    for rank in contents:
        flat = [part for chunk in rank for part in chunk]
        counts = share * np.bincount(np.asarray(flat, np.int64), minlength=many)
        off = np.abs(known - counts).sum(axis=1) + 1e9 * (rows.multiplicity[0] == 0)
        found.append(int(off.argmin()))
    return tuple(found)


def dealing_of(
    scenario: Scenario, plan: Plan, tables: Tables, rows: Ledger
) -> tuple[Contents, tuple[int, ...]]:
    """What each rank of one plan holds, and the row of the stage that it is."""
    schedule, parts = schedule_named(plan.schedule), tables.parts
    head = by_cost(scenario)
    told = told_sizes(
        len(parts.order),
        plan.pp * plan.vpp,
        schedule.layout,
        layout_sizes(plan.layout),
        tail_layers(scenario.model),
        parts.ahead,
    )
    contents = contents_of(parts.order, parts.kinds, plan.pp, plan.vpp, schedule.layout, head, told)
    return contents, stages_of_ranks(contents, rows, len(parts.names), schedule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealing:
    """What it takes to deal a rank's numbers to its chunks."""

    plans: Plans
    """The plan, a batch of one."""
    tables: Tables
    """Its tables."""
    rows: Ledger
    """Its step in closed form."""
    stages: Stages
    """Sums over the parts of each distinct stage."""
    schedule: Schedule
    """Its schedule."""
    contents: Contents
    """Parts on every chunk."""
    stage: tuple[int, ...]
    """The distinct stage that each rank is."""

    @property
    def copies(self) -> float:
        """Chunks of a rank that a micro-batch passes."""
        return 1.0 if self.schedule.layout == "both" else float(len(self.contents[0]))

    def chunks(
        self, forward: Sequence[Pass], backward: Sequence[Pass], weight: Sequence[Pass]
    ) -> Chunks:
        """Passes of every chunk, held to the closed form's sums of each rank."""
        blocks = block_share(self.plans, np.zeros(1, np.intp), self.tables)
        kinds, splits = self.tables.parts.kinds, self.schedule.splits_backward
        known: dict[tuple[tuple[int, ...], int], Chunk] = {}
        for rank, here in enumerate(self.contents):
            row = self.stage[rank]
            sums_s = float(self.rows.sums_s[0, row]) / self.copies
            more = 0.0 if blocks is None else float(blocks[0, row])
            for chunk in here:
                if (chunk, row) in known:
                    continue
                there = _sum([forward[p] for p in chunk])
                back = _sum([backward[p] for p in chunk])
                back = back + _sum([forward[p] for p in chunk if p < kinds]).times(more)
                ahead = _sum([weight[p] for p in chunk]) if splits else NOTHING
                rest = replace(back, chip_s=back.chip_s - ahead.chip_s)
                sums = Pass(chip_s=sums_s)
                known[chunk, row] = Chunk(
                    forward=there,
                    input=rest if splits else rest + sums,
                    weight=ahead + sums if splits else NOTHING,
                )
        dealt = [
            tuple(known[chunk, self.stage[r]] for chunk in here)
            for r, here in enumerate(self.contents)
        ]
        return tuple(self._fitted(rank, here) for rank, here in enumerate(dealt))

    def _fitted(self, rank: int, here: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
        """Whatever the closed form adds to a rank's passes beyond its parts goes to its chunks alike."""
        row, share = self.stage[rank], self.copies / len(here)
        forward_s = float(self.stages.forward_s[0, row])
        backward_s = float(self.stages.backward_s[0, row] + self.rows.sums_s[0, row])
        have_forward = share * sum(c.forward.alone_s for c in here)
        have_backward = share * sum(c.input.alone_s + c.weight.alone_s for c in here)
        longer = forward_s / max(have_forward, 1e-30), backward_s / max(have_backward, 1e-30)
        if all(abs(x - 1.0) < 1e-9 for x in longer):
            return here
        return tuple(
            replace(
                c,
                forward=c.forward.times(longer[0]),
                input=c.input.times(longer[1]),
                weight=c.weight.times(longer[1]),
            )
            for c in here
        )

    def ends(self, chunk: tuple[int, ...], passes: Sequence[Pass]) -> tuple[float, ...]:
        """Fractions of a pass at which the layers of a chunk end; the last is the end of the pass."""
        layers = [i for i, p in enumerate(chunk) if p < self.tables.parts.kinds]
        if not layers:
            return (1.0,)
        sums = np.cumsum([passes[p].alone_s for p in chunk])
        shares = (sums / max(float(sums[-1]), 1e-30))[layers[:-1]].tolist()
        return (*shares, 1.0)


def _sum(passes: Sequence[Pass]) -> Pass:
    total = NOTHING
    for one in passes:
        total = total + one
    return total
