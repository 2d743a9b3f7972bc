"""A post-training step on one screen: phases, memory by phase, placement, cost."""

from typing import TYPE_CHECKING

from foretell.api.post_training import PostTraining
from foretell.report.console import bar, table
from foretell.report.estimate import bullets
from foretell.report.posterior import factor_rows
from foretell.specs.post_training import ALGORITHMS

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

GIB = 2.0**30


def post_training_text(found: PostTraining) -> "RenderableType":
    """Headline, phases, memory, reasons, a log beside, and what was assumed."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [headline(found), Text(), phases(found), Text(), memory(found)]
    if found.prior is not None:
        parts += [Text(), loop_table(found)]
    if found.measured:
        parts += [Text(), bullets("The log beside it", list(found.measured_notes))]
    if found.ways_to_fit:
        parts += [Text(), bullets("What fits", list(found.ways_to_fit))]
    if found.placement_reasons:
        parts += [Text(), bullets("Placement", list(found.placement_reasons))]
    if found.fit is not None:
        parts += [Text(), fit_table(found)]
    parts += [Text(), bullets("Assumed", list(found.assumptions))]
    return Group(*parts)


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


def headline(found: PostTraining) -> "Text":
    """What was asked, and the numbers that people look for."""
    from rich.text import Text

    low, high = found.interval["p90"]
    pools = f"{found.trainer_gpus} x {found.trainer_system}"
    if found.rollout_plan and found.placement != "colocated":
        pools += f" + {found.rollout_gpus} x {found.rollout_system}"
    where = f"{found.placement}, " if found.rollout_plan else ""
    named = "no framework named" if found.framework == "generic" else found.framework
    lines = [
        f"\n{where}{named}; {_batch(found)}, {_tokens(found.tokens)} a step",
        f"\n\nstep          {found.step_s:,.1f} s   90%: {low:,.1f} to {high:,.1f}",
        f"\nhow sure      {found.interval_reason}",
        (
            f"\nthroughput    {found.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, "
            f"chips idle {found.idle_share:.0%} of the time"
        ),
    ]
    if found.rollout_plan:
        lines.append(
            f"\ngeneration    {found.tail_share:.0%} of it is the tail of {found.tail_requests} answers; "
            f"{found.cut_share:.1%} of answers are cut at the limit"
        )
    if found.waiting_pool:
        lines.append(
            f"\npipeline      the {found.waiting_pool} pool waits; staleness {found.staleness:.2f}"
        )
    if found.usd_per_step is not None:
        run = (
            ""
            if found.usd_per_run is None or found.run_s is None
            else (
                f"; {found.steps:,} steps: {found.run_s / 3600:,.1f} h, {found.usd_per_run:,.0f} USD"
            )
        )
        lines.append(f"\ncost          {_usd(found.usd_per_step)} USD a step{run}")
    fits = {
        "yes": "fits in every phase",
        "too_close": "borderline: a phase is above 90 % of the memory",
    }
    lines += [
        f"\nmemory        {fits.get(found.fits, 'does not fit: ' + found.fails_in)}",
        f"\n\nplan          {found.plan}",
    ]
    if found.micro_tokens:
        lines.append(
            f"\nmicro-batch   filled up to {found.micro_tokens:,} tokens on each rank "
            f"(--micro-tokens {found.micro_tokens})"
        )
    if found.rollout_plan:
        lines.append(f"\nrollout plan  {found.rollout_plan}")
    return Text.assemble((f"{found.algorithm.upper()} of {found.model} on {pools}", "bold"), *lines)


def _usd(value: float) -> str:
    """Dollars to the cent, small ones to two digits."""
    return f"{value:,.2f}" if value >= 0.1 or not value else f"{value:.2g}"


def _batch(found: PostTraining) -> str:
    """What a step passes, in words; a pair is two sequences."""
    many = found.trajectories
    if found.rollout_plan:
        return f"{many:,} trajectories"
    each = round(ALGORITHMS[found.algorithm].sequences)
    return f"{many:,} sequences" if each == 1 else f"{many:,} pairs ({each * many:,} sequences)"


def _tokens(many: float) -> str:
    """Tokens to three digits, in millions where there are any."""
    if many >= 1e6:
        return f"{many / 1e6:.3g} million tokens"
    return f"{float(f'{many:.3g}'):,.0f} tokens"


def phases(found: PostTraining) -> "Table":
    """Seconds of each phase, and what the step waits for."""
    made = table("Phase", "seconds", "90%", "exposed", "", "pool", right=("seconds", "exposed"))
    for phase in found.phases:
        low, high = phase.interval
        made.add_row(
            phase.name,
            f"{phase.seconds:,.1f}",
            f"{low:,.1f} to {high:,.1f}",
            f"{phase.exposed:,.1f}",
            bar(min(phase.exposed / max(found.step_s, 1e-9), 1.0)),
            phase.pool,
        )
    return made


def memory(found: PostTraining) -> "Table":
    """What a chip holds in every phase."""
    made = table("Memory, GiB", "pool", "total", "of", "largest parts", "", right=("total", "of"))
    for one in found.memory:
        parts = sorted(one.parts.items(), key=lambda item: -item[1])[:4]
        made.add_row(
            one.phase,
            one.pool,
            f"{one.total_bytes / GIB:,.1f}",
            f"{one.capacity_bytes / GIB:,.1f}",
            ", ".join(f"{name} {size / GIB:,.1f}" for name, size in parts),
            "" if one.fits == "yes" else one.fits.replace("too_close", "borderline"),
        )
    return made
