"""Where the time goes, as bars."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import (
    COLOURS,
    GREY,
    Figure,
    distinct_colours,
    error_bars,
    every_row,
    figure,
    gap_of,
    unit_of_seconds,
)

Answer = Mapping[str, Any]

FAINT = 0.002
"""Shares of the longest bar below this are shown together."""
KNOWN: Mapping[str, str] = {
    "compute": COLOURS[0],
    "compute.gemm": COLOURS[0],
    "compute.attention": COLOURS[4],
    "memory_bound": COLOURS[2],
    "recompute": COLOURS[7],
    "tensor_parallel": COLOURS[1],
    "context_parallel": COLOURS[9],
    "expert_parallel": "#F0A6C8",
    "pipeline_parallel": COLOURS[3],
    "data_parallel": COLOURS[5],
    "bubble": GREY,
    "optimizer": COLOURS[6],
    "gradient_sums": "#7FCDBB",
    "fixed": "#C9CED4",
    "host": "#B4BAC2",
    "offload": "#6B4E2E",
    "other": "#C9CED4",
}
"""A share has one colour in every figure."""


def time_bars(answers: Sequence[Answer], names: Sequence[str] = (), title: str = "") -> Figure:
    """A bar for each estimate, of the shares of its step; the error bar is that of the whole."""
    answers = [answer for answer in answers if answer.get("breakdown")]
    stacks = [_shares(answer["breakdown"]) for answer in answers]
    labels = list(names) or [str(answer.get("plan")) for answer in answers]
    factor, unit = unit_of_seconds([sum(stack.values()) for stack in stacks])
    heading = title or _title(answers)
    return _stacked(
        stacks, labels, heading, f"step time ({unit})", factor,
        [answer.get("interval") for answer in answers],
    )  # fmt: skip


SERVED: Mapping[str, str] = {
    "matrices": "matrix multiplications",
    "exchanges": "communication",
    "head": "output head",
}
"""Parts of a decode step -> what they are called."""


PHASES: Mapping[str, str] = {
    "adv": "advantages",
    "old_logprob": "log-probabilities",
    "ref_logprob": "reference log-probabilities",
    "weight_sync": "weight synchronisation",
}
"""Phases of a post-training step -> what they are called."""


def serve_bars(answers: Sequence[Answer], names: Sequence[str] = (), title: str = "") -> Figure:
    """A bar for each deployment, of the shares of a decode step."""
    stacks = [
        {SERVED.get(k, k): v / 1e3 for k, v in answer["step_ms"].items()} for answer in answers
    ]
    labels = list(names) or [f"{answer['gpus']} x, {answer['plan']}" for answer in answers]
    heading = title or (_title(answers) + ": one decode step")
    return _stacked(
        stacks, labels, heading, "time of a decode step (ms)", 1e3, [None] * len(stacks)
    )


def phase_bars(answers: Sequence[Answer], names: Sequence[str] = (), title: str = "") -> Figure:
    """A bar for each post-training step, of what it waits for in each phase."""
    stacks = [
        {PHASES.get(p["name"], p["name"]): p["exposed"] for p in answer["phases"]}
        for answer in answers
    ]
    labels = list(names) or [str(answer["placement"]) for answer in answers]
    factor, unit = unit_of_seconds([sum(stack.values()) for stack in stacks])
    return _stacked(
        stacks, labels, title or "Phases of a step", f"step time ({unit})", factor,
        [answer.get("interval") for answer in answers],
    )  # fmt: skip


def two_bars(
    leaves: Sequence[Answer], names: Sequence[str], title: str, y_title: str, factor: float
) -> Figure:
    """A bar for plan A and one for plan B, of leaves with `name`, `a` and `b` (of `compare-plans`)."""
    stacks = [{leaf["name"]: leaf[plan] for leaf in leaves} for plan in ("a", "b")]
    return _stacked(stacks, names, title, y_title, factor, [None, None])


def shares_bars(explained: Answer, title: str = "") -> Figure:
    """The shares of one step as separate bars, largest first, with what each follows (of `explain`)."""
    shares = [s for s in explained["time"] if s["share"] >= 5e-4][::-1]
    factor, unit = unit_of_seconds([s["value"] for s in shares])
    values = [s["value"] * factor for s in shares]
    colours = _colours([s["name"] for s in shares[::-1]])
    bars = {
        "type": "bar",
        "orientation": "h",
        "name": "time",
        "x": values,
        "y": [s["name"].replace("_", " ") for s in shares],
        "text": [f"{s['share']:.1%}, {s['bound']}" for s in shares],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [colours[s["name"]] for s in shares]},
        "hovertemplate": "%{y}: %{x:.4g} " + unit + "<br>%{text}<extra></extra>",
    }
    heading = title or f"{_title([explained])}, {explained['plan']}"
    room = {"text": f"time in a step ({unit})", "range": [0.0, 1.3 * max(values, default=1.0)]}
    names = {"text": "", "type": "category", **every_row(len(shares))}
    return figure([bars] if shares else [], heading, room, names)


def _shares(tree: Answer) -> dict[str, float]:
    """The first level of a time tree, with compute by its kinds."""
    found: dict[str, float] = {}
    for child in tree["children"]:
        if child["name"] == "compute" and child["children"]:
            found |= {f"compute.{leaf['name']}": leaf["value"] for leaf in child["children"]}
        else:
            found[child["name"]] = child["value"]
    return found


def _stacked(
    stacks: Sequence[Mapping[str, float]],
    labels: Sequence[str],
    title: str,
    y_title: str,
    factor: float,
    intervals: Sequence[Any],
) -> Figure:
    wholes = [sum(stack.values()) for stack in stacks]
    least = FAINT * max(wholes, default=0.0)
    kinds = list(dict.fromkeys(name for stack in stacks for name in stack))
    large = [k for k in kinds if any(stack.get(k, 0.0) > least for stack in stacks)]
    rest = [sum(v for k, v in s.items() if k not in large) for s in stacks]
    columns = {kind: [stack.get(kind, 0.0) for stack in stacks] for kind in large}
    if any(rest):
        columns["other"] = rest
    places = _places(labels)
    colours = _colours(list(columns))
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": kind.replace("_", " "),
            "x": places,
            "y": [value * factor for value in column],
            "marker": {"color": colours[kind]},
            "hovertemplate": "%{y:.4g}",
        }
        for kind, column in columns.items()
    ]
    totals = [whole * factor for whole in wholes]
    spread = error_bars(totals, intervals, factor)
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "whole",
            "x": places,
            "y": totals,
            "marker": {"color": GREY, "size": 1},
            "error_y": {**spread, "color": GREY},
            "showlegend": False,
            "hovertemplate": "%{y:.4g}",
        }
    )
    traces.append(
        {
            "type": "scatter",
            "mode": "text",
            "x": places,
            "y": totals,
            "text": [f"{total:.4g}" for total in totals],
            "textposition": "top right",
            "cliponaxis": False,
            "showlegend": False,
            "hoverinfo": "skip",
        }
    )
    return figure(
        traces if stacks else [], title, {"text": "", "type": "category"}, y_title,
        barmode="stack", bargap=gap_of(len(stacks)), legend={"traceorder": "reversed"},
    )  # fmt: skip


def _places(labels: Sequence[str]) -> list[str]:
    """Labels as categories of an axis: long ones broken into lines, doubled ones distinguished."""
    found: list[str] = []
    for label in labels:
        lines = [""]
        for word in label.split(" "):
            if lines[-1] and len(lines[-1]) + len(word) > 24:
                lines.append("")
            lines[-1] = f"{lines[-1]} {word}".strip()
        text = "<br>".join(lines)
        while text in found:
            text += " "
        found.append(text)
    return found


def _colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for every share, none twice; a kind of compute may have compute's."""
    known = {name: KNOWN.get(name) or KNOWN.get(name.split(".")[0]) for name in names}
    return distinct_colours(names, {name: one for name, one in known.items() if one})


def _title(answers: Sequence[Answer]) -> str:
    """Of answers, what they have in common."""
    names = dict.fromkeys(f"{a['model']} on {a['gpus']:,} x {a['system']}" for a in answers)
    return next(iter(names)) if len(names) == 1 else "Where the time goes"
