"""Columns of rows over a field, as lines: sweeps, costs, latency targets."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import (
    Figure,
    axis,
    counts_axis,
    error_bars,
    figure,
    nth_colour,
    sentence,
    shown_in,
    shown_value,
    title_of,
    value_axis,
    words_of,
)

Rows = Sequence[Mapping[str, Any]]

PERCENTILES = ("mean", "p50", "p90", "p95", "p99")


def lines(
    rows: Rows,
    x: str,
    y: str,
    *,
    group: Sequence[str] = (),
    ends: tuple[str, str] | None = None,
    title: str = "",
    y_title: str = "",
) -> Figure:
    """`y` over `x`, a line for each value of the fields of `group`; `ends` are columns of its interval."""
    known = [row for row in rows if row.get(x) is not None and row.get(y) is not None]
    numbers = all(isinstance(row[x], int | float) for row in known)
    apart: dict[str, list[Mapping[str, Any]]] = {}
    for row in known:
        apart.setdefault(_name(row, group), []).append(row)
    by_x, by_y = (shown_in(name)[0] for name in (x, y))
    traces = []
    for i, (name, own) in enumerate(apart.items()):
        own = sorted(own, key=lambda row: float(row[x])) if numbers else own
        values = [by_y * float(row[y]) for row in own]
        trace = {
            "type": "scatter",
            "mode": "lines+markers" if numbers else "markers",
            "name": name,
            "x": [by_x * row[x] if numbers else str(row[x]) for row in own],
            "y": values,
            "text": [str(row.get("plan") or "") for row in own],
            "line": {"color": nth_colour(i)},
            "hovertemplate": "%{x}: %{y:.4g}<br>%{text}",
        }
        if ends:
            low, high = ends
            spans = [
                {"p90": [row[low], row[high]]} if row.get(low) is not None else None for row in own
            ]
            trace["error_y"] = error_bars(values, spans, by_y)
        traces.append(trace)
    at = [by_x * float(row[x]) for row in known] if numbers else []
    wide = bool(at) and min(at) > 0.0 and max(at) / min(at) >= 8.0
    across: Any = counts_axis(title_of(x), at) if wide else title_of(x)
    words = y_title or title_of(y)
    up = value_axis(words, [by_y * float(row[y]) for row in known])
    return figure(traces, title or sentence(words), across, up)


def latency_bars(answers: Rows, names: Sequence[str] = (), title: str = "") -> Figure:
    """TTFT and TPOT of deployments at their percentiles (JSON of `serve`), side by side."""
    labels = list(names) or [str(answer["plan"]) for answer in answers]
    traces = [
        {
            "type": "bar",
            "name": label,
            "x": list(PERCENTILES),
            "y": [answer[name][percentile] for percentile in PERCENTILES],
            "xaxis": f"x{side}",
            "yaxis": f"y{side}",
            "legendgroup": label,
            "showlegend": not side,
            "marker": {"color": nth_colour(i)},
            "hovertemplate": "%{y:.4g} ms",
        }
        for name, side in (("ttft_ms", ""), ("tpot_ms", "2"))
        for i, (label, answer) in enumerate(zip(labels, answers, strict=True))
    ]
    first = answers[0] if answers else {}
    place = f"{first.get('model')} on {first.get('gpus')} x {first.get('system')}"
    left, right = [0.0, 0.44], [0.56, 1.0]
    y = {"rangemode": "tozero", "anchor": "x2"}
    return figure(
        traces, title or f"Latencies: {place}",
        {"text": "", "type": "category", "domain": left},
        {"text": "time to the first token, TTFT (ms)", "rangemode": "tozero"},
        xaxis2=axis({"text": "", "type": "category", "domain": right}),
        yaxis2=axis({"text": "time per token after it, TPOT (ms)", **y}),
        barmode="group",
    )  # fmt: skip


def _name(row: Mapping[str, Any], group: Sequence[str]) -> str:
    return ", ".join(
        f"{words_of(name)} {shown_value(name, row[name])} {shown_in(name)[1]}".strip()
        for name in group
    )
