"""A diagnosis on one screen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretell.api.diagnose import PART_NAMES, RunDiagnosis, RunsDiagnosis
from foretell.api.post_training_diagnosis import LoopDiagnosis, LoopsDiagnosis
from foretell.api.run_causes import Cause, PhaseGap
from foretell.api.service_diagnosis import FigureDiagnosis, ServicesDiagnosis
from foretell.report.console import table
from foretell.report.posterior import WORDS
from foretell.report.presentation.text import bullets
from foretell.specs.measurement import HELD
from foretell.uncertainty.causes import REST, SHARED

if TYPE_CHECKING:
    from rich.console import RenderableType

METRICS = {
    "ttft_ms": ("TTFT", "ms"),
    "tpot_ms": ("TPOT", "ms"),
    "e2e_ms": ("request latency", "ms"),
    "output_tokens_per_s": ("output rate", "tokens/s"),
    "output_tokens_per_s_per_gpu": ("output rate of a GPU", "tokens/s"),
    "requests_per_s": ("request rate", "requests/s"),
    "kv_cache_tokens": ("tokens that the cache holds", "tokens"),
    "kv_bytes": ("cache of a GPU", "GiB"),
    "weight_bytes": ("weights of a GPU", "GiB"),
    "peak_memory_bytes": ("peak memory", "GiB"),
    "reserved_bytes": ("reserved memory", "GiB"),
    "allocated_bytes": ("allocated memory", "GiB"),
    "memory_used_bytes": ("memory in use", "GiB"),
    "power_watts": ("power of a GPU", "W"),
}
"""Figure -> what it is called, and its unit."""
NAMES = {
    **WORDS,
    **PART_NAMES,
    SHARED: "everything alike",
    REST: "not explained by a mechanism",
}
"""Cause -> what it is called."""


def diagnosis_text(
    found: RunsDiagnosis | LoopsDiagnosis | ServicesDiagnosis,
) -> "RenderableType":
    """Each run with its causes, then what to do next."""
    from rich.console import Group
    from rich.text import Text

    if isinstance(found, LoopsDiagnosis):
        loops: list[RenderableType] = [Text(f"{found.model} on {found.system}", "bold")]
        for loop in found.runs:
            loops += [Text(), *_loop(loop)]
        return Group(*loops)
    if isinstance(found, ServicesDiagnosis):
        return _services(found)
    parts: list[RenderableType] = [Text(f"{found.model} on {found.system}", "bold")]
    for run in found.runs:
        parts += [Text(), *_run(run)]
    lines = []
    if found.best_plan is not None:
        step = f"{(found.best_step_s or 0.0) * 1e3:,.0f} ms"
        lines.append(
            f"Best plan given these measurements: {found.best_plan} ({step} per iteration)"
        )
    if found.next is not None:
        lines.append(
            f"Measure next: {found.next.plan} (predicted {found.next.step_s * 1e3:,.0f} ms); narrows the "
            f"interval of the best plan by {found.next.narrower:.0%}"
        )
    if lines:
        parts += [Text(), bullets("Next", lines)]
    told = {
        f"{run.source}: {line}"
        for run in found.runs
        for line in (run.over_time or {}).get("said", ())
    }
    notes = [note for note in found.notes if note not in told]
    if notes:
        parts += [Text(), bullets("Notes", notes)]
    return Group(*parts)


def _loop(run: LoopDiagnosis) -> "list[RenderableType]":
    """A log of reinforcement learning: what stands out, phases side by side."""
    from rich.text import Text

    low, high = run.interval["p90"]
    head = f"{run.source}\nplan      {run.plan}\nrollout   {run.rollout_plan}\n"
    if run.measured_s is not None and run.gap is not None:
        outside = "inside" if low <= run.measured_s <= high else "outside"
        head += (
            f"measured  {run.measured_s:,.1f} s a step, {run.gap:+.0%}: {outside} the interval\n"
        )
    head += f"expected  {run.predicted_s:,.1f} s   90%: {low:,.1f} to {high:,.1f}"
    made = _phases(run.phases)
    parts: list[RenderableType] = [Text(head), bullets("What stands out", list(run.said)), made]
    if run.over_time is not None and run.over_time["said"]:
        parts.append(bullets(f"Over {run.over_time['steps']} steps", run.over_time["said"]))
    return [*parts, bullets("Assumed", list(run.assumptions))]


def _phases(phases: Sequence[PhaseGap], *, checks: bool = True) -> "RenderableType":
    """Phases or parts of a step side by side; what to look at is left out where causes follow."""
    heads = ("Phase", "logged s", "expected s", "", *(("check",) if checks else ()))
    made = table(*heads, right=("logged s", "expected s"))
    for one in phases:
        verdict = one.verdict if one.verdict == "as expected" else f"{one.ratio:.1f} x"
        name = NAMES.get(one.phase, one.phase) if one.phase in PART_NAMES else one.phase
        cells = (name, _seconds(one.measured_s), _seconds(one.predicted_s), verdict)
        made.add_row(*cells, *((one.check,) if checks else ()))
    return made


def _seconds(value: float) -> str:
    return f"{value:,.1f}" if value >= 10.0 else f"{value:.3g}"


def _run(run: RunDiagnosis) -> "list[RenderableType]":
    from rich.text import Text

    low, high = (run.interval or {}).get("p90", (run.predicted_s, run.predicted_s))
    head = f"{run.source}\nplan      {run.plan}\n"
    if run.measured_s is None or run.gap is None:
        head += f"predicted {run.predicted_s * 1e3:,.1f} ms; no step time was measured"
    else:
        outside = "inside" if low <= run.measured_s <= high else "outside"
        head += (
            f"measured  {run.measured_s * 1e3:,.1f} ms per iteration\n"
            f"predicted {run.predicted_s * 1e3:,.1f} ms   90%: {low * 1e3:,.1f} to {high * 1e3:,.1f}   "
            f"gap {run.gap:+.1%}, {outside} the interval"
        )
    for one in run.watched:
        name, unit = METRICS[one.metric]
        head += (
            f"\n{name}: measured {_amount(one.measured, unit)}, predicted "
            f"{_amount(one.predicted, unit)} ({one.gap:+.0%})"
        )
    parts: list[RenderableType] = [Text(head)]
    if run.said:
        parts.append(bullets("What stands out", list(run.said)))
    if run.phases:
        parts.append(_phases(run.phases, checks=not run.causes))
    if run.causes:
        parts += _causes(run.causes, run.not_told_apart)
    if run.over_time is not None and run.over_time["said"]:
        parts.append(bullets(f"Over {run.over_time['steps']} steps", run.over_time["said"]))
    return parts


def _amount(value: float, unit: str) -> str:
    """A number with its unit, bytes in GiB."""
    if unit == "GiB":
        return f"{value / 2**30:,.1f} GiB"
    return f"{value:,.0f} {unit}" if unit in ("tokens", "W") else f"{value:,.2f} {unit}"


def _causes(causes: Sequence[Cause], apart: Sequence[tuple[str, str]]) -> "list[RenderableType]":
    """Likely causes, and those that cannot be distinguished."""
    made = table(
        "Likely causes", "probability", "then takes", "gain if fixed", "check",
        right=("probability", "then takes", "gain if fixed"),
    )  # fmt: skip
    for cause in causes:
        made.add_row(
            NAMES.get(cause.mechanism, cause.mechanism),
            f"{cause.probability:.0%}",
            f"x {cause.factor:.2f}",
            f"{cause.gain:.1%}",
            cause.check,
        )
    if not apart:
        return [made]
    pairs = [f"{NAMES.get(a, a)} and {NAMES.get(b, b)}" for a, b in apart]
    return [made, bullets("This measurement cannot separate", pairs)]


def _services(found: ServicesDiagnosis) -> "RenderableType":
    """Figures of services with their causes, then what to do next."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"{found.model} on {found.system}", "bold")]
    for run in found.runs:
        parts += [Text(), *_figure(run)]
    lines = []
    if found.best_plan is not None:
        lines.append(
            f"Best layout given these measurements: {found.best_plan} (TTFT {found.best_ttft_ms:,.1f} ms, "
            f"TPOT {found.best_tpot_ms:,.2f} ms)"
        )
    if found.next is not None:
        one = found.next
        lines.append(
            f"Measure next: {one.plan}, concurrency {one.concurrency:g}, {one.isl:g} tokens in, "
            f"{one.osl:g} out (predicted TTFT {one.ttft_ms:,.1f} ms, TPOT {one.tpot_ms:,.2f} ms); narrows "
            f"the doubt about the causes by {one.narrower:.0%}"
        )
    if lines:
        parts += [Text(), bullets("Next", lines)]
    if found.notes:
        parts += [Text(), bullets("Notes", list(found.notes))]
    return Group(*parts)


def _figure(run: FigureDiagnosis) -> "list[RenderableType]":
    """One figure of a service."""
    from rich.text import Text

    name, unit = METRICS[run.metric]
    low, high = (run.interval or {}).get("p90", (run.predicted, run.predicted))
    outside = "inside" if low <= run.measured <= high else "outside"
    load = f"{run.rate:g} requests/s" if run.rate else f"concurrency {run.concurrency or 0:g}"
    head = f"{run.source}\nplan      {run.plan}, {run.profile}"
    if run.metric in HELD:
        head += (
            f"\nmeasured  {name}: {_amount(run.measured, unit)}\n"
            f"predicted {_amount(run.predicted, unit)}   gap {run.gap:+.1%}"
        )
        checks = [f"look at {cause.check}" for cause in run.causes]
        return [Text(head), *([bullets("What stands out", checks)] if checks else [])]
    head += (
        f": {load}, {run.isl:g} tokens in, {run.osl:g} out\n"
        f"measured  {name} {run.measured:,.2f} {unit}\n"
        f"predicted {run.predicted:,.2f} {unit}   90%: {low:,.2f} to {high:,.2f}   "
        f"gap {run.gap:+.1%}, {outside} the interval"
    )
    return [Text(head), *_causes(run.causes, run.not_told_apart)]
