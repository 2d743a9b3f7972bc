"""A trace broken down, as text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.lab.characterize.traces.breakdown import PARTS, CollectiveTime, StepBreakdown
from foretell.lab.characterize.traces.run import TraceReport
from foretell.lab.characterize.traces.share_rows import Imbalance, ShareRow
from foretell.report.console import bar, table
from foretell.report.presentation.step_cards import headlines, step_title
from foretell.report.presentation.text import bullets

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WORDS = ("compute", "overlapped", "exposed", "copies", "host", "idle")
"""Of PARTS, in their order."""
ROWS = 14
"""Operations that a screen shows; JSON has them all."""
LEVELS = (("step", "Step"), ("pass", "Passes"), ("family", "Kernels"), ("op", "Operations"))
"""Levels of a comparison, and what they are called."""
MEANING = (
    "compute + overlapped + exposed + copies + host + idle = ms/step. compute: kernels, nothing being sent; "
    "overlapped: both; exposed: communication alone; host: nothing runs while the host is at work."
)


def traced_text(found: TraceReport) -> "RenderableType":
    """Steps, families, collectives, ranks, and the prediction beside the busiest rank."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [step_table(found.steps), Text(), Text(MEANING, "dim"), Text()]
    mine = found.of(found.busiest)
    parts += [
        Text(f"rank {found.busiest}, mean of {len(mine)} steps", "bold"),
        family_table(mine),
        Text(),
    ]
    if any(step.ranges for step in mine):
        parts += [range_table(mine), Text()]
    if any(step.collectives for step in found.steps):
        parts += [collective_table(found), Text()]
    if found.imbalance:
        parts += [imbalance_table(found.imbalance), Text()]
    if found.predicted is not None:
        told = found.predicted.estimate.to_dict()
        parts += [*map(Text, headlines(told, step_title(told)))]
        for level, title in LEVELS:
            rows = [row for row in found.rows if row.level == level]
            if rows:
                parts += [Text(), row_table(title, rows[:ROWS], len(rows))]
    if found.notes:
        parts += [Text(), bullets("Notes", list(found.notes))]
    return Group(*parts)


def step_table(steps: Sequence[StepBreakdown]) -> "Table":
    """One step of one rank a row."""
    numbers = ("rank", "step", "ms/step", *WORDS)
    made = table(*numbers, right=numbers)
    for step in steps:
        cells = [f"{1e3 * getattr(step, name):,.3f}" for name in ("step_s", *PARTS)]
        made.add_row(str(step.rank), step.step, *cells)
    return made


def family_table(steps: Sequence[StepBreakdown]) -> "Table":
    """Kernels by family and pass."""
    numbers = ("ms", "%", "kernels")
    made = table("Compute", "pass", "ms", "%", "", "kernels", right=numbers)
    total = sum(step.compute_s for step in steps) or 1.0
    sums: dict[tuple[str, str], list[float]] = {}
    for step in steps:
        for one in step.compute:
            held = sums.setdefault((one.family, one.phase), [0.0, 0.0])
            held[0] += one.seconds
            held[1] += one.count
    for (family, phase), (seconds, count) in sorted(sums.items(), key=lambda item: -item[1][0]):
        share, many = seconds / total, len(steps)
        cells = f"{1e3 * seconds / many:,.3f}", f"{100 * share:.1f}", bar(share)
        made.add_row(family, phase, *cells, f"{count / many:,.0f}")
    return made


def range_table(steps: Sequence[StepBreakdown]) -> "Table":
    """Annotations of one's own, in a mean step."""
    numbers = ("ms", "compute", "communication")
    made = table("Ranges", *numbers, right=numbers)
    sums: dict[str, list[float]] = {}
    for one in (one for step in steps for one in step.ranges):
        held = sums.setdefault(one.name, [0.0, 0.0, 0.0])
        for place, value in enumerate((one.seconds, one.compute_s, one.communication_s)):
            held[place] += value / len(steps)
    for name, values in sorted(sums.items(), key=lambda item: -item[1][0])[:ROWS]:
        made.add_row(name, *(f"{1e3 * value:,.3f}" for value in values))
    return made


def collective_table(found: TraceReport) -> "Table":
    """Collectives of a mean step of each rank."""
    numbers = ("rank", "ranks", "calls", "ms", "exposed", "hidden", "MB", "GB/s", "bus GB/s")
    made = table("Communication", *numbers, right=numbers)
    for trace in found.traces:
        steps = found.of(trace.rank)
        every = [one for step in steps for one in step.collectives]
        for key in dict.fromkeys((one.collective, one.members) for one in every):
            same = [one for one in every if (one.collective, one.members) == key]
            cells = _collective_cells(same, len(steps))
            made.add_row(key[0], str(trace.rank), str(key[1] or ""), *cells)
    return made


def _collective_cells(same: Sequence[CollectiveTime], many: int) -> list[str]:
    """Means over steps; bandwidths are all bytes over all of their time."""
    sums = [sum(getattr(c, n) for c in same) for n in ("seconds", "exposed_s", "hidden_s")]
    timed = [c for c in same if c.size_bytes and c.algorithm_bytes_per_s]
    moved = sum(c.size_bytes or 0.0 for c in timed)
    took = sum((c.size_bytes or 0.0) / (c.algorithm_bytes_per_s or 1.0) for c in timed)
    buses = [
        c.bus_bytes_per_s / (c.algorithm_bytes_per_s or 1.0) for c in timed if c.bus_bytes_per_s
    ]
    factor = buses[0] if buses else None
    rate = moved / took / 1e9 if took else None
    return [
        f"{sum(c.count for c in same) / many:,.0f}",
        *(f"{1e3 * value / many:,.3f}" for value in sums),
        f"{moved / many / 1e6:,.3f}" if moved else "",
        "" if rate is None else f"{rate:,.3g}",
        "" if rate is None or factor is None else f"{rate * factor:,.3g}",
    ]


def imbalance_table(rows: Sequence[Imbalance]) -> "Table":
    """Ranks beside each other."""
    numbers = ("step", "busiest", "imbalance", "waits ms")
    made = table("Ranks", *numbers, right=numbers)
    for row in rows:
        waits = (
            ""
            if row.waits_s is None
            else ", ".join(f"{rank}: {1e3 * seconds:,.3f}" for rank, seconds in row.waits_s.items())
        )
        made.add_row("", row.step, str(row.busiest), f"{100 * row.imbalance:.1f} %", waits)
    return made


def row_table(title: str, rows: Sequence[ShareRow], many: int) -> "Table":
    """Measured beside predicted."""
    numbers = ("measured ms", "predicted ms", "difference", "ratio")
    shown = title if len(rows) == many else f"{title} ({len(rows)} of {many})"
    made = table(shown, "pass", *numbers, right=numbers)
    for row in rows:
        values = [
            "" if value is None else f"{1e3 * value:,.3f}"
            for value in (row.measured_s, row.predicted_s)
        ]
        ratio = row.to_dict()["ratio"]
        made.add_row(
            row.name,
            row.phase,
            *values,
            f"{1e3 * row.difference_s:+,.3f}",
            "" if ratio is None else f"{ratio:.2f}",
        )
    return made
