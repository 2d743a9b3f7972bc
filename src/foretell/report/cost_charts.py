"""Pictures of costs: a sweep as lines or bars, one answer as its parts."""

from collections.abc import Mapping
from typing import Any

from foretell.economics.work import speed_of
from foretell.report.charts import Line, Mark, line_chart, pareto_chart, stacked_bars
from foretell.report.svg import Picture

TITLES = {
    "area": "silicon, all dies together (mm2)",
    "dies": "dies",
    "node": "process",
    "package": "package",
    "volume": "packages made",
    "gpus": "GPUs",
    "utilisation": "share of hours in use",
    "years": "years of use",
}
"""What swept flags are called on an axis; paths are called by themselves."""


def cost_picture(found: Mapping[str, Any]) -> Picture:
    """The picture of a sweep (lines over its first number, or bars), or of one answer's parts."""
    if "sweep" not in found:
        whole = found["breakdown"]
        parts = {child["name"]: child["value"] for child in whole["children"]}
        title = f"{found['what']} {found['name']}"
        return stacked_bars(title, "", "USD", [found["name"]], [parts])
    first, *others = found["sweep"]
    rows = [row for row in found["rows"] if row["usd"] is not None]
    key, unit = _drawn(rows)
    given = ", ".join(f"{name} {value}" for name, value in found["given"].items())
    given = given.removeprefix(f"{found['what']} ")
    title = f"Cost of a {found['what']}" + (f" ({given})" if given else "")
    if rows and "pareto" in rows[0] and "system" in (first, *others):
        return _front(title, rows, [name for name in (first, *others) if name != "system"])
    if not rows or not all(_is_number(row[first]) for row in rows):
        names = [" ".join(str(row[name]) for name in (first, *others)) for row in rows]
        stacks: list[dict[str, float]] = [row["parts_usd"] for row in rows] or [{}]
        return stacked_bars(title, TITLES.get(first, first), "USD", names or ["-"], stacks)
    lines: dict[str, list[tuple[float, float, float, float]]] = {}
    for row in rows:
        name = ", ".join(_label(other, row[other]) for other in others) or unit
        low, high = row[f"low_{key}"], row[f"high_{key}"]
        lines.setdefault(name, []).append((float(row[first]), row[key], low, high))
    made = [Line(name=name, points=tuple(sorted(points))) for name, points in lines.items()]
    return line_chart(title, TITLES.get(first, first), unit, made)


def _label(name: str, value: str) -> str:
    """What a line is called: the value, with its field where it is a bare number."""
    if not _is_number(value):
        return str(value)
    if name == "dies":
        return "one die" if float(value) == 1 else f"{value} dies"
    return f"{name.rsplit('.', 1)[-1]} {value}"


def _front(title: str, rows: list[Mapping[str, Any]], others: list[str]) -> Picture:
    """Performance and cost over systems: a mark for each row, and the front of those that none beats."""
    marks = [
        Mark(
            group=str(row["system"]),
            label=", ".join(
                f"{cell:g}" if isinstance(cell := row[name], float) else str(cell)
                for name in others
            ),
            x=speed_of(row),
            y=row["usd_per_million_tokens"],
            front=row["pareto"],
        )
        for row in rows
    ]
    speed = "tokens/s of a user" if "tokens_per_s_per_user" in rows[0] else "tokens/s"
    return pareto_chart(title, speed, "USD per million tokens", marks)


def _drawn(rows: list[Mapping[str, Any]]) -> tuple[str, str]:
    """What is drawn over a swept number, and what it is called."""
    if rows and "pareto" in rows[0]:
        return "usd_per_million_tokens", "USD per million tokens"
    if rows and "usd_per_gpu_hour" in rows[0]:
        return "usd_per_gpu_hour", "USD per GPU-hour"
    return "usd", "USD"


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True
