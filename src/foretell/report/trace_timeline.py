"""Timelines of a traced step and of its prediction, one below the other on one scale."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.lab.characterize.traces.columns import EventColumns, take_own
from foretell.lab.characterize.traces.intervals import Times, covered_ns, first_come, union
from foretell.lab.characterize.traces.own import own_ranks
from foretell.lab.characterize.traces.rank_trace import RankTrace, TracedStep
from foretell.lab.characterize.traces.run import TraceReport
from foretell.report.svg import COLOURS, FRAME, PALE, Picture, bar, legend, line, text, ticks
from foretell.simulation.step import played_step, rank_stride
from foretell.simulation.trace import trace_events
from foretell.specs.result import StepEstimate

WIDTH, LEFT, RIGHT, LANE, GAP = 1180.0, 150.0, 1010.0, 34.0, 8.0
"""Pixels: of the picture, of the time axis, of one lane and between two."""
CELL = 2.0
"""Pixels of the time axis that are drawn together."""
CELLS = int((RIGHT - LEFT) / CELL)
"""How many there are of them."""
MORE = ("#1c2530", "#9bb83a", "#7a7fe0", "#f0a04b", "#5c4033", "#66c2ff")
"""Colours after the usual ones: a trace may have many families and collectives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One stream, as what fills each cell of the time axis."""

    name: str
    """On its left."""
    labels: tuple[str, ...]
    """What occurs."""
    filled: NDArray[np.float64]
    """Share of each cell that each of them fills; (labels, cells)."""


def traced_picture(found: TraceReport) -> Picture:
    """The first step of the busiest rank, and the predicted step below it."""
    trace = next(t for t in found.traces if t.rank == found.busiest)
    asked = found.of(found.busiest)[0].step
    step = next(s for s in trace.steps if s.name == asked)
    longest = step.end_ns - step.start_ns
    groups = [(f"rank {trace.rank}, step {step.name}", trace, step)]
    if found.predicted is not None:
        ours = _played(found.predicted.estimate, trace.rank)
        groups.append(("predicted", ours, ours.steps[0]))
        longest = max(longest, ours.steps[0].end_ns - ours.steps[0].start_ns)
    title = "A step as it was traced" + (", and as predicted" if len(groups) > 1 else "")
    parts, names, y = [text(20, 28, title, size=15)], list[str](), 52.0
    for name, one, window in groups:
        parts.append(text(20, y + 12, name, size=13, bold=True))
        y += 22.0
        for lane in _lanes(one, window, longest):
            names += [label for label in lane.labels if label not in names]
            parts += _drawn(lane, y, names)
            y += LANE + GAP
        y += 14.0
    parts += _axis(longest, 52.0, y)
    parts += legend(RIGHT + 18.0, 60.0, [(name, _colour(names, name)) for name in names])
    height = max(y + 50.0, 80.0 + 21.0 * len(names))
    return Picture(title=title, width=WIDTH, height=height, parts=tuple(parts))


def _colour(names: Sequence[str], name: str) -> str:
    every = (*COLOURS, *MORE)
    return every[names.index(name) % len(every)]


def _played(answer: StepEstimate, rank: int) -> RankTrace:
    """The predicted step, played, as a trace: of the stage that a rank stands on."""
    if answer.scenario is None:  # made by hand
        raise ValueError("an estimate without its question")
    laid, played = played_step(answer.scenario, answer.plan)
    ranks: dict[int, EventColumns] = {}
    for event in trace_events(laid, played, "ops" if laid.plan.pp == 1 else "auto"):
        if event["ph"] == "X":
            take_own(ranks.setdefault(event["pid"], EventColumns()), event)
    job = {"step_s": played.step_s, "plan": str(laid.plan)}
    stage = rank // rank_stride(laid.plan) % laid.plan.pp
    return own_ranks(Path("predicted"), ranks, job)[stage]


def _lanes(trace: RankTrace, step: TracedStep, longest: int) -> Iterator[Lane]:
    """Compute, communication, copies and the host of one rank."""
    work, sent, copies = trace.work, trace.sent, trace.copies
    families = [work.families[k] for k in work.family]
    yield _lane("compute", work.starts, work.ends, families, step, longest)
    kinds = [sent.kinds[k] for k in sent.kind]
    if kinds:
        yield _lane("communication", sent.starts, sent.ends, kinds, step, longest)
    if len(copies.starts):
        names = [copies.families[k] for k in copies.family]
        yield _lane("copies", copies.starts, copies.ends, names, step, longest)
    if len(trace.host.starts):
        hosts = ["host"] * len(trace.host.starts)
        yield _lane("host", trace.host.starts, trace.host.ends, hosts, step, longest)


def _lane(
    name: str, starts: Times, ends: Times, labels: Sequence[str], step: TracedStep, longest: int
) -> Lane:
    """Spans as cells: how much of each is whose."""
    inside = (ends > step.start_ns) & (starts < step.end_ns)
    some = [label for label, here in zip(labels, inside, strict=True) if here]
    known = tuple(dict.fromkeys(some))
    number = {label: place for place, label in enumerate(known)}
    of = np.array([number[label] for label in some], np.intp)
    order, begins, finishes = first_come(starts[inside], ends[inside])
    begins = np.clip(begins, step.start_ns, step.end_ns) - step.start_ns
    finishes = np.clip(finishes, step.start_ns, step.end_ns) - step.start_ns
    edges = np.rint(np.linspace(0, longest, CELLS + 1)).astype(np.int64)
    filled = np.zeros((len(known), CELLS))
    for place in range(len(known)):
        mine = of[order] == place
        spans = union(begins[mine], finishes[mine])
        filled[place] = np.diff(covered_ns(spans, edges)) / np.maximum(np.diff(edges), 1)
    return Lane(name=name, labels=known, filled=filled)


def _drawn(lane: Lane, y: float, names: Sequence[str]) -> Iterator[str]:
    """Cells as stacks of what fills them; equal ones beside each other are one."""
    yield text(LEFT - 8.0, y + 20.0, lane.name, size=11, anchor="end")
    yield line((LEFT, y + LANE), (RIGHT, y + LANE), FRAME, width=0.3)
    if not len(lane.labels):
        return
    high = np.rint(lane.filled * LANE)
    edges = [0, *(np.flatnonzero((np.diff(high) != 0).any(axis=0)) + 1).tolist(), CELLS]
    for low, end in pairwise(edges):
        floor = y + LANE
        for place in np.flatnonzero(high[:, low]).tolist():
            label, tall = lane.labels[place], float(high[place, low])
            floor -= tall
            wide = CELL * (end - low)
            yield bar(LEFT + CELL * low, floor, wide, tall, _colour(names, label), hint=label)


def _axis(longest: int, top: float, bottom: float) -> Iterator[str]:
    """Milliseconds below both."""
    whole = longest * 1e-6
    for value in ticks(0.0, whole):
        if value <= whole * 1.001:
            x = LEFT + (RIGHT - LEFT) * value / whole
            yield line((x, top), (x, bottom), PALE, width=0.2)
            yield text(x, bottom + 16.0, f"{value:g}", size=11, anchor="middle")
    yield text(RIGHT, bottom + 34.0, "ms", size=11, anchor="end", colour=PALE)
