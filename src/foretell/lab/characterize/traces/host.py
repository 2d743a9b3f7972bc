"""A rank without accelerator: its operations run on the host itself, gloo's collectives beside them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.lab.characterize.traces.collectives import sent_of
from foretell.lab.characterize.traces.columns import EventColumns
from foretell.lab.characterize.traces.device import (
    phases_at,
    ranges_of,
    shape_text,
    step_notes,
    until_next,
)
from foretell.lab.characterize.traces.intervals import Times, union
from foretell.lab.characterize.traces.names import COPY, GEMM, MEMSET, OPTIMIZER, host_family
from foretell.lab.characterize.traces.rank_trace import (
    PHASES,
    CommEvents,
    KernelEvents,
    RankTrace,
    TracedStep,
)


def host_rank(path: Path, rank: int, columns: EventColumns, info: Mapping[str, Any]) -> RankTrace:
    """Operations by family and pass, each for as long as nothing inside it runs."""
    ops, texts = columns.ops, columns.texts
    known = [host_family(text) for text in texts]
    families = tuple(dict.fromkeys([*(f for f in known if f), COPY, MEMSET, OPTIMIZER]))
    by_name = np.array([-1 if f is None else families.index(f) for f in known], np.intp)
    event, starts, ends = own_times(*(ops.column(n) for n in ("starts", "ends", "threads")))
    family = by_name[ops.column("names")[event]]
    phase = phases_at(columns, starts, ops.column("threads")[event])
    shapes = tuple(dict.fromkeys(shape_text(dims) for dims in columns.dims.values()))
    op = np.full(len(event), -1, np.intp)
    gemm = families.index(GEMM) if GEMM in families else -2
    for place in np.flatnonzero(family == gemm):
        dims = columns.dims.get(int(ops.column("keys")[event[place]]))
        op[place] = -1 if dims is None else shapes.index(shape_text(dims))
    first = np.zeros(len(event), bool)
    first[np.unique(event, return_index=True)[1]] = True
    copied = np.isin(family, [families.index(COPY), families.index(MEMSET)])
    updates = phase == PHASES.index("optimizer")
    everything = KernelEvents(
        starts=starts,
        ends=ends,
        families=families,
        family=np.where(updates & ~copied, families.index(OPTIMIZER), family),
        phase=phase,
        ops=shapes,
        op=op,
        first=first,
    )
    sent = _sent(columns, info)
    whole = _whole(ops.column("starts"), ops.column("ends"), sent)
    marked = step_notes(columns.notes, texts)
    return RankTrace(
        file=path.name,
        rank=rank,
        device="cpu",
        work=everything.some((family >= 0) & ~copied),
        copies=everything.some(copied),
        sent=sent,
        ranges=ranges_of(columns.notes, texts),
        host=union(ops.column("starts"), ops.column("ends")),
        steps=until_next(marked) if marked else (whole,),
    )


def own_times(starts: Times, ends: Times, threads: Times) -> tuple[NDArray[np.intp], Times, Times]:
    """Events that contain each other as spans that do not: a moment of a thread is the innermost event's.

    Gives the event of each span, its beginning and its end.
    """
    order = np.lexsort((-ends, starts, threads))
    found: list[tuple[int, int, int]] = []
    open_events: list[tuple[int, int]] = []
    now, thread = 0, -1

    def close(until: int) -> None:
        """End what ends before a moment; each has what is left of it."""
        nonlocal now
        while open_events and open_events[-1][1] <= until:
            event, end = open_events.pop()
            if end > now:
                found.append((event, now, end))
                now = end

    for event in order.tolist():
        start, end = int(starts[event]), int(ends[event])
        if threads[event] != thread:
            close(2**62)
            thread = threads[event]
            now = start
        close(start)
        if open_events and start > now:
            found.append((open_events[-1][0], now, start))
        # An event that outlasts the one it began in ends with it.
        end = min(end, open_events[-1][1]) if open_events else end
        open_events.append((event, end))
        now = max(now, start)
    close(2**62)
    table = np.array(found, np.int64).reshape(-1, 3)
    return table[:, 0].astype(np.intp), table[:, 1], table[:, 2]


def _sent(columns: EventColumns, info: Mapping[str, Any]) -> CommEvents:
    """gloo's annotations; where a release writes none, the calls that start a collective."""
    texts, notes, ops = columns.texts, columns.notes, columns.ops
    if columns.args:
        places = np.array([*columns.args], np.intp)
        names = notes.column("names")
        args = [
            {
                "Collective name": texts[names[place]].removeprefix("gloo:"),
                **columns.args[int(place)],
            }
            for place in places
        ]
        return sent_of(notes.column("starts"), notes.column("ends"), places, args, info)
    calls = np.array([text.startswith("c10d::") for text in texts], bool)
    places = np.flatnonzero(calls[ops.column("names")])
    args = [{"Collective name": texts[ops.column("names")[place]]} for place in places]
    return sent_of(ops.column("starts"), ops.column("ends"), places, args, info)


def _whole(starts: Times, ends: Times, sent: CommEvents) -> TracedStep:
    low = min([int(starts.min()), *sent.starts.tolist()[:1]])
    high = max([int(ends.max()), *sent.ends.tolist()[-1:]])
    return TracedStep(name="whole", start_ns=low, end_ns=high)
