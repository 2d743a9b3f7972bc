"""Two plans side by side, leaf by leaf."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from foretell.report.console import table
from foretell.report.estimate import bullets, gib
from foretell.search.differences import Comparison, Difference

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def comparison_text(found: Comparison) -> "RenderableType":
    """Conclusions, headline numbers, leaves of time and of memory."""
    from rich.console import Group
    from rich.text import Text

    a = found.a
    said = list(dict.fromkeys((*found.a.assumptions, *found.b.assumptions)))
    parts: list[RenderableType] = [
        Text(
            f"{a.model} on {a.gpus} x {a.system}, global batch {a.global_batch} x {a.seq_len} tokens"
        ),
        Text(),
        plans_table(found),
        Text(),
        bullets("In short", list(found.conclusions)),
        Text(),
        leaves_table("Time in ms", found.time, lambda v: f"{v * 1e3:,.1f}"),
        Text(),
        leaves_table("Memory in GiB", found.memory, gib),
        Text(),
        bullets("Assumed", said),
    ]
    return Group(*parts)


def plans_table(found: Comparison) -> "Table":
    """One plan a row, with the words that only it has."""
    numbers = ("ms/iteration", "tokens/s/GPU", "MFU %", "GiB")
    made = table("", "plan", "only here", *numbers, "fits", "largest part", right=numbers)
    for name, e, only in (("A", found.a, found.only_a), ("B", found.b, found.only_b)):
        made.add_row(
            name,
            str(e.plan),
            " ".join(only),
            f"{e.step_s * 1e3:,.1f}",
            f"{e.tokens_per_s_per_gpu:,.1f}",
            f"{100 * e.mfu:.1f}",
            gib(e.peak_memory_bytes),
            e.fits,
            e.limited_by,
        )
    return made


def leaves_table(
    title: str, leaves: tuple[Difference, ...], shown: Callable[[float], str]
) -> "Table":
    """Leaves with their difference, and the sum."""
    made = table(title, "A", "B", "B - A", right=("A", "B", "B - A"))
    for d in leaves:
        made.add_row(d.name, shown(d.a), shown(d.b), shown(d.difference))
    sums = [sum(values) for values in zip(*((d.a, d.b, d.difference) for d in leaves), strict=True)]
    made.add_row("all", *(shown(value) for value in sums), style="bold")
    return made
