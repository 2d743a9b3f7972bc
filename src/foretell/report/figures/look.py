"""What all figures share: colours, axes, units in titles, intervals as error bars.

Colours of traces read on white and on near-black, and are distinguished by who sees few colours (Okabe and
Ito,
Color Universal Design, 2008, with the yellow darkened, since lines of it vanish on white, and grey in the
place of black). Everything else of a theme is in `layout.template`: for the dark one replace it by
`template("dark")`.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from foretell.report.presentation.numbers import words_of as words_of
from foretell.specs.result import OUTPUTS
from foretell.units import field_unit, symbol

Figure = dict[str, Any]
"""`{"data": [...], "layout": {...}}`."""
Trace = dict[str, Any]
"""One trace of it."""
Theme = Literal["light", "dark"]

COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7AE0", "#B8A100",
    "#8A929C", "#A0673A",
)  # fmt: skip
"""One a trace, in this order."""
MORE_COLOURS = (
    "#B0506A", "#6B963D", "#3F8793", "#9A78C0", "#B87A4C", "#5B7CB5", "#8C8150", "#C56F68",
    "#6E7680", "#A86A9C", "#4F9A78", "#A98A2E", "#7C82D6", "#789C45", "#8B6B52", "#5F93A8",
)  # fmt: skip
"""Taken where the first ten are used up: muted ones, at least 3 to 1 against white and near-black."""
GREY = "#8A929C"
"""Of what is there for comparison: ideals, limits."""
LIMIT = "#D55E00"
"""Of what must not be crossed."""
HELD: Mapping[str, str] = {
    "weights": "#2f6fa8",
    "gradients": "#5f9bd0",
    "states": "#9cc3e6",
    "gathered weights": "#bcd4ec",
    "gradient placeholders": "#9aa7b4",
    "messages": "#b3bac2",
    "workspaces": "#d0d5da",
    "buffers": "#b3bac2",
    "layer entries": "#2b8357",
    "activations": "#3f9a68",
    "attention": "#3f9a68",
    "mixer": "#5fae7f",
    "feed-forward": "#8fca9f",
    "experts": "#bfe0c4",
    "backward pass": "#d9822b",
    "scores": "#b8433f",
    "lost": GREY,
}
"""What chips hold: always there (blue, grey), kept for the backward pass (green), passing (orange, red)."""
SCALE = [[0.0, "#440154"], [0.25, "#3B528B"], [0.5, "#21918C"], [0.75, "#5EC962"], [1.0, "#FDE725"]]
"""Low to high in a heat map: viridis, even in lightness for everyone."""
FONT = "Helvetica, Arial, sans-serif"
THEMES: Mapping[Theme, Mapping[str, str]] = {
    "light": {"ink": "#1c2530", "ground": "#ffffff", "grid": "#e3e6ea", "axis": "#59636e"},
    "dark": {"ink": "#e6e9ed", "ground": "#14181d", "grid": "#2b323a", "axis": "#8a929c"},
}
WIDTH, HEIGHT = 960, 560
"""Pixels of a picture of a figure."""
DECADES = 100.0
"""Values whose largest is so many times the least are shown by their logarithms."""
PERCENTILE = "p90"
"""Which interval error bars show."""
UNITLESS = frozenset(
    {
        *(name for name, output in OUTPUTS.items() if output.rule in ("time", "rate")),
        *"gpus isl osl seq_len global_batch tokens_per_s_per_user output_tokens_per_s "
        "output_tokens_per_s_per_gpu output_tokens_per_s_per_user usd_per_million_tokens "
        "usd_per_million_output_tokens usd_per_million_work_tokens work_tokens_per_s_per_gpu "
        "carbon_g_per_million_work_tokens".split(),
    }
)
"""Fields whose words have their unit, or that count something."""
COUNTED = {"seq_len": "tokens", "isl": "tokens", "osl": "tokens", "global_batch": "sequences"}
"""Fields that count something their names do not end in."""
UNITS = {
    "bytes": (2.0**-30, "GiB"),
    "bytes_per_s": (1e-9, "GB/s"),
    "flop_per_s": (1e-12, "TFLOP/s"),
    "joules": (1e-6, "MJ"),
}
"""Units in which people read what we keep in SI: factor and symbol."""


def distinct_colours(
    names: Sequence[str], known: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """A colour for every name, none twice: those that are known keep theirs where it is still free."""
    found: dict[str, str] = {}
    for name in names:
        colour = known.get(name)
        if colour is not None and colour.upper() not in (one.upper() for one in found.values()):
            found[name] = colour
    used = {colour.upper() for colour in found.values()}
    free = [one for one in (*COLOURS, *MORE_COLOURS) if one.upper() not in used]
    rest = [name for name in dict.fromkeys(names) if name not in found]
    for place, name in enumerate(rest):
        found[name] = free[place] if place < len(free) else _hue(place)
    return found


def nth_colour(place: int) -> str:
    """The colour of the trace at a place; no two places have the same."""
    every = (*COLOURS, *MORE_COLOURS)
    return every[place] if place < len(every) else _hue(place)


def _hue(place: int) -> str:
    """A colour of its own for any number of names: hues in steps of the golden angle."""
    return f"hsl({round(place * 137.508) % 360}, {45 + 10 * (place % 3)}%, {40 + 7 * (place % 4)}%)"


def every_row(many: int) -> dict[str, Any]:
    """What an axis of names needs so that none is left out."""
    return {"tickmode": "linear", "tick0": 0, "dtick": 1, "range": [-0.6, many - 0.4]}


def template(theme: Theme = "light") -> dict[str, Any]:
    """What `layout.template` holds: all that differs between themes."""
    colours = THEMES[theme]
    axis = {
        "gridcolor": colours["grid"],
        "linecolor": colours["axis"],
        "zerolinecolor": colours["axis"],
        "tickcolor": colours["axis"],
        "automargin": True,
    }
    return {
        "layout": {
            "font": {"family": FONT, "size": 13, "color": colours["ink"]},
            "paper_bgcolor": colours["ground"],
            "plot_bgcolor": colours["ground"],
            "colorway": list(COLOURS),
            "xaxis": axis,
            "yaxis": axis,
        }
    }


def heading(title: str) -> dict[str, Any]:
    """What the layout of every figure begins with."""
    font = {"size": 16}
    return {
        "title": {"text": title, "x": 0.02, "xanchor": "left", "font": font},
        "template": template(),
    }


def figure(
    traces: Sequence[Mapping[str, Any]],
    title: str,
    x: str | Mapping[str, Any],
    y: str | Mapping[str, Any],
    **layout: Any,
) -> Figure:
    """Traces under a title; an axis is its title, or a mapping with it as `text` and what else differs."""
    data = [dict(trace) for trace in traces]
    named = [trace for trace in data if trace.get("showlegend", True) and trace.get("name")]
    base = {
        **heading(title),
        "xaxis": axis(x),
        "yaxis": axis(y),
        "margin": {"l": 70, "r": 24, "t": 56, "b": 72},
        "legend": {"traceorder": "normal"},
        "showlegend": len(named) > 1,
    }
    if not data:
        base["annotations"] = [note("nothing to show", 0.5, 0.5)]
    return {"data": data, "layout": {**base, **layout}}


def bars(
    name: str, x: Sequence[Any], y: Sequence[Any], colour: Any, hover: str = "%{y:.4g}", **more: Any
) -> Trace:
    """Upright bars of one colour, or of one each; lying ones with `orientation` h."""
    return {
        "type": "bar", "name": name, "x": x, "y": y, "marker": {"color": colour}, "hovertemplate": hover,
        **more,
    }  # fmt: skip


def points(
    name: str,
    x: Sequence[Any],
    y: Sequence[Any],
    hover: str | None = None,
    mode: str = "lines+markers",
    **more: Any,
) -> Trace:
    """A line, marks, or both; without a text beside the pointer where there is none to say."""
    said = {"hoverinfo": "skip"} if hover is None else {"hovertemplate": hover}
    return {"type": "scatter", "mode": mode, "name": name, "x": x, "y": y, **said, **more}


def ideal(name: str, x: Sequence[Any], y: Sequence[Any], dash: str = "dot", **more: Any) -> Trace:
    """A grey line to compare with: a floor, a front, an even share."""
    line = {"color": GREY, "dash": dash, "width": 1.5}
    return points(name, x, y, mode="lines", line=line, **more)


def whiskers(
    x: Sequence[Any],
    y: Sequence[float],
    intervals: Sequence[Any],
    hover: str = "%{y:.4g}",
    factor: float = 1.0,
    name: str = "whole",
) -> Trace:
    """90 % intervals at the ends of bars."""
    spread = {**error_bars(y, intervals, factor), "color": GREY}
    return points(
        name, x, y, hover, "markers", marker={"color": GREY, "size": 1}, error_y=spread,
        showlegend=False,
    )  # fmt: skip


def stack_bars(
    columns: Mapping[str, Sequence[float]],
    places: Sequence[str],
    colours: Mapping[str, str],
    more: Sequence[Trace],
    title: str,
    x: str | Mapping[str, Any],
    y: str | Mapping[str, Any],
    hover: str = "%{y:.4g}",
    **layout: Any,
) -> Figure:
    """Bars on each other, a colour a part, and what is drawn over them; nothing where there are no places."""
    traces = [
        bars(part.replace("_", " "), places, column, colours[part], hover)
        for part, column in columns.items()
    ]
    return figure(
        [*traces, *more] if places else [], title, x, y, barmode="stack", bargap=gap_of(len(places)),
        legend={"traceorder": "reversed"}, **layout,
    )  # fmt: skip


NAMES = {"text": "", "type": "category"}
"""An axis of names."""


def axis(told: str | Mapping[str, Any]) -> dict[str, Any]:
    """An axis of Plotly's from its title, or from a mapping with `text`."""
    words = {"text": told} if isinstance(told, str) else dict(told)
    return {"title": {"text": words.pop("text", ""), "standoff": 12}, **words}


def gap_of(bars: int) -> float:
    """The share of the axis between upright bars: few bars do not become broad."""
    return 0.45 if bars > 3 else 1.0 - 0.14 * bars - 0.1


def note(words: str, x: float, y: float) -> dict[str, Any]:
    """Words at a place of the paper, 0 to 1 from the lower left."""
    return {"text": words, "x": x, "y": y, "xref": "paper", "yref": "paper", "showarrow": False}


def counts_axis(text: str, values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis with a tick at every value that is there (GPU counts and the like)."""
    at = sorted({float(value) for value in values})
    while len(at) > 12:
        at = at[::2]
    words = [f"{value:,.0f}" if value >= 1 else f"{value:g}" for value in at]
    return {"text": text, "type": "log", "tickvals": at, "ticktext": words}


BESIDE = 128
"""Characters that the words below the bars of a figure may have together."""


def log_axis(text: str, values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis with ticks at 1, 2 and 5 of each power of ten."""
    known = [value for value in values if value > 0.0]
    at = log_values(min(known, default=1.0), max(known, default=10.0))
    return {"text": text, "type": "log", "tickvals": at, "ticktext": [f"{v:,.6g}" for v in at]}


def log_values(low: float, high: float) -> list[float]:
    """Ones, and where there is room twos and fives, of the powers of ten around a range; equal steps where
    fewer than two of those lie within it."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    some = (1, 2, 5) if len(powers) <= 5 else (1,)
    found = [digit * 10.0**power for power in powers for digit in some]
    if sum(low <= value <= high for value in found) > 1 or low == high:
        return found
    unit = 10.0 ** math.floor(math.log10((high - low) / 2.0))
    step = max(unit * digit for digit in (1, 2, 5) if unit * digit <= (high - low) / 2.0)
    first = math.floor(low / step)
    return [step * count for count in range(max(first, 1), math.ceil(high / step) + 1)]


def value_axis(text: str, values: Sequence[float]) -> dict[str, Any]:
    """An axis from zero, or a logarithmic one where the values span decades."""
    known = [value for value in values if math.isfinite(value)]
    if known and min(known) > 0.0 and max(known) / min(known) >= DECADES:
        return log_axis(text, known)
    return {"text": text, "rangemode": "tozero"}


def on_lines(names: Sequence[str]) -> list[str]:
    """Names below bars, a word to a line, where all of their words are short enough to be side by side."""
    words = [word for name in names for word in name.split()]
    fits = len(names) * max(map(len, words), default=0) <= BESIDE
    return [name.replace(" ", "<br>") if fits else name for name in names]


def sentence(words: str) -> str:
    """Words with a capital first letter, and no other changed."""
    return words[:1].upper() + words[1:]


def shown_in(field: str) -> tuple[float, str]:
    """A factor for a field's values, and the unit that they then have."""
    unit = field_unit(field.rsplit(".", 1)[-1])
    if field in UNITLESS and unit != "s":
        return 1.0, COUNTED.get(field, "")
    return UNITS.get(unit, (1.0, symbol(unit) if unit else ""))


def title_of(field: str) -> str:
    """What a field or a `--set` path is called on an axis, with the unit of `shown_in`."""
    unit = shown_in(field)[1]
    return words_of(field) + (f" ({unit})" if unit else "")


def shown_value(field: str, value: Any) -> str:
    """A value in the unit of `shown_in`, in few characters; words stay as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    number = value * shown_in(field)[0]
    whole = number == int(number) and abs(number) < 1e15
    return f"{number:,.0f}" if whole else f"{number:.4g}"


def unit_of_seconds(values: Sequence[float]) -> tuple[float, str]:
    """A factor and a unit in which the largest of these seconds reads well."""
    most = max((abs(value) for value in values), default=1.0)
    for least, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "us")):
        if most >= least:
            return factor, unit
    return 1.0, "s"


def error_bars(
    values: Sequence[float], intervals: Sequence[Any], factor: float = 1.0
) -> dict[str, Any]:
    """Error bars from intervals (`{"p50": [low, high], "p90": ...}` or none); all as one record of Plotly's.

    `values` are already times the factor; the ends of the intervals are not.
    """
    ends = [(one or {}).get(PERCENTILE) for one in intervals]
    if not any(ends):
        return {"visible": False}
    above, below = [], []
    for value, end in zip(values, ends, strict=True):
        low, high = (end[0] * factor, end[1] * factor) if end else (value, value)
        above.append(max(high - value, 0.0))
        below.append(max(value - low, 0.0))
    return {
        "type": "data",
        "array": above,
        "arrayminus": below,
        "symmetric": False,
        "thickness": 1.2,
        "width": 4,
        "visible": True,
    }
