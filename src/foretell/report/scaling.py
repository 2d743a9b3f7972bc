"""A scaling study as tables and sentences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.report.console import table
from foretell.report.estimate import gib
from foretell.report.presentation.text import bullets
from foretell.studies.scaling.evaluate import BANDWIDTHS
from foretell.studies.scaling.published import PublishedFigure, median_error
from foretell.studies.scaling.records import Curve, Scaling, ScalingPoint
from foretell.studies.scaling.study import ScalingStudy

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

COLUMNS = (
    "GPUs", "ms/step", "90%", "compute", "exposed", "hidden", "bubble", "other", "tokens/s/GPU", "eff. %",
    "GiB",
)  # fmt: skip
"""Of a table of points; milliseconds unless said otherwise."""
MEANING = (
    "compute + exposed + bubble + other = ms/step; hidden: messages behind the passes. eff.: tokens/s/GPU "
    "over those of the fewest GPUs that fit, were nothing waited for there."
)


def scaling_text(found: Scaling) -> "RenderableType":
    """Every model's points, where its strategies stop, and what bandwidth would do."""
    from rich.console import Group
    from rich.text import Text

    kind = "the batch grows with the GPUs" if found.mode == "weak" else "the batch is held"
    head = Text.assemble((f"{found.mode} scaling on {found.system}", "bold"), f": {kind}")
    parts: list[RenderableType] = [head, Text(f"sequences of {found.seq_len} tokens"), Text()]
    for model in found.models:
        curves = found.of(model)
        parts += [Text(model, "bold"), points_table(curves), Text()]
        parts += [bullets("Where it stops", [f"{c.strategy}: {c.why}" for c in curves]), Text()]
        if any(curve.largest for curve in curves):
            parts += [bandwidth_table(curves), Text()]
    parts.append(Text(MEANING, "dim"))
    if found.assumptions:
        parts += [Text(), bullets("Assumed", list(found.assumptions))]
    return Group(*parts)


def points_table(curves: Sequence[Curve]) -> "Table":
    """One point a row; strategies below each other."""
    made = table("strategy", *COLUMNS, "fits", "largest part, or why not", right=COLUMNS)
    for curve in curves:
        for point in curve.points:
            made.add_row(curve.strategy, *_cells(point))
    return made


def _cells(point: ScalingPoint) -> list[str]:
    if point.step_s is None:
        return [str(point.gpus), *[""] * (len(COLUMNS) - 1), point.fits, point.reason or ""]
    seconds = (
        point.step_s,
        point.compute_s,
        point.exposed_communication_s,
        point.hidden_communication_s,
        point.bubble_s,
        point.other_s,
    )
    step, *shares = (f"{1e3 * (value or 0.0):,.1f}" for value in seconds)
    return [
        str(point.gpus),
        step,
        " to ".join(f"{1e3 * end:,.0f}" for end in (point.interval or {}).get("p90", ())),
        *shares,
        f"{point.tokens_per_s_per_gpu or 0.0:,.0f}",
        "" if point.efficiency is None else f"{100 * point.efficiency:.1f}",
        gib(point.peak_memory_bytes or 0.0),
        point.fits,
        point.reason or point.limited_by or "",
    ]


def bandwidth_table(curves: Sequence[Curve]) -> "Table":
    """On the most GPUs that fit: throughput with other bandwidths between nodes, over that as it is."""
    headers = [f"x{factor:g}" for factor in BANDWIDTHS]
    made = table("Bandwidth between nodes", "GPUs", *headers, "follows", right=("GPUs", *headers))
    for curve in curves:
        point = curve.largest
        if point is not None:
            gains = [f"{1.0 / ratio:.2f}" for ratio in point.by_bandwidth.values()]
            made.add_row(curve.strategy, str(point.gpus), *gains, point.follows or "")
    return made


def study_text(found: ScalingStudy) -> "RenderableType":
    """The study in short: efficiencies, where strategies stop, and measurements beside predictions."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for one in (found.data_parallel, *found.model_parallel):
        parts += [Text(f"{one.system}: efficiency, %", "bold"), efficiency_table(one), Text()]
        stops = [f"{c.model}, {c.strategy}: {c.why}" for c in one.curves]
        parts += [bullets("Where it stops", stops), Text()]
    parts += [compared_table(found.measured), Text(), Text(MEANING, "dim")]
    return Group(*parts)


def efficiency_table(found: Scaling) -> "Table":
    """One curve a row."""
    counts = [str(point.gpus) for point in found.curves[0].points]
    made = table("model", "strategy", *counts, right=tuple(counts))
    for curve in found.curves:
        cells = ["-" if p.efficiency is None else f"{100 * p.efficiency:.0f}" for p in curve.points]
        made.add_row(curve.model, curve.strategy, *cells)
    return made


def compared_table(rows: Sequence[PublishedFigure]) -> "Table":
    """Measured and predicted, with the median error of each quantity below."""
    numbers = ("GPUs", "measured", "predicted", "error")
    made = table("run", "quantity", *numbers, right=numbers)
    for row in rows:
        values = (f"{value:,.3g}" for value in (row.measured, row.predicted))
        made.add_row(row.name, row.quantity, str(row.gpus), *values, f"{100 * row.error:+.0f} %")
    for quantity in dict.fromkeys(row.quantity for row in rows):
        some = [row for row in rows if row.quantity == quantity]
        made.add_row("median error", quantity, "", "", "", f"{100 * median_error(some):.0f} %")
    return made
