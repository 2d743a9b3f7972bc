"""A diagnosis on one screen."""

from typing import TYPE_CHECKING

from foretell.api.diagnose import RunDiagnosis, RunsDiagnosis
from foretell.api.post_training_diagnosis import LoopDiagnosis, LoopsDiagnosis
from foretell.report.console import table
from foretell.report.estimate import bullets
from foretell.report.posterior import WORDS
from foretell.uncertainty.causes import REST, SHARED

if TYPE_CHECKING:
    from rich.console import RenderableType

NAMES = {**WORDS, SHARED: "everything alike", REST: "not explained by a mechanism"}
"""Cause -> what it is called."""


def diagnosis_text(found: RunsDiagnosis | LoopsDiagnosis) -> "RenderableType":
    """Each run with its causes, then what to do next."""
    from rich.console import Group
    from rich.text import Text

    if isinstance(found, LoopsDiagnosis):
        loops: list[RenderableType] = [Text(f"{found.model} on {found.system}", "bold")]
        for loop in found.runs:
            loops += [Text(), *_loop(loop)]
        return Group(*loops)
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
    made = table("Phase", "logged s", "expected s", "", "check", right=("logged s", "expected s"))
    for one in run.phases:
        verdict = one.verdict if one.verdict == "as expected" else f"{one.ratio:.1f} x"
        made.add_row(
            one.phase, f"{one.measured_s:,.1f}", f"{one.predicted_s:,.1f}", verdict, one.check
        )
    parts: list[RenderableType] = [Text(head), bullets("What stands out", list(run.said)), made]
    if run.over_time is not None and run.over_time["said"]:
        parts.append(bullets(f"Over {run.over_time['steps']} steps", run.over_time["said"]))
    return [*parts, bullets("Assumed", list(run.assumptions))]


def _run(run: RunDiagnosis) -> "list[RenderableType]":
    from rich.text import Text

    low, high = (run.interval or {}).get("p90", (run.predicted_s, run.predicted_s))
    outside = "inside" if low <= run.measured_s <= high else "outside"
    head = (
        f"{run.source}\nplan      {run.plan}\nmeasured  {run.measured_s * 1e3:,.1f} ms per iteration\n"
        f"predicted {run.predicted_s * 1e3:,.1f} ms   90%: {low * 1e3:,.1f} to {high * 1e3:,.1f}   "
        f"gap {run.gap:+.1%}, {outside} the interval"
    )
    made = table(
        "Likely causes", "probability", "then takes", "gain if fixed", "check",
        right=("probability", "then takes", "gain if fixed"),
    )  # fmt: skip
    for cause in run.causes:
        made.add_row(
            NAMES.get(cause.mechanism, cause.mechanism),
            f"{cause.probability:.0%}",
            f"x {cause.factor:.2f}",
            f"{cause.gain:.1%}",
            cause.check,
        )
    parts: list[RenderableType] = [Text(head), made]
    if run.not_told_apart:
        pairs = [f"{NAMES.get(a, a)} and {NAMES.get(b, b)}" for a, b in run.not_told_apart]
        parts.append(bullets("This measurement cannot separate", pairs))
    if run.over_time is not None and run.over_time["said"]:
        parts.append(bullets(f"Over {run.over_time['steps']} steps", run.over_time["said"]))
    return parts
