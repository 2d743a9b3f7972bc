"""Trace files to ranks: what each computed, sent, copied and waited for, and when its steps were."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import BadInput, Problem, wrong
from foretell.lab.characterize.traces.columns import (
    OWN_STREAMS,
    EventColumns,
    events_of,
    take,
    take_own,
    trace_problem,
)
from foretell.lab.characterize.traces.device import (
    device_rank,
    phases_at,
    ranges_of,
    shape_text,
    step_notes,
    until_next,
)
from foretell.lab.characterize.traces.names import (
    COPY,
    ELEMENTWISE,
    GEMM,
    MEMSET,
    OPTIMIZER,
    OTHER,
    host_family,
    sent_of,
)
from foretell.lab.characterize.traces.rank_trace import (
    PHASES,
    CommEvents,
    KernelEvents,
    RankTrace,
    Times,
    TracedStep,
    union,
)
from foretell.specs.arrays import Index


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


def own_times(starts: Times, ends: Times, threads: Times) -> tuple[Index, Times, Times]:
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
        kinds = (texts[names[place]].removeprefix("gloo:") for place in places)
        args = [
            {"Collective name": k, **a} for k, a in zip(kinds, columns.args.values(), strict=True)
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


EXCHANGES = {
    "tp-comm": "tensor parallel",
    "cp-comm": "context parallel",
    "ep-comm": "expert parallel",
    "pp-comm": "pipeline parallel",
    "dp-comm": "data parallel",
}
"""Streams of exchanges, and what they are called."""
SUMS = "sums of gradients, layers computed again"
"""What a backward pass has beyond its layers (simulation/trace_leaves.py)."""


def own_ranks(
    path: Path, ranks: Mapping[int, EventColumns], job: Mapping[str, Any]
) -> tuple[RankTrace, ...]:
    """One rank for each process of the trace; the step is the same for all."""
    step_s = job.get("step_s")
    last = max(
        int(table.column("ends").max())
        for columns in ranks.values()
        for table in (columns.work, columns.host)
        if len(table)
    )
    end = round(step_s * 1e9) if isinstance(step_s, int | float) else last
    # Slices are written to the nanosecond, the step in full.
    step = TracedStep(name="whole", start_ns=0, end_ns=max(end, last))
    # One slice stands for adding gradients up and for layers computed again, where there are any.
    sums = ELEMENTWISE if "recompute=none" in str(job.get("plan")) else OTHER
    return tuple(_rank(path, rank, ranks[rank], step, sums) for rank in sorted(ranks))


def _rank(path: Path, rank: int, columns: EventColumns, step: TracedStep, sums: str) -> RankTrace:
    work, texts = columns.work, columns.texts
    starts, ends, names = (work.column(n) for n in ("starts", "ends", "names"))
    stream = work.column("keys")
    names_of = [texts[name] for name in names]
    known = {"optimizer": OPTIMIZER, SUMS: sums}
    label = [
        columns.families.get(place, known.get(name, OTHER)) for place, name in enumerate(names_of)
    ]
    families = tuple(dict.fromkeys([*label, COPY]))
    family = np.array([families.index(text) for text in label], np.intp)
    phase = np.array([_phase(columns, place, label[place]) for place in range(len(label))], np.intp)
    ops = tuple(dict.fromkeys(names_of))
    op = np.array([ops.index(name) for name in names_of], np.intp)
    copied = stream == OWN_STREAMS.index("copy")
    everything = KernelEvents(
        starts=starts,
        ends=ends,
        families=families,
        family=np.where(copied, families.index(COPY), family),
        phase=phase,
        ops=ops,
        op=op,
        first=np.ones(len(starts), bool),
    )
    kinds = tuple(EXCHANGES.values())
    chosen = np.isin(stream, [OWN_STREAMS.index(name) for name in EXCHANGES])
    place = {OWN_STREAMS.index(name): i for i, name in enumerate(EXCHANGES)}
    return RankTrace(
        file=path.name,
        rank=rank,
        device="simulated",
        work=everything.some(stream == OWN_STREAMS.index("compute")),
        copies=everything.some(copied),
        sent=CommEvents(
            starts=starts[chosen],
            ends=ends[chosen],
            kinds=kinds,
            kind=np.array([place[int(s)] for s in stream[chosen]], np.intp),
            members=np.zeros(int(chosen.sum()), np.int64),
            size_bytes=np.full(int(chosen.sum()), -1, np.int64),
        ),
        ranges={},
        host=union(columns.host.column("starts"), columns.host.column("ends")),
        steps=(step,),
    )


def _phase(columns: EventColumns, place: int, family: str) -> int:
    """forward, backward or optimizer, by the pass that the trace names."""
    if family == OPTIMIZER:
        return PHASES.index("optimizer")
    told = columns.passes.get(place, "")
    if told.startswith("backward"):
        return PHASES.index("backward")
    return PHASES.index("forward") if told == "forward" else 0


_RANK_IN_NAME = re.compile(r"rank[_\-.]?(\d{1,7})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """One file."""

    ranks: tuple[RankTrace, ...]
    """One, or those of a trace of our own."""
    job: Mapping[str, Any]
    """Of a trace of our own: what was simulated."""
    notes: tuple[str, ...]
    """What is worth saying about it."""


def read_files(paths: Sequence[str | Path]) -> tuple[list[RankTrace], Mapping[str, Any], list[str]]:
    """Ranks of all files, the job of our own ones, and notes; every problem of every file at once."""
    problems: list[Problem] = []
    found: list[TraceFile] = []
    for place, path in enumerate(paths):
        try:
            found.append(read_file(path, place))
        except BadInput as error:
            problems += error.problems
    ranks = sorted((r for one in found for r in one.ranks), key=lambda r: r.rank)
    for first, second in pairwise(ranks):
        if first.rank == second.rank:
            message = f"rank {first.rank} is in {first.file} already: one file for each rank"
            problems.append(wrong("trace", second.file, message))
    if not paths:
        problems.append(wrong("trace", None, "no file is given"))
    if problems:
        raise BadInput(problems)
    return (
        ranks,
        next((one.job for one in found if one.job), {}),
        [n for f in found for n in f.notes],
    )


def read_file(path: str | Path, place: int = 0) -> TraceFile:
    """One file; `place` is the rank where neither the trace nor its name says one."""
    path = Path(path)
    if not path.is_file():
        raise trace_problem(path, "is a folder" if path.is_dir() else "there is no such file")
    own: dict[int, EventColumns] = {}
    columns, head = EventColumns(), dict[str, Any]()
    untimed = 0
    for key, value in events_of(path):
        if key != "event":
            head[key] = value
        elif value.get("ph") == "X":
            good = True
            if value.get("cat") in OWN_STREAMS and isinstance(value.get("pid"), int):
                good = take_own(own.setdefault(value["pid"], EventColumns()), value)
            else:
                good = take(columns, value)
            untimed += not good
    notes = [f"{path.name}: {untimed} events without usable times skipped"] if untimed else []
    own = {rank: one for rank, one in own.items() if len(one.work) or len(one.host)}
    if own:
        job = head.get("otherData")
        job = job if isinstance(job, dict) else {}
        return TraceFile(ranks=own_ranks(path, own, job), job=job, notes=tuple(notes))
    info = head.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank = info.get("rank")
    if not isinstance(rank, int):
        match = _RANK_IN_NAME.search(path.name)
        rank = int(match[1]) if match else place
    if len(columns.work):
        one = device_rank(path, rank, columns, info)
    elif len(columns.ops):
        one = host_rank(path, rank, columns, info)
    else:
        raise trace_problem(path, "has no kernels and no operations: nothing was profiled")
    return TraceFile(ranks=(one,), job={}, notes=tuple(notes))
