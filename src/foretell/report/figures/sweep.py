"""The results of a sweep: lines over a field, a heat map over two, or a front of two columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.errors import BadInput, Problem, unknown
from foretell.report.figures.heatmap import heat_map
from foretell.report.figures.lines import lines
from foretell.report.figures.look import Figure
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
        raise BadInput([Problem(path="--x", value=x, message=message, allowed=", ".join(known))])
    return first, second, shown


def sweep_figure(
    rows: Sequence[Mapping[str, Any]],
    columns: tuple[str, str, str | None],
    varied: Sequence[str],
    directions: Mapping[str, str],
    title: str = "",
) -> Figure:
    """Rows of a sweep; a line for each combination of the other varied fields."""
    x, y, value = columns
    if value is not None:
        return heat_map(rows, x, y, value, title=title, best=column_direction(value, directions))
    if x in varied:
        others = [name for name in varied if name not in (x, y) and _differs(rows, name)]
        return lines(rows, x, y, group=others, title=title)
    ways = column_direction(x, directions), column_direction(y, directions)
    group = next((name for name in varied if _differs(rows, name)), None)
    return pareto(rows, x, y, ways, group=group, title=title)


def column_direction(column: str, directions: Mapping[str, str]) -> str:
    """min or max: as the study says, else by the column's name."""
    large = any(column.startswith(word) or word in column for word in LARGE)
    return directions.get(column, "max" if large else "min")


def _differs(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return len({row.get(name) for row in rows}) > 1
