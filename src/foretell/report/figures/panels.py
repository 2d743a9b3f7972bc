"""Several figures as one: panels beside and below each other, each with its legend."""

import re
from collections.abc import Sequence
from typing import Any

from foretell.report.figures.look import HEIGHT, Figure, template

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
        "title": {"text": title, "x": 0.02, "xanchor": "left", "font": {"size": 16}},
        "template": template(),
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
    layout["annotations"].append(
        {
            # A weight, and no <b>: pages that allow no inline styles show it too.
            "text": own["title"]["text"], "font": {"weight": "bold"}, "showarrow": False, "xref": "paper",
            "yref": "paper", "x": left, "y": top, "xanchor": "left", "yanchor": "bottom", "yshift": 14,
        }
    )  # fmt: skip
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
