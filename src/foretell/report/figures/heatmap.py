"""One column over two fields."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import (
    SCALE,
    Figure,
    figure,
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
    least, or with `best` max the largest.
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
    map_ = {
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
    heading = title or sentence(f"{words_of(value)} over {words_of(x)} and {words_of(y)}")
    return figure(
        [map_] if cells else [], heading,
        {"text": title_of(x), "type": "category", "showgrid": False},
        {"text": title_of(y), "type": "category", "showgrid": False},
    )  # fmt: skip


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Distinct values, numbers in order, words as they come."""
    found = list(dict.fromkeys(row[name] for row in rows if row.get(name) is not None))
    numbers = all(isinstance(one, int | float) for one in found)
    return sorted(found) if numbers else found
