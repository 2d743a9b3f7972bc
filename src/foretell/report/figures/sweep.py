"""The results of a sweep: lines over a field, a heat map over two, or a front of two columns."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.errors import BadInput, Infeasible, Problem, bad_input, unknown
from foretell.report.figures.lines import lines, named_values
from foretell.report.figures.look import (
    DECADES,
    NAMES,
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
from foretell.report.figures.multiples import SmallPanel, small_multiples
from foretell.report.figures.pareto import pareto

FALLBACK = {
    "training": ("step_s", "energy_joules"),
    "serving": ("output_tokens_per_s_per_gpu", "output_tokens_per_s_per_user"),
    "cost": ("usd",),
}
"""By a study's kind, what is looked at where it names no objectives."""
LARGE = ("tokens_per_s", "mfu", "hfu", "tflops_per_gpu", "headroom", "tokens_per_joule")
"""Columns of which more is better, by how their names begin or end."""


def chosen_columns(
    varied: Sequence[str],
    objectives: Sequence[str],
    known: Sequence[str],
    asked: Mapping[str, str | None],
) -> tuple[str, str, str | None]:
    """The columns of x, y and a heat map's value (none: no heat map), where not all are asked for.

    Two objectives make a front; one makes a heat map over the first two varied fields, or a line over one.
    """
    wrong = [unknown(f"--{n}", c, list(known)) for n, c in asked.items() if c and c not in known]
    if wrong:
        raise BadInput(wrong)
    x, y, value = asked["x"], asked["y"], asked["value"]
    over = [name for name in varied if name in known]
    goals = [name for name in objectives if name in known]
    if x is None and y is None and value is None and len(goals) >= 2:
        return goals[0], goals[1], None
    if value is None and (y is not None or len(over) < 2 or x is not None):
        value_or_y = y or next((name for name in goals if name != x), None)
        first = x or next(iter(over), None)
        if first is not None and value_or_y is not None:
            return first, value_or_y, None
    shown = value or next(iter(goals), None)
    rest = [name for name in over if name not in (x, y)]
    first, second = x or next(iter(rest), None), y
    second = second or next((name for name in rest if name != first), None)
    if first is None or second is None or shown is None:
        message = "says not what to draw: the study varies or wants too little"
        raise bad_input("--x", x, message, ", ".join(known))
    return first, second, shown


def sweep_figure(
    rows: Sequence[Mapping[str, Any]],
    columns: tuple[str, str, str | None],
    varied: Sequence[str],
    directions: Mapping[str, str],
    title: str = "",
) -> Figure:
    """Rows of a sweep; a line, or a heat map's panel, for each combination of the other varied fields."""
    x, y, value = columns
    if value is not None:
        best = column_direction(value, directions)
        others = [name for name in varied if name not in (x, y) and _differs(rows, name)]
        if others:
            return map_panels(rows, (x, y, value), others, best=best, title=title)
        return heat_map(rows, x, y, value, title=title, best=best)
    if x in varied:
        others = [name for name in varied if name not in (x, y) and _differs(rows, name)]
        return lines(rows, x, y, group=others, title=title)
    ways = column_direction(x, directions), column_direction(y, directions)
    group = next((name for name in varied if _differs(rows, name)), None)
    return pareto(rows, x, y, ways, group=group, title=title)


MOST_PANELS = 12
"""More combinations than this are not drawn: `--x`, `--y` and an SQL export choose among them."""


def map_panels(
    rows: Sequence[Mapping[str, Any]],
    columns: tuple[str, str, str],
    others: Sequence[str],
    *,
    best: str = "min",
    title: str = "",
) -> Figure:
    """A heat map for each combination of the other varied fields, all with one scale of colours."""
    x, y, value = columns
    apart: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        apart.setdefault(tuple(row.get(name) for name in others), []).append(row)
    if len(apart) > MOST_PANELS:
        message = f"{len(apart)} combinations of {', '.join(others)} would each be a panel"
        allowed = f"at most {MOST_PANELS}: vary less, or sweep export --sql a part of it"
        raise bad_input("--value", value, message, allowed)
    factor = shown_in(value)[0]
    grid = [[factor * float(row[value]) for row in rows if row.get(value) is not None]]
    logs = log_colours(grid)
    ends = [v for row in (logs.get("z") or grid) for v in row]
    across = min(len(apart), 3)
    parts = []
    for place, (key, own) in enumerate(apart.items()):
        named = named_values(dict(zip(others, key, strict=True)), others)
        traces = [
            {
                **trace,
                **_log_trace(trace, bool(logs)),
                "zmin": min(ends),
                "zmax": max(ends),
                "showscale": place == across - 1,
            }
            for trace in heat_map(own, x, y, value, best=best)["data"]
        ]
        for trace in traces:
            trace["colorbar"] = {"title": {"text": title_of(value)}, **logs.get("colorbar", {})}
        across_axis, up_axis = _axes(x, y)
        parts.append(SmallPanel(title=named, traces=traces, x=across_axis, y=up_axis))
    heading = title or sentence(f"{words_of(value)} over {words_of(x)} and {words_of(y)}")
    return small_multiples(parts, heading, across, width=440 * across + 140, key=0)


def _log_trace(trace: Mapping[str, Any], wanted: bool) -> dict[str, Any]:
    """A panel's own values as logarithms where the whole figure's span decades."""
    if not wanted or trace.get("texttemplate") == "%{text}":
        return {}
    z = trace["z"]
    return {
        "z": [[None if v is None or v <= 0.0 else math.log10(v) for v in row] for row in z],
        "text": [["" if v is None else f"{v:.4g}" for v in row] for row in z],
        "texttemplate": "%{text}",
        "hovertemplate": "%{x}, %{y}: %{text}<extra></extra>",
    }


def column_direction(column: str, directions: Mapping[str, str]) -> str:
    """min or max: as the study says, else by the column's name."""
    large = any(column.startswith(word) or word in column for word in LARGE)
    return directions.get(column, "max" if large else "min")


def _differs(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return len({row.get(name) for row in rows}) > 1


def _axes(x: str, y: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Axes of a heat map."""
    across, up = ({**NAMES, "text": title_of(name), "showgrid": False} for name in (x, y))
    return across, up


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
        *_axes(x, y),
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


MOST_ROWS = 20_000
"""Rows that a figure is made of; of more, the front and every so many of the others."""


def study_figure(
    folder: str | Path, asked: Mapping[str, str | None]
) -> tuple[Figure, dict[str, Any]]:
    """The figure of a sweep's results, and what it shows."""
    import numpy as np

    from foretell.search.pareto import pareto_front
    from foretell.studies.sweep.columns import POINT
    from foretell.studies.sweep.export import results
    from foretell.studies.sweep.run import needs_polars
    from foretell.studies.sweep.shards import read_manifest

    study, _ = read_manifest(Path(folder))
    needs_polars()
    table = results(folder)
    schema = table.collect_schema()
    known = [name for name in schema.names() if name != POINT]
    varied = [axis.path for axis in study.axes]
    objectives = list(study.objectives) or list(FALLBACK[study.kind])
    x, y, value = chosen_columns(varied, objectives, known, asked)
    wanted = dict.fromkeys([x, y, *([value] if value else []), *varied, "plan", "fits"])
    frame = table.select([name for name in wanted if name in known])
    if "fits" in known:
        import polars as pl

        frame = frame.filter(pl.col("fits") != "no")
    frame = frame.drop_nulls([x, y, *([value] if value else [])]).collect()
    if not len(frame):
        message = "no point of the sweep has an answer in these columns"
        raise Infeasible([Problem(path="folder", value=str(folder), message=message)])
    if len(frame) > MOST_ROWS and value is None and x not in varied:
        ways = [column_direction(name, study.objectives) for name in (x, y)]
        front = pareto_front([frame[x].to_numpy(), frame[y].to_numpy()], ways)
        kept = np.arange(len(frame)) % -(-len(frame) // MOST_ROWS) == 0
        frame = frame.filter(front | kept)
    title = f"{study.base.get('model') or study.verb} on {study.base.get('system', '')}".strip()
    title = f"{title} ({Path(folder).name})"
    drawn = sweep_figure(frame.to_dicts(), (x, y, value), varied, study.objectives, title)
    return drawn, {"x": x, "y": y, "value": value, "rows": len(frame)}
