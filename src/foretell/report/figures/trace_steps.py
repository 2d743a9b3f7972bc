"""Timelines of a traced step and of its prediction, one below the other on one scale."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from foretell.lab.characterize.traces.columns import EventColumns, take_own
from foretell.lab.characterize.traces.rank_trace import RankTrace, Times, TracedStep
from foretell.lab.characterize.traces.read import own_ranks
from foretell.lab.characterize.traces.run import TraceReport
from foretell.report.figures.look import Figure
from foretell.report.figures.timeline import timeline
from foretell.simulation.streams import played_step, rank_stride
from foretell.simulation.trace import trace_events
from foretell.specs.result import StepEstimate

Event = dict[str, Any]


def trace_figure(found: TraceReport) -> Figure:
    """The first step of the busiest rank, and the predicted step below it."""
    trace = next(t for t in found.traces if t.rank == found.busiest)
    asked = found.of(found.busiest)[0].step
    step = next(s for s in trace.steps if s.name == asked)
    events = list(_events(0, f"rank {trace.rank}, step {step.name}", trace, step))
    title = "A step as it was traced"
    if found.predicted is not None:
        ours = _played(found.predicted.estimate, trace.rank)
        events += _events(1, "predicted", ours, ours.steps[0])
        title += ", and as predicted"
    return timeline(events, title)


def _played(answer: StepEstimate, rank: int) -> RankTrace:
    """The predicted step, simulated, as a trace: of the stage that a rank is on."""
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


def _events(place: int, name: str, trace: RankTrace, step: TracedStep) -> Iterator[Event]:
    """Compute, communication, copies and the host of one rank, as events of a trace."""
    work, sent, copies, host = trace.work, trace.sent, trace.copies, trace.host
    lanes: tuple[tuple[str, Times, Times, Sequence[str]], ...] = (
        ("compute", work.starts, work.ends, [work.families[k] for k in work.family]),
        ("communication", sent.starts, sent.ends, [sent.kinds[k] for k in sent.kind]),
        ("copies", copies.starts, copies.ends, [copies.families[k] for k in copies.family]),
        ("host", host.starts, host.ends, ["host"] * len(host.starts)),
    )
    yield {"ph": "M", "name": "process_name", "pid": place, "args": {"name": name}}
    for lane, (stream, starts, ends, labels) in enumerate(lanes):
        about = {"pid": place, "tid": lane}
        yield {"ph": "M", "name": "thread_name", **about, "args": {"name": stream}}
        spans = zip(starts.tolist(), ends.tolist(), labels, strict=True)
        for start, end, label in spans:
            first, last = max(start, step.start_ns), min(end, step.end_ns)
            if last > first:
                at = {"ts": (first - step.start_ns) * 1e-3, "dur": (last - first) * 1e-3}
                # Coloured by what it is, in every stream.
                yield {"ph": "X", "cat": label, "name": label, **about, **at, "args": {}}
