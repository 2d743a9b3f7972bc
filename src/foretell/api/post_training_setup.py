"""The question of a post-training step as what it is made of: workload, trainer, engine, placement."""

import math
from dataclasses import replace
from typing import Any

from foretell.api.post_training_trainer import budget_of, sender_of, trainer_of
from foretell.api.serving_questions import choices_of, model_or_stand_in
from foretell.catalog.engines import profile as profile_for
from foretell.catalog.model_names import reasons_at_length
from foretell.catalog.post_training import (
    PostTrainingLoop,
    example_lengths,
    loop_names,
    post_training_loop,
)
from foretell.errors import BadInput, Infeasible, Problem, bad_input, unknown, wrong
from foretell.inputs.question import ask, collect, settings_of
from foretell.posttraining.placement import best_micro_batch, usual_layout
from foretell.posttraining.rollout import check_room
from foretell.posttraining.step import StepSetup
from foretell.posttraining.workload import AnswerLengths, TrajectoryWorkload
from foretell.records import dataclass
from foretell.serving.engine_options import with_acceptance, with_speculative
from foretell.serving.memory import memory_of
from foretell.serving.requests.arrivals import read_lengths
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.post_training import (
    ALGORITHMS,
    USUAL_PROMPT,
    AlgorithmForm,
    find_algorithm,
)
from foretell.specs.questions.post_training import PostTrainingQuestion
from foretell.specs.scenario import Scenario
from foretell.specs.service import LengthForm
from foretell.specs.system import System
from foretell.units import as_number

OWN_MODULES = ("transformers", "hf")
"""Engines that are none: the trainer's modules write the answers."""
PLACEMENTS = ("colocated", "split", "async", "best")
SYNCS = ("ipc", "broadcast", "p2p", "delta", "file")
PACKINGS = ("auto", "packed", "padded", "batch", "grouped")
REFERENCES = ("auto", "pass", "none", "cached")
OFFLOADS = ("weights", "optimizer", "reference")
USUAL_SHARE, USUAL_LONGEST, USUAL_CAP = 0.2, 1100.0, 1024.0
"""Mean answer over a short limit, its size under a long one, and the limit where none is given: means of 130
to 330 under 1,024 in verl's logs, some 1,000 under 8,192, 20,480 and 28,672 by what its passes take."""

SHARES = (0.5, 0.7, 0.9, 0.95)
"""Shares of the memory that an engine is given where its usual one leaves no cache."""
REASONING_ROOT, REASONING_SHARE = 42.0, 0.85
"""Mean answer over the root of a limit, of models that were trained to reason at length, and the most of a
limit: 3,100 under 4,096, 5,600 under 8,192, 12,900 under 32,768 and 31,600 under 131,072 in published steps,
7,000 under 27,648 by what those of smaller, distilled ones take."""


def setups_of(
    question: PostTrainingQuestion, said: list[str], left_out: tuple[str, ...] = ()
) -> tuple[StepSetup, dict[str, Any]]:
    """Everything that a step is made of, and what placements may change of it; `question` is in our words."""
    problems = problems_of(question)
    if (
        None not in (question.trainer_gpus, question.rollout_gpus)
        and question.placement == "colocated"
    ):
        question = replace(question, placement="split")
        said.append("placement split: both pools have chips of their own")
    loop = collect(lambda: post_training_loop(question.framework, left_out), problems)
    if question.engine in OWN_MODULES and loop is not None:
        loop, question = loop.in_own_modules(), replace(question, engine=None)
    form = find_algorithm(question.algorithm)
    question = replace(question, model=model_or_stand_in(question.model, said))
    if form is not None and loop is not None:
        own = form.reference and (loop.reference or not form.penalty)
        told = {"pass": True, "none": False, "cached": False}
        form = replace(form, reference=told.get(question.reference, own))
    if form is None:
        problems.append(unknown("algorithm", question.algorithm, ALGORITHMS))
    else:
        said += _passes_left_out(question, form)
    usable = form is not None and not problems
    work = None
    if usable and form and loop:
        work = collect(lambda: workload_of(question, form, said, loop), problems)
    if problems or loop is None or form is None or work is None:
        collect(lambda: ask(question.model, system=question.system or "h100-sxm", gpus=8), problems)
        raise BadInput(problems)
    if form.moves_weights:
        scenario, trainer, plan = sender_of(question, loop)
    else:
        scenario, trainer, plan = trainer_of(question, loop, form, work, said, left_out)
    engine = engine_of(question, loop, form, scenario, said)
    if plan.lora and not loop.sync_merged:
        profile = replace(
            engine.profile,
            eager_layer_s=engine.profile.eager_layer_s + loop.eager_adapter_s,
            eager_sequence_s=engine.profile.eager_sequence_s + loop.adapter_sequence_s,
        )
        engine = replace(engine, profile=profile)
    placement = question.placement if question.placement != "best" else "colocated"
    offload = offload_of(question, placement, form, loop)
    sync = question.sync or ("ipc" if placement == "colocated" else "broadcast")
    setup = StepSetup(
        algorithm=form,
        loop=replace(loop, old_logprobs="never")
        if question.placement == "async" and question.partial
        else loop,
        work=work,
        scenario=scenario,
        plan=plan,
        trainer=trainer,
        budget=budget_of(question, loop, trainer, work, plan.dp),
        rollout_system=engine.system,
        rollout_gpus=engine.gpus,
        deployment=engine.deployment,
        profile=engine.profile,
        placement=placement,  # type: ignore[arg-type]
        sync=sync,  # type: ignore[arg-type]
        offload=offload,
        staleness=loop.staleness if question.staleness is None else float(question.staleness),
        partial=question.partial or (question.staleness is None and loop.partial),
        critic=critic_of(question, form, scenario, said),
        log_prob_mbs=question.log_prob_mbs or 0,
        reference_mbs=(question.reference_mbs or question.log_prob_mbs or 0) * form.reference,
    )
    options: dict[str, Any] = {
        "placement": question.placement,
        "fraction_given": engine.fraction_given,
        "layout_given": engine.layout_given,
        "plan_given": question.plan is not None,
        "pools_given": question.trainer_gpus is not None and question.rollout_gpus is not None,
        "sync_given": question.sync is not None,
    }
    if form.generates:
        setup = with_room(setup, said, options)
    tuned = not (form.generates or form.moves_weights)
    if tuned and question.plan is None and question.micro_tokens is None:
        setup = best_micro_batch(setup) if setup.budget else setup
    return setup, options


def critic_of(
    question: PostTrainingQuestion, form: AlgorithmForm, scenario: Scenario, said: list[str]
) -> Model | None:
    """The value model: the one that is named, else one as the policy; None where there is none."""
    if not form.critic:
        if question.critic is not None:
            message = f"{form.id} has no value model"
            raise bad_input("critic", str(question.critic), message, "--algorithm ppo")
        return None
    if question.critic is None:
        return scenario.model
    named = model_or_stand_in(question.critic, said)
    return ask(named, system=scenario.system, gpus=scenario.job.gpus).model


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutEngine:
    """The engine of a question: its chips, layout and overheads."""

    system: System
    """Its system."""
    gpus: int
    """Its chips; 0: nothing is generated."""
    deployment: Deployment
    """Its layout, so far as it is known."""
    profile: EngineProfile
    """Its overheads."""
    layout_given: bool
    """Whether the question names a layout."""
    fraction_given: bool
    """Whether it names a share of the memory."""


def engine_of(
    question: PostTrainingQuestion,
    loop: PostTrainingLoop,
    form: AlgorithmForm,
    scenario: Scenario,
    said: list[str],
) -> RolloutEngine:
    """The rollout engine, what the question leaves open as the framework has it."""
    if not (form.generates or form.moves_weights):
        profile = profile_for(loop.engine, scenario.system.chip, mixture=False)
        return RolloutEngine(system=scenario.system, gpus=0, deployment=Deployment(), profile=profile,
                             layout_given=False, fraction_given=True)  # fmt: skip
    rollout = scenario
    if question.rollout_gpus is not None:
        rollout = ask(
            scenario.model,
            system=question.system,
            gpus=question.rollout_gpus,
            set=settings_of(question),
        )
    gpus, name = rollout.job.gpus, question.engine or loop.engine
    # An engine by its bare name is the framework's own, which lags behind serving.
    name = loop.engine if loop.engine.partition("-")[0] == name else name
    problems: list[Problem] = []
    if rollout.model.kind == "encoder" and (question.osl or 2.0) > 1.0:
        problems.append(wrong("model", question.model, f"{rollout.model.id} writes no answers"))
    plan = question.rollout_plan
    profile, deployment, given = choices_of(rollout, plan, name, problems, gpus)
    apart = question.placement in ("split", "async")
    fraction_given = deployment.memory_fraction is not None
    if not fraction_given:
        share = loop.split_memory_fraction if apart else loop.memory_fraction
        deployment = replace(deployment, memory_fraction=share)
    if deployment.max_batch is None:
        deployment = replace(deployment, max_batch=loop.max_batch)
    words = str(question.rollout_plan).split()
    eager = loop.runs_eagerly(question.framework, rollout.system.chip.architecture, apart=apart)
    if eager and not {"graph", "no-graph"} & {*words}:
        deployment = replace(deployment, graph=False)
        said.append(f"rollouts without graphs: {eager}")
    if question.speculative is not None:
        deployment = with_speculative(question.speculative, deployment)
    own_rate = deployment.accepted > 0.0
    deployment, drafts = with_acceptance(scenario.model, deployment, given=own_rate)
    said += [*drafts, f"rollouts by engine profile {profile.id}"]
    eager_s = max(profile.eager_layer_s, loop.eager_layer_s)
    return RolloutEngine(
        system=rollout.system,
        gpus=gpus,
        deployment=deployment,
        profile=replace(profile, eager_layer_s=eager_s),
        layout_given=given,
        fraction_given=fraction_given,
    )


def with_room(setup: StepSetup, said: list[str], options: dict[str, Any]) -> StepSetup:
    """The setup with the usual layout of the engine, where none is given; a framework's share of
    the memory that leaves no cache on these chips is raised, and that is reported."""
    usual = setup.deployment.memory_fraction or 1.0
    shares = [usual, *(share for share in SHARES if share > usual)]
    problem: Infeasible | None = None
    for share in shares if not options["fraction_given"] else shares[:1]:
        tried = replace(setup, deployment=replace(setup.deployment, memory_fraction=share))
        try:
            if options["layout_given"]:
                chips = (tried.scenario.model, tried.rollout_system)
                check_room(memory_of(*chips, tried.deployment, tried.profile), tried.deployment)
            else:
                tried = replace(tried, deployment=usual_layout(tried))
        except Infeasible as error:
            problem = problem or error
            continue
        if share != usual:
            options["fraction_given"] = True
            said.append(
                f"the engine takes {share:.0%} of the memory: the usual {usual:.0%} leaves no cache here"
            )
        return tried
    raise problem or Infeasible([])


def usual_mean(limit: float, *, reasons: bool = False) -> float:
    """Mean tokens of an answer under a limit: a share of short limits, and what answers need of long ones;
    a model that reasons fills its share of any limit."""
    if reasons:
        return min(REASONING_ROOT * math.sqrt(limit), REASONING_SHARE * limit)
    return float(((USUAL_SHARE * limit) ** -2.0 + USUAL_LONGEST**-2.0) ** -0.5)


def workload_of(
    question: PostTrainingQuestion, form: AlgorithmForm, said: list[str], loop: PostTrainingLoop
) -> TrajectoryWorkload:
    """Trajectories and their lengths; what is left open is stated."""
    if form.moves_weights:
        none = AnswerLengths(mean=1.0, cap=1.0, shape="fixed")
        return TrajectoryWorkload(prompts=0, samples=1, prompt_tokens=0.0, answers=none)
    samples = question.samples or form.samples or loop.samples
    known = example_lengths(question.lengths)
    read = LengthForm(shape="lognormal") if known else read_lengths(question.lengths)
    prompt = question.isl
    if prompt is None and read.prompts:
        prompt = read.prompt_mean
    if prompt is None:
        prompt = float(USUAL_PROMPT) if form.generates else 0.0
    if not question.samples and form.generates:
        said.append(f"{samples} answer{'s' * (samples > 1)} to each prompt: not given")
    cap, mean = question.max_osl, question.osl
    if known is not None:
        mean = known.mean if mean is None else mean
        cap = known.longest if cap is None else cap
        said.append(f"examples of {question.lengths}: {mean:.0f} tokens on the mean, {cap} at most")
    if not form.generates and mean is None and not read.answers and prompt:
        # A sequence that nothing is generated for is one, however it is named.
        prompt, mean = 0.0, float(prompt)
        cap = round(mean) if cap is None else cap
    if read.answers:
        cap = round(max(read.answers)) if cap is None else cap
        mean = sum(min(n, float(cap)) for n in read.answers) / len(read.answers)
        said.append(
            f"answer lengths of {question.lengths}: {len(read.answers)}, {mean:.0f} on the mean"
        )
    if mean is None:
        limit = float(cap or USUAL_CAP * question.turns)
        reasons = form.generates and reasons_at_length(question.model)
        # Each turn writes an answer under its share of the limit.
        mean = question.turns * usual_mean(limit / question.turns, reasons=reasons)
        said.append(
            f"answers of {mean:.0f} tokens on the mean: what limits of {limit:.0f} usually leave"
        )
    shape = read.shape
    if not form.generates and question.lengths == "lognormal" and question.max_osl is None:
        shape = "fixed"
    if cap is None and shape == "fixed":
        cap = math.ceil(mean)
    if cap is None:
        cap = round(4 * mean)
        what = "answers" if form.generates else "sequences"
        said.append(f"{what} are cut at {cap} tokens: four times their mean")
    packing = question.packing
    if packing == "auto":
        packing = loop.packing if form.generates else loop.tuning_packing
        if packing == "batch" and shape != "fixed":
            said.append(
                f"sequences are filled up to the longest of their micro-batch ({loop.name})"
            )
    median, _, p99 = (question.tool_time or "0:0").partition(":")
    answers = AnswerLengths(
        mean=min(float(mean), float(cap)), cap=float(cap), shape=shape, samples=read.answers
    )
    return TrajectoryWorkload(
        prompts=question.prompts,
        samples=samples,
        prompt_tokens=float(prompt),
        answers=answers,
        updates=question.updates,
        sequences=form.sequences,
        generated=form.generates,
        padded_to=float(prompt) + float(cap) if packing == "padded" else 0.0,
        together=packing in ("batch", "grouped"),
        alike=packing == "grouped",
        filtered=float(question.filtered),
        turns=question.turns,
        tool_median_s=float(median),
        tool_p99_s=float(p99 or median),
    )


def offload_of(
    question: PostTrainingQuestion, placement: str, form: AlgorithmForm, loop: PostTrainingLoop
) -> frozenset[str]:
    """What the trainer keeps on the host."""
    if question.offload is not None:
        return frozenset() if question.offload == "none" else frozenset(question.offload.split("+"))
    if placement == "colocated" and form.generates and not loop.awake:
        return frozenset(("weights", "optimizer"))
    return frozenset()


def problems_of(question: PostTrainingQuestion) -> list[Problem]:
    """Words and numbers that cannot be, all at once."""
    words = {
        "placement": (question.placement, PLACEMENTS),
        "sync": (question.sync or "ipc", SYNCS),
        "packing": (question.packing, PACKINGS),
        "reference": (question.reference, REFERENCES),
        "framework": (question.framework.partition("@")[0], loop_names()),
    }
    found = [
        unknown(name, getattr(question, name), allowed)
        for name, (value, allowed) in words.items()
        if value not in allowed
    ]
    if question.offload not in (None, "none"):
        parts = str(question.offload).split("+")
        allowed = ("none", *OFFLOADS)
        found += [unknown("offload", part, allowed) for part in parts if part not in OFFLOADS]
    numbers = [_unusable(question, name, low, int) for name, low in LEAST_WHOLE.items()]
    numbers += [_unusable(question, name, low, float) for name, low in LEAST.items()]
    found += [one for one in numbers if one is not None]
    if as_number(question.filtered, 0.0, 0.95) is None:
        found.append(
            wrong("filtered", question.filtered, "not a usable share", "a share from 0 to 0.95")
        )
    if question.tool_time is not None:
        times = [as_number(part, 0.0, MOST) for part in question.tool_time.split(":")]
        if None in times or len(times) > 2:
            found.append(
                wrong("tool_time", question.tool_time, "is no MEDIAN:P99", "seconds, as in 2:30")
            )
    return [*found, *_pool_problems(question)]


LEAST_WHOLE = {
    "samples": 0,
    **dict.fromkeys(("prompts", "updates", "turns", "steps", "max_osl", "micro_tokens"), 1),
    **dict.fromkeys(("log_prob_mbs", "reference_mbs"), 1),
}
"""Whole numbers, and the least of each."""
LEAST = {"isl": 0.0, "osl": 1.0, "osl_end": 1.0, "staleness": 0.0, "price": 0.0}
"""Other numbers, and the least of each."""
MOST = 1e12
"""No number of a step is above this."""


def _unusable(question: PostTrainingQuestion, name: str, low: float, kind: type) -> Problem | None:
    """The problem of a number that is none of its kind, or too small; None where it can be."""
    value = getattr(question, name)
    kinds = int if kind is int else int | float
    plain = isinstance(value, kinds) and not isinstance(value, bool)
    if value is None or (plain and low <= value <= MOST):
        return None
    what = "a whole number" if kind is int else "a number"
    return wrong(name, value, "not a usable number", f"{what} from {low:g} to {MOST:g}")


def _passes_left_out(question: PostTrainingQuestion, form: AlgorithmForm) -> list[str]:
    """Micro-batches of passes that a step does not have."""
    has = {"log_prob_mbs": form.old or form.reference, "reference_mbs": form.reference}
    return [
        f"{name} has no effect: {form.id} has no such pass here"
        for name, passes in has.items()
        if getattr(question, name) is not None and not passes
    ]


def _pool_problems(question: PostTrainingQuestion) -> list[Problem]:
    """Chips that are missing, or given twice."""
    both = question.trainer_gpus is not None, question.rollout_gpus is not None
    if question.gpus is None and not any(both):
        allowed = "as in 32xH100, or --trainer-gpus and --rollout-gpus"
        return [wrong("gpus", None, "missing", allowed)]
    found = []
    form = find_algorithm(question.algorithm)
    if any(both) and not all(both) and (both[1] or (form is not None and form.generates)):
        path = "rollout_gpus" if both[0] else "trainer_gpus"
        message = "missing: the other pool has chips of its own"
        found.append(wrong(path, None, message, "as in 8xH100, or --gpus for both"))
    if any(both) and question.gpus is not None:
        found.append(wrong("gpus", question.gpus, "is given beside the pools", "one of them"))
    return found
