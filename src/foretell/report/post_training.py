"""A post-training step on one screen: phases, memory by phase, placement, cost."""

from typing import TYPE_CHECKING

from foretell.api.post_training import PostTraining
from foretell.report.console import table
from foretell.report.posterior import factor_rows
from foretell.report.presentation.text import bullets, card_text
from foretell.report.presentation.verbs import presentation

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def post_training_text(found: PostTraining) -> "RenderableType":
    """Headline, numbers, phases, memory, reasons, and what was assumed."""
    beside: list[RenderableType] = [loop_table(found)] if found.prior is not None else []
    lists = {
        "What fits": found.ways_to_fit,
        "Placement": found.placement_reasons,
    }
    beside += [bullets(title, list(lines)) for title, lines in lists.items() if lines]
    if found.fit is not None:
        beside.append(fit_table(found))
    return card_text(presentation("post-train", found.to_dict()), *_more(found), beside=beside)


def _more(found: PostTraining) -> list[tuple[str, str]]:
    """Who waits for whom, and where a step's answers are cut."""
    lines = []
    if found.waiting_pool:
        lines.append(("pipeline", f"the {found.waiting_pool} pool waits"))
    if found.rollout_plan and found.tail_requests:
        lines.append(("generation", f"its tail is that of {found.tail_requests} answers"))
    return lines


def fit_table(found: PostTraining) -> "Table":
    """What the chips can tune, by way."""
    tokens = found.fit[0].sequence_tokens if found.fit else 0
    heads = ("longest sequence", f"sequences of {tokens:,}", "largest model")
    made = table("What these chips tune", *heads, right=heads[:2])
    for one in found.fit or ():
        made.add_row(
            one.way, f"{one.max_context:,}", f"{one.max_sequences:,}", one.largest_model or "none"
        )
    return made


def loop_table(found: PostTraining) -> "Table":
    """What measured steps changed: the step before and after, then groups of phases, furthest first."""
    made = table("Given the measured runs", "before", "now", "90%", right=("before", "now", "90%"))
    low, high = found.interval["p90"]
    before = (found.prior or {})["step_s"]
    made.add_row("step, s", f"{before:,.1f}", f"{found.step_s:,.1f}", f"{low:,.1f} to {high:,.1f}")
    for row in factor_rows(dict(found.posterior_factors or {})):
        made.add_row(*row)
    return made
