"""Several figures as one: in rows with a legend each, or small panels with one legend for all of them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from foretell.records import dataclass
from foretell.report.figures.look import HEIGHT, Figure, axis, heading

GAP_X, GAP_Y = 92.0, 100.0
"""Pixels between columns and rows."""
MARGIN = {"l": 72, "r": 24, "t": 84, "b": 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallPanel:
    """One panel."""

    title: str
    """Above it."""
    traces: Sequence[Mapping[str, Any]]
    """Traces without axes of their own."""
    x: str | Mapping[str, Any]
    """Its axis across, as `look.axis` takes it."""
    y: str | Mapping[str, Any]
    """Its axis up."""


def small_multiples(
    parts: Sequence[SmallPanel],
    title: str,
    columns: int,
    *,
    width: int = 1240,
    height: int = 300,
    key: int = 0,
    gap: float = GAP_Y,
    **layout: Any,
) -> Figure:
    """Panels of `height` pixels each; a name appears in the legend once, in the first panel that has it.

    `key` are pixels for a legend, or a colour bar, on the right; `gap` are pixels between rows, which the
    words below the last row have too.
    """
    many = -(-len(parts) // columns)
    tall = int(MARGIN["t"] + MARGIN["b"] + many * height + (many - 1) * gap + gap - GAP_Y)
    inner = width - MARGIN["l"] - MARGIN["r"] - key
    bottom = MARGIN["b"] + gap - GAP_Y
    high = tall - MARGIN["t"] - bottom
    whole: dict[str, Any] = {
        **heading(title),
        "margin": {**MARGIN, "r": MARGIN["r"] + key, "b": bottom},
        "height": tall,
        "width": width,
        "annotations": [],
        "shapes": [],
        "showlegend": key > 0,
        "legend": {"traceorder": "normal", "x": 1.01, "y": 1.0},
        **layout,
    }
    data: list[dict[str, Any]] = []
    seen: set[str] = set()
    for place, part in enumerate(parts):
        row, column = divmod(place, columns)
        wide = (inner - GAP_X * (columns - 1)) / columns / inner
        left = column * (wide + GAP_X / inner)
        top = 1.0 - row * (height + gap) / high
        index = "" if place == 0 else str(place + 1)
        across, up = axis(part.x), axis(part.y)
        sides = [left, min(left + wide, 1.0)], [max(top - height / high, 0.0), top]
        whole[f"xaxis{index}"] = {**across, "domain": sides[0], "anchor": f"y{index}"}
        whole[f"yaxis{index}"] = {**up, "domain": sides[1], "anchor": f"x{index}"}
        whole["annotations"].append(_title_above(part.title, left, top, 8))
        for trace in part.traces:
            name = str(trace.get("name", ""))
            shown = bool(name) and name not in seen and trace.get("showlegend", True)
            seen |= {name}
            axes = {"xaxis": f"x{index}", "yaxis": f"y{index}"}
            data.append({**trace, **axes, "showlegend": shown, "legendgroup": name})
    return {"data": data, "layout": whole}


def _title_above(text: str, left: float, top: float, pixels: int) -> dict[str, Any]:
    """The title of a panel; a weight and no <b>: pages that allow no inline styles show it too."""
    place = {"xref": "paper", "yref": "paper", "x": left, "y": top}
    anchors = {"xanchor": "left", "yanchor": "bottom", "yshift": pixels}
    return {"text": text, "font": {"weight": "bold"}, "showarrow": False, **place, **anchors}


GAP, KEY, HEAD = 0.09, 0.19, 60.0
"""Between columns and for a legend (shares of the whole), and above each row (pixels)."""
NAME = re.compile(r"^(x|y)(\d*)( domain)?$")
"""A reference to an axis."""


def panels(figures: Sequence[Figure], title: str, columns: int = 1, height: int = HEIGHT) -> Figure:
    """The figures in rows of `columns`, `height` pixels a row.

    How bars are (`barmode`, `bargap`) is the whole picture's and comes from the first figure that says it.
    """
    many = -(-len(figures) // columns)
    tall = height * many + 40
    layout: dict[str, Any] = {
        **heading(title),
        "margin": {"l": 70, "r": 24, "t": 40 + HEAD, "b": 72},
        "height": tall,
        "annotations": [],
        "shapes": [],
        "showlegend": True,
    }
    for key in ("barmode", "bargap"):
        said = [one["layout"][key] for one in figures if key in one["layout"]]
        layout |= {key: said[0]} if said else {}
    inner = tall - 40 - HEAD - 72
    each = (inner - (many - 1) * (HEAD + 60)) / many
    data: list[dict[str, Any]] = []
    used = 0
    for place, figure in enumerate(figures):
        row, column = divmod(place, columns)
        width = (1.0 - GAP * (columns - 1)) / columns
        left = column * (width + GAP)
        top = 1.0 - row * (each + HEAD + 60) / inner
        box = (left, left + width), (max(top - each / inner, 0.0), top)
        used += _put(figure, data, layout, used, box, place + 1)
    return {"data": data, "layout": layout}


def _put(
    figure: Figure,
    data: list[dict[str, Any]],
    layout: dict[str, Any],
    used: int,
    box: tuple[tuple[float, float], tuple[float, float]],
    number: int,
) -> int:
    """Add a figure's traces and axes to a whole, inside a box; how many pairs of axes it took."""
    own = figure["layout"]
    (left, right), (bottom, top) = box
    keyed = own.get("showlegend", False)
    span = right - left - (KEY if keyed else 0.0)
    names = [key for key in own if re.fullmatch(r"[xy]axis\d*", key)]
    for key in names:
        axis, index = key[0], int(key[5:] or 1)
        made = dict(own[key])
        low, high = made.get("domain", (0.0, 1.0))
        start, length = (left, span) if axis == "x" else (bottom, top - bottom)
        made["domain"] = [start + low * length, min(start + high * length, 1.0)]
        made["anchor"] = _moved(made.get("anchor", f"{'y' if axis == 'x' else 'x'}{index}"), used)
        layout[f"{axis}axis{_index(index + used)}"] = made
    legend = f"legend{_index(number)}"
    layout[legend] = {
        **own.get("legend", {}), "x": left + span + 0.005, "y": top, "yanchor": "top",
        "xanchor": "left",
    }  # fmt: skip
    for trace in figure["data"]:
        made = {**trace, "legend": legend}
        made["showlegend"] = bool(keyed and trace.get("showlegend", True))
        for axis in "xy":
            made[f"{axis}axis"] = _moved(trace.get(f"{axis}axis", axis), used)
        data.append(made)
    layout["annotations"].append(_title_above(own["title"]["text"], left, top, 14))
    for kind in ("annotations", "shapes"):
        for one in own.get(kind, ()):
            moved = {key: _moved(one[key], used) for key in ("xref", "yref") if key in one}
            layout[kind].append({**one, **moved})
    return max((int(key[5:] or 1) for key in names), default=1)


def _moved(name: str, used: int) -> str:
    """A reference to an axis, past those that are used; other references stay."""
    found = NAME.match(name)
    if found is None:
        return name
    return f"{found[1]}{_index(int(found[2] or 1) + used)}{found[3] or ''}"


def _index(number: int) -> str:
    return "" if number == 1 else str(number)
