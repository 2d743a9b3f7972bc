"""The figure of each verb's answer, from its JSON: what `--plot` writes and what the page shows."""

from collections.abc import Callable, Mapping
from typing import Any

from foretell.report.figures.breakdown import (
    clusters,
    cost_figure,
    phase_bars,
    plans_figure,
    serve_bars,
    shares_bars,
    time_bars,
    total_cost_figures,
)
from foretell.report.figures.explain import elasticity_rows, op_roofline, result_rows, tornado
from foretell.report.figures.lines import bandwidths, latency_bars
from foretell.report.figures.look import Figure, sentence
from foretell.report.figures.memory import memory_bars, memory_over_step
from foretell.report.figures.multiples import panels
from foretell.report.figures.pareto import pareto
from foretell.report.figures.timeline import timeline
from foretell.sharding.pipeline import stage_names
from foretell.units import field_unit
from foretell.units import format as show

Answer = Mapping[str, Any]

MOST_STAGES = 6
"""Panels of a picture of memory: the first stages, the fullest and the last."""


def estimate_figure(answer: Answer) -> Figure:
    """Where time and memory go, side by side."""
    time = time_bars([answer], ["step"], title="Time of a step")
    return panels([time, memory_bars(answer, title="Memory of each stage")], _title(answer), 2)


def search_figure(answer: Answer) -> Figure:
    """Time against memory of the plans that came back."""
    plans = answer["plans"]
    title = f"Plans of {_place(plans[0])}" if plans else "Plans"
    return pareto(plans, "step_s", "peak_memory_bytes", ("min", "min"), title=title)


def explain_figure(answer: Answer) -> Figure:
    """Shares of the step, its operations under the chip's roofs, and what would move it."""
    moves = tornado(
        elasticity_rows(answer),
        "What would move it",
        "the time of a step, each number twice as good",
    )
    parts = [
        shares_bars(answer, title="Where the time goes"),
        op_roofline(answer, title="Operations under the chip's roofs"),
        {**moves, "layout": {**moves["layout"], "showlegend": False}},
    ]
    return panels(parts, _title(answer), 1, 460)


def memory_figure(answer: Answer) -> Figure:
    """Stages over a step: the first, the fullest and the last."""
    numbers = [stage["stage"] for stage in answer["stages"]]
    names = stage_names(numbers, [stage["alike"] for stage in answer["stages"]])
    kept = {*numbers[: MOST_STAGES - 2], answer["fullest_stage"], *numbers[-1:]}
    figures = [
        memory_over_step(answer, number, title=sentence(name))
        for number, name in zip(numbers, names, strict=True)
        if number in kept
    ]
    return panels(figures, f"Memory of one step: {_title(answer)}", 1, 360)


def serve_figure(answer: Answer) -> Figure:
    """Latencies at their percentiles, and where a decode step goes."""
    step = serve_bars([answer], ["decode step"], title="Where a decode step goes")
    return panels([step, latency_bars([answer], title="Latencies")], _title(answer), 1, 420)


def post_train_figure(answer: Answer) -> Figure:
    """What a post-training step waits for, phase by phase."""
    title = f"{answer['algorithm']} of {answer['model']} on {answer['gpus']:,} GPUs"
    return phase_bars([answer], [str(answer["placement"])], title)


def simulate_figure(answer: Answer) -> Figure:
    """The step over time; `traceEvents` are the trace's events."""
    return timeline(answer["traceEvents"], f"One step: {_title(answer)}")


def size_figure(answer: Answer) -> Figure:
    """What a chip gives against what a user gets, over single instances."""
    title = (
        f"{answer['model']} on {answer['system']}, {answer['isl']:g} tokens in, "
        f"{answer['osl']:g} out: one instance"
    )
    x, y = "output_tokens_per_s_per_user", "output_tokens_per_s_per_gpu"
    return pareto(answer["pareto"], x, y, ("max", "max"), title=title)


def sensitivity_figure(answer: Answer) -> Figure:
    """What would move each result."""
    how = "plans chosen anew" if answer["replanned"] else "plan held"
    parts = [
        tornado(
            result_rows(answer, name),
            f"{sentence(words)}, now {result_text(name, answer['results'][name])}",
            words,
            factor=answer["factor"],
        )
        for name, words in answer["result_words"].items()
    ]
    return panels(parts, f"{_title(answer)} ({how})", 1, 480)


def compare_figure(answer: Answer) -> Figure:
    """What a million tokens cost on each cluster, its speed, and its total cost by part."""
    columns = ("usd_per_million_tokens", "tokens_per_s")
    parts = [clusters(answer, column) for column in columns]
    first = answer["cheapest"] or answer["best"]
    word = "cheapest" if answer["cheapest"] else "fastest"
    sure = "" if answer["certain"] or answer["best"] != first else " (not certain)"
    title = f"{first} is the {word} of {len(answer['systems'])} systems{sure}"
    return panels([*parts, *total_cost_figures(answer)], title, 1, 420)


def network_figure(answer: Answer) -> Figure:
    """Bus bandwidth over sizes."""
    name = f"{answer['collective']} among {answer['group']:,} of {answer['system']}"
    made = bandwidths([answer], [name])
    made["layout"]["title"]["text"] = name
    return made


FIGURES: Mapping[str, Callable[[Answer], Figure]] = {
    "estimate": estimate_figure,
    "search": search_figure,
    "explain": explain_figure,
    "memory": memory_figure,
    "serve": serve_figure,
    "post-train": post_train_figure,
    "simulate": simulate_figure,
    "size": size_figure,
    "cost": cost_figure,
    "sensitivity": sensitivity_figure,
    "compare": compare_figure,
    "network": network_figure,
    "compare-plans": plans_figure,
}
"""Verb -> the figure of its answer."""


def result_text(name: str, value: float) -> str:
    """A result as people write it."""
    if "usd" in name:
        return f"{value:.4g} USD"
    return show(value, field_unit(name))


def _place(answer: Answer) -> str:
    return f"{answer['model']} on {answer['gpus']:,} x {answer['system']}"


def _title(answer: Answer) -> str:
    return f"{_place(answer)}, {answer['plan']}" if answer.get("plan") else _place(answer)
