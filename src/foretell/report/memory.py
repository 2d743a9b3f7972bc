"""Memory over one step on one screen."""

from typing import TYPE_CHECKING

from foretell.report.console import table
from foretell.report.estimate import fit_words, headline
from foretell.report.presentation.text import numbers_grid
from foretell.report.presentation.verbs import presentation
from foretell.sharding.pipeline import stage_names
from foretell.simulation.memory_answer import MemoryAnswer, of_stage
from foretell.simulation.memory_timeline import StageLine

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

GIB = 2.0**30
MOST_TENSORS = 6
"""Kept tensors that are named."""
NOTE = (
    "allocated: what tensors take at the peak of the simulated step; reserved: with what the allocator holds "
    "beyond them; total: what the process holds, with driver context and communicators."
)


def memory_text(found: MemoryAnswer) -> "RenderableType":
    """Headline, answer, every stage, and what the fullest holds at its peak."""
    from rich.console import Group
    from rich.text import Text

    told, full = found.estimate, found.step.fullest
    peak, when = full.line.peak
    fullest = (
        f"Stage {full.stage} is the fullest: {peak / GIB:.1f} GiB of tensors, {when:.3g} s into a step of "
        f"{found.step.step_s:.3g} s."
    )
    return Group(
        headline(told),
        Text(),
        numbers_grid(presentation("memory", found.to_dict()), ("memory", fit_words(told))),
        Text(fullest),
        Text(),
        stage_table(found),
        Text(NOTE, "dim"),
        Text(),
        peak_table(full),
    )


def stage_table(found: MemoryAnswer) -> "Table":
    """GiB of every distinct stage."""
    sizes = ("allocated", "reserved", "total")
    grid = table("GiB by stage", *sizes, "peak at", right=(*sizes, "peak at"))
    stages = found.step.stages
    names = stage_names([one.stage for one in stages], [one.alike for one in stages])
    for name, stage in zip(names, stages, strict=True):
        closed = of_stage(found, stage)
        peak, when = stage.line.peak
        beyond = [closed.get(name, 0.0) for name in ("allocator", "lost")]
        grid.add_row(
            name,
            f"{peak / GIB:.2f}",
            *(f"{(stage.closed_bytes + more) / GIB:.2f}" for more in beyond),
            f"{when:.3g} s",
        )
    return grid


def peak_table(stage: StageLine) -> "Table":
    """What the fullest stage holds at its peak: categories, then the largest kept tensors."""
    now = stage.line.at(stage.line.peak[1])
    kept = sorted(stage.kept_at_peak.items(), key=lambda item: -item[1])[:MOST_TENSORS]
    grid = table(f"stage {stage.stage} at its peak", "GiB", right=("GiB",))
    for name, size in now.items():
        if size > 0.0:
            grid.add_row(name, f"{size / GIB:.2f}")
    for name, size in kept:
        grid.add_row(f"  of what is kept: {name}", f"{size / GIB:.2f}")
    return grid
