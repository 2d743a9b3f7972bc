"""A Plotly figure (`{"data": [...], "layout": {...}}`) as SVG, without a browser and without Plotly.

It draws what the figures of this package are made of: bars (beside or on each other, upright or lying),
lines, markers, areas, error bars, heat maps, several axes, logarithms and categories, legends, notes and
straight lines. `figure_traces.TRACES` are the kinds it knows.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any

from foretell.report.figure_traces import DASHES, colour_of, drawn_trace, scale_colour
from foretell.report.svg import (
    FRAME,
    GRID,
    INK,
    LEGEND_ROW,
    AxisScale,
    axis_scales,
    bar,
    dot,
    line,
    picture,
    ring,
    text,
    text_width,
    tick_text,
    ticks,
)

WIDTH, HEIGHT = 960, 560
"""Pixels where the figure states none."""
SIZE = 12
"""Of letters."""
KEY_PIXELS = 26.0
"""Of a legend's sign, and the gap behind it."""
OUTER = 0.01
"""Axes that begin within this share of the paper are its left edge."""
COLOUR_BAR = 84.0
"""Pixels of a colour bar with its words."""


def figure_svg(figure: Mapping[str, Any]) -> str:
    """The figure as an SVG file."""
    layout = figure["layout"]
    width, height = float(layout.get("width") or WIDTH), float(layout.get("height") or HEIGHT)
    title = plain(str((layout.get("title") or {}).get("text") or ""))
    box = _box(figure, width, height)
    axes = axis_scales(figure, box)
    parts: list[str] = []
    for x, y in _pairs(figure):
        parts += _grid(axes[x], axes[y])
    for index, _trace in enumerate(figure["data"]):
        parts += drawn_trace(figure, index, axes)
    for x, y in _pairs(figure):
        parts += _axis_words(axes[x], axes[y], box)
    parts += [one for trace in figure["data"] for one in _colour_bar(trace, axes)]
    parts += [one for shape in layout.get("shapes", ()) for one in _shape(shape, axes, box)]
    parts += [one for note in layout.get("annotations", ()) for one in _note(note, axes, box)]
    parts += _legends(figure, box)
    if title:
        parts.append(text(0.02 * width, 28, title, size=16))
    return picture(title, width, height, parts)


def plain(words: str) -> str:
    """Words without Plotly's few tags."""
    return unescape(re.sub(r"<(?!br)[^>]*>", "", words))


def _box(
    figure: Mapping[str, Any], width: float, height: float
) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the area that axes share."""
    layout = figure["layout"]
    margin = {"l": 70, "r": 24, "t": 56, "b": 72, **layout.get("margin", {})}
    first = axis_scales(figure, (margin["l"], 0.0, width, height))
    outer = [y for x, y in _pairs(figure) if first[x].layout.get("domain", (0.0,))[0] < OUTER]
    labels = [word for name in outer for _, word in first[name].marks()]
    widest = max((text_width(plain(word), SIZE) for word in labels), default=0.0)
    left = max(float(margin["l"]), widest + 44.0)
    below = [m for name, axis in first.items() if name[0] == "x" for m in _turned_marks(axis)]
    bottom = max(float(margin["b"]), min(0.75 * max(below, default=0.0) + 48.0, 170.0))
    right = float(margin["r"])
    if _own_legend(figure):
        right += KEY_PIXELS + 12 + max(text_width(plain(n), SIZE) for n, _ in _entries(figure, ""))
    if any(t.get("type") == "heatmap" and t.get("showscale", True) for t in figure["data"]):
        right += COLOUR_BAR
    return left, float(margin["t"]), width - right, height - bottom


def _turned_marks(axis: AxisScale) -> list[float]:
    """Widths of the words of an axis whose words are turned for want of room."""
    widths = [text_width(word, SIZE) for _, word in axis.marks()]
    return widths if _crowded(axis) else []


def _crowded(axis: AxisScale) -> bool:
    """Whether words beside each other would touch."""
    if axis.layout.get("tickangle") == 0:
        return False
    marks = sorted(axis.marks())
    return any(
        second[0] - first[0] < (text_width(first[1], SIZE) + text_width(second[1], SIZE)) / 2 + 4
        for first, second in itertools.pairwise(marks)
    )


def _pairs(figure: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Axes that belong together, in the order of traces."""
    used = [(str(t.get("xaxis", "x")), str(t.get("yaxis", "y"))) for t in figure["data"]]
    return list(dict.fromkeys(used)) or [("x", "y")]


def _grid(x: AxisScale, y: AxisScale) -> Iterator[str]:
    for axis, across in ((x, False), (y, True)):
        if axis.layout.get("showgrid") is False or axis.kind == "category":
            continue
        for pixel, _ in axis.marks():
            yield (
                line((x.start, pixel), (x.end, pixel), GRID)
                if across
                else line((pixel, y.start), (pixel, y.end), GRID)
            )


def _axis_words(x: AxisScale, y: AxisScale, box: tuple[float, ...]) -> Iterator[str]:
    """Both axes with ticks and titles."""
    yield line((x.start, y.start), (x.end, y.start), FRAME)
    yield line((x.start, y.start), (x.start, y.end), FRAME)
    turned, room = _crowded(x), 18.0
    marks = _thinned(x) if turned and x.kind == "category" and len(x.categories) > 24 else x.marks()
    for pixel, word in marks:
        if turned:
            place = f"transform='rotate(-40 {pixel:.1f} {y.start + 14:.1f})'"
            yield text(pixel, y.start + 14, plain(word), anchor="end").replace(
                "<text ", f"<text {place} ", 1
            )
            room = max(room, 0.7 * text_width(word, SIZE) + 14)
        else:
            for k, one in enumerate(plain(word).split("<br>")):
                yield text(pixel, y.start + 18 + 14 * k, one, anchor="middle")
                room = max(room, 18.0 + 14 * k)
    widest = 0.0
    for pixel, word in _thinned(y) if _stacked(y) else y.marks():
        yield text(x.start - 8, pixel + 4, plain(word), anchor="end")
        widest = max(widest, text_width(word, SIZE))
    title = plain(str((x.layout.get("title") or {}).get("text") or ""))
    if title:
        yield text((x.start + x.end) / 2, y.start + room + 22, title, size=13, anchor="middle")
    title = plain(str((y.layout.get("title") or {}).get("text") or ""))
    if title:
        at = max(x.start - widest - 22, 14.0)
        yield text(at, (y.start + y.end) / 2, title, size=13, anchor="middle", turned=True)


def _stacked(axis: AxisScale) -> bool:
    """Whether words above each other would touch."""
    return axis.kind == "category" and axis.slot < SIZE + 2


def _thinned(axis: AxisScale) -> list[tuple[float, str]]:
    """Every so many words, so that they do not touch."""
    marks = axis.marks()
    upright = axis.name[0] == "y"
    need = SIZE + 3 if upright else max(text_width(word, SIZE) for _, word in marks) * 0.8 + 6
    step = max(int(need // max(axis.slot, 1e-9)) + 1, 1)
    return marks[::step]


def _colour_bar(trace: Mapping[str, Any], axes: Mapping[str, AxisScale]) -> Iterator[str]:
    if trace.get("type") != "heatmap" or not trace.get("showscale", True):
        return
    x, y = axes[trace.get("xaxis", "x")], axes[trace.get("yaxis", "y")]
    known = [v for row in trace["z"] for v in row if v is not None]
    if not known:
        return
    low, high = trace.get("zmin", min(known)), trace.get("zmax", max(known))
    left, steps = x.end + 14, 60
    tall = (y.start - y.end) / steps
    for k in range(steps):
        colour = scale_colour(trace["colorscale"], (k + 0.5) / steps)
        yield bar(left, y.start - (k + 1) * tall, 14.0, tall + 0.5, colour)
    words = trace.get("colorbar", {})
    at = words.get("tickvals") or [v for v in ticks(low, high, 6) if low <= v <= high]
    named = words.get("ticktext") or [tick_text(round(v, 12)) for v in at]
    for value, word in zip(at, named, strict=False):
        if not low <= value <= high:
            continue
        pixel = y.start - (value - low) / ((high - low) or 1.0) * (y.start - y.end)
        yield text(left + 19, pixel + 4, str(word), size=11)
    title = plain(str((words.get("title") or {}).get("text") or ""))
    middle = (y.start + y.end) / 2
    yield text(left + 66, middle, title, size=12, anchor="middle", turned=True)


def _at(
    value: Any,
    reference: str,
    axes: Mapping[str, AxisScale],
    ends: tuple[float, float],
    *,
    log: bool,
) -> float | None:
    """Pixel of a place that shapes and notes name; `ends` are the paper's, and with `log` the logarithm is
    given on logarithmic axes."""
    name, _, domain = reference.partition(" ")
    if name == "paper":
        return ends[0] + float(value) * (ends[1] - ends[0])
    axis = axes.get(name)
    if axis is None:
        return None
    if domain:
        return axis.start + float(value) * (axis.end - axis.start)
    if axis.kind == "log" and log:
        return axis(10.0 ** float(value))
    if axis.kind == "category" and not isinstance(value, str):
        share = (float(value) - axis.low) / (axis.high - axis.low)
        return axis.start + share * (axis.end - axis.start)
    return axis(value)


def _place(
    one: Mapping[str, Any],
    names: tuple[str, str],
    axes: Mapping[str, AxisScale],
    box: tuple[float, ...],
    *,
    log: bool,
) -> tuple[float, float] | None:
    left, top, right, bottom = box
    x, y = names
    across = _at(one[x], str(one.get("xref", "x")), axes, (left, right), log=log)
    up = _at(one[y], str(one.get("yref", "y")), axes, (bottom, top), log=log)
    return None if across is None or up is None else (across, up)


def _shape(
    shape: Mapping[str, Any], axes: Mapping[str, AxisScale], box: tuple[float, ...]
) -> Iterator[str]:
    first = _place(shape, ("x0", "y0"), axes, box, log=False)
    second = _place(shape, ("x1", "y1"), axes, box, log=False)
    if first is None or second is None:
        return
    about = shape.get("line", {})
    colour, dash = about.get("color", INK), DASHES.get(about.get("dash", ""), "")
    yield line(first, second, colour, width=float(about.get("width", 1.5)), dash=dash)


def _note(
    note: Mapping[str, Any], axes: Mapping[str, AxisScale], box: tuple[float, ...]
) -> Iterator[str]:
    place = _place(note, ("x", "y"), axes, box, log=True)
    if place is None:
        return
    x, y = place[0], place[1] - float(note.get("yshift", 0))
    anchors = {"left": "start", "right": "end", "center": "middle", "auto": "middle"}
    about = note.get("font", {})
    size = int(about.get("size", SIZE))
    words = plain(str(note.get("text", ""))).split("<br>")
    drop = {"top": 1.0, "bottom": 1.0 - len(words), "middle": 0.9 - len(words) / 2}
    y += size * 1.15 * drop.get(str(note.get("yanchor", "middle")), 0.4) - (
        size * 0.15 if note.get("yanchor") == "bottom" else 0.0
    )
    y -= size if note.get("yanchor") == "bottom" and len(words) == 1 else 0.0
    for k, word in enumerate(words):
        yield text(
            x,
            y + 1.2 * size * k,
            word,
            size=size,
            colour=about.get("color", INK),
            anchor=anchors[str(note.get("xanchor", "center"))],
            bold=about.get("weight") == "bold",
        )


def _entries(figure: Mapping[str, Any], legend: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Names of one legend with their traces."""
    if figure["layout"].get("showlegend") is False:
        return []
    found: dict[str, Mapping[str, Any]] = {}
    for index, trace in enumerate(figure["data"]):
        here = (trace.get("legend") or "") in (legend, legend or "legend")
        if here and trace.get("name") and trace.get("showlegend", True):
            found.setdefault(str(trace["name"]), {**trace, "_index": index})
    return list(found.items())


def _own_legend(figure: Mapping[str, Any]) -> bool:
    """Whether the legend needs a margin of its own, beside all axes."""
    own = _entries(figure, "")
    placed = figure["layout"].get("legend", {})
    return len(own) > 0 and "x" not in placed


def _legends(figure: Mapping[str, Any], box: tuple[float, ...]) -> Iterator[str]:
    layout = figure["layout"]
    left, top, right, bottom = box
    names = ["", *(key for key in layout if re.fullmatch(r"legend\d+", key))]
    for name in names:
        about = layout.get(name or "legend", {})
        entries = _entries(figure, name)
        x = left + float(about["x"]) * (right - left) if "x" in about else right + 14
        y = bottom - float(about["y"]) * (bottom - top) if "y" in about else top
        if any(t.get("type") == "heatmap" and t.get("showscale", True) for t in figure["data"]):
            x += 0.0 if "x" in about else COLOUR_BAR
        for k, (word, trace) in enumerate(entries):
            yield from _key(word, trace, x, y + LEGEND_ROW * k)


def _key(word: str, trace: Mapping[str, Any], x: float, y: float) -> Iterator[str]:
    """One entry of a legend: its sign and its name."""
    colour = colour_of(trace, int(trace["_index"]))
    mode = str(trace.get("mode", "lines"))
    if trace.get("type") == "bar" or trace.get("stackgroup"):
        yield bar(x, y, 13.0, 13.0, colour)
    else:
        if "lines" in mode:
            dash = DASHES.get((trace.get("line") or {}).get("dash", ""), "")
            yield line((x - 2, y + 7), (x + 18, y + 7), colour, width=2.2, dash=dash)
        if "markers" in mode:
            hollow = "open" in str((trace.get("marker") or {}).get("symbol", ""))
            yield ring(x + 8, y + 7, 3.5, colour) if hollow else dot(x + 8, y + 7, 3.5, colour)
    yield text(x + KEY_PIXELS - 4, y + 11, plain(word))
