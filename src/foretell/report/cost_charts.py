"""Pictures of costs: a sweep as lines or bars, one answer as its parts."""

from collections.abc import Mapping
from typing import Any

from foretell.report.charts import Line, line_chart, stacked_bars
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
    key, unit = ("usd_per_gpu_hour", "USD per GPU-hour") if _hourly(rows) else ("usd", "USD")
    given = ", ".join(f"{name} {value}" for name, value in found["given"].items())
    given = given.removeprefix(f"{found['what']} ")
    title = f"Cost of a {found['what']}" + (f" ({given})" if given else "")
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


def _hourly(rows: list[Mapping[str, Any]]) -> bool:
    return bool(rows) and "usd_per_gpu_hour" in rows[0]


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True
