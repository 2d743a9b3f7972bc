"""An explanation on one screen."""

from typing import TYPE_CHECKING

from foretell.report.console import bar, table
from foretell.report.estimate import bullets, gib, headline
from foretell.search.explain import Explanation, OpShare, Share
from foretell.search.sensitivity import Sensitivity
from foretell.units import format as show

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

OPS = 12
"""Operations that a screen shows; JSON has them all."""


def explain_text(found: Explanation) -> "RenderableType":
    """Conclusions, then shares of time and memory, operations, and elasticities."""
    from rich.console import Group
    from rich.text import Text

    result = found.estimate
    parts: list[RenderableType] = [
        headline(result),
        Text(f"step  {result.step_s * 1e3:,.1f} ms"),
        Text(),
        bullets("In short", list(found.conclusions)),
        Text(),
        time_table(found.time),
        Text(),
        op_table(found.ops[:OPS], len(found.ops)),
        Text(),
        memory_table(found.memory),
        Text(),
        elasticity_table(found.sensitivity),
    ]
    if result.overrides:
        parts += [Text(), bullets("Set by hand", [f"{k}={v}" for k, v in result.overrides.items()])]
    if result.assumptions:
        parts += [Text(), bullets("Assumed", list(result.assumptions))]
    return Group(*parts)


def time_table(shares: tuple[Share, ...]) -> "Table":
    """Ends of the time tree, largest first."""
    made = table("Time", "ms", "%", "", "follows", "evidence", right=("ms", "%"))
    for s in shares:
        percent = f"{100 * s.share:.1f}"
        cells = (s.bound or "", s.evidence or "")
        made.add_row(s.name, f"{s.value * 1e3:,.1f}", percent, bar(s.share), *cells)
    return made


def op_table(ops: tuple[OpShare, ...], many: int) -> "Table":
    """Operations, largest first."""
    title = f"Operations ({len(ops)} of {many})"
    made = table(title, "in", "pass", "runs", "ms", "%", "follows", right=("runs", "ms", "%"))
    for s in ops:
        numbers = f"{s.count:,.0f}", f"{s.seconds * 1e3:,.1f}", f"{100 * s.share:.1f}"
        made.add_row(s.op, s.part, s.phase, *numbers, s.bound)
    return made


def memory_table(shares: tuple[Share, ...]) -> "Table":
    """What the fullest stage holds, largest first."""
    made = table("Memory", "GiB", "%", "", right=("GiB", "%"))
    for s in shares:
        made.add_row(s.name, gib(s.value), f"{100 * s.share:.1f}", bar(s.share))
    return made


def elasticity_table(found: Sensitivity) -> "Table":
    """How the step answers to each number of the system."""
    made = table(
        "What would move it",
        "now",
        "elasticity",
        "twice as good",
        right=("elasticity", "twice as good"),
    )
    for e in found.numbers:
        n = e.number
        now = show(n.value, n.unit) if n.unit else ""
        slope, ratio = round(e.elasticity, 3) + 0.0, round(100.0 * (e.what_if - 1.0), 1) + 0.0
        made.add_row(n.words, now, f"{slope:+.3f}", f"{ratio:+.1f} %")
    return made
