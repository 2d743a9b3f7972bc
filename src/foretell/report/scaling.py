"""A scaling study as tables and sentences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.report.console import table
from foretell.report.presentation.text import bullets, card_text
from foretell.report.presentation.verbs import presentation
from foretell.studies.scaling.evaluate import BANDWIDTHS
from foretell.studies.scaling.published import PublishedFigure, median_error
from foretell.studies.scaling.records import Curve, Scaling
from foretell.studies.scaling.study import ScalingStudy

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

MEANING = (
    "exposed: waiting for collectives and sends; hidden: messages behind the passes; efficiency: tokens/s "
    "per GPU over those of the fewest GPUs that fit, were nothing waited for there."
)


def scaling_text(found: Scaling) -> "RenderableType":
    """Where every model's strategies stop, their points, and what bandwidth would do."""
    from rich.text import Text

    able = [curves for curves in map(found.of, found.models) if any(c.largest for c in curves)]
    beside: list[RenderableType] = [*map(bandwidth_table, able), Text(MEANING, "dim")]
    return card_text(presentation("scaling", found.to_dict()), beside=beside)


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
