"""Numbers over a field as lines, and predictions beside measurements: sweeps, costs, latencies, bandwidths,
calibrations, published runs."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from foretell.report.figures.look import (
    GREY,
    NAMES,
    Figure,
    Trace,
    axis,
    bars,
    counts_axis,
    distinct_colours,
    error_bars,
    figure,
    ideal,
    log_axis,
    note,
    nth_colour,
    points,
    sentence,
    shown_in,
    shown_value,
    title_of,
    value_axis,
    words_of,
)

if TYPE_CHECKING:
    from foretell.lab.calibrate.fit import Calibration

Rows = Sequence[Mapping[str, Any]]

PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
KIB = 1024.0
NEAR = 0.10
"""Distance of the two lines beside the diagonal of a calibration."""


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
        apart.setdefault(named_values(row, group), []).append(row)
    by_x, by_y = (shown_in(name)[0] for name in (x, y))
    traces = []
    for i, (name, own) in enumerate(apart.items()):
        own = sorted(own, key=lambda row: float(row[x])) if numbers else own
        values = [by_y * float(row[y]) for row in own]
        trace = points(
            name, [by_x * row[x] if numbers else str(row[x]) for row in own], values,
            "%{x}: %{y:.4g}<br>%{text}", "lines+markers" if numbers else "markers",
            text=[str(row.get("plan") or "") for row in own], line={"color": nth_colour(i)},
        )  # fmt: skip
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


def named_values(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """Fields of a row with their values, in words."""
    return ", ".join(
        f"{words_of(name)} {shown_value(name, row[name])} {shown_in(name)[1]}".strip()
        for name in names
    )


def latency_bars(answers: Rows, names: Sequence[str] = (), title: str = "") -> Figure:
    """TTFT and TPOT of deployments at their percentiles (JSON of `serve`), side by side."""
    labels = list(names) or [str(answer["plan"]) for answer in answers]
    traces = [
        bars(
            label, list(PERCENTILES), [answer[name][percentile] for percentile in PERCENTILES],
            nth_colour(i), "%{y:.4g} ms", xaxis=f"x{side}", yaxis=f"y{side}", legendgroup=label,
            showlegend=not side,
        )
        for name, side in (("ttft_ms", ""), ("tpot_ms", "2"))
        for i, (label, answer) in enumerate(zip(labels, answers, strict=True))
    ]  # fmt: skip
    first = answers[0] if answers else {}
    place = f"{first.get('model')} on {first.get('gpus')} x {first.get('system')}"
    y = {"rangemode": "tozero", "anchor": "x2"}
    return figure(
        traces, title or f"Latencies: {place}", {**NAMES, "domain": [0.0, 0.44]},
        {"text": "time to the first token, TTFT (ms)", "rangemode": "tozero"},
        xaxis2=axis({**NAMES, "domain": [0.56, 1.0]}),
        yaxis2=axis({"text": "time per token after it, TPOT (ms)", **y}), barmode="group",
    )  # fmt: skip


def bandwidths(answers: Rows, names: Sequence[str]) -> Figure:
    """Bus bandwidth over the size of a message, a line for each collective; a ring marks the size asked."""
    traces: list[Trace] = []
    for i, (name, answer) in enumerate(zip(names, answers, strict=True)):
        rows = [row for row in answer.get("sizes", ()) if row["bus_bytes_per_s"] > 0.0]
        asked = [answer] if answer.get("bus_bytes_per_s") else []
        mark = {"color": nth_colour(i), "size": 14, "symbol": "circle-open"}
        ring: dict[str, Any] = {"mode": "markers", "marker": mark, "showlegend": False}
        for label, some, look in (
            (name, rows, {"line": {"color": nth_colour(i)}}),
            (f"{name}, as asked", asked, ring),
        ):
            if some or some is rows:
                traces.append(points(
                    label, [row["size_bytes"] for row in some],
                    [row["bus_bytes_per_s"] / 1e9 for row in some], "%{y:.4g} GB/s, %{text}",
                    text=[row["algorithm"] for row in some], **look,
                ))  # fmt: skip
    at = [KIB * 4.0**k for k in range(12)]
    words = [_size(value) for value in at]
    across = {
        "text": "size of the message (bytes)",
        "type": "log",
        "tickvals": at,
        "ticktext": words,
    }
    up = log_axis("bus bandwidth (GB/s)", [v for trace in traces for v in trace["y"]])
    return figure(traces, "Bus bandwidth over sizes", across, up)


def _size(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < KIB:
            return f"{value:g} {unit}"
        value /= KIB
    return f"{value:g} GiB"


def fit_figure(found: "Calibration") -> Figure:
    """Predicted against measured seconds of kernels, a colour for each family; the diagonal and a tenth to
    either side."""
    by_family: dict[str, tuple[list[float], list[float]]] = {}
    for each in found.fits:
        rows = each.group.rows
        held_out = zip(each.blind_s.tolist(), each.inside_s.tolist(), strict=True)
        measured, predicted = by_family.setdefault(rows.family, ([], []))
        measured += rows.measured_s.tolist()
        predicted += [own if isfinite(own) else inside for own, inside in held_out]
    seconds = [value for pair in by_family.values() for side in pair for value in side]
    traces = [
        points(
            f"{name} ({len(measured)})", measured, predicted, "%{x:.4g} s measured, %{y:.4g} s",
            "markers", marker={"color": nth_colour(i), "size": 5, "opacity": 0.6},
        )
        for i, (name, (measured, predicted)) in enumerate(by_family.items())
    ]  # fmt: skip
    ends = [min(seconds), max(seconds)]
    for factor in (1.0, 1.0 + NEAR, 1.0 - NEAR):
        name = "predicted = measured" if factor == 1.0 else f"{factor - 1.0:+.0%}"
        dash = "solid" if factor == 1.0 else "dash"
        traces.append(ideal(name, ends, [end * factor for end in ends], dash))
    title = f"{found.facts.chip.id}: kernels predicted by fits without their site, and measured"
    x, y = (log_axis(f"{word} time (s)", seconds) for word in ("measured", "predicted"))
    return figure(traces, title, x, y, showlegend=True, height=700)


def published_beside_ours(rows: Rows) -> Figure:
    """Published steps on the one axis, ours on the other; a point on the line is right."""
    known = [row for row in rows if row["predicted_s"] is not None]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in known:
        groups.setdefault(row["chip"].split(":")[0], []).append(row)
    values = [row[key] for row in known for key in ("measured_s", "predicted_s")]
    ends = [min(values, default=1.0) / 1.5, max(values, default=1.0) * 1.5]
    colours = distinct_colours([GREY, *groups], {GREY: GREY})
    traces = [ideal("equal", ends, ends, "solid")]
    traces += [
        points(
            name, [row["measured_s"] for row in own], [row["predicted_s"] for row in own],
            "%{text}<br>published %{x:.4g} s, predicted %{y:.4g} s<extra></extra>", "markers",
            text=[f"{row['model']} on {row['gpus']}: {row['error']:+.1%}" for row in own],
            marker={"color": colours[name], "size": 7, "opacity": 0.75},
        )
        for name, own in groups.items()
    ]  # fmt: skip
    made = figure(
        traces, "Published and predicted step times",
        log_axis("published step time (s)", ends), log_axis("predicted step time (s)", ends),
        showlegend=True,
    )  # fmt: skip
    if not known:
        made["layout"]["annotations"] = [note("nothing matches", 0.5, 0.5)]
    return made
