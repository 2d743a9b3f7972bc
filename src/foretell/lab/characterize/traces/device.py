"""A rank with an accelerator: its kernels, and what the host's events say of them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.lab.characterize.traces.columns import TABLES, EventColumns, EventTable
from foretell.lab.characterize.traces.names import (
    COMMUNICATION,
    COPY,
    GEMM,
    MEMSET,
    OPTIMIZER,
    kernel_family,
    sent_of,
)
from foretell.lab.characterize.traces.rank_trace import (
    PHASES,
    KernelEvents,
    RankTrace,
    Spans,
    Times,
    TracedStep,
    covered_ns,
    difference,
    union,
)
from foretell.specs.arrays import Index, Mask

BACKWARD = "autograd::engine::evaluate_function"
"""How the names of operations begin that the backward pass is made of."""
UPDATE, WAITS, GRAPH, LIBRARY = (
    re.compile(TABLES[name]) for name in ("update", "waits", "graph", "library")
)
"""Annotations of the optimizer; calls in which the host waits for its accelerator; those that launch many
kernels at once, of a pass that is not known; annotations that are not one's own."""
MOST_RANGES = 64
"""Names of annotations that are kept."""
STEP = re.compile(r"ProfilerStep#(\d+)")
"""Annotations of the profiler's steps."""


def device_rank(path: Path, rank: int, columns: EventColumns, info: Mapping[str, Any]) -> RankTrace:
    """Kernels by family and pass, copies, collectives, host activity, steps."""
    texts, work = columns.texts, columns.work
    starts, ends = work.column("starts"), work.column("ends")
    names, kinds = work.column("names"), np.frombuffer(columns.kinds, np.int8)
    family = _families(texts, names, kinds)
    sends = np.array([f == COMMUNICATION for f in family.texts], bool)[family.of]
    said = np.zeros(len(names), bool)
    said[[*columns.args]] = True
    sends = (sends | said) & (kinds == 0)
    launch = launching_calls(columns, work.column("keys"))
    phase = _phases(columns, launch)
    update = np.array([f == OPTIMIZER for f in family.texts], bool)[family.of]
    phase = np.where(update, PHASES.index("optimizer"), phase)
    op, ops = _shapes(columns, launch, family)
    computes = ~sends & (kinds == 0)
    # Small kernels of the optimizer's step are its work, whatever they are called.
    late = (phase == PHASES.index("optimizer")) & (kinds == 0)
    everything = KernelEvents(
        starts=starts,
        ends=ends,
        families=family.texts,
        family=np.where(late, family.texts.index(OPTIMIZER), family.of),
        phase=phase,
        ops=ops,
        op=op,
        first=np.ones(len(starts), bool),
    )
    places = np.flatnonzero(sends)
    return RankTrace(
        file=path.name,
        rank=rank,
        device="gpu",
        work=everything.some(computes),
        copies=everything.some(kinds > 0),
        sent=sent_of(starts, ends, places, _kernel_args(columns, texts, names, places), info),
        ranges=ranges_of(columns.gpu_notes, texts),
        host=_host(columns),
        steps=_steps(columns, starts, ends, launch),
    )


class KernelFamilies:
    """A family for each piece of work."""

    def __init__(self, texts: tuple[str, ...], of: Index) -> None:
        """Families that occur, and which each is of."""
        self.texts, self.of = texts, of


def _families(texts: list[str], names: Times, kinds: NDArray[np.int8]) -> KernelFamilies:
    """By name, once for each distinct one; copies and fills by their category."""
    known = [kernel_family(text) for text in texts]
    every = tuple(dict.fromkeys([*known, COPY, MEMSET, OPTIMIZER]))
    by_name = np.array([every.index(f) for f in known], np.intp)
    of = by_name[names]
    of = np.where(kinds == 1, every.index(COPY), of)
    return KernelFamilies(every, np.where(kinds == 2, every.index(MEMSET), of))


def _kernel_args(
    columns: EventColumns, texts: list[str], names: Times, places: Index
) -> list[Mapping[str, Any]]:
    """What the trace says of each collective, its kernel's name where that is all."""
    return [
        {"Collective name": texts[names[place]], **columns.args.get(int(place), {})}
        for place in places
    ]


def launching_calls(columns: EventColumns, correlation: Times) -> Index:
    """Of each piece of work, the place of the call that launched it; -1 where it is not known."""
    keys = columns.launches.column("keys")
    if not len(keys):
        return np.full(len(correlation), -1, np.intp)
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys[order], correlation), len(keys) - 1)
    known = (keys[order][place] == correlation) & (correlation >= 0)
    return np.where(known, order[place], -1)


def _phases(columns: EventColumns, launch: Index) -> Index:
    """The pass in which each piece of work was launched."""
    calls, texts = columns.launches, columns.texts
    if not len(calls):
        return np.zeros(len(launch), np.intp)
    when, thread = calls.column("starts"), calls.column("threads")
    found = phases_at(columns, when, thread)
    graph = np.array([bool(GRAPH.search(text)) for text in texts], bool)[calls.column("names")]
    found = np.where(graph, 0, found)
    return np.where(launch >= 0, found[np.maximum(launch, 0)], 0)


def phases_at(columns: EventColumns, when: Times, thread: Times) -> Index:
    """The pass that a thread was in at a moment: of the optimizer, backward, else forward."""
    texts = columns.texts
    backward = [number for number, text in enumerate(texts) if text.startswith(BACKWARD)]
    update = [number for number, text in enumerate(texts) if UPDATE.search(text)]
    found = np.full(len(when), PHASES.index("forward"), np.intp)
    for place, table, names in (
        (PHASES.index("backward"), columns.ops, backward),
        (PHASES.index("optimizer"), columns.notes, update),
    ):
        chosen = np.isin(table.column("names"), names)
        for number in np.unique(table.column("threads")[chosen]):
            here = chosen & (table.column("threads") == number)
            spans = union(table.column("starts")[here], table.column("ends")[here])
            mine = thread == number
            found[mine] = np.where(is_inside(spans, when[mine]), place, found[mine])
    return found


def is_inside(spans: Spans, moments: Times) -> Mask:
    """Whether each moment is in a set of spans."""
    return np.asarray(covered_ns(spans, moments + 1) > covered_ns(spans, moments))


def _shapes(
    columns: EventColumns, launch: Index, family: KernelFamilies
) -> tuple[Index, tuple[str, ...]]:
    """Products by the shape of the operation that launched them."""
    gemm = np.array([f == GEMM for f in family.texts], bool)[family.of]
    none = np.full(len(launch), -1, np.intp)
    if not columns.dims or not len(columns.ops):
        return none, ()
    # The operation is the last one with a shape that began before the call, on its thread, and is not over.
    found = none.copy()
    ops, calls = columns.ops, columns.launches
    shaped = np.isin(ops.column("keys"), np.array([*columns.dims], np.int64))
    texts = list(dict.fromkeys(shape_text(dims) for dims in columns.dims.values()))
    number_of = {text: number for number, text in enumerate(texts)}
    shape = {key: number_of[shape_text(dims)] for key, dims in columns.dims.items()}
    for number in np.unique(ops.column("threads")[shaped]):
        here = np.flatnonzero(shaped & (ops.column("threads") == number))
        here = here[np.argsort(ops.column("starts")[here], kind="stable")]
        mine = gemm & (launch >= 0)
        mine &= calls.column("threads")[np.maximum(launch, 0)] == number
        when = calls.column("starts")[launch[mine]]
        place = np.searchsorted(ops.column("starts")[here], when, side="right") - 1
        row = here[np.maximum(place, 0)]
        good = (place >= 0) & (ops.column("ends")[row] > when)
        keys = ops.column("keys")[row].tolist()
        of = [shape[key] if there else -1 for key, there in zip(keys, good, strict=True)]
        found[mine] = np.array(of, np.intp)
    return found, tuple(texts)


def shape_text(dims: tuple[int, int, int]) -> str:
    """A product and its two gradients alike: their three sides, the longest first."""
    return "x".join(str(side) for side in sorted(dims, reverse=True))


def _host(columns: EventColumns) -> Spans:
    """When the host was at work and not waiting for its accelerator."""
    tables = (columns.ops, columns.launches)
    starts = np.concatenate([t.column("starts") for t in tables])
    ends = np.concatenate([t.column("ends") for t in tables])
    calls, texts = columns.launches, columns.texts
    waits = np.array([bool(WAITS.search(text)) for text in texts], bool)[calls.column("names")]
    waiting = union(calls.column("starts")[waits], calls.column("ends")[waits])
    return difference(union(starts, ends), waiting)


def step_notes(table: EventTable, texts: list[str]) -> list[tuple[int, int, int]]:
    """Number, beginning and end of each of the profiler's steps, over all streams."""
    numbers = {i: int(m[1]) for i, text in enumerate(texts) if (m := STEP.fullmatch(text))}
    found: dict[int, tuple[int, int]] = {}
    names, starts, ends = (table.column(n) for n in ("names", "starts", "ends"))
    for place in np.flatnonzero(np.isin(names, [*numbers])):
        number = numbers[int(names[place])]
        low, high = found.get(number, (int(starts[place]), int(ends[place])))
        found[number] = min(low, int(starts[place])), max(high, int(ends[place]))
    return sorted((number, *ends) for number, ends in found.items())


def ranges_of(table: EventTable, texts: list[str]) -> dict[str, Spans]:
    """Annotations by name, without the profiler's steps and the libraries' own; the longest ones."""
    names, starts, ends = (table.column(n) for n in ("names", "starts", "ends"))
    found = {}
    for number in np.unique(names).tolist():
        if not LIBRARY.match(texts[number]):
            mine = names == number
            found[texts[number]] = union(starts[mine], ends[mine])
    longest = sorted(found, key=lambda name: (-found[name].total_ns, name))
    return {name: found[name] for name in longest[:MOST_RANGES]}


def _steps(
    columns: EventColumns, starts: Times, ends: Times, launch: Index
) -> tuple[TracedStep, ...]:
    """Steps on the accelerator: as it was annotated, else from the first kernel that each launched.

    A step goes on until the next begins; the last until its own end.
    """
    texts = columns.texts
    marked = step_notes(columns.gpu_notes, texts)
    if not marked:
        marked = _from_launches(columns, starts, ends, launch)
    if not marked:
        return (TracedStep(name="whole", start_ns=int(starts.min()), end_ns=int(ends.max())),)
    return until_next(marked)


def until_next(marked: list[tuple[int, int, int]]) -> tuple[TracedStep, ...]:
    """Steps that go on until the next begins."""
    found = []
    for place, (number, start, end) in enumerate(marked):
        last = place + 1 == len(marked)
        found.append(
            TracedStep(
                name=str(number), start_ns=start, end_ns=end if last else marked[place + 1][1]
            )
        )
    return tuple(step for step in found if step.end_ns > step.start_ns)


def _from_launches(
    columns: EventColumns, starts: Times, ends: Times, launch: Index
) -> list[tuple[int, int, int]]:
    """The host's steps, moved to where the work that they launched ran."""
    marked = step_notes(columns.notes, columns.texts)
    if not marked or not (launch >= 0).any():
        return marked
    when = columns.launches.column("starts")[np.maximum(launch, 0)]
    found = []
    for number, start, end in marked:
        here = (launch >= 0) & (when >= start) & (when < end)
        if here.any():
            found.append((number, int(starts[here].min()), int(ends[here].max())))
    return found
