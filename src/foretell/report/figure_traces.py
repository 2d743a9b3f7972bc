"""Traces of a Plotly figure as SVG elements: bars, lines, markers, areas, error bars and heat maps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

from foretell.report.figures.look import nth_colour
from foretell.report.svg import INK, AxisScale, area, bar, dot, line, polyline, ring, text

Axes = Mapping[str, AxisScale]
DASHES = {"dot": "2 3", "dash": "6 4"}
"""Plotly's words for lines."""
BAR_GAP = 0.2
"""Share of a slot between bars where the figure states none."""
DARK = 140.0
"""Brightness, of 255, below which words on a colour are white."""


def drawn_trace(figure: Mapping[str, Any], index: int, axes: Axes) -> list[str]:
    """The elements of one trace."""
    trace = figure["data"][index]
    x, y = axes[trace.get("xaxis", "x")], axes[trace.get("yaxis", "y")]
    return list(TRACES[str(trace.get("type", "scatter"))](figure, index, x, y))


def colour_of(trace: Mapping[str, Any], index: int) -> str:
    """The colour of a trace; one colour a trace where it states none."""
    for part in ("marker", "line"):
        stated = (trace.get(part) or {}).get("color")
        if isinstance(stated, str):
            return stated
        if isinstance(stated, list | tuple) and stated:
            return str(stated[0])
    return nth_colour(index)


def scale_colour(scale: Sequence[Sequence[Any]], share: float) -> str:
    """The colour at a share, 0 to 1, of a scale."""
    share = min(max(share, 0.0), 1.0)
    for (low, first), (high, second) in pairwise(scale):
        if share <= high:
            part = (share - low) / ((high - low) or 1.0)
            mixed = [
                round(a + (b - a) * part) for a, b in zip(_rgb(first), _rgb(second), strict=True)
            ]
            return "#" + "".join(f"{value:02x}" for value in mixed)
    return str(scale[-1][1])


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _scatter(figure: Mapping[str, Any], index: int, x: AxisScale, y: AxisScale) -> Iterator[str]:
    trace = figure["data"][index]
    colour = colour_of(trace, index)
    about = trace.get("line") or {}
    below = _below(figure, index)
    values = [
        None if value is None else value + low
        for value, low in zip(trace["y"], below, strict=False)
    ]
    places = _places(trace["x"], values, x, y)
    if about.get("shape") == "hv":
        places = _stairs(places)
    mode = str(trace.get("mode", "lines"))
    if trace.get("stackgroup"):
        yield from _filled(trace, x, y, below, places, colour)
    if "lines" in mode or trace.get("stackgroup"):
        dash, width = DASHES.get(about.get("dash", ""), ""), float(about.get("width", 2.2))
        for there, run in groupby(places, key=lambda place: place is not None):
            points = [place for place in run if place is not None]
            if there and len(points) > 1 and width > 0.0:
                yield polyline(points, about.get("color", colour), width=width, dash=dash)
    yield from _errors(trace, x, y, colour)
    if "markers" in mode:
        yield from _markers(trace, places, colour)
    if "text" in mode:
        yield from _labels(trace, places)


def _places(xs: Sequence[Any], ys: Sequence[Any], x: AxisScale, y: AxisScale) -> list[Any]:
    """Pixels of points; None for what has no place."""
    return [
        None if (px := x(a)) is None or (py := y(b)) is None else (px, py)
        for a, b in zip(xs, ys, strict=False)
    ]


def _below(figure: Mapping[str, Any], index: int) -> list[float]:
    """What a stacked area is drawn on."""
    trace = figure["data"][index]
    sums = [0.0] * len(trace.get("y") or ())
    if not trace.get("stackgroup"):
        return sums
    for other in figure["data"][:index]:
        if other.get("stackgroup") == trace["stackgroup"] and other.get("yaxis") == trace.get(
            "yaxis"
        ):
            sums = [a + (b or 0.0) for a, b in zip(sums, other["y"], strict=False)]
    return sums


def _stairs(places: Sequence[Any]) -> list[Any]:
    """Level to the next point, then up or down."""
    found: list[Any] = []
    for first, second in zip(places, [*places[1:], None], strict=True):
        found.append(first)
        if first is not None and second is not None:
            found.append((second[0], first[1]))
    return found


def _filled(
    trace: Mapping[str, Any],
    x: AxisScale,
    y: AxisScale,
    below: Sequence[float],
    places: Sequence[Any],
    colour: str,
) -> Iterator[str]:
    under = _places(trace["x"], below, x, y)
    if (trace.get("line") or {}).get("shape") == "hv":
        under = _stairs(under)
    corners = [p for p in places if p is not None] + [p for p in reversed(under) if p is not None]
    yield area(corners, trace.get("fillcolor", colour), opacity=0.85)


def _errors(trace: Mapping[str, Any], x: AxisScale, y: AxisScale, colour: str) -> Iterator[str]:
    bars = trace.get("error_y") or {}
    if not bars.get("visible", True) or "array" not in bars:
        return
    below = bars.get("arrayminus") or bars["array"]
    rows = zip(trace["x"], trace["y"], bars["array"], below, strict=False)
    for at, value, up, down in rows:
        px = x(at)
        if px is None or value is None:
            continue
        ends = y(value + (up or 0.0)), y(value - (down or 0.0))
        foot = ends[1] if ends[1] is not None else y.start
        if ends[0] is not None and ends[0] != foot:
            yield line((px, ends[0]), (px, foot), bars.get("color", colour), width=1.2)
            for end in (ends[0], foot):
                yield line((px - 4, end), (px + 4, end), bars.get("color", colour), width=1.2)


def _markers(trace: Mapping[str, Any], places: Sequence[Any], colour: str) -> Iterator[str]:
    about = trace.get("marker") or {}
    sizes, colours = about.get("size", 7), about.get("color", colour)
    open_ = "open" in str(about.get("symbol", ""))
    for i, place in enumerate(places):
        if place is None:
            continue
        x, y = place
        radius = float(sizes[i] if isinstance(sizes, list | tuple) else sizes) / 2
        ink = str(colours[i] if isinstance(colours, list | tuple) else colours)
        yield ring(x, y, radius, ink) if open_ else dot(x, y, radius, ink)


def _labels(trace: Mapping[str, Any], places: Sequence[Any]) -> Iterator[str]:
    words = trace.get("text") or ()
    where = str(trace.get("textposition", "top center"))
    anchor = "start" if "right" in where else "end" if "left" in where else "middle"
    shift = {"start": 8.0, "end": -8.0, "middle": 0.0}[anchor]
    up = -8.0 if "top" in where else 16.0 if "bottom" in where else 4.0
    for place, word in zip(places, words, strict=False):
        if place is not None and word:
            yield text(place[0] + shift, place[1] + up, str(word), size=11, anchor=anchor)


def _bars(figure: Mapping[str, Any], index: int, x: AxisScale, y: AxisScale) -> Iterator[str]:
    trace = figure["data"][index]
    flat = trace.get("orientation") == "h"
    along, across = (x, y) if flat else (y, x)
    names, values = (trace["y"], trace["x"]) if flat else (trace["x"], trace["y"])
    feet = _feet(figure, index, names)
    offset, thick = _slot(figure, index, across)
    colours = (trace.get("marker") or {}).get("color")
    words = trace.get("text") or ()
    for i, (name, value, foot) in enumerate(zip(names, values, feet, strict=False)):
        middle = across(name)
        low, high = along(foot), along(foot + value) if value is not None else None
        if middle is None or high is None:
            continue
        low = along.start if low is None else low
        colour = str(colours[i]) if isinstance(colours, list | tuple) else colour_of(trace, index)
        side = middle + offset - thick / 2
        first, length = min(low, high), abs(high - low)
        yield (
            bar(first, side, length, thick, colour)
            if flat
            else bar(side, first, thick, length, colour)
        )
        if i < len(words) and words[i] and trace.get("textposition") != "none":
            where = str(trace.get("textposition", "outside"))
            yield from _bar_words(str(words[i]), flat, where, (side, thick), (low, high), colour)
    if not flat:
        yield from _errors(
            {
                **trace,
                "x": list(names),
                "y": [None if v is None else f + v for v, f in zip(values, feet, strict=False)],
            },
            replace(x, start=x.start + offset, end=x.end + offset),
            y,
            INK,
        )


def _bar_words(
    words: str,
    flat: bool,
    where: str,
    side: tuple[float, float],
    ends: tuple[float, float],
    colour: str,
) -> Iterator[str]:
    middle = side[0] + side[1] / 2
    low, high = ends
    inside = where in ("inside", "auto")
    ink = _ink_on(colour) if inside else INK
    if flat:
        at = (low + high) / 2 if inside else high + (6 if high >= low else -6)
        anchor = "middle" if inside else "start" if high >= low else "end"
        yield text(at, middle + 4, words, size=11, anchor=anchor, colour=ink)
    else:
        at = (low + high) / 2 + 4 if inside else high + (-6 if high <= low else 14)
        for k, word in enumerate(words.split("<br>")):
            yield text(middle, at + 12 * k, word, size=11, anchor="middle", colour=ink)


def _ink_on(colour: str) -> str:
    """Words on a colour: white on dark ones."""
    if len(colour) != 7 or colour[0] != "#":
        return INK
    red, green, blue = _rgb(colour)
    return "#ffffff" if 0.299 * red + 0.587 * green + 0.114 * blue < DARK else INK


def _same_axes(trace: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(trace.get(f"{a}axis", a) == other.get(f"{a}axis", a) for a in "xy")


def _feet(figure: Mapping[str, Any], index: int, names: Sequence[Any]) -> list[float]:
    """Where each bar begins: its base, or the end of those it is stacked on."""
    trace = figure["data"][index]
    if "base" in trace:
        return [float(base) for base in trace["base"]]
    if figure["layout"].get("barmode") not in ("stack", "relative"):
        return [0.0] * len(names)
    flat = trace.get("orientation") == "h"
    values = trace["x"] if flat else trace["y"]
    feet = []
    for name, value in zip(names, values, strict=False):
        foot = 0.0
        for other in figure["data"][:index]:
            if other.get("type") != "bar" or not _same_axes(trace, other):
                continue
            theirs = other["y" if flat else "x"]
            long = other["x" if flat else "y"]
            foot += sum(
                v or 0.0
                for n, v in zip(theirs, long, strict=False)
                if n == name and ((v or 0.0) < 0.0) == ((value or 0.0) < 0.0)
            )
        feet.append(foot)
    return feet


def _slot(figure: Mapping[str, Any], index: int, axis: AxisScale) -> tuple[float, float]:
    """How far a bar is from its name's place, and how thick it is."""
    layout, trace = figure["layout"], figure["data"][index]
    whole = axis.slot * (1.0 - float(layout.get("bargap", BAR_GAP)))
    bars = [t for t in figure["data"] if t.get("type") == "bar" and _same_axes(trace, t)]
    if axis.kind != "category":
        places = sorted({p for t in bars for v in _names(t) if (p := axis.place(v)) is not None})
        steps = [b - a for a, b in pairwise(places)]
        whole *= min(steps, default=1.0)
    if layout.get("barmode") in ("stack", "relative", "overlay"):
        return 0.0, whole
    mine = next(i for i, t in enumerate(bars) if t is trace)
    thick = whole / len(bars)
    return (mine - (len(bars) - 1) / 2) * thick, thick * (0.94 if len(bars) > 1 else 1.0)


def _names(trace: Mapping[str, Any]) -> Sequence[Any]:
    names: Sequence[Any] = trace["y"] if trace.get("orientation") == "h" else trace["x"]
    return names


def _heat_map(figure: Mapping[str, Any], index: int, x: AxisScale, y: AxisScale) -> Iterator[str]:
    trace = figure["data"][index]
    known = [value for row in trace["z"] for value in row if value is not None]
    if not known:
        return
    low, high = trace.get("zmin", min(known)), trace.get("zmax", max(known))
    wide, tall = x.slot, y.slot
    gap = 1.0 if trace.get("xgap", 0) and wide > 12 else 0.0
    worded = trace.get("texttemplate") and wide > 34 and tall > 13
    for k, (name, row) in enumerate(zip(trace["y"], trace["z"], strict=False)):
        middle = y(name)
        if middle is None:
            continue
        cells = [
            (at, word, scale_colour(trace["colorscale"], (value - low) / ((high - low) or 1.0)))
            for column, value, word in zip(trace["x"], row, _cell_words(trace, k), strict=False)
            if value is not None and (at := x(column)) is not None
        ]
        for left, right, colour in _runs(cells, wide, apart=gap > 0.0):
            yield bar(left, middle - tall / 2, right - left - gap + 0.5, tall - gap + 0.5, colour)
        for at, word, colour in cells if worded else ():
            yield text(at, middle + 4, word, size=10, anchor="middle", colour=_ink_on(colour))


def _cell_words(trace: Mapping[str, Any], row: int) -> list[str]:
    """Words of one row of a heat map's cells."""
    form = str(trace.get("texttemplate", ""))
    if form == "%{text}":
        return [str(word) for word in trace["text"][row]]
    digits = "{:.2f}" if ".2f" in form else "{:.4g}"
    return ["" if value is None else digits.format(value) for value in trace["z"][row]]


def _runs(
    cells: Sequence[tuple[float, str, str]], wide: float, *, apart: bool
) -> Iterator[tuple[float, float, str]]:
    """Cells beside each other of one colour as one: left, right and colour."""
    start: tuple[float, float, str] | None = None
    for at, _, colour in cells:
        left, right = at - wide / 2, at + wide / 2
        if start is not None and not apart and colour == start[2] and left < start[1] + wide / 2:
            start = (start[0], right, colour)
            continue
        if start is not None:
            yield start
        start = (left, right, colour)
    if start is not None:
        yield start


TRACES: Mapping[str, Callable[[Mapping[str, Any], int, AxisScale, AxisScale], Iterator[str]]] = {
    "scatter": _scatter,
    "bar": _bars,
    "heatmap": _heat_map,
}
"""Kinds of traces that can be drawn."""
