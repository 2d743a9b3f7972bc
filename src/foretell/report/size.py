"""A sized service on one screen."""

from typing import TYPE_CHECKING

from foretell.api.sizing_answer import Choice, Sizing
from foretell.records import with_values
from foretell.report.console import table
from foretell.report.presentation.text import card_text
from foretell.report.presentation.verbs import presentation

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

FRONT = 12
"""Points of the front that are shown in text."""


def size_text(found: Sizing, *, pareto: bool = False) -> "RenderableType":
    """The best option, all options by cost, and what was assumed; `pareto` adds the Pareto front."""
    from rich.text import Text

    shown = presentation("size", found.to_dict())
    said = [
        *shown.assumptions,
        f"rent: {found.price_source}",
        f"{found.evaluated:,} layouts x loads in closed form; options marked * were simulated",
    ]
    lines = beside_lines(found)
    if found.elsewhere is not None:
        lines.append(without_text(found, found.elsewhere))
    beside: list[RenderableType] = [Text("\n".join(lines))] if lines else []
    return card_text(
        with_values(shown, assumptions=tuple(said)),
        beside=[*beside, *([front_table(found)] if pareto else [])],
    )


def beside_lines(found: Sizing) -> list[str]:
    """Plain instances beside the best one, and a cheaper way that the engine does not launch."""
    lines = []
    for choice in found.alternatives:
        rent = "" if choice.usd_per_hour is None else f", {choice.usd_per_hour:,.2f} $/h"
        lines.append(
            f"{choice.what}: {choice.option.name()}, {choice.option.gpus} GPUs{rent}, "
            f"TTFT {choice.ttft_ms:,.0f} ms, TPOT {choice.tpot_ms:.1f} ms"
            + ("" if choice.simulated else " (means)")
        )
    if found.cannot_launch is not None:
        o = found.cannot_launch.option
        lines.append(f"cheaper, but it cannot launch: {o.name()}, {o.gpus} GPUs ({o.refusal})")
    return lines


def without_text(found: Sizing, other: Choice) -> str:
    """The cheapest way without the prefill chips that were asked for, beside the best one with them."""
    best = found.best
    said = f"without the prefill chips asked for: {other.option.name()}, {other.option.gpus} GPUs"
    if best.usd_per_hour is None or other.usd_per_hour is None:
        return said
    return f"{said}, {other.usd_per_hour:,.2f} $/h beside {best.usd_per_hour:,.2f} $/h"


def front_table(found: Sizing) -> "Table":
    """The Pareto front of single instances, thinned."""
    right = ("tokens/s/user", "tokens/s/GPU", "GPUs", "batch", "TTFT ms")
    made = table("Pareto front", *right, right=right)
    step = max(len(found.pareto) // FRONT, 1)
    for point in found.pareto[::step]:
        told = point.to_dict()
        made.add_row(
            told["plan"],
            f"{told['output_tokens_per_s_per_user']:,.1f}",
            f"{told['output_tokens_per_s_per_gpu']:,.0f}",
            str(told["gpus"]),
            str(told["batch"]),
            f"{told['ttft_ms']:,.0f}",
        )
    return made
