"""Axes of a Plotly figure as scales: what values they span, where each value is drawn, and their ticks."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from foretell.records import dataclass
from foretell.report.svg import tick_text, ticks

Kind = Literal["linear", "log", "category"]
MARGIN_SHARE = 0.05
"""Of an axis's span, beyond points at its ends."""
MOST_TICKS = 7
"""Of a linear axis."""
LETTER = 0.56
"""Width of a letter over its size, on the mean."""


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
        if self.layout.get("showticklabels") is False:
            return
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
                yield value, self._word(value)

    def _word(self, value: float) -> str:
        form = str(self.layout.get("tickformat", ""))
        if "%" in form:
            return f"{100 * value:g} %"
        return tick_text(round(value, 12)) + str(self.layout.get("ticksuffix", ""))


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
            base = trace.get("base", 0.0)
            feet = base if isinstance(base, list | tuple) else [base] * len(listed)
            yield from feet
            listed = (
                [None if v is None else v + f for v, f in zip(listed, feet, strict=False)]
                if "base" in trace
                else listed
            )
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
