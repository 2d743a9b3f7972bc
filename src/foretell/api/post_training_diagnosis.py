"""What is wrong with a step of reinforcement learning: the phases of a log beside what is expected of them.

The log says how long prompts and answers were, how many tokens a step has and at what rate, and which phases
there are; that is the question, and the prediction's phases are shown beside the logged ones.
"""

from collections.abc import Mapping
from typing import Any

from foretell.api.post_training import (
    PostTraining,
    post_training_of,
    printed_phases,
    tail_sentence,
)
from foretell.api.run_causes import PhaseGap, phase_gap
from foretell.catalog.post_training import post_training_loop
from foretell.errors import BadInput, wrong
from foretell.interop.step_series import series_findings
from foretell.records import as_json, dataclass
from foretell.specs.measurement import POST_TRAINED, Measurement
from foretell.specs.questions.diagnose import DiagnoseQuestion
from foretell.specs.questions.post_training import PostTrainingQuestion

USUAL_SAMPLES = 8
"""Answers to a prompt where the log does not say: groups of a power of two are the rule."""
CHECKS: Mapping[str, str] = {
    "gen": "CUDA graphs (enforce_eager off), rollout tp, KV share, preemptions, the longest answers",
    "old_logprob": "packing (remove padding), tokens of a micro-batch, offloaded weights, the controller",
    "ref_logprob": "packing, tokens of a micro-batch, whether the reference comes from the host each step",
    "values": "packing and micro-batches of the critic",
    "reward": "timeouts of verifiers and sandboxes, how many run at once",
    "adv": "the controller's process: padding, moving tensors",
    "update_actor": "packing, tokens of a micro-batch, recomputation, offloaded states, balance over ranks",
    "update_critic": "packing and micro-batches of the critic, offloaded states",
    "weight_sync": "tensor-by-tensor calls, buckets, the wire between pools, quantisation at the receiver",
}
"""Phase -> what to look at where it takes longer than expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDiagnosis:
    """One log of reinforcement learning beside its prediction."""

    source: str
    """Where it was read."""
    algorithm: str
    """The algorithm that its phases are of."""
    plan: str
    """The trainer's plan."""
    rollout_plan: str
    """The engine's."""
    measured_s: float | None
    """Logged time of a step; None where it is not logged."""
    predicted_s: float
    """Expected."""
    interval: Mapping[str, tuple[float, float]]
    """Its p50 and p90."""
    gap: float | None
    """measured / predicted - 1."""
    phases: tuple[PhaseGap, ...]
    """The longest logged first."""
    tail_share: float
    """Share of the generation that is the tail, by the lengths of the log."""
    said: tuple[str, ...]
    """What stands out, a sentence each."""
    over_time: dict[str, Any] | None
    """What the steps of the log show; None with few."""
    assumptions: tuple[str, ...]
    """Every default or guess of the prediction."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopsDiagnosis:
    """Logs of reinforcement learning beside their predictions."""

    model: str
    """Model id."""
    system: str
    """System id."""
    runs: tuple[LoopDiagnosis, ...]
    """Each log."""

    to_dict = as_json()


def is_loop(row: Measurement) -> bool:
    """Whether a measured run is a log of a post-training loop."""
    return any(name in row.phases for name in POST_TRAINED)


def diagnose_loops(question: DiagnoseQuestion, rows: list[Measurement]) -> LoopsDiagnosis:
    """Every log beside what is expected of its job."""
    answers = [post_training_of(loop_question(question, row)) for row in rows]
    return LoopsDiagnosis(
        model=answers[0].model,
        system=answers[0].trainer_system,
        runs=tuple(_diagnosis(row, found) for row, found in zip(rows, answers, strict=True)),
    )


def loop_question(question: DiagnoseQuestion, row: Measurement) -> PostTrainingQuestion:
    """The job of a log: what it tells, and what was given beside it."""
    told, phases = row.asked, row.phases
    assert question.model is not None
    gpus = question.gpus if question.gpus is not None else told.get("gpus")
    many = question.global_batch if question.global_batch is not None else told.get("trajectories")
    problems = [
        wrong(name, None, "the log does not tell it", allowed)
        for name, value, allowed in (
            ("gpus", gpus, "--gpus 32xH100"),
            ("global_batch", many, "--global-batch, the trajectories of a step"),
        )
        if value is None
    ]
    if problems:
        raise BadInput(problems)
    many = int(many or 1)
    samples = next((n for n in (USUAL_SAMPLES, 5, 4, 2) if many % n == 0), 1)
    algorithm = "ppo" if "values" in phases else "grpo" if "ref_logprob" in phases else "dapo"
    mean, longest = told.get("osl"), told.get("max_osl")
    return PostTrainingQuestion(
        model=question.model,
        system=question.system,
        gpus=gpus,
        algorithm=algorithm,
        prompts=many // samples,
        samples=samples,
        isl=told.get("isl"),
        osl=mean,
        max_osl=None if longest is None else max(round(longest), round(mean or 1.0), 1),
        plan=question.plan,
        framework="verl" if algorithm == "ppo" or "old_logprob" in phases else "generic",
        set=question.set,
    )


def _diagnosis(row: Measurement, found: PostTraining) -> LoopDiagnosis:
    """One log: phases side by side, and what stands out."""
    ours = printed_phases(found.phases, found.placement, post_training_loop(found.framework))
    gaps = [
        phase_gap(name, theirs, ours[name], CHECKS[name])
        for name, theirs in sorted(row.phases.items(), key=lambda one: -one[1])
        if ours.get(name, 0.0) > 0.0
    ]
    step = row.values.get("step_s")
    return LoopDiagnosis(
        source=row.source,
        algorithm=found.algorithm,
        plan=found.plan,
        rollout_plan=found.rollout_plan,
        measured_s=step,
        predicted_s=found.step_s,
        interval=found.interval,
        gap=None if step is None else step / found.step_s - 1.0,
        phases=tuple(gaps),
        tail_share=found.tail_share,
        said=tuple(_said(row, found, gaps)),
        over_time=series_findings(row.steps_s) if len(row.steps_s) > 2 else None,
        assumptions=found.assumptions,
    )


def _said(row: Measurement, found: PostTraining, gaps: list[PhaseGap]) -> list[str]:
    """What a reader wants to know first."""
    said = []
    step = row.values.get("step_s") or sum(one.measured_s for one in gaps)
    gen = row.phases.get("gen")
    if gen and step:
        said.append(tail_sentence(gen / step, found.tail_share, found.tail_requests))
    late = [one for one in gaps if one.verdict == "slower"]
    if late:
        worst = max(late, key=lambda one: one.measured_s - one.predicted_s)
        lost = worst.measured_s - worst.predicted_s
        said.append(
            f"{worst.phase} takes {worst.ratio:.1f} x what is expected, {lost:,.1f} s of a step of "
            f"{step:,.1f} s: look at {worst.check}"
        )
    else:
        said.append("no phase is much slower than expected")
    rest = step - sum(one.measured_s for one in gaps)
    if rest > 0.1 * step:
        said.append(f"{rest / step:.0%} of the step is in none of the logged phases")
    return said
