"""One estimate on one screen, in the units that training logs print."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from foretell.report.console import bar, table
from foretell.report.presentation.text import bullets, numbers_grid
from foretell.report.presentation.verbs import presentation
from foretell.specs.result import Leaf, StepEstimate
from foretell.specs.run import Run
from foretell.training.feasibility import CLOSE_SHARE
from foretell.uncertainty.intervals import fit_of
from foretell.units import format as show

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from foretell.api.answers import Estimate

GIB = 2.0**30
CONVENTIONS = (
    "MFU: 3 x the forward matrix multiplications, attention as the whole square, over the dense peak; HFU "
    "adds what is recomputed."
)
PRINTED = {"lost": "fragmentation"}
"""Parts of memory -> what they are called, where that differs."""
FITS = {
    "yes": f"fits: below {CLOSE_SHARE:.0%} of the memory",
    "too_close": "borderline: tensors fit, with little or no room for fragmentation",
    "no": "does not fit: not even the tensors do",
}


def estimate_text(result: "Estimate") -> "RenderableType":
    """Headline, the whole run where asked, rates, where time and memory go, and what was assumed."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [headline(result)]
    if result.run is not None:
        parts += [Text(), run_table(result.run)]
    parts += [
        Text(),
        numbers_grid(presentation("estimate", result.to_dict()), ("memory", fit_words(result))),
        Text(CONVENTIONS, "dim"),
    ]
    if result.posterior_factors is not None:
        from foretell.report.posterior import measured_table

        parts += [Text(), measured_table(result)]
    if result.breakdown is not None:
        parts += [Text(), time_table(result.breakdown)]
    if result.memory_by_stage:
        parts += [Text(), memory_table(result)]
    for by_hand in set_by_hand(result):
        parts += [Text(), by_hand]
    if result.assumptions:
        parts += [Text(), bullets("Assumed", list(result.assumptions))]
    return Group(*parts)


def set_by_hand(result: StepEstimate) -> "list[Text]":
    """Numbers that a question sets, where it does."""
    said = [f"{path}={value}" for path, value in (result.overrides or {}).items()]
    return [bullets("Set by hand", said)] if said else []


def headline(result: StepEstimate) -> "Text":
    """What was asked, and the plan."""
    from rich.text import Text

    asked = f"{result.model} on {result.gpus} x {result.system}"
    batch = f", global batch {result.global_batch} x {result.seq_len} tokens"
    plan = "chosen, the best found" if result.plan_chosen else "as given"
    if result.filled_in:
        plan = f"{plan}; filled in: {' '.join(result.filled_in)}"
    against = ""
    if result.refusals:
        against = f"{result.plan.framework} cannot run this plan: {'; '.join(result.refusals)}\n"
    return Text.assemble(
        (against, "red"),
        (asked, "bold"),
        batch,
        "\nplan  ",
        (str(result.plan), "bold"),
        f"  ({plan})",
    )


def ninety(interval: Mapping[str, tuple[float, float]] | None, form: Callable[[float], str]) -> str:
    """How sure: where nine in ten such cases should be; empty where nothing is known."""
    if interval is None:
        return ""
    low, high = interval["p90"]
    return f"   90%: {form(low)} to {form(high)}"


def fit_words(result: StepEstimate) -> str:
    """Whether it fits by what is predicted, and how likely that is by the peak's interval."""
    likely = fit_of(result)
    if likely is None:
        return FITS[result.fits]
    shown = f"{min(max(likely, 0.01), 0.99):.0%}"
    edge = "below " if likely < 0.01 else "above " if likely > 0.99 else ""
    return f"{FITS[result.fits]} ({edge}{shown} likely to)"


def time_table(tree: Leaf) -> "Table":
    """Shares of the step along its slowest stage, largest first."""
    made = table("Time of the slowest stage", "ms", "%", "", "evidence", right=("ms", "%"))
    for depth, leaf in largest_first(tree):
        share = leaf.value / tree.value if tree.value else 0.0
        name = "  " * depth + leaf.name
        style = None if depth == 0 else "dim"
        made.add_row(
            name,
            f"{leaf.value * 1e3:,.1f}",
            f"{100 * share:.1f}",
            bar(share),
            leaf.evidence or "",
            style=style,
        )
    return made


def memory_table(result: "Estimate") -> "Table":
    """What each distinct stage holds, one stage a row."""
    parts = [PRINTED.get(leaf.name, leaf.name) for leaf in result.memory_by_stage[0].children]
    made = table("Memory in GiB", "total", *parts, right=("total", *parts))
    for stage in result.memory_by_stage:
        values = [gib(leaf.value) for leaf in stage.children]
        made.add_row(stage.name, gib(stage.value), *values)
    return made


def run_table(run: Run) -> "Table":
    """The whole run: how long, what it takes, and its goodput."""
    made = table("The whole run", "")
    low, high = run.interval["p90"] if run.interval else (run.days, run.days)
    made.add_row("days", f"{run.days:,.2f}   90%: {low:,.2f} to {high:,.2f}")
    hours = ninety(run.intervals.get("gpu_hours"), lambda value: f"{value:,.0f}")
    made.add_row("GPU-hours", f"{run.gpu_hours:,.0f}{hours}")
    if run.energy_joules is not None:
        ends = ninety(run.intervals.get("energy_joules"), lambda value: f"{value / 3.6e9:,.1f}")
        made.add_row("energy", f"{run.energy_joules / 3.6e9:,.1f} MWh, chips alone{ends}")
    made.add_row(
        "tokens",
        f"{show(run.tokens, 'tokens')}, {run.tokens_per_parameter:,.1f} per active parameter",
    )
    made.add_row("steps", f"{run.steps:,.0f}")
    made.add_row(
        "goodput",
        f"{run.goodput:.1%}: checkpoints leave {run.checkpoint_share:.2%}, work done again "
        f"{run.rework_share:.2%}, restarts {run.restart_share:.2%}",
    )
    between = run.mean_time_between_failures_s
    every = "none" if between is None else f"one in {between / 3600.0:,.1f} hours"
    made.add_row("failures", f"{run.failures:,.1f} expected, {every}")
    if run.checkpoint_interval_s is not None and run.checkpoint_interval_steps is not None:
        chosen = "the best" if run.checkpoint_interval_chosen else "as given"
        made.add_row(
            "checkpoints",
            f"{gib(run.checkpoint_bytes)} GiB every {run.checkpoint_interval_s:,.0f} s, "
            f"{run.checkpoint_interval_steps:,.0f} steps ({chosen}), {run.checkpoint}: chips wait "
            f"{run.checkpoint_wait_s:,.1f} s, written after {run.checkpoint_write_s:,.1f} s",
        )
    return made


def largest_first(tree: Leaf, depth: int = 0) -> list[tuple[int, Leaf]]:
    """Everything below the root with its depth, larger shares before smaller; nothing that is zero."""
    found: list[tuple[int, Leaf]] = []
    for child in sorted(tree.children, key=lambda leaf: -leaf.value):
        if child.value > 0.0:
            found += [(depth, child), *largest_first(child, depth + 1)]
    return found


def gib(value: float) -> str:
    """Bytes in GiB as the tables print them."""
    return f"{value / GIB:,.1f}"
