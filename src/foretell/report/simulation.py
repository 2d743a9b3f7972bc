"""A simulated step on one screen: beside the closed form, stage by stage, and what chance does to it."""

from typing import TYPE_CHECKING

from foretell.report.console import table
from foretell.report.estimate import gib, headline
from foretell.report.presentation.text import bullets, numbers_grid
from foretell.report.presentation.verbs import presentation
from foretell.simulation.answer import Simulation

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

STAGES = 16
"""Stages that are listed; of more, the first and the last half of as many."""


def simulation_text(result: Simulation, trace: str | None = None) -> "RenderableType":
    """Headline, the step both ways, where they differ, every stage, chance."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        headline(result.estimate),
        Text(),
        numbers_grid(presentation("simulate", result.to_dict())),
        Text(),
        share_table(result),
        Text(),
        stage_table(result),
    ]
    if result.step_percentiles_s is not None:
        parts += [Text(), chance_line(result)]
    if trace is not None:
        parts += [Text(), Text(f"trace written to {trace}: open it in ui.perfetto.dev")]
    if result.estimate.assumptions:
        parts += [Text(), bullets("Assumed", list(result.estimate.assumptions))]
    return Group(*parts)


def share_table(result: Simulation) -> "Table":
    """Where the time goes, both ways, what differs most first."""
    heads = ("simulated ms", "closed ms", "difference")
    made = table("Along the stage that sets the pace", *heads, right=heads)
    shares = [s for s in result.shares if s.simulated_s or s.closed_s]
    for share in sorted(shares, key=lambda s: -abs(s.simulated_s - s.closed_s)):
        apart = share.simulated_s - share.closed_s
        cells = (share.simulated_s, share.closed_s)
        made.add_row(share.name, *(f"{x * 1e3:,.1f}" for x in cells), f"{apart * 1e3:+,.1f}")
    if result.contention_s > 0.0:
        held = f"{result.contention_s * 1e3:,.1f}"
        made.add_row("  of data_parallel, links and cores shared", held, "", "", style="dim")
    return made


def stage_table(result: Simulation) -> "Table":
    """Every stage, or both ends of many."""
    heads = ("rank", "busy ms", "bubble ms", "data parallel ms", "peak GiB")
    made = table("stage", *heads, right=heads)
    shown = list(result.stages)
    if len(shown) > STAGES:
        shown = [*shown[: STAGES // 2], *shown[-STAGES // 2 :]]
    for one in shown:
        times = (one.busy_s, one.bubble_s, one.data_parallel_s)
        made.add_row(
            str(one.stage),
            str(one.rank),
            *(f"{x * 1e3:,.1f}" for x in times),
            gib(one.peak_memory_bytes),
        )
    return made


def chance_line(result: Simulation) -> "Text":
    """The distribution of the whole job's step."""
    from rich.text import Text

    chance = result.chance
    told = "   ".join(f"{k} {v * 1e3:,.1f}" for k, v in (result.step_percentiles_s or {}).items())
    said = f"jitter {chance.jitter:g}, stragglers {chance.stragglers:g} x {chance.slowdown:g}"
    return Text(f"step of the whole job in ms over {chance.repeats} repeats ({said}): {told}")
