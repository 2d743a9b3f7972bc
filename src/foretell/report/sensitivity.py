"""How an answer moves with each number, on one screen."""

from typing import TYPE_CHECKING

from foretell.records import with_values
from foretell.report.console import table
from foretell.report.presentation.text import card_text
from foretell.report.presentation.verbs import presentation
from foretell.studies.sensitivity.records import NumberEffect, Sensitivities, WhatIf, strength
from foretell.units import format as show

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

SHORT = {
    "step_s": "time",
    "usd_per_million_tokens": "cost",
    "energy_joules": "energy",
    "tpot_ms": "TPOT",
    "ttft_ms": "TTFT",
    "output_tokens_per_s": "tokens/s",
    "usd_per_million_output_tokens": "cost",
    "joules_per_token": "energy",
}
"""Results in the head of a table."""
LEAST = 5e-4
"""Numbers that move nothing more than this are left out; JSON has them."""
MOST_PRICES = 5
"""Figures of a price that are shown."""


def sensitivity_text(found: Sensitivities) -> "RenderableType":
    """The question, elasticities, what-ifs, and what was assumed."""
    from rich.text import Text

    seen = [n for n in found.numbers if any(strength(n, r) > LEAST for r in found.results)]
    prices = [n for n in seen if n.kind == "price"]
    shown = [n for n in seen if n.kind != "price"] + prices[:MOST_PRICES]
    able = [n for n in shown if n.better is not None]
    beside: list[RenderableType] = [elasticity_table(found, shown), what_if_table(found, able)]
    idle = [n.words for n in found.numbers if n not in seen]
    if idle:
        beside += [Text("No difference to speak of: " + ", ".join(idle) + ".")]
    if found.best_now is not None and found.best_now.ratios is not None:
        ratio = next(iter(found.best_now.ratios.values()))
        if ratio < 1.0 - LEAST:
            text = f"As it is, `{found.best_now.plan}` takes {1.0 - ratio:.1%} less."
            beside += [Text(text)]
    told = presentation("sensitivity", found.to_dict())
    return card_text(with_values(told, tables=()), beside=beside)


def elasticity_table(found: Sensitivities, numbers: list[NumberEffect]) -> "Table":
    """d ln(result) / d ln(number)."""
    names = [SHORT[name] for name in found.results]
    made = table("Elasticities", "now", *names, right=tuple(names))
    for n in numbers:
        now = show(n.value, n.unit) if n.unit else ""
        cells = [f"{round(n.elasticities[name], 3) + 0.0:+.3f}" for name in found.results]
        made.add_row(n.words, now, *cells)
    return made


def what_if_table(found: Sensitivities, numbers: list[NumberEffect]) -> "Table":
    """Changes of the results with each number better and worse."""
    by = f"{found.factor:g}"
    names = [f"{SHORT[n]} {sign}" for sign in (f"x{by}", f"/{by}") for n in found.results]
    how = "chosen anew" if found.replanned else "held"
    made = table(f"What if (plan {how})", *names, right=tuple(names))
    for n in numbers:
        cells = []
        for what_if in (n.better, n.worse):
            cells += [_change(what_if, name) for name in found.results]
        made.add_row(n.words, *cells)
    made.caption = f"x{by}: better by the factor, a time shorter; /{by}: worse"
    return made


def _change(what_if: WhatIf | None, name: str) -> str:
    if what_if is None or what_if.ratios is None:
        return "no fit"
    return f"{round(100.0 * (what_if.ratios[name] - 1.0), 1) + 0.0:+.1f} %"
