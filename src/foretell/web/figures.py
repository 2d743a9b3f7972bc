"""`POST /api/figures/NAME`: a figure of up to four questions, as Plotly JSON (report/figures)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foretell.errors import Infeasible
from foretell.web import answers as verbs
from foretell.web.limits import Limits, check_work
from foretell.web.names import safe

Answer = dict[str, Any]
MOST_QUESTIONS = 4
"""Scenarios side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """One kind of figure."""

    verb: str
    """The verb whose flags its questions have."""
    draw: Callable[[Sequence[Answer], Sequence[str]], Answer]
    """Answers and their names -> the figure."""
    ask: str = ""
    """The verb that is asked, where it is another."""
    kept: bool = False
    """Whether it is made of answers that the server may have kept: of verbs that take long."""


def draw_figure(name: str, given: Mapping[str, Any], limits: Limits) -> Answer:
    """The figure of a name, of `questions`, with `names` and in a `theme`."""
    kind = KINDS[name]
    found = [
        answer_question(kind.ask or kind.verb, question, limits) for question in given["questions"]
    ]
    return of_answers(name, found, given)


def of_answers(name: str, found: Sequence[Answer], given: Mapping[str, Any]) -> Answer:
    """The figure of a name, of answers."""
    from foretell.report.figures.look import template

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


def _breakdown() -> Any:
    from foretell.report.figures import breakdown

    return breakdown


def _lines() -> Any:
    from foretell.report.figures import lines

    return lines


def _bars(
    module: Callable[[], Any], draw: str, part: str
) -> Callable[[Sequence[Answer], Sequence[str]], Answer]:
    """Bars of the answers that have a part, by a function of report/figures."""

    def drawn(found: Sequence[Answer], names: Sequence[str]) -> Answer:
        known = [(a, name) for a, name in zip(found, names, strict=True) if a.get(part)]
        made = getattr(module(), draw)
        figure: Answer = made([a for a, _ in known], [name for _, name in known])
        return figure

    return drawn


def _memory(found: Sequence[Answer], names: Sequence[str]) -> Answer:
    """The stages of one plan, or the fullest stage of several."""
    from foretell.report.figures.memory import memory_bars

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
    chips = {a["memory_capacity_bytes"] for a, _ in known}
    shared = {"memory_capacity_bytes": chips.pop() if len(chips) == 1 else None}
    whole = {"model": "", "gpus": 0, "system": ""}
    return memory_bars({**whole, **shared, "memory_by_stage": bars}, "Memory of the fullest stage")


def _front(
    part: str, x: str, y: str, better: tuple[str, str]
) -> Callable[[Sequence[Answer], Sequence[str]], Answer]:
    """The rows of a part of some answers, and which of them no other beats."""

    def drawn(found: Sequence[Answer], names: Sequence[str]) -> Answer:
        from foretell.report.figures.pareto import pareto

        rows = [
            {**row, "scenario": name}
            for answer, name in zip(found, names, strict=True)
            for row in answer.get(part, ())
        ]
        return pareto(rows, x, y, better, group="scenario" if len(found) > 1 else None)

    return drawn


def _shares(found: Sequence[Answer], names: Sequence[str]) -> Answer:
    from foretell.report.figures.breakdown import shares_bars

    made = shares_bars(found[0] if found[0].get("time") else {**_NOBODY, "time": []})
    for trace in made["data"]:
        trace["y"] = [name.replace("_", " ") for name in trace["y"]]
    return made


def _tornado(place: int) -> Callable[[Sequence[Answer], Sequence[str]], Answer]:
    """What moves one of the results: the first is time, then come cost and energy."""

    def draw(found: Sequence[Answer], names: Sequence[str]) -> Answer:
        from foretell.report.figures.tornado import result_rows, tornado

        words = found[0].get("result_words") or {}
        if place >= len(words):
            return tornado([])
        result = list(words)[place]
        rows = result_rows(found[0], result)
        return tornado(
            rows, f"What would move {words[result]}", words[result], factor=found[0]["factor"]
        )

    return draw


def _phase_memory(found: Sequence[Answer], names: Sequence[str]) -> Answer:
    """What one chip of each pool holds in every phase of a post-training step."""
    from foretell.report.figures.memory import memory_bars

    rows = (found[0].get("memory") or {}).get("phases") or ()
    pools = {row["pool"] for row in rows}
    bars = [
        {
            "name": row["phase"].replace("_", " ")
            + (f"<br>({row['pool']})" if len(pools) > 1 else ""),
            "value": row["bytes"],
            "capacity_bytes": row["capacity_bytes"],
            "children": [{"name": name, "value": value} for name, value in row["parts"].items()],
        }
        for row in rows
    ]
    chips = {row["capacity_bytes"] for row in rows}
    shared = {"memory_capacity_bytes": chips.pop() if len(chips) == 1 else None}
    whole = {"model": "", "gpus": 0, "system": ""}
    return memory_bars({**whole, **shared, "memory_by_stage": bars}, "Memory by phase")


def _over_step(found: Sequence[Answer], names: Sequence[str]) -> Answer:
    from foretell.report.figures.look import figure
    from foretell.report.figures.memory import memory_over_step

    return memory_over_step(found[0]) if found[0].get("stages") else figure([], "Memory", "", "")


def _cost(tree: str) -> Callable[[Sequence[Answer], Sequence[str]], Answer]:
    """Bars of one of the trees of a cost."""

    def draw(found: Sequence[Answer], names: Sequence[str]) -> Answer:
        from foretell.report.figures.breakdown import cost_bars

        return cost_bars(found, names, tree)

    return draw


def _bandwidths(found: Sequence[Answer], names: Sequence[str]) -> Answer:
    from foretell.report.figures.lines import bandwidths

    return bandwidths(found, names)


def _clusters(column: str) -> Callable[[Sequence[Answer], Sequence[str]], Answer]:
    """Bars of the systems of one comparison."""

    def draw(found: Sequence[Answer], names: Sequence[str]) -> Answer:
        from foretell.report.figures.breakdown import clusters

        return clusters(found[0], column)

    return draw


def _curves(column: str) -> Callable[[Sequence[Answer], Sequence[str]], Answer]:
    """Lines of strategies over numbers of GPUs."""

    def draw(found: Sequence[Answer], names: Sequence[str]) -> Answer:
        from foretell.report.figures.scaling import curves

        return curves(found, names, column)

    return draw


def _timeline(found: Sequence[Answer], names: Sequence[str]) -> Answer:
    from foretell.report.figures.timeline import timeline

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
_NOBODY = {"model": "", "system": "", "gpus": 0, "plan": ""}
USER, CHIP = "output_tokens_per_s_per_user", "output_tokens_per_s_per_gpu"
"""Columns of a front of services."""
ASKED: Mapping[str, Callable[[dict[str, Any], Limits], Answer]] = {**verbs.VERBS, "played": _played}
KINDS: Mapping[str, FigureKind] = {
    "time": FigureKind(verb="estimate", draw=_bars(_breakdown, "time_bars", "breakdown")),
    "memory": FigureKind(verb="estimate", draw=_memory),
    "plans": FigureKind(
        verb="search", draw=_front("plans", "peak_memory_bytes", "step_s", ("min", "min"))
    ),
    "shares": FigureKind(verb="explain", draw=_shares),
    "memory-over-step": FigureKind(verb="memory", draw=_over_step),
    "tornado": FigureKind(verb="sensitivity", draw=_tornado(0), kept=True),
    "tornado-cost": FigureKind(verb="sensitivity", draw=_tornado(1), kept=True),
    "tornado-energy": FigureKind(verb="sensitivity", draw=_tornado(2), kept=True),
    "timeline": FigureKind(verb="simulate", draw=_timeline, ask="played"),
    "pareto": FigureKind(verb="size", draw=_front("pareto", USER, CHIP, ("max", "max")), kept=True),
    "latencies": FigureKind(verb="serve", draw=_bars(_lines, "latency_bars", "ttft_ms"), kept=True),
    "decode": FigureKind(verb="serve", draw=_bars(_breakdown, "serve_bars", "step_ms"), kept=True),
    "phases": FigureKind(
        verb="post-train", draw=_bars(_breakdown, "phase_bars", "phases"), kept=True
    ),
    "phase-memory": FigureKind(verb="post-train", draw=_phase_memory, kept=True),
    "cost-run": FigureKind(verb="cost run", draw=_cost("breakdown")),
    "cost-run-energy": FigureKind(verb="cost run", draw=_cost("energy")),
    "cost-token": FigureKind(verb="cost token", draw=_cost("breakdown")),
    "cost-token-energy": FigureKind(verb="cost token", draw=_cost("energy")),
    "cost-system": FigureKind(verb="cost system", draw=_cost("breakdown")),
    "cost-system-year": FigureKind(verb="cost system", draw=_cost("year")),
    "bandwidths": FigureKind(verb="network", draw=_bandwidths),
    "clusters": FigureKind(verb="compare", draw=_clusters("tokens_per_s"), kept=True),
    "clusters-cost": FigureKind(
        verb="compare", draw=_clusters("usd_per_million_tokens"), kept=True
    ),
    "scaling": FigureKind(verb="scaling", draw=_curves("tokens_per_s_per_gpu"), kept=True),
    "scaling-efficiency": FigureKind(verb="scaling", draw=_curves("efficiency"), kept=True),
}
"""Every figure of the page."""
