"""What is worth showing of studies: strategies over GPUs, designs and their front, sweeps."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from foretell.report.presentation.money_cards import amount
from foretell.report.presentation.numbers import (
    Presentation,
    ShownTable,
    Told,
    facts_of,
    listed,
    plain_table,
    table_of,
)
from foretell.units import field_unit
from foretell.units import format as with_unit

SCALED = (
    "exposed: waiting for collectives and sends; hidden: messages behind the passes; efficiency: tokens/s "
    "per GPU over those of the fewest GPUs that fit, were nothing waited for there."
)
MOST_ROWS = 40
"""Points of a front that are shown; the JSON has all."""
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


def scaling_card(told: Told) -> Presentation:
    """Strategies over GPUs: where each stops, and every point; the whole study of the documentation."""
    if "curves" not in told:
        return study_card(told)
    several = len({curve["model"] for curve in told["curves"]}) > 1
    points = [
        {**point, "model": curve["model"] if several else None, "strategy": curve["strategy"],
         "why": point["reason"] or point["limited_by"]}
        for curve in told["curves"]
        for point in curve["points"]
    ]  # fmt: skip
    kind = "the batch grows with the GPUs" if told["mode"] == "weak" else "the batch is held"
    factors = dict.fromkeys(
        factor for curve in told["curves"] for p in curve["points"] for factor in p["by_bandwidth"]
    )
    slower = [
        {
            "model": curve["model"] if several else None,
            "strategy": curve["strategy"],
            "gpus": point["gpus"],
            "follows": point["follows"],
            **{
                f"x{float(f):g}": f"{1.0 / ratio:.2f}" for f, ratio in point["by_bandwidth"].items()
            },
        }
        for curve in told["curves"]
        if (point := _largest(curve)) is not None
    ]
    names = [f"x{float(factor):g}" for factor in factors]
    able = [
        point for point in points if point["fits"] != "no" and point["tokens_per_s"] is not None
    ]
    most = max(able, key=lambda point: point["tokens_per_s"], default=None)
    return Presentation(
        title=_scales(told["curves"]),
        lines=(
            f"{told['mode']} scaling on {told['system']}: {kind}, sequences of {told['seq_len']:,}",
            *([f"most tokens/s: {most['strategy']} on {most['gpus']:,} GPUs"] if most else []),
        ),
        facts=facts_of(most or {}, "tokens_per_s"),
        tables=(
            *table_of(
                told["curves"], "model", "strategy", "fits_from", "scales_to", "best_gpus", "why",
                title="Where it stops",
            ),
            *table_of(
                points, "model", "strategy", "gpus", "step_s", "interval.p90:step_s", "compute_s",
                "exposed_communication_s", "hidden_communication_s", "bubble_s",
                "tokens_per_s_per_gpu", "efficiency", "peak_memory_bytes", "fits", "why",
                title="Every point",
            ),
            *table_of(
                slower, "model", "strategy", "gpus", *names, "follows",
                title="Tokens/s with other bandwidths between nodes, over those now",
                labels={name: name for name in names},
            ),
        ),
        meaning=(SCALED,),
    )  # fmt: skip


def _scales(curves: Sequence[Told]) -> str:
    """The strategy that scales to most GPUs, of each model."""
    found = []
    for model in dict.fromkeys(curve["model"] for curve in curves):
        able = [one for one in curves if one["model"] == model and one["scales_to"]]
        if not able:
            found.append(f"{model} does not fit at any of these numbers of GPUs")
            continue
        best = max(able, key=lambda one: (one["scales_to"], one["best_gpus"] or 0))
        found.append(f"{model} scales to {best['scales_to']:,} GPUs with {best['strategy']}")
    return "; ".join(found)


def _largest(curve: Told) -> Told | None:
    """The point of a curve with the most GPUs that fits."""
    able = [point for point in curve["points"] if point["by_bandwidth"]]
    return able[-1] if able else None


def study_card(told: Told) -> Presentation:
    """The study of the documentation: efficiencies, where strategies stop, measurements and predictions."""
    parts = (told["data_parallel"], *told["model_parallel"])
    errors: dict[str, list[float]] = {}
    for row in told["measured"]:
        errors.setdefault(row["quantity"], []).append(abs(row["error"]))
    measured = [
        *(
            {
                "run": row["name"], "quantity": row["quantity"], "GPUs": str(row["gpus"]),
                "measured": f"{row['measured']:,.3g}", "predicted": f"{row['predicted']:,.3g}",
                "error": f"{100 * row['error']:+.0f} %",
            }
            for row in told["measured"]
        ),
        *(
            {"run": "median error", "quantity": name, "error": f"{100 * median(some):.0f} %"}
            for name, some in errors.items()
        ),
    ]  # fmt: skip
    return Presentation(
        title=f"Strategies of {len(told['data_parallel']['curves'])} curves on {len(parts)} systems",
        tables=(*map(_efficiencies, parts), *plain_table(measured, "Measured and predicted")),
        lists=tuple(
            one
            for part in parts
            for one in listed(
                f"{part['system']}: where it stops",
                [
                    f"{curve['model']}, {curve['strategy']}: {curve['why']}"
                    for curve in part["curves"]
                ],
            )
        ),
        meaning=(SCALED,),
    )


def _efficiencies(part: Told) -> ShownTable:
    """One curve a row."""
    counts = [str(point["gpus"]) for point in part["curves"][0]["points"]]
    rows = (
        (
            curve["model"],
            curve["strategy"],
            *(
                "-" if point["efficiency"] is None else f"{100 * point['efficiency']:.0f}"
                for point in curve["points"]
            ),
        )
        for curve in part["curves"]
    )
    return ShownTable(
        title=f"{part['system']}: efficiency, %",
        headers=("model", "strategy", *counts),
        rows=tuple(rows),
        right=(False, False, *(True for _ in counts)),
    )


def codesign_card(told: Told) -> Presentation:
    """Designs on the front, their plans, the best of each workload, and why others cannot be."""
    axes = [
        name
        for name in (told["rows"][0]["values"] if told["rows"] else ())
        if len({str(row["values"][name]) for row in told["rows"]}) > 1
    ]
    columns = [n for n in dict.fromkeys((*told["objectives"], *told["limits"])) if n not in axes]
    asked = {row["point"]: row for row in told["rows"]}
    shown = told["front"][:MOST_ROWS]
    heads = [short(name) for name in (*axes, *columns)]
    front = tuple(
        (
            str(one["point"]),
            *(cell(name, one["values"][name]) for name in axes),
            *(value_text(name, float(asked[one["point"]][name])) for name in columns),
        )
        for one in shown
    )
    best = tuple(
        (
            one["workload"],
            str(one["point"]),
            *(cell(name, one["values"][name]) for name in axes),
            value_text(one["column"], one["value"]),
            short(one["column"]),
        )
        for one in told["best"]
    )
    many = len(axes)
    more = len(told["front"]) - len(shown)
    tables = [
        ShownTable(
            title="", headers=("point", *heads), rows=front, right=(True,) * (len(heads) + 1)
        ),
        *_plans_table(shown),
        ShownTable(
            title="Best for each workload alone",
            headers=("workload", "point", *heads[:many], "value", "of"),
            rows=best if len(best) > 1 else (),
            right=(False, True, *(True for _ in axes), True, False),
        ),
    ]
    return Presentation(
        title=_counted(told),
        lines=tuple(_wanted(told)),
        tables=tuple(table for table in tables if table.rows),
        lists=listed(
            "Cannot be", [f"{one['points']:,}: {_cut(one['problem'])}" for one in told["reasons"]]
        ),
        meaning=(f"and {more} more; --json has all",) if more > 0 else (),
    )


def _plans_table(front: Sequence[Told]) -> tuple[ShownTable, ...]:
    """The plans of the front's points, each once."""
    points: dict[tuple[str, str], list[str]] = {}
    for one in front:
        for workload, row in one["workloads"].items():
            if "plan" in row:
                found = points.setdefault((workload, str(row["plan"] or "")), [])
                found.append(str(one["point"]))
    order = list(dict.fromkeys(workload for workload, _ in points))
    rows = [
        {"workload": workload or "all", "plan": plan, "points": " ".join(held)}
        for (workload, plan), held in sorted(
            points.items(), key=lambda item: order.index(item[0][0])
        )
    ]
    return plain_table(rows, "")


def short(path: str) -> str:
    """What a flag, path or column is called at the head of a column: its last names."""
    words = path.split(".")
    words[-1] = HEADS.get(words[-1], words[-1])
    if path.startswith("network."):
        return ".".join(words[1:])
    return words[-1] if path.startswith(("chip.design.", "prices.")) else ".".join(words)


def cell(path: str, value: Any) -> str:
    """What a flag or field has at one point, with its unit."""
    from foretell.studies.axes import unit_of  # a plain answer starts without it

    unit = unit_of(path)
    if unit and isinstance(value, int | float) and not isinstance(value, bool):
        return with_unit(float(value), unit, 3)
    return f"{value:g}" if isinstance(value, float) else str(value)


def value_text(column: str, value: float) -> str:
    """A result; bytes and joules with their unit, whose billions would read as bytes."""
    unit = field_unit(column.rsplit(".", 1)[-1])
    return with_unit(value, unit) if unit in PREFIXED else amount(value)


def _counted(told: Told) -> str:
    within = f", {told['within_limits']:,} within the limits" if told["limits"] else ""
    head = f"{told['points']:,} points, {told['possible']:,} possible{within}"
    return f"{head}; {len(told['front']):,} on the front"


def _wanted(told: Told) -> list[str]:
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


def sweep_card(told: Told) -> Presentation:
    """How far a sweep is, how fast, what is wrong with its shards, and what to type next."""
    folder, whole = told["folder"], told["complete"]
    state = "complete" if whole else "running" if told["running"] else "not complete"
    shards = f"{told['shards_done']:,} of {told['shards']:,} shards"
    lines = []
    if told["points_per_s"] is not None and not whole:
        lines.append(
            f"{told['points_per_s']:,.3g} points/s, {time_left(told['seconds_left'])} left"
        )
    if whole and told["objectives"]:
        wanted = ", ".join(f"{way} {name}" for name, way in told["objectives"].items())
        lines += [f"wanted: {wanted}", f"the front: foretell sweep front {folder}"]
    lines += [f"corrupt, to be done again: {name}" for name in told["corrupt"]]
    if not whole and not told["running"]:
        lines.append(f"go on: foretell sweep resume {folder}")
    done = f"{told['points_done']:,} of {told['points']:,} points"
    return Presentation(title=f"{folder}: {state}, {done}, {shards}", lines=tuple(lines))


def time_left(seconds: float | None) -> str:
    """Seconds or hours."""
    if seconds is None:
        return "unknown time"
    return f"{seconds:,.0f} s" if seconds < 600 else f"{seconds / 3600:,.1f} h"
