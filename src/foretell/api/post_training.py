"""Records in, records out: `foretell.post_train`."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from foretell.api.serving import choices_of, rent_of
from foretell.catalog.post_training import PostTrainingLoop, loop_names, post_training_loop
from foretell.catalog.spreads import post_training_ends
from foretell.errors import BadInput, Problem, unknown
from foretell.inputs.question import ask, collect, plan_of, settings_of
from foretell.interop.post_training_logs import read_post_training_log
from foretell.posttraining.placement import best_setup, candidate_plans, rank_placements
from foretell.posttraining.step import StepResult, StepSetup, spread_interval, step_of
from foretell.posttraining.workload import AnswerLengths, TrajectoryWorkload, read_lengths
from foretell.search.plan_checks import check_plan
from foretell.specs.deployment import Deployment
from foretell.specs.deployment_text import deployment_text
from foretell.specs.plan import Plan, named_fields
from foretell.specs.post_training import (
    ALGORITHMS,
    AlgorithmForm,
    Phase,
    PhaseMemory,
    PostTrainingEstimate,
)
from foretell.specs.questions.flags import asks
from foretell.specs.questions.post_training import PostTrainingQuestion
from foretell.specs.scenario import Scenario
from foretell.units import format as show

PLACEMENTS = ("colocated", "split", "async", "best")
SYNCS = ("ipc", "broadcast", "p2p", "delta", "file")
OFFLOADS = ("weights", "optimizer", "reference")
USUAL_MEAN, USUAL_CAP, USUAL_POWER = 190.0, 1024.0, 0.6
"""Mean answer under a limit of 1,024 tokens, and the power by which it grows with the limit: means of 130 to
330 under 1,024 in verl's logs, some 1,400 under 28,672 by what its passes take."""


class PostTraining(PostTrainingEstimate):
    """One step of fine-tuning or reinforcement learning."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape: the same keys as the attributes."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        told["phases"] = [phase.to_dict() for phase in self.phases]
        told["memory"] = {
            "fits": self.fits,
            "fails_in": self.fails_in or None,
            "phases": [one.to_dict() for one in self.memory],
        }
        told["interval"] = {key: list(ends) for key, ends in self.interval.items()}
        for name in ("assumptions", "placement_reasons", "measured_notes"):
            told[name] = list(told[name])
        told["alternatives"] = [dict(one) for one in self.alternatives]
        return told

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
    does not fit is told in the answer (`fits`, `fails_in`).
    """
    said: list[str] = []
    setup, options = setups_of(question, said)
    reasons: tuple[str, ...] = ()
    alternatives: tuple[Mapping[str, Any], ...] = ()
    undivided = question.placement in ("split", "async") and not options["pools_given"]
    if setup.algorithm.generates and (question.placement == "best" or undivided):
        found = rank_placements(setup, options)
        result, reasons = best_setup(found)
        alternatives = tuple(one.to_dict() for one in found)
    else:
        result = step_of(setup)
    answer = answer_from(question, result, said, reasons, alternatives)
    if question.trace is not None:
        answer.to_chrome_trace(question.trace)
    return answer


def setups_of(question: PostTrainingQuestion, said: list[str]) -> tuple[StepSetup, dict[str, Any]]:
    """Everything that a step is made of, and what placements may change of it."""
    problems = problems_of(question)
    loop = collect(lambda: post_training_loop(question.framework), problems)
    form = ALGORITHMS.get(question.algorithm)
    if form is None:
        problems.append(unknown("algorithm", question.algorithm, ALGORITHMS))
    usable = form is not None and not problems
    work = collect(lambda: workload_of(question, form, said), problems) if usable and form else None
    if problems or loop is None or form is None or work is None:
        collect(lambda: ask(question.model, system=question.system or "h100-sxm", gpus=8), problems)
        raise BadInput(problems)
    scenario, trainer, plan = trainer_of(question, loop, work, said)
    system, rollout_gpus = scenario.system, 0
    deployment, profile, given = Deployment(), None, False
    options: dict[str, Any] = {"placement": question.placement}
    if form.generates:
        rollout = scenario
        if question.rollout_gpus is not None:
            rollout = ask(
                scenario.model,
                system=question.system,
                gpus=question.rollout_gpus,
                set=settings_of(question),
            )
        rollout_gpus = rollout.job.gpus
        system = rollout.system
        engine = question.engine or loop.engine
        profile, deployment, given = choices_of(
            replace(rollout, job=replace(rollout.job, gpus=rollout_gpus)),
            question.rollout_plan,
            engine,
            [],
            question.osl or 2.0,
        )
        split = question.placement in ("split", "async")
        fraction = loop.split_memory_fraction if split else loop.memory_fraction
        if deployment.memory_fraction is None:
            deployment = replace(deployment, memory_fraction=fraction)
            said.append(f"the engine takes {fraction:.0%} of the memory ({loop.name})")
        if deployment.max_batch is None:
            deployment = replace(deployment, max_batch=loop.max_batch)
        profile = replace(profile, eager_layer_s=max(profile.eager_layer_s, loop.eager_layer_s))
        said.append(f"rollouts by engine profile {profile.id}")
    else:
        from foretell.catalog.engines import profile as profile_for

        profile = profile_for(loop.engine, system.chip, mixture=False)
    placement = question.placement if question.placement != "best" else "colocated"
    offload = offload_of(question, placement, form)
    sync = question.sync or ("ipc" if placement == "colocated" else "broadcast")
    setup = StepSetup(
        algorithm=form,
        loop=loop
        if question.placement != "async" or not question.partial
        else replace(loop, old_logprobs=False),
        work=work,
        scenario=scenario,
        plan=plan,
        trainer=trainer,
        budget=budget_of(question, loop, trainer),
        rollout_system=system,
        rollout_gpus=rollout_gpus,
        deployment=deployment,
        profile=profile,
        placement=placement,  # type: ignore[arg-type]
        sync=sync,  # type: ignore[arg-type]
        offload=offload,
        staleness=loop.staleness if question.staleness is None else float(question.staleness),
        partial=question.partial or (question.staleness is None and loop.partial),
    )
    options |= {
        "layout_given": given,
        "plan_given": question.plan is not None,
        "pools_given": question.trainer_gpus is not None and question.rollout_gpus is not None,
        "sync_given": question.sync is not None,
    }
    if form.generates and not given:
        setup = with_layout(setup)
        said.append(f"rollout layout {deployment_text(setup.deployment)}: the fastest that fits")
    return setup, options


def budget_of(question: PostTrainingQuestion, loop: PostTrainingLoop, trainer: str) -> float:
    """Tokens of a micro-batch on one rank; 0: the plan's sequences."""
    if question.micro_tokens is not None:
        return float(question.micro_tokens)
    fixed = "micro_batch" in _named(question.plan) or isinstance(question.plan, Plan)
    tuned = question.algorithm in ("sft", "dpo", "reward") and question.plan is not None
    return 0.0 if fixed or tuned or loop.sequences(trainer) else float(DEFAULT_BUDGET)


USUAL_PROMPT = 256.0
"""Tokens of a prompt where none are given."""
DEFAULT_BUDGET = 16_384
"""Tokens of a micro-batch on one rank."""


def with_layout(setup: StepSetup) -> StepSetup:
    """The setup with the fastest layout of the engine that fits."""
    from foretell.posttraining.placement import best_layout

    return replace(setup, deployment=best_layout(setup))


def _named(plan: Any) -> tuple[str, ...]:
    return named_fields(plan) if isinstance(plan, str) else ()


def trainer_of(
    question: PostTrainingQuestion,
    loop: PostTrainingLoop,
    work: TrajectoryWorkload,
    said: list[str],
) -> tuple[Scenario, str, Plan]:
    """The trainer's scenario, kind and plan; a plan that is not given is the fastest of a few that fit."""
    given = question.plan
    gpus = question.trainer_gpus if question.trainer_gpus is not None else question.gpus
    words = given if isinstance(given, str) else ""
    named = _named(given)
    trainer = loop.trainer
    if any(name in named for name in ("tp", "pp", "ep")) and "zero" not in named:
        trainer = "megatron"
    if "framework" in named:
        text = words
        software = words.split("framework=")[1].split()[0]
        trainer = "megatron" if software.startswith(("megatron", "nemo")) else "fsdp"
    else:
        text = f"{words} framework={loop.software(trainer)}".strip()
    if "micro_batch" not in named and loop.sequences(trainer) and question.micro_tokens is None:
        text += f" mbs{loop.sequences(trainer)}"
    if given is not None and "zero" not in named and trainer in ("fsdp", "deepspeed"):
        text += " zero3"
    if (
        given is not None
        and "recompute" not in named
        and question.algorithm not in ("sft", "dpo", "reward")
    ):
        text += " recompute=full"
    place = {"system": question.system, "gpus": gpus, "set": settings_of(question)}
    seq_len = max(round(work.passed_length), 8)
    scenario = ask(
        question.model,
        **place,
        global_batch=work.trajectories,
        seq_len=seq_len,
        plan=given if isinstance(given, Plan) else text,
    )
    if isinstance(given, Plan):
        return plan_of(scenario, given)[0], trainer, given
    degrees = {"tp", "pp", "ep", "cp", "dp", "zero"} & {*named}
    if given is not None and (degrees or trainer != "megatron"):
        scenario, plan = plan_of(scenario, text, settings_of(question))
        checked_degrees(scenario, plan)
        return scenario, trainer, plan
    scenario, base = plan_of(scenario, text, settings_of(question))
    plan = candidate_plans(scenario, base, trainer, work, budget_of(question, loop, trainer))
    said.append(f"trainer's plan chosen: the fastest of a few {trainer} plans that fit")
    return scenario, trainer, plan


def checked_degrees(scenario: Scenario, plan: Plan) -> None:
    """Raise where a plan's degrees cannot be: its batch and length are made to fit."""
    step = plan.tp * plan.cp * 2
    job = replace(
        scenario.job,
        gpus=plan.gpus
        if scenario.job.gpus % plan.gpus == 0 and plan.gpus == scenario.job.gpus
        else scenario.job.gpus,
        global_batch=plan.dp * plan.micro_batch * plan.pp * plan.vpp * 4,
        seq_len=-(-scenario.job.seq_len // step) * step,
    )
    check_plan(replace(scenario, job=job), plan)


def workload_of(
    question: PostTrainingQuestion, form: AlgorithmForm, said: list[str]
) -> TrajectoryWorkload:
    """Trajectories and their lengths; what is left open is said."""
    samples = question.samples or (8 if form.generates else 1)
    prompt = question.isl
    if prompt is None:
        prompt = USUAL_PROMPT if form.generates else 0.0
    if not question.samples and form.generates:
        said.append(f"{samples} answers to each prompt: not given")
    cap, mean = question.max_osl, question.osl
    if mean is None:
        limit = float(cap or USUAL_CAP)
        mean = min(USUAL_MEAN * (limit / USUAL_CAP) ** USUAL_POWER, limit)
        said.append(
            f"answers of {mean:.0f} tokens on the mean: what limits of {limit:.0f} usually leave"
        )
    if cap is None:
        cap = round(4 * mean)
        said.append(f"answers are cut at {cap} tokens: four times their mean")
    shape, samples_of = read_lengths(question.lengths, float(cap))
    if samples_of:
        mean = sum(samples_of) / len(samples_of)
    if not form.generates and question.lengths == "lognormal" and question.max_osl is None:
        shape = "fixed"
    median, _, p99 = (question.tool_time or "0:0").partition(":")
    answers = AnswerLengths(
        mean=min(float(mean), float(cap)), cap=float(cap), shape=shape, samples=samples_of
    )
    return TrajectoryWorkload(
        prompts=question.prompts,
        samples=samples,
        prompt_tokens=float(prompt),
        answers=answers,
        updates=question.updates,
        sequences=form.sequences,
        padded_to=float(prompt) + float(cap) if question.packing == "padded" else 0.0,
        turns=question.turns,
        tool_median_s=float(median),
        tool_p99_s=float(p99 or median),
    )


def offload_of(
    question: PostTrainingQuestion, placement: str, form: AlgorithmForm
) -> frozenset[str]:
    """What the trainer keeps on the host."""
    if question.offload is not None:
        return frozenset() if question.offload == "none" else frozenset(question.offload.split("+"))
    if placement == "colocated" and form.generates:
        return frozenset(("weights", "optimizer"))
    return frozenset()


def problems_of(question: PostTrainingQuestion) -> list[Problem]:
    """Words and numbers that cannot be, all at once."""
    found = []
    words = {
        "placement": (question.placement, PLACEMENTS),
        "sync": (question.sync or "ipc", SYNCS),
        "packing": (question.packing, ("packed", "padded")),
    }
    found += [
        unknown(name, value, allowed)
        for name, (value, allowed) in words.items()
        if value not in allowed
    ]
    if question.framework.partition("@")[0] not in loop_names():
        found.append(unknown("framework", question.framework, loop_names()))
    if question.offload not in (None, "none"):
        parts = str(question.offload).split("+")
        found += [
            unknown("offload", part, ("none", *OFFLOADS)) for part in parts if part not in OFFLOADS
        ]
    least = {
        "prompts": 1,
        "samples": 0,
        "updates": 1,
        "turns": 1,
        "steps": 1,
        "max_osl": 1,
        "micro_tokens": 1,
    }
    for name, low in least.items():
        value = getattr(question, name)
        if value is not None and (
            not isinstance(value, int) or isinstance(value, bool) or value < low
        ):
            found.append(
                Problem(
                    path=name,
                    value=value,
                    message="not a usable number",
                    allowed=f"a whole number from {low}",
                )
            )
    for name, low_f in {"isl": 0.0, "osl": 1.0, "staleness": 0.0, "price": 0.0}.items():
        value = getattr(question, name)
        if value is not None and (
            not isinstance(value, int | float) or isinstance(value, bool) or value < low_f
        ):
            found.append(
                Problem(
                    path=name,
                    value=value,
                    message="not a usable number",
                    allowed=f"a number from {low_f:g}",
                )
            )
    if question.tool_time is not None:
        try:
            [float(part) for part in question.tool_time.split(":")]
        except ValueError:
            message = "is no MEDIAN:P99"
            found.append(
                Problem(
                    path="tool_time",
                    value=question.tool_time,
                    message=message,
                    allowed="seconds, as in 2:30",
                )
            )
    both = question.trainer_gpus is not None, question.rollout_gpus is not None
    if question.gpus is None and not any(both):
        message = "missing"
        found.append(
            Problem(
                path="gpus",
                value=None,
                message=message,
                allowed="as in 32xH100, or --trainer-gpus and --rollout-gpus",
            )
        )
    if any(both) and question.gpus is not None:
        message = "is given beside the pools"
        found.append(
            Problem(path="gpus", value=question.gpus, message=message, allowed="one of them")
        )
    return found


def answer_from(
    question: PostTrainingQuestion,
    result: StepResult,
    said: list[str],
    reasons: tuple[str, ...],
    alternatives: tuple[Mapping[str, Any], ...],
) -> PostTraining:
    """The answer with prices, intervals and sentences."""
    setup, rollout, work = result.setup, result.rollout, result.setup.work
    log = {} if question.log is None else dict(read_post_training_log(question.log).medians)
    ends = post_training_ends("step" if setup.algorithm.generates else "finetune")
    phases = tuple(
        replace(p, interval=spread_interval(p.seconds, post_training_ends(p.name)["p90"]))
        for p in result.phases
    )
    rents = [
        (setup.trainer_gpus, setup.scenario.system.chip.id),
        (setup.rollout_gpus if setup.placement != "colocated" else 0, setup.rollout_system.chip.id),
    ]
    usd: float | None = 0.0
    for gpus, chip in rents:
        rent = float(rent_of(chip, question.price, settings_of(question)).usd_per_chip_hour)
        usd = (
            None
            if usd is None or (gpus and not rent)
            else usd + gpus * rent * result.step_s / 3600.0
        )
    fails = failing(result.memory)
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
        plan=str(setup.plan),
        rollout_plan=deployment_text(setup.deployment) if rollout is not None else "",
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
        phases=phases,
        memory=result.memory,
        fits="no"
        if fails
        else "too_close"
        if any(m.fits != "yes" for m in result.memory)
        else "yes",
        fails_in=fails,
        idle_share=result.idle_share,
        tail_share=tail,
        tail_requests=0 if rollout is None else rollout.tail_requests,
        staleness=result.staleness,
        waiting_pool=result.waits,
        tokens_per_s_per_gpu=work.tokens / result.step_s / setup.gpus,
        usd_per_step=usd,
        usd_per_run=None if usd is None or question.steps is None else usd * question.steps,
        run_s=None if question.steps is None else result.step_s * question.steps,
        steps=question.steps,
        alternatives=alternatives,
        measured=log,
        measured_notes=compared_log(log, result),
        assumptions=tuple(dict.fromkeys((*setup.scenario.assumptions, *said, *_sentences(result)))),
    )


def compared_log(log: Mapping[str, float], result: StepResult) -> tuple[str, ...]:
    """A log's phases beside ours, in words: the largest first, and what its generation is made of."""
    if not log:
        return ()
    ours = printed_phases(result.phases, result.setup.placement) | {"step": result.step_s}
    found = []
    for name, theirs in sorted(log.items(), key=lambda item: -item[1]):
        if name in ours and ours[name] > 0.0:
            ratio = theirs / ours[name]
            verdict = (
                "as expected"
                if 0.7 <= ratio <= 1.4
                else "slower than expected"
                if ratio > 1.4
                else "faster"
            )
            found.append(
                f"{name}: {theirs:,.1f} s logged, {ours[name]:,.1f} s predicted: {verdict} ({ratio:.2f} x)"
            )
    step, gen, rollout = log.get("step"), log.get("gen"), result.rollout
    if step and gen and rollout is not None:
        tail = rollout.tail_s / max(rollout.seconds, 1e-9)
        found.append(
            f"generation is {gen / step:.0%} of the step: {tail:.0%} of that is the tail of "
            f"{rollout.tail_requests} requests"
        )
    return tuple(found)


def printed_phases(phases: Sequence[Phase], placement: str) -> dict[str, float]:
    """Phases under the names and in the meaning of logs: generation holds wake, reshard and sleep where both
    have the same chips, and is what the trainer waits for where both work at once."""
    seconds = {phase.name: phase.seconds for phase in phases}
    found = {name: value for name, value in seconds.items() if name not in LOGGED_GEN}
    if "generate" not in seconds:
        return found
    if placement == "async":
        found["gen"] = next(phase.exposed for phase in phases if phase.name == "generate")
    elif placement == "colocated":
        found["gen"] = sum(seconds.get(name, 0.0) for name in LOGGED_GEN)
    else:
        found["gen"] = seconds["generate"] + seconds.get("environment", 0.0)
    found["reshard"] = found["weight_sync"] = seconds["weight_sync"]
    return found


LOGGED_GEN = ("wake", "generate", "environment", "sleep", "weight_sync")
"""Phases that logs count as generation where both stand on the same chips."""


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


def _sentences(result: StepResult) -> list[str]:
    """What is to be known of a step beside its numbers."""
    setup, answers = result.setup, result.setup.work.answers
    said = [f"answer lengths: {answers.shape} around {answers.mean:.0f}, cut at {answers.cap:.0f}"]
    if setup.algorithm.generates:
        said.append(f"weights to the engine: {setup.sync}")
    if setup.offload and setup.algorithm.generates:
        said.append(f"on the host while the engine runs: {', '.join(sorted(setup.offload))}")
    return said
