"""Small multiples: panels of equal size in rows, one legend for all of them beside."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.records import dataclass
from foretell.report.figures.look import Figure, axis, template

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
        "title": {"text": title, "x": 0.02, "xanchor": "left", "font": {"size": 16}},
        "template": template(),
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
        whole[f"xaxis{index}"] = {
            **across,
            "domain": [left, min(left + wide, 1.0)],
            "anchor": f"y{index}",
        }
        whole[f"yaxis{index}"] = {
            **up,
            "domain": [max(top - height / high, 0.0), top],
            "anchor": f"x{index}",
        }
        whole["annotations"].append(
            {
                "text": part.title,
                "font": {"weight": "bold"},
                "showarrow": False,
                "xref": "paper",
                "yref": "paper",
                "x": left,
                "y": top,
                "xanchor": "left",
                "yanchor": "bottom",
                "yshift": 8,
            }
        )
        for trace in part.traces:
            name = str(trace.get("name", ""))
            shown = bool(name) and name not in seen and trace.get("showlegend", True)
            seen |= {name}
            data.append(
                {
                    **trace,
                    "xaxis": f"x{index}",
                    "yaxis": f"y{index}",
                    "showlegend": shown,
                    "legendgroup": name,
                }
            )
    return {"data": data, "layout": whole}
