"""Ranks of a trace that `foretell simulate` wrote: streams of computation, exchanges, copies and the host."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foretell.lab.characterize.traces.columns import OWN_STREAMS, EventColumns
from foretell.lab.characterize.traces.intervals import union
from foretell.lab.characterize.traces.names import COPY, ELEMENTWISE, OPTIMIZER, OTHER
from foretell.lab.characterize.traces.rank_trace import (
    PHASES,
    CommEvents,
    KernelEvents,
    RankTrace,
    TracedStep,
)

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
