"""`POST /api/figures/NAME`: a figure of up to four questions, as Plotly JSON (report/figures)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foretell.errors import Infeasible
from foretell.records import dataclass
from foretell.report.figures.breakdown import (
    clusters,
    cost_bars,
    phase_bars,
    serve_bars,
    shares_bars,
    time_bars,
)
from foretell.report.figures.explain import result_rows, tornado
from foretell.report.figures.lines import bandwidths, latency_bars
from foretell.report.figures.look import figure, template
from foretell.report.figures.memory import memory_bars, memory_over_step
from foretell.report.figures.pareto import pareto
from foretell.report.figures.scaling import curves
from foretell.report.figures.timeline import timeline
from foretell.web import answers as verbs
from foretell.web.limits import Limits, check_work
from foretell.web.names import safe

Answer = dict[str, Any]
Draw = Callable[[Sequence[Answer], Sequence[str]], Answer]
MOST_QUESTIONS = 4
"""Scenarios side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """One kind of figure."""

    verb: str
    """The verb whose flags its questions have."""
    draw: Draw
    """Answers and their names -> the figure."""
    ask: str = ""
    """The verb that is asked, where it is another."""
    kept: bool = False
    """Whether it is made of answers that the server may have kept: of verbs that take long."""


def draw_figure(name: str, given: Mapping[str, Any], limits: Limits) -> Answer:
    """The figure of a name, of `questions`, with `names` and in a `theme`."""
    kind = KINDS[name]
    asked = kind.ask or kind.verb
    return of_answers(name, [answer_question(asked, q, limits) for q in given["questions"]], given)


def of_answers(name: str, found: Sequence[Answer], given: Mapping[str, Any]) -> Answer:
    """The figure of a name, of answers."""
    names = list(given.get("names") or ())[: len(found)]
    names += ["ABCD"[i] for i in range(len(names), len(found))]
    made = KINDS[name].draw(found, names)
    made["layout"]["template"] = template(given.get("theme") or "light")
    return made


def answer_question(verb: str, question: Mapping[str, Any], limits: Limits) -> Answer:
    """The answer to one question; the answer no where that is it."""
    from foretell.inputs.question import as_texts
    from foretell.report.refusal import no_as_dict

    check_work(question)
    flags = safe(question)
    if "set" in flags:
        flags["set"] = as_texts(flags["set"])
    try:
        return ASKED[verb](flags, limits)
    except Infeasible as error:
        return no_as_dict(error.problems, error.answer, hints=False)


def _all(made: Callable[..., Answer], *more: Any) -> Draw:
    """All answers side by side."""
    return lambda found, names: made(found, names, *more)


def _those_with(part: str, made: Callable[..., Answer]) -> Draw:
    """The answers that have a part, side by side."""

    def draw(found: Sequence[Answer], names: Sequence[str]) -> Answer:
        known = [(a, name) for a, name in zip(found, names, strict=True) if a.get(part)]
        return made([a for a, _ in known], [name for _, name in known])

    return draw


def _first(part: str, made: Callable[..., Answer], *more: Any) -> Draw:
    """The first answer; a figure of nothing where it lacks a part."""
    return lambda found, names: (
        made(found[0], *more) if found[0].get(part) else figure([], "", "", "")
    )


def _front(part: str, x: str, y: str, better: tuple[str, str]) -> Draw:
    """The rows of a part of some answers, and which of them no other beats."""

    def draw(found: Sequence[Answer], names: Sequence[str]) -> Answer:
        rows = [
            {**row, "scenario": name}
            for answer, name in zip(found, names, strict=True)
            for row in answer.get(part, ())
        ]
        group = "scenario" if len(found) > 1 else None
        return pareto(rows, x, y, better, group=group)

    return draw


def _tornado(place: int) -> Draw:
    """What moves one of the results: the first is time, then come cost and energy."""

    def draw(found: Sequence[Answer], names: Sequence[str]) -> Answer:
        words = found[0].get("result_words") or {}
        if place >= len(words):
            return tornado([])
        result = list(words)[place]
        rows, title = result_rows(found[0], result), f"What would move {words[result]}"
        return tornado(rows, title, words[result], factor=found[0]["factor"])

    return draw


def _memory(found: Sequence[Answer], names: Sequence[str]) -> Answer:
    """The stages of one plan, or the fullest stage of several."""
    known = [(a, name) for a, name in zip(found, names, strict=True) if a.get("memory")]
    if len(known) == 1:
        return memory_bars(known[0][0])
    bars = [
        {
            **a["memory"],
            "name": name,
            "interval": a["intervals"].get("peak_memory_bytes"),
            "capacity_bytes": a["memory_capacity_bytes"],
        }
        for a, name in known
    ]
    return _memory_of(bars, "Memory of the fullest stage")


def _phase_memory(found: Sequence[Answer], names: Sequence[str]) -> Answer:
    """What one chip of each pool holds in every phase of a post-training step."""
    rows = (found[0].get("memory") or {}).get("phases") or ()
    several = len({row["pool"] for row in rows}) > 1
    bars = [
        {
            "name": row["phase"].replace("_", " ") + (f"<br>({row['pool']})" if several else ""),
            "value": row["bytes"],
            "capacity_bytes": row["capacity_bytes"],
            "children": [{"name": name, "value": value} for name, value in row["parts"].items()],
        }
        for row in rows
    ]
    return _memory_of(bars, "Memory by phase")


def _memory_of(bars: Sequence[Answer], title: str) -> Answer:
    """Bars of memory, below one capacity where all have the same."""
    chips = {bar["capacity_bytes"] for bar in bars}
    shared = {"memory_capacity_bytes": chips.pop() if len(chips) == 1 else None}
    return memory_bars({**shared, "memory_by_stage": bars}, title)


def _timeline(found: Sequence[Answer], names: Sequence[str]) -> Answer:
    return timeline(found[0].get("events", ()), str(found[0].get("plan", "One step")))


def _played(given: dict[str, Any], limits: Limits) -> Answer:
    """The events of a simulated step, by tasks: what a screen can show."""
    from foretell.api import training as api
    from foretell.errors import BadInput
    from foretell.simulation.streams import played_step
    from foretell.simulation.trace import trace_events

    question = {name: given[name] for name in given if name in PLACE}
    result = api.estimate(**question)
    if result.scenario is None:
        raise BadInput([])
    events = trace_events(*played_step(result.scenario, result.plan), "tasks")
    return {"plan": str(result.plan), "events": list(events)}


PLACE = (
    "model", "system", "gpus", "global_batch", "seq_len", "target_len", "plan", "set", "measured",
)  # fmt: skip
"""Flags of a step."""
USER, CHIP = "output_tokens_per_s_per_user", "output_tokens_per_s_per_gpu"
"""Columns of a front of services."""
ASKED: Mapping[str, Callable[[dict[str, Any], Limits], Answer]] = {**verbs.VERBS, "played": _played}
_AT_ONCE: Mapping[str, tuple[str, Draw]] = {
    "time": ("estimate", _those_with("breakdown", time_bars)),
    "memory": ("estimate", _memory),
    "plans": ("search", _front("plans", "peak_memory_bytes", "step_s", ("min", "min"))),
    "shares": ("explain", _first("time", shares_bars)),
    "memory-over-step": ("memory", _first("stages", memory_over_step)),
    "cost-run": ("cost run", _all(cost_bars, "breakdown")),
    "cost-run-energy": ("cost run", _all(cost_bars, "energy")),
    "cost-token": ("cost token", _all(cost_bars, "breakdown")),
    "cost-token-energy": ("cost token", _all(cost_bars, "energy")),
    "cost-system": ("cost system", _all(cost_bars, "breakdown")),
    "cost-system-year": ("cost system", _all(cost_bars, "year")),
    "bandwidths": ("network", _all(bandwidths)),
}
"""Figures whose answers are quick -> the verb, and how they are drawn."""
_KEPT: Mapping[str, tuple[str, Draw]] = {
    "tornado": ("sensitivity", _tornado(0)),
    "tornado-cost": ("sensitivity", _tornado(1)),
    "tornado-energy": ("sensitivity", _tornado(2)),
    "pareto": ("size", _front("pareto", USER, CHIP, ("max", "max"))),
    "latencies": ("serve", _those_with("ttft_ms", latency_bars)),
    "decode": ("serve", _those_with("step_ms", serve_bars)),
    "phases": ("post-train", _those_with("phases", phase_bars)),
    "phase-memory": ("post-train", _phase_memory),
    "clusters": ("compare", _first("systems", clusters, "tokens_per_s")),
    "clusters-cost": ("compare", _first("systems", clusters, "usd_per_million_tokens")),
    "scaling": ("scaling", _all(curves, "tokens_per_s_per_gpu")),
    "scaling-efficiency": ("scaling", _all(curves, "efficiency")),
}
"""Figures of answers that the server may have kept."""
KINDS: Mapping[str, FigureKind] = {
    **{name: FigureKind(verb=verb, draw=draw) for name, (verb, draw) in _AT_ONCE.items()},
    **{name: FigureKind(verb=verb, draw=draw, kept=True) for name, (verb, draw) in _KEPT.items()},
    "timeline": FigureKind(verb="simulate", draw=_timeline, ask="played"),
}
"""Every figure of the page."""
