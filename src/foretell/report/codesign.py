"""A study's front as text and as a picture."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretell.report.console import table
from foretell.report.figures.look import Figure, words_of
from foretell.report.figures.pareto import pareto
from foretell.report.presentation.money_cards import amount as number
from foretell.studies.axes import unit_of
from foretell.units import field_unit
from foretell.units import format as with_unit

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from foretell.studies.sweep.codesign import Codesign

MOST_ROWS = 40
"""Points of a front that are shown as text; the JSON has all."""
HEADS = {
    "usd_per_million_work_tokens": "USD/M tokens",
    "work_tokens_per_s_per_gpu": "tokens/s/GPU",
    "joules_per_work_token": "J/token",
    "carbon_g_per_million_work_tokens": "g CO2e/M tokens",
    "bandwidth_bytes_per_s": "bandwidth",
    "die_to_die_bytes_per_s": "die_to_die",
    "scale_up_bytes_per_s": "scale_up",
}
"""What columns and fields with long names are called at the head of a column."""
PREFIXED = ("bytes", "bytes_per_s", "joules")
"""Units of results that are shown with a prefix."""
REASON = 160
"""Characters of a reason that are shown."""


def codesign_text(found: "Codesign") -> "RenderableType":
    """The front, and why other points are not on it."""
    from rich.console import Group
    from rich.text import Text

    told = found.to_dict()
    parts: list[RenderableType] = [Text(_counts(told), "bold")]
    parts += [Text(line) for line in _asked(told)]
    if told["front"]:
        parts += [Text(), front_table(found)]
        if len(told["front"]) > MOST_ROWS:
            parts.append(Text(f"and {len(told['front']) - MOST_ROWS} more; --json has all", "dim"))
        if found.table.plans:
            parts += [Text(), plans_table(found)]
    if len(told["best"]) > 1:
        parts += [Text(), Text("Best for each workload alone", "bold"), _best(found, told["best"])]
    if told["reasons"]:
        parts += [Text(), Text("Cannot be", "bold")]
        parts += [Text(f"{r['points']:>6,}  {_cut(r['problem'])}") for r in told["reasons"]]
    return Group(*parts)


def front_table(found: "Codesign") -> "Table":
    """One point of the front a row: what varies and what was asked."""
    axes = _varied(found.table.values)
    columns = [name for name in found.asked if name not in axes]
    heads = {name: short(name) for name in (*axes, *columns)}
    made = table("point", *heads.values(), right=("point", *heads.values()))
    for place in found.order[:MOST_ROWS]:
        cells = [cell(name, found.table.values[name][place]) for name in axes]
        cells += [value_text(name, float(found.value(name)[place])) for name in columns]
        made.add_row(str(int(found.table.points[place])), *cells)
    return made


def plans_table(found: "Codesign") -> "Table":
    """The plans of the front's points, each once."""
    made = table("workload", "plan", "points")
    for workload, plans in found.table.plans.items():
        points: dict[str, list[str]] = {}
        for place in found.order[:MOST_ROWS]:
            text = str(plans[place] or "")
            points.setdefault(text, []).append(str(int(found.table.points[place])))
        for text, held in points.items():
            made.add_row(workload or "all", text, " ".join(held))
    return made


def _best(found: "Codesign", rows: Sequence[Mapping[str, Any]]) -> "Table":
    """The point that each workload would choose."""
    axes = _varied(found.table.values)
    heads = {name: short(name) for name in axes}
    right = ("point", *heads.values(), "value")
    made = table("workload", "point", *heads.values(), "value", "of", right=right)
    for row in rows:
        cells = [cell(name, row["values"][name]) for name in axes]
        value = value_text(row["column"], row["value"])
        made.add_row(row["workload"], str(row["point"]), *cells, value, short(row["column"]))
    return made


def short(path: str) -> str:
    """What a flag, path or column is called at the head of a column: its last names."""
    words = path.split(".")
    words[-1] = HEADS.get(words[-1], words[-1])
    if path.startswith("network."):
        return ".".join(words[1:])
    return words[-1] if path.startswith(("chip.design.", "prices.")) else ".".join(words)


def cell(path: str, value: Any) -> str:
    """What a flag or field has at one point, with its unit."""
    unit = unit_of(path)
    if unit and isinstance(value, int | float) and not isinstance(value, bool):
        return with_unit(float(value), unit, 3)
    return f"{value:g}" if isinstance(value, float) else str(value)


def value_text(column: str, value: float) -> str:
    """A result; bytes and joules with their unit, whose billions would read as bytes."""
    unit = field_unit(column.rsplit(".", 1)[-1])
    return with_unit(value, unit) if unit in PREFIXED else number(value)


def codesign_figure(found: "Codesign", title: str) -> Figure:
    """Points within the limits and their front, over the first two objectives."""
    names = [*found.chosen.objectives][:2]
    y, x = names[0], names[-1]
    axes = found.table.values
    groups = _grouping(axes)
    rows = [
        {
            x: float(found.value(x)[place]),
            y: float(found.value(y)[place]),
            "point": _label(axes, groups, place),
            "group": f"{words_of(groups)} {cell(groups, axes[groups][place])}"
            if groups
            else "points",
        }
        for place in map(int, found.chosen.within.nonzero()[0])
    ]
    ways = found.chosen.objectives
    return pareto(rows, x, y, (ways[x], ways[y]), label="point", group="group", title=title)


def _varied(axes: Mapping[str, Sequence[Any]]) -> list[str]:
    """Flags and paths with more than one value."""
    return [name for name, column in axes.items() if len(set(map(str, column))) > 1]


def _grouping(axes: Mapping[str, Sequence[Any]]) -> str:
    """What colours the marks: the first thing that varies and has few values."""
    several = [n for n, column in axes.items() if 1 < len(set(map(str, column))) <= 10]
    return several[0] if several else ""


def _label(axes: Mapping[str, Sequence[Any]], groups: str, place: int) -> str:
    varied = [name for name in _varied(axes) if name != groups]
    return ", ".join(cell(name, axes[name][place]) for name in varied)


def _counts(told: Mapping[str, Any]) -> str:
    said = f"{told['points']:,} points, {told['possible']:,} possible"
    if told["limits"]:
        said += f", {told['within_limits']:,} within the limits"
    return f"{said}; {len(told['front']):,} on the front"


def _asked(told: Mapping[str, Any]) -> list[str]:
    """Objectives, limits and the mix in lines."""
    ways = ", ".join(f"{way} {name}" for name, way in told["objectives"].items())
    lines = [f"wanted: {ways}"]
    if told["limits"]:
        each = (f"{name} {value_text(name, most)}" for name, most in told["limits"].items())
        lines.append(f"at most: {', '.join(each)}")
    if told["workloads"]:
        mix = (f"{w['name']} {w['share']:.0%}" for w in told["workloads"])
        lines.append(f"of the tokens trained on, read or written: {', '.join(mix)}")
    return lines


def _cut(text: str) -> str:
    return text if len(text) <= REASON else text[: REASON - 3] + "..."
