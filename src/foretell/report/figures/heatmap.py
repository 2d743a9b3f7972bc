"""One column over two fields."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import (
    DECADES,
    SCALE,
    Figure,
    figure,
    log_values,
    sentence,
    shown_in,
    shown_value,
    title_of,
    words_of,
)


def heat_map(
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    value: str,
    title: str = "",
    best: str = "min",
) -> Figure:
    """Rows of a sweep as cells; cells without a row, or with an unknown value, are empty.

    Where several rows share a cell (a third field varies) the best value is shown: the
    least, or with `best` max the largest. Values that span decades are coloured by their logarithms.
    """
    across, up = _values(rows, x), _values(rows, y)
    factor, better = shown_in(value)[0], max if best == "max" else min
    cells: dict[tuple[Any, Any], float] = {}
    for row in rows:
        if row.get(value) is not None:
            key = row[x], row[y]
            shown = factor * float(row[value])
            cells[key] = better(shown, cells.get(key, shown))
    grid = [[cells.get((column, line)) for column in across] for line in up]
    map_: dict[str, Any] = {
        "type": "heatmap",
        "x": [shown_value(x, column) for column in across],
        "y": [shown_value(y, line) for line in up],
        "z": grid,
        "colorscale": SCALE,
        "colorbar": {"title": {"text": title_of(value), "side": "right"}},
        "texttemplate": "%{z:.4~g}",
        "hovertemplate": "%{x}, %{y}: %{z:.4g}<extra></extra>",
        "hoverongaps": False,
        "xgap": 1,
        "ygap": 1,
    }
    logs = log_colours(grid)
    bar = {**map_["colorbar"], **logs.pop("colorbar", {})}
    map_ |= {**logs, "colorbar": bar}
    heading = title or sentence(f"{words_of(value)} over {words_of(x)} and {words_of(y)}")
    return figure(
        [map_] if cells else [], heading,
        {"text": title_of(x), "type": "category", "showgrid": False},
        {"text": title_of(y), "type": "category", "showgrid": False},
    )  # fmt: skip


def log_colours(grid: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """What differs where values span decades: colours by logarithms, words as they are; else nothing."""
    known = [value for row in grid for value in row if value is not None]
    if not known or min(known) <= 0.0 or max(known) / min(known) < DECADES:
        return {}
    at = log_values(min(known), max(known))
    return {
        "z": [[None if v is None else math.log10(v) for v in row] for row in grid],
        "text": [["" if v is None else f"{v:.4g}" for v in row] for row in grid],
        "texttemplate": "%{text}",
        "hovertemplate": "%{x}, %{y}: %{text}<extra></extra>",
        "colorbar": {
            "tickvals": [math.log10(value) for value in at],
            "ticktext": [f"{value:,.6g}" for value in at],
        },
    }


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Distinct values, numbers in order, words as they come."""
    found = list(dict.fromkeys(row[name] for row in rows if row.get(name) is not None))
    numbers = all(isinstance(one, int | float) for one in found)
    return sorted(found) if numbers else found
