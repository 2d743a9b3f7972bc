"""What pictures are made of, as SVG that needs nothing else: texts, lines, bars, ticks, and the axes of a
Plotly figure as scales from values to pixels."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Literal

from foretell.records import dataclass

INK, PALE, GRID, FRAME = "#1c2530", "#59636e", "#e3e6ea", "#59636e"
"""Colours of words, of words that matter less, of lines at ticks and of axes."""
FONT = "font-family='Helvetica, Arial, sans-serif'"
LEGEND_ROW = 21.0
"""Pixels from one name of a legend to the next."""

Kind = Literal["linear", "log", "category"]
MARGIN_SHARE = 0.05
"""Of an axis's span, beyond points at its ends."""
MOST_TICKS = 7
"""Of a linear axis."""
LETTER = 0.56
"""Width of a letter over its size, on the mean."""
Point = tuple[float, float]


def picture(title: str, width: float, height: float, parts: Iterable[str]) -> str:
    """A finished SVG file, what is drawn first lying below; a browser's tab has its title."""
    size = f"width='{width:g}' height='{height:g}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} viewBox='0 0 {width:g} {height:g}'>"
    name = f"<title>{escape(title)}</title>"
    return "\n".join([head, name, f"<rect {size} fill='#ffffff'/>", *parts, "</svg>", ""])


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 12,
    anchor: str = "start",
    bold: bool = False,
    colour: str = INK,
    turned: bool = False,
) -> str:
    """Words, upright or turned to read upwards."""
    more = " font-weight='bold'" if bold else ""
    more += f" transform='rotate(-90 {x:g} {y:g})'" if turned else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' fill='{colour}' "
        f"text-anchor='{anchor}'{more}>{escape(words)}</text>"
    )


def line(first: Point, second: Point, colour: str, *, width: float = 1.0, dash: str = "") -> str:
    """A straight line."""
    ends = f"x1='{first[0]:.1f}' y1='{first[1]:.1f}' x2='{second[0]:.1f}' y2='{second[1]:.1f}'"
    return f"<line {ends} stroke='{colour}' stroke-width='{width:g}'{_dashed(dash)}/>"


def _dashed(dash: str) -> str:
    return f" stroke-dasharray='{dash}'" if dash else ""


def polyline(points: Iterable[Point], colour: str, *, width: float = 2.2, dash: str = "") -> str:
    """A line through points."""
    stroke = f"stroke='{colour}' stroke-width='{width:g}'" + _dashed(dash)
    return f"<polyline points='{_joined(points)}' fill='none' {stroke}/>"


def area(points: Iterable[Point], colour: str, *, opacity: float = 1.0) -> str:
    """A filled shape with these corners."""
    return f"<polygon points='{_joined(points)}' fill='{colour}' fill-opacity='{opacity:g}'/>"


def _joined(points: Iterable[Point]) -> str:
    """Points to a tenth of a pixel, without those on a level or upright line between their neighbours."""
    kept: list[Point] = []
    for x, y in points:
        point = round(x, 1), round(y, 1)
        if len(kept) > 1 and any(kept[-2][a] == kept[-1][a] == point[a] for a in (0, 1)):
            kept.pop()
        if not kept or kept[-1] != point:
            kept.append(point)
    return " ".join(f"{x:g},{y:g}" for x, y in kept)


def bar(x: float, y: float, width: float, height: float, colour: str, *, hint: str = "") -> str:
    """A filled rectangle; a browser shows the hint beside the pointer."""
    box = f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' fill='{colour}'"
    return f"{box}><title>{escape(hint)}</title></rect>" if hint else f"{box}/>"


def dot(x: float, y: float, radius: float, colour: str = "") -> str:
    """A filled circle, of its group's colour where none is given."""
    fill = f" fill='{colour}'" if colour else ""
    return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius:g}'{fill}/>"


def ring(x: float, y: float, radius: float, colour: str, *, fill: str = "none") -> str:
    """A circle with an edge."""
    place = f"cx='{x:.1f}' cy='{y:.1f}' r='{radius:g}'"
    return f"<circle {place} fill='{fill}' stroke='{colour}' stroke-width='2'/>"


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers from at or below the low end to at or above the high one."""
    span = (high - low) or abs(high) or 1.0
    rough = span / (most - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(m * size for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * size >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * k for k in range(first, max(last, first + 1) + 1)]


def tick_text(value: float) -> str:
    """A tick in few characters."""
    for size, sign in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if sign == "k" else 1):
            return f"{value / size:.3g}{sign}"
    return f"{value:.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisScale:
    """One axis: from values to pixels."""

    name: str
    """x, x2, y3 and so on, as traces name it."""
    kind: Kind
    """How values lie on it."""
    low: float
    """Value (log: its logarithm; category: half before the first) at `start`."""
    high: float
    """That at `end`."""
    start: float
    """Pixel."""
    end: float
    """Pixel."""
    categories: tuple[str, ...] = ()
    """Names of a category axis, in order."""
    layout: Mapping[str, Any]
    """What the figure says of it."""

    def __call__(self, value: Any) -> float | None:
        """The pixel of a value; None for what has no place."""
        at = self.place(value)
        if at is None:
            return None
        return self.start + (at - self.low) / ((self.high - self.low) or 1.0) * (
            self.end - self.start
        )

    def place(self, value: Any) -> float | None:
        """A value in the axis's own measure."""
        if value is None:
            return None
        if self.kind == "category":
            word = str(value)
            return float(self.categories.index(word)) if word in self.categories else None
        number = float(value)
        if self.kind == "log":
            return math.log10(number) if number > 0.0 else None
        return number if math.isfinite(number) else None

    @property
    def slot(self) -> float:
        """Pixels of one unit of the axis's own measure."""
        return abs((self.end - self.start) / ((self.high - self.low) or 1.0))

    def marks(self) -> list[tuple[float, str]]:
        """Pixels and texts of the ticks inside the axis."""
        found = []
        for value, word in self._marks():
            at = self.place(value)
            low, high = sorted((self.low, self.high))
            slack = 1e-9 * (high - low)
            pixel = self(value)
            if at is not None and pixel is not None and low - slack <= at <= high + slack:
                found.append((pixel, word))
        return found

    def _marks(self) -> Iterator[tuple[Any, str]]:
        if "tickvals" in self.layout:
            words = self.layout.get("ticktext") or [tick_text(v) for v in self.layout["tickvals"]]
            yield from zip(self.layout["tickvals"], words, strict=False)
        elif self.kind == "category":
            yield from ((name, name) for name in self.categories)
        elif self.kind == "log":
            yield from ((value, tick_text(value)) for value in _log_values(self.low, self.high))
        else:
            low, high = sorted((self.low, self.high))
            for value in ticks(low, high, MOST_TICKS):
                yield value, tick_text(round(value, 12))


def axis_scales(
    figure: Mapping[str, Any], box: tuple[float, float, float, float]
) -> dict[str, AxisScale]:
    """Every axis of a figure inside the box (left, top, right, bottom) of pixels, by its name."""
    layout = figure["layout"]
    left, top, right, bottom = box
    names = {key.replace("axis", "") for key in layout if re.fullmatch(r"[xy]axis\d*", key)}
    names |= {"x", "y"}
    names |= {str(t.get(f"{a}axis", a)) for t in figure["data"] for a in "xy"}
    found = {}
    for name in sorted(names):
        about = layout.get(f"{name[0]}axis{name[1:]}", {})
        first, last = about.get("domain", (0.0, 1.0))
        if name[0] == "x":
            start, end = left + first * (right - left), left + last * (right - left)
        else:
            start, end = bottom - first * (bottom - top), bottom - last * (bottom - top)
        found[name] = _scale(name, about, figure, start, end)
    return found


def _scale(
    name: str, about: Mapping[str, Any], figure: Mapping[str, Any], start: float, end: float
) -> AxisScale:
    values = list(_values(name, figure))
    kind = _kind(about, values)
    categories = _categories(about, values) if kind == "category" else ()
    if kind == "category":
        low, high = -0.5, max(len(categories), 1) - 0.5
    else:
        low, high = _span(name, about, figure, values, kind)
    if about.get("autorange") == "reversed":
        low, high = high, low
    if "range" in about:
        low, high = (float(value) for value in about["range"])
    return AxisScale(
        name=name,
        kind=kind,
        low=low,
        high=high,
        start=start,
        end=end,
        categories=categories,
        layout=about,
    )


def _kind(about: Mapping[str, Any], values: Sequence[Any]) -> Kind:
    stated = about.get("type")
    if stated in ("linear", "log", "category"):
        return stated  # type: ignore[no-any-return]  # one of the three words of Kind
    return "category" if any(isinstance(value, str) for value in values) else "linear"


def _categories(about: Mapping[str, Any], values: Iterable[Any]) -> tuple[str, ...]:
    given = [str(word) for word in about.get("categoryarray", ())]
    words = [str(value) for value in values if value is not None]
    return tuple(dict.fromkeys([*given, *words]))


def _values(name: str, figure: Mapping[str, Any]) -> Iterator[Any]:
    """What traces put on an axis, error bars and the foot of bars included."""
    axis = name[0]
    own = [t for t in figure["data"] if t.get(f"{axis}axis", axis) == name]
    for trace in own:
        listed = list(trace.get(axis) or ())
        long = _long_axis(trace) == axis
        if long:
            feet = trace.get("base") or [0.0] * len(listed)
            yield from feet
            listed = [None if v is None else v + f for v, f in zip(listed, feet, strict=False)]
        yield from listed
        if not _is_stacked(trace, axis, figure["layout"]):
            yield from _error_ends(trace, axis, listed)
    yield from _stacked_ends(name, own, figure["layout"])
    yield from _shape_ends(name, figure["layout"])


def _error_ends(trace: Mapping[str, Any], axis: str, values: Sequence[Any]) -> Iterator[float]:
    """Ends of error bars around values."""
    bars = trace.get(f"error_{axis}") or {}
    if not bars.get("visible", True) or "array" not in bars:
        return
    below = bars.get("arrayminus") or bars["array"]
    for value, up, down in zip(values, bars["array"], below, strict=False):
        if value is not None:
            yield from (value + (up or 0.0), value - (down or 0.0))


def _is_stacked(trace: Mapping[str, Any], axis: str, layout: Mapping[str, Any]) -> bool:
    """Whether a trace's values on this axis are stacked on those of others."""
    bars = layout.get("barmode") in ("stack", "relative") and "base" not in trace
    return (_long_axis(trace) == axis and bars) or bool(trace.get("stackgroup") and axis == "y")


def _long_axis(trace: Mapping[str, Any]) -> str:
    """The axis that a bar's length is on; empty for other traces."""
    if trace.get("type") != "bar":
        return ""
    return "x" if trace.get("orientation") == "h" else "y"


def _stacked_ends(
    name: str, own: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]
) -> Iterator[float]:
    """Sums of bars and areas that are stacked, and the error bars at their ends."""
    axis = name[0]
    ends: dict[Any, float] = {}
    for trace in own:
        if not _is_stacked(trace, axis, layout):
            continue
        other = "y" if axis == "x" else "x"
        side, tops = trace.get(f"{other}axis"), []
        pairs = zip(trace.get(other) or (), trace.get(axis) or (), strict=False)
        for i, (at, value) in enumerate(pairs):
            # Areas change twice at one moment: theirs are summed by place.
            key = side, i if trace.get("stackgroup") else at, (value or 0.0) < 0.0
            ends[key] = ends.get(key, 0.0) + (value or 0.0)
            tops.append(ends[key])
        yield from _error_ends(trace, axis, tops)
    yield from ends.values()


def _shape_ends(name: str, layout: Mapping[str, Any]) -> Iterator[Any]:
    """Where lines at values of an axis are, such as a chip's capacity."""
    axis = name[0]
    for shape in layout.get("shapes", ()):
        if shape.get(f"{axis}ref", "paper") == name:
            yield from (shape[f"{axis}0"], shape[f"{axis}1"])


def _span(
    name: str,
    about: Mapping[str, Any],
    figure: Mapping[str, Any],
    values: Sequence[Any],
    kind: Kind,
) -> tuple[float, float]:
    """Low and high ends in the axis's own measure."""
    known = [float(v) for v in values if v is not None and not isinstance(v, str)]
    known = [v for v in known if math.isfinite(v) and (kind != "log" or v > 0.0)]
    if not known:
        return 0.0, 1.0
    if kind == "log":
        low, high = math.log10(min(known)), math.log10(max(known))
        pad = MARGIN_SHARE * (high - low) or 0.1
        return low - pad, high + pad
    low, high = min(known), max(known)
    own = [t for t in figure["data"] if t.get(f"{name[0]}axis", name[0]) == name]
    if any(t.get("type") == "bar" and _long_axis(t) != name[0] for t in own):
        return low - 0.5, high + 0.5
    pad = MARGIN_SHARE * (high - low) or abs(high) * 0.1 or 1.0
    flat = any(_long_axis(t) == name[0] or t.get("stackgroup") for t in own)
    at_zero = flat or about.get("rangemode") == "tozero"
    if at_zero and low >= 0.0:
        return 0.0, high + pad
    if at_zero and high <= 0.0:
        return low - pad, 0.0
    marked = any("markers" in str(t.get("mode", "")) for t in own)
    return (low - pad, high + pad) if name[0] == "y" or marked else (low, high)


def _log_values(low: float, high: float) -> list[float]:
    """Ones, and where there is room twos and fives, of each power of ten."""
    low, high = sorted((low, high))
    digits = (1, 2, 5) if high - low < 3.0 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    return [digit * 10.0**power for power in powers for digit in digits]


def text_width(words: str, size: float) -> float:
    """Pixels that words take, about."""
    return LETTER * size * max((len(line) for line in re.split(r"<br>", words)), default=0)
