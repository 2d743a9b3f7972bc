"""A search as a table of its best plans, with what was looked at and what was skipped."""

from typing import TYPE_CHECKING

from foretell.api.search_answers import Search
from foretell.report.console import table
from foretell.report.estimate import CONVENTIONS, bullets, gib
from foretell.search.search import launchers_of
from foretell.training.feasibility import CLOSE_SHARE

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def search_text(found: Search) -> "RenderableType":
    """Headline, counts, plans, what the columns mean, and what was assumed."""
    from rich.console import Group
    from rich.text import Text

    best = found.best
    asked = f"{best.model} on {best.gpus} x {best.system}"
    batch = f", global batch {best.global_batch} x {best.seq_len} tokens"
    capacity = best.memory_capacity_bytes
    fits = (
        f"fits: yes up to {gib(CLOSE_SHARE * capacity)} GiB, {CLOSE_SHARE:.0%} of the chip's memory; "
        f"too_close (borderline) while its tensors fit {gib(capacity)} GiB; clear ones come first."
    )
    parts: list[RenderableType] = [
        Text.assemble((asked, "bold"), batch),
        Text(counts(found)),
        Text(),
        plans_table(found),
        Text(),
        Text(fits, "dim"),
        Text(CONVENTIONS, "dim"),
        Text(launchers(found), "dim"),
    ]
    alike = sum(found.equal)
    if alike > 1:
        more = " (marked =); of them the simplest is first"
        parts.append(Text(f"{alike} plans are equal to the fastest within 90%{more}.", "dim"))
    if found.assumptions:
        parts += [Text(), bullets("Assumed", list(found.assumptions))]
    return Group(*parts)


def launchers(found: Search) -> str:
    """Which plans each framework can run, by their places."""
    places: dict[str, list[str]] = {}
    for place, plan in enumerate(found.plans, start=1):
        for name in launchers_of(plan) or ("none known",):
            places.setdefault(name, []).append(str(place))
    said = (f"{name} {', '.join(those)}" for name, those in places.items())
    return f"launchable with: {'; '.join(said)}."


def counts(found: Search) -> str:
    """How many plans, how fast, and how many were invalid, by rule."""
    many = found.plans_evaluated + found.plans_pruned
    rate = many / max(found.evaluation_seconds, 1e-9)
    said = (
        f"{many:,} plans in {found.evaluation_seconds:.2f} s ({rate:,.0f} per second): "
        f"{found.plans_pruned:,} pruned by a bound on their step, {found.plans_evaluated:,} evaluated, "
        f"of which {found.plans_feasible:,} fit or are borderline"
    )
    if found.rejected:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in found.rejected.items())
        said += f"\nSkipped as invalid: {sum(found.rejected.values()):,} ({rules})"
    return said


def plans_table(found: Search) -> "Table":
    """One plan a row."""
    numbers = ("#", "ms/iteration", "tokens/s/GPU", "TFLOP/s/GPU", "MFU %", "GiB")
    made = table("#", "plan", *numbers[1:], "fits", "largest part", right=numbers)
    several = sum(found.equal) > 1
    alike = found.equal if several else (False,) * len(found.plans)
    for place, (plan, same) in enumerate(zip(found.plans, alike, strict=True), start=1):
        made.add_row(
            f"{place}{'=' if same else ' ' if several else ''}",
            str(plan.plan),
            f"{plan.step_s * 1e3:,.1f}",
            f"{plan.tokens_per_s_per_gpu:,.1f}",
            f"{plan.tflops_per_gpu:,.1f}",
            f"{100 * plan.mfu:.1f}",
            gib(plan.peak_memory_bytes),
            plan.fits,
            plan.limited_by,
        )
    return made
