"""Results of the reference model as plain text."""

from foretell.lab.reference.records import MODELS
from foretell.lab.reference.rows import Row
from foretell.lab.reference.search import ReferenceSearch
from foretell.lab.reference.study import StudyResult

SECONDS_PER_DAY = 86400.0
"""Seconds of a day."""


def days(row: Row) -> float | None:
    """Days of the published training run at this plan's throughput; None for other models."""
    model, throughput = MODELS.get(str(row["model"])), row["throughput"]
    if model is None or not isinstance(throughput, float):
        return None
    return model.samples / throughput / SECONDS_PER_DAY


def render(result: ReferenceSearch) -> str:
    """The plans as a table, fastest first, under one line that says what was searched."""
    head = (
        f"{result.model}, {result.strategy}, {result.gpus} x {result.chip} "
        f"in fast domains of {result.fast_domain}, global batch {result.global_batch}: "
        f"{result.candidates} candidates, {result.feasible} fit"
    )
    if not result.plans:
        return f"{head}\nNo plan fits."
    header = ["rank", "plan", "placement", "t_s", "days", "mem_GB"]
    header += ["comp%", "mem%", "tp%", "dp%", "pp%", "bubble%"]
    notes = [f"note: {note}" for note in result.notes]
    return "\n".join([head, *notes, *_aligned([header, *(_line(row) for row in result.plans)])])


def render_study(result: StudyResult) -> str:
    """What a study did, and where it is."""
    kept = f"{result.feasible} fit, {len(result.plans)} plans kept"
    head = f"{result.evaluations} candidates, {kept}, {result.wall_s:.2f} s"
    return "\n".join([head, *(f"wrote {path}" for path in result.files)])


def _line(row: Row) -> list[str]:
    """Cells of one plan."""
    split = f"tp{row['tp']}" if row["tp1"] is None else f"tp{row['tp1']}x{row['tp2']}"
    inner = row["nv_tp"] if row["tp1"] is None else f"{row['nv_tp1']}x{row['nv_tp2']}"
    panels = "" if row["nb"] is None else f" nb{row['nb']}"
    run_days = days(row)
    fractions = ("comp", "mem", "tp_comm", "dp_comm", "pp_comm", "bubble")
    return [
        str(row["rank"]),
        f"{split} pp{row['pp']} dp{row['dp']} mbs{row['mbs']}{panels}",
        f"tp{inner} pp{row['nv_pp']} dp{row['nv_dp']}",
        f"{row['t']:.4g}",
        "" if run_days is None else f"{run_days:.4g}",
        f"{row['mem']:.4g}",
        *(f"{_number(row[f'{name}_frac']) * 100:.1f}" for name in fractions),
    ]


def _number(cell: object) -> float:
    """A cell that is known to hold a number."""
    return float(str(cell))


def _aligned(lines: list[list[str]]) -> list[str]:
    """Columns padded to their widest cell: text to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    left = {1, 2}
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
