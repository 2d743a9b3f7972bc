"""Trace files to ranks: what each computed, sent, copied and waited for, and when its steps were."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from foretell.errors import BadInput, Problem
from foretell.lab.characterize.traces.columns import OWN_STREAMS, EventColumns, take, take_own
from foretell.lab.characterize.traces.device import device_rank
from foretell.lab.characterize.traces.host import host_rank
from foretell.lab.characterize.traces.own import own_ranks
from foretell.lab.characterize.traces.rank_trace import RankTrace
from foretell.lab.characterize.traces.stream import events_of, trace_problem

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
            problems.append(Problem(path="trace", value=second.file, message=message))
    if not paths:
        problems.append(Problem(path="trace", value=None, message="no file is given"))
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
