"""Which parts are on which chunk, and what a chunk's passes take: the closed form's sums, dealt out."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.schedules.base import Schedule
from foretell.sharding.pipeline import Layout, chunk_layers, told_sizes
from foretell.simulation.program import NOTHING, Chunk, Pass
from foretell.specs.plan import Plan, Plans
from foretell.specs.plan_forms import layout_sizes
from foretell.specs.scenario import Scenario
from foretell.training.ledger import Ledger
from foretell.training.memory import block_share
from foretell.training.tables import Stages, Tables, by_cost, tail_layers

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
    """Which parts are on each chunk of each rank; DualPipe's two chunks are two stages.

    `head` is the head's cost in layers where layers are dealt by cost (sharding/pipeline.py).
    """
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
