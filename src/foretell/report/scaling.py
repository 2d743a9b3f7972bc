"""A scaling study as tables and sentences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.report.console import table
from foretell.report.presentation.text import bullets
from foretell.report.presentation.training_cards import SCALED
from foretell.studies.scaling.records import Scaling
from foretell.studies.scaling.study import PublishedFigure, ScalingStudy, median_error

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def study_text(found: ScalingStudy) -> "RenderableType":
    """The study in short: efficiencies, where strategies stop, and measurements beside predictions."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for one in (found.data_parallel, *found.model_parallel):
        parts += [Text(f"{one.system}: efficiency, %", "bold"), efficiency_table(one), Text()]
        stops = [f"{c.model}, {c.strategy}: {c.why}" for c in one.curves]
        parts += [bullets("Where it stops", stops), Text()]
    parts += [compared_table(found.measured), Text(), Text(SCALED, "dim")]
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
