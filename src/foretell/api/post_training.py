"""Records in, records out: `foretell.post_train`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.api.post_training_advice import tuning_fits, ways_to_fit, with_ways_out
from foretell.api.post_training_setup import setups_of
from foretell.api.post_training_words import in_our_words
from foretell.api.serving_questions import rent_of
from foretell.catalog.post_training import PostTrainingLoop
from foretell.errors import Infeasible
from foretell.inputs.question import settings_of
from foretell.posttraining.evidence import figure_ends, figure_reason, setup_facts
from foretell.posttraining.placement import best_setup, rank_placements
from foretell.posttraining.step import StepResult, StepSetup, spread_interval, step_of
from foretell.records import Answer, as_json
from foretell.specs.deployment_text import deployment_text
from foretell.specs.post_training import (
    Phase,
    PhaseMemory,
    PostTrainingEstimate,
)
from foretell.specs.questions.flags import asks, values_of
from foretell.specs.questions.post_training import PostTrainingQuestion
from foretell.units import format as show


class PostTraining(PostTrainingEstimate, Answer):
    """One step of fine-tuning or reinforcement learning."""

    __slots__ = ()
    verb = "post-train"

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape: the same keys as the attributes."""
        told = as_json()(self)
        held = {"fits": self.fits, "fails_in": self.fails_in or None, "phases": told["memory"]}
        return {**told, "memory": held}

    def to_json_line(self) -> str:
        """Numbers and what was asked as one line of JSON."""
        import json

        keep = ("model", "algorithm", "framework", "gpus", "placement", "plan", "rollout_plan")
        config = {name: getattr(self, name) for name in keep}
        metrics: dict[str, float] = {"perf/step_s": self.step_s, "perf/idle_share": self.idle_share}
        metrics |= {f"timing_s/{phase.name}": phase.seconds for phase in self.phases}
        return json.dumps({"config": config, "metrics": metrics})

    def to_chrome_trace(self, path: str | Path) -> Path:
        """Write the step as a Chrome trace, pools as processes; gzipped where the name ends in .gz."""
        from foretell.posttraining.trace import write_step

        return write_step(self, path)

    def export(self, tool: str) -> Any:
        """The configuration for verl, nemo-rl or trl."""
        from foretell.api.exports import repository
        from foretell.interop.post_training_write import write_configuration

        return write_configuration(self, tool, repository(self.model))


@asks(PostTrainingQuestion)
def post_train(question: PostTrainingQuestion) -> PostTraining:
    """One step of fine-tuning or reinforcement learning, its phases, memory and cost.

    Raises BadInput for what cannot be understood and Infeasible where no phase can run at all; a phase that
    does not fit is reported in the answer (`fits`, `fails_in`).
    """
    try:
        found = post_training_of(question)
    except Infeasible as error:
        raise with_ways_out(error, question, post_training_of) from None
    question = in_our_words(question, [])
    if question.fit:
        found = replace(found, fit=tuning_fits(question, post_training_of))
    if found.fits != "no":
        return found
    return replace(found, ways_to_fit=ways_to_fit(question, found, post_training_of))


def post_training_of(
    question: PostTrainingQuestion, left_out: tuple[str, ...] = ()
) -> PostTraining:
    """The answer to a question by values that rest on no runs of some sources."""
    said: list[str] = []
    question = in_our_words(question, said)
    setup, options = setups_of(question, said, left_out)
    reasons: tuple[str, ...] = ()
    alternatives: tuple[Mapping[str, Any], ...] = ()
    undivided = question.placement in ("split", "async") and not options["pools_given"]
    if setup.algorithm.generates and (question.placement == "best" or undivided):
        found = rank_placements(setup, options)
        result, reasons = best_setup(found)
        alternatives = tuple(one.to_dict() for one in found)
    else:
        result = step_of(setup)
    said += engine_sentences(result.setup, options)
    answer = answer_from(question, result, said, reasons, alternatives)
    if question.measured:
        answer = answer_given_measured(question, result, answer, said, reasons, alternatives)
    if question.trace is not None:
        answer.to_chrome_trace(question.trace)
    return answer


def answer_given_measured(
    question: PostTrainingQuestion,
    result: StepResult,
    before: PostTraining,
    said: list[str],
    reasons: tuple[str, ...],
    alternatives: tuple[Mapping[str, Any], ...],
) -> PostTraining:
    """The answer under the factors of measured steps: every phase, the step, its interval and cost."""
    from foretell.api.measured_post_training import condition_loop

    def predict(one: PostTrainingQuestion) -> StepResult:
        here = "colocated" if one.placement == "best" else one.placement
        return step_of(setups_of(replace(one, placement=here), [])[0])

    known = condition_loop(question, predict, logged_figures)
    after, told = known.after(result, logged_figures)
    answer = answer_from(question, after, [*said, *known.notes], reasons, alternatives)
    prior = {
        name: getattr(before, name) for name in ("step_s", "tokens_per_s_per_gpu", "usd_per_step")
    }
    prior |= {
        "phases": {phase.name: phase.seconds for phase in before.phases},
        "interval": {key: list(ends) for key, ends in before.interval.items()},
    }
    ends = {
        key: spread_interval(after.step_s, (low - told.median, high - told.median))
        for key, (low, high) in told.interval.items()
    }
    return replace(
        answer,
        interval=ends,
        interval_reason="given what was measured",
        phases=tuple(known.phase(one, told) for one in answer.phases),
        prior=prior,
        posterior_factors=known.factors(told),
    )


def logged_figures(result: StepResult) -> dict[str, float]:
    """Seconds of the step and its phases under the names of logs."""
    alone = {phase.name: phase.seconds for phase in result.phases}
    printed = printed_phases(result.phases, result.setup.placement, result.setup.loop)
    return {**alone, **printed, "step": result.step_s}


def answer_from(
    question: PostTrainingQuestion,
    result: StepResult,
    said: list[str],
    reasons: tuple[str, ...],
    alternatives: tuple[Mapping[str, Any], ...],
) -> PostTraining:
    """The answer with prices, intervals and sentences."""
    setup, rollout, work = result.setup, result.rollout, result.setup.work
    facts = setup_facts(setup)
    figure = "step" if setup.algorithm.generates else "finetune"
    ends = figure_ends(facts, figure)
    phases = tuple(
        replace(p, interval=spread_interval(p.seconds, figure_ends(facts, p.name)["p90"]))
        for p in result.phases
    )
    rents = [
        (setup.trainer_gpus, setup.scenario.system.chip.id),
        (setup.rollout_gpus if setup.placement != "colocated" else 0, setup.rollout_system.chip.id),
    ]
    known = [
        (gpus, float(rent_of(chip, question.price, settings_of(question)).usd_per_chip_hour))
        for gpus, chip in rents
    ]
    open_rent = any(gpus and not rent for gpus, rent in known)
    usd = None if open_rent else sum(gpus * rent for gpus, rent in known) * result.step_s / 3600.0
    fails = failing(result.memory)
    run_s = run_seconds(question, result.step_s)
    tail = 0.0 if rollout is None else rollout.tail_s / max(rollout.seconds, 1e-9)
    return PostTraining(
        model=setup.scenario.model.id,
        algorithm=setup.algorithm.id,
        framework=setup.loop.id,
        gpus=setup.gpus,
        trainer_gpus=setup.trainer_gpus,
        rollout_gpus=setup.rollout_gpus,
        trainer_system=setup.scenario.system.id,
        rollout_system=setup.rollout_system.id if rollout is not None else "",
        placement=setup.placement,
        placement_reasons=reasons,
        plan=setup.plan_words,
        micro_tokens=round(setup.budget) or None,
        rollout_plan=deployment_text(setup.deployment) if rollout is not None else "",
        offload=tuple(sorted(setup.offload)) if rollout is not None else (),
        trajectories=work.trajectories,
        tokens=work.tokens,
        prompts=work.prompts,
        samples=work.samples,
        updates=work.updates,
        prompt_tokens=work.prompt_tokens,
        max_answer_tokens=work.answers.cap,
        cut_share=work.answers.cut_share,
        step_s=result.step_s,
        interval={key: spread_interval(result.step_s, width) for key, width in ends.items()},
        interval_reason=figure_reason(facts, figure),
        phases=phases,
        memory=result.memory,
        fits="no" if fails else "too_close" if {m.fits for m in result.memory} - {"yes"} else "yes",
        fails_in=fails,
        ways_to_fit=(),
        idle_share=result.idle_share,
        tail_share=tail,
        tail_requests=0 if rollout is None else rollout.tail_requests,
        staleness=result.staleness,
        waiting_pool=result.waits,
        tokens_per_s_per_gpu=work.tokens / result.step_s / setup.gpus,
        usd_per_step=usd,
        usd_per_run=None if usd is None or run_s is None else usd * run_s / result.step_s,
        run_s=run_s,
        steps=question.steps,
        alternatives=alternatives,
        assumptions=tuple(dict.fromkeys((*setup.scenario.assumptions, *said, *_sentences(result)))),
    )


def run_seconds(question: PostTrainingQuestion, step_s: float) -> float | None:
    """Seconds of all steps; where answers grow, by Simpson's rule over steps of the first, the middle and the
    last length."""
    if question.steps is None:
        return None
    if question.osl_end is None or question.osl is None:
        return step_s * question.steps
    ends = float(question.osl), float(question.osl_end)
    later = [
        post_train(
            **{**values_of(question), "osl": osl, "osl_end": None, "steps": None, "trace": None}
        )
        for osl in (0.5 * sum(ends), ends[1])
    ]
    return question.steps * (step_s + 4.0 * later[0].step_s + later[1].step_s) / 6.0


def tail_sentence(share: float, tail: float, requests: int) -> str:
    """What a generation is of its step, and its tail of it."""
    return f"generation is {share:.0%} of the step: {tail:.0%} of that is the tail of {requests} requests"


def printed_phases(
    phases: Sequence[Phase], placement: str, loop: PostTrainingLoop
) -> dict[str, float]:
    """Phases under the names and in the meaning of a loop's logs: generation holds wake, reshard and sleep
    where both have the same chips, or synchronisation does, and is what the trainer waits for where both work
    at once; passes without gradients may have one timer."""
    seconds = {phase.name: phase.seconds for phase in phases}
    found = {name: value for name, value in seconds.items() if name not in LOGGED_GEN}
    if "generate" not in seconds:
        return found
    sync_with_wake = loop.sync_logged_with_wake
    if loop.logs_together and "old_logprob" in found:
        found["old_logprob"] = sum(found.pop(name, 0.0) for name in LOGGED_PASSES)
    if placement == "async":
        found["gen"] = next(phase.exposed for phase in phases if phase.name == "generate")
    elif placement == "colocated" and not sync_with_wake:
        found["gen"] = sum(seconds.get(name, 0.0) for name in LOGGED_GEN)
    else:
        found["gen"] = seconds["generate"] + seconds.get("environment", 0.0)
    moved = sum(seconds.get(name, 0.0) for name in ("wake", "sleep") if sync_with_wake)
    found["reshard"] = found["weight_sync"] = seconds["weight_sync"] + moved
    return found


LOGGED_GEN = ("wake", "generate", "environment", "sleep", "weight_sync")
"""Phases that logs count as generation where both are on the same chips."""
LOGGED_PASSES = ("old_logprob", "ref_logprob", "values")
"""Passes without gradients, which some loops time together."""


def failing(memory: tuple[PhaseMemory, ...]) -> str:
    """The phase that is furthest from fitting, with its pool; empty: none."""
    over = [one for one in memory if one.fits == "no"]
    if not over:
        return ""
    worst = max(over, key=lambda one: one.total_bytes / one.capacity_bytes)
    return (
        f"{worst.phase} ({worst.pool}): {show(worst.total_bytes, 'bytes')} of "
        f"{show(worst.capacity_bytes, 'bytes')}"
    )


def engine_sentences(setup: StepSetup, options: Mapping[str, Any]) -> list[str]:
    """What the engine of an answer was given that the question left open."""
    if not setup.algorithm.generates:
        return []
    said, layout = [], setup.deployment
    if not options["fraction_given"] and layout.memory_fraction is not None:
        said.append(
            f"the engine takes {layout.memory_fraction:.0%} of the memory ({setup.loop.name})"
        )
    if not options["layout_given"]:
        usual = layout.tp == setup.loop.rollout_tp
        why = f"as {setup.loop.name} has it" if usual else "the fastest that fits"
        said.append(f"rollout layout {deployment_text(layout)}: {why}")
    return said


def _sentences(result: StepResult) -> list[str]:
    """What is to be known of a step beside its numbers."""
    setup, answers = result.setup, result.setup.work.answers
    said = [f"answer lengths: {answers.shape} around {answers.mean:.0f}, cut at {answers.cap:.0f}"]
    if setup.algorithm.generates:
        said.append(f"weights to the engine: {setup.sync}")
    if setup.offload and setup.algorithm.generates:
        said.append(f"on the host while the engine runs: {', '.join(sorted(setup.offload))}")
    return said
