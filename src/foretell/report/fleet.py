"""Several models on one fleet, on one screen."""

from typing import TYPE_CHECKING

from foretell.api.fleet_answer import FleetAnswer, FleetModel
from foretell.report.console import table
from foretell.report.estimate import bullets

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def fleet_text(found: FleetAnswer) -> "RenderableType":
    """Chips and rent of all, the models, the pools, and what was assumed."""
    from rich.console import Group
    from rich.text import Text

    lines = [f" serve {len(found.models)} models at {found.percentile}{_rent(found.usd_per_hour)}"]
    saved = found.gpus_apart - found.gpus
    if saved:
        apart = f"{found.gpus_apart} GPUs{_rent(found.usd_per_hour_apart)}"
        chips = f"{saved} GPU{'s' if saved > 1 else ''}"
        lines.append(f"sharing chips saves {chips}; each model on its own: {apart}")
    else:
        lines.append("each model has chips of its own: sharing would save none")
    if found.available is not None:
        word = "suffice" if found.gpus <= found.available else "do not suffice"
        lines.append(f"{found.available} GPUs are available: they {word}")
    head = Text.assemble((f"{found.gpus} GPUs", "bold"), "\n      ".join(lines))
    return Group(
        head, Text(), models_table(found), Text(), pools_table(found), Text(),
        bullets("Assumed", [*found.assumptions]),
    )  # fmt: skip


def models_table(found: FleetAnswer) -> "Table":
    """What every model is asked for, and gets."""
    right = ("requests/s", "in", "out", "TTFT ms", "TPOT ms", "alone GPUs", "stretch")
    made = table("model", *right, "pool", right=right)
    for model in found.models:
        made.add_row(*_cells(model))
    return made


def _cells(model: FleetModel) -> tuple[str, ...]:
    w = model.sizing.wanted
    return (
        model.name + ("" if model.meets else " (misses)"),
        f"{w.rate:g}",
        f"{w.isl:g}",
        f"{w.osl:g}",
        f"{model.ttft_ms:,.0f} of {w.ttft_ms:g}",
        f"{model.tpot_ms:.1f} of {w.tpot_ms:g}",
        str(model.gpus),
        f"{model.stretch:.2g}",
        str(model.pool + 1),
    )


def pools_table(found: FleetAnswer) -> "Table":
    """The pools of chips."""
    right = ("GPUs", "$/h")
    made = table("pool", *right, "layout", "plans", right=right)
    for place, pool in enumerate(found.pools):
        rent = "-" if pool.usd_per_hour is None else f"{pool.usd_per_hour:,.2f}"
        plans = pool.plans if not pool.shared else _with_names(pool.models, pool.plans)
        made.add_row(str(place + 1), str(pool.gpus), rent, pool.name, "\n".join(plans))
    return made


def _with_names(models: tuple[str, ...], plans: tuple[str, ...]) -> list[str]:
    return [f"{name}: {plan}" for name, plan in zip(models, plans, strict=True)]


def _rent(usd: float | None) -> str:
    return "" if usd is None else f", {usd:,.2f} $/h"
