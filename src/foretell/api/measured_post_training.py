"""Post-training steps conditioned on measured ones: phases of a log -> factors on groups of phases.

A log times generation, log-probabilities, updates and synchronisation apart, so the factors are on these; a
step time alone moves each by its share of the step. The posterior is that of training steps.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.api.conditioning import factor_json
from foretell.api.measured_files import check_plausible, read_measured
from foretell.catalog.error_models import error_model
from foretell.errors import BadInput, Problem, bad_input
from foretell.inputs.question import collect
from foretell.posttraining.evidence import GROUPS, loop_novelty, setup_facts
from foretell.posttraining.step import StepResult, scaled_step, spread_interval
from foretell.records import dataclass
from foretell.specs.corrections import POST_TRAINING
from foretell.specs.measurement import Measurement
from foretell.specs.post_training import Phase
from foretell.specs.questions.post_training import PostTrainingQuestion
from foretell.uncertainty.posterior import MeasuredRun, NextRun, Posterior, condition

STEP, FAR = 0.05, 1.5
"""Half-width of the differences that slopes are taken from, and the largest log-factor."""
JOB = (
    "model", "system", "gpus", "isl", "osl", "engine", "prompts", "samples", "updates",
    "trainer_gpus", "rollout_gpus", "rollout_plan",
)  # fmt: skip
"""What a measured step may tell of its job."""
Printed = Callable[[StepResult], Mapping[str, float]]
"""A step under the names of logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionedLoop:
    """A posterior for post-training steps of one place."""

    posterior: Posterior
    """What is held."""
    notes: tuple[str, ...]
    """What was stated on the way."""

    def after(self, result: StepResult, figures: Printed) -> tuple[StepResult, NextRun]:
        """The step under the factors, and what the posterior says of its time."""
        whole = figure_runs(result, figures)["step"]
        said = self.posterior.of(whole)
        logs = np.clip(said.factors, -FAR, FAR) + said.unexplained
        factors = dict(zip(POST_TRAINING, np.exp(logs).tolist(), strict=True))
        return scaled_step(result, {p: factors[g] for p, g in GROUPS.items()}), said

    def factors(self, said: NextRun) -> dict[str, Any]:
        """Group of phases -> factor and its interval."""
        return {
            name: factor_json(said.factors[i], said.deviations[i])
            for i, name in enumerate(POST_TRAINING)
        }

    def phase(self, one: Phase, said: NextRun) -> Phase:
        """A phase with the interval of its group."""
        wide = 1.645 * float(said.deviations[POST_TRAINING.index(GROUPS[one.name])])
        return replace(one, interval=spread_interval(one.seconds, (-wide, wide)))


def figure_runs(result: StepResult, figures: Printed) -> dict[str, MeasuredRun]:
    """Every figure of a step by its slopes to the groups of phases."""
    base = figures(result)
    slopes: dict[str, list[float]] = {name: [] for name in base}
    for group in POST_TRAINING:
        moved = [name for name in GROUPS if GROUPS[name] == group]
        factors = (math.exp(STEP), math.exp(-STEP))
        sides = [figures(scaled_step(result, dict.fromkeys(moved, one))) for one in factors]
        for name in base:
            up, down = (max(side[name], 1e-12) for side in sides)
            slopes[name].append(math.log(up / down) / (2.0 * STEP))
    setup, work = result.setup, result.setup.work
    numbers = {
        "chips": math.log2(max(setup.gpus, 1)),
        "answer": math.log2(max(work.answers.mean, 1.0)),
        "trajectories": math.log2(max(work.trajectories, 1)),
    }
    facts = setup_facts(setup)
    same = (setup.scenario.model.id, setup.scenario.system.id, setup.gpus, setup.plan_words,
            work.trajectories, round(work.answers.mean, 3))  # fmt: skip
    names = {"model": setup.scenario.model.id, "chip": setup.scenario.system.chip.id}
    return {
        name: MeasuredRun(
            slopes=np.array(told),
            features={**numbers, **names},
            novelty=loop_novelty(facts, name),
            key=(name, *same),
        )
        for name, told in slopes.items()
    }


def condition_loop(
    question: PostTrainingQuestion,
    predict: Callable[[PostTrainingQuestion], StepResult],
    figures: Printed,
) -> ConditionedLoop:
    """What measured steps say; what they leave open is the question's. BadInput with every problem."""
    rows = read_measured(question.measured)
    problems: list[Problem] = []
    runs: list[MeasuredRun] = []
    for number, one in enumerate(rows, start=1):
        said = list[Problem]()
        asked = measured_question(question, one)
        found = collect(lambda one=one, asked=asked: _seen(predict(asked), one, figures), said)  # type: ignore[misc]
        problems += [replace(p, path=f"measured {number}: {p.path}") for p in said]
        runs += found or []
    if problems:
        raise BadInput(problems)
    posterior = condition(error_model("post-training"), POST_TRAINING, runs)
    notes = [f"measured: {one.source}: {note}" for one in rows for note in one.notes]
    return ConditionedLoop(posterior=posterior, notes=tuple(notes))


def measured_question(question: PostTrainingQuestion, one: Measurement) -> PostTrainingQuestion:
    """The question of a measured step."""
    told: dict[str, Any] = {name: one.asked[name] for name in JOB if name in one.asked}
    told |= _chips(question, told)
    many = one.asked.get("trajectories")
    if many and "prompts" not in told:
        told["prompts"] = max(round(many / (told.get("samples") or question.samples or 1)), 1)
    words = [word for word in one.plan.split() if not word.startswith("framework=")]
    told |= {"plan": " ".join(words)} if words else {}
    if question.lengths == "fixed" and "osl" in told:
        told["max_osl"] = max(int(told["osl"]), question.max_osl or 0)
    if question.max_osl is not None and told.get("osl", 0.0) > question.max_osl:
        told["max_osl"] = int(told["osl"])
    return replace(question, **told, measured=(), trace=None, steps=None, osl_end=None)


def _chips(question: PostTrainingQuestion, told: dict[str, Any]) -> dict[str, Any]:
    """The chips of a log, which counts them and does not name them: the question's kind, and its pools."""
    many = told.pop("gpus", None)
    if many is None or question.trainer_gpus is not None:
        return {}
    kind = re.match(r"\d+(x.+)", str(question.gpus or ""))
    return {"gpus": many if isinstance(many, str) or kind is None else f"{many}{kind[1]}"}


def _seen(result: StepResult, one: Measurement, figures: Printed) -> list[MeasuredRun]:
    """Every figure of a measured step beside its prediction: its phases, or the step where none is timed."""
    ours, runs = figures(result), figure_runs(result, figures)
    told: dict[str, float] = dict(one.phases)
    if "step_s" in one.values:
        told["step"] = one.values["step_s"]
    elif "tokens_per_s_per_gpu" in one.values:
        rate = result.setup.work.tokens / result.setup.gpus
        told["step"] = rate / one.values["tokens_per_s_per_gpu"]
    known = {name: value for name, value in told.items() if ours.get(name, 0.0) > 0.0}
    step_s = ours.get("step") or sum(ours.values())  # a phase may be as short as it likes
    few = {name: value if name == "step" else max(value, step_s) for name, value in known.items()}
    check_plausible(one.source, {name: (value, step_s) for name, value in few.items()})
    found = [
        replace(runs[name], log_ratio=math.log(value / ours[name]), noise=one.noise)
        for name, value in known.items()
    ]
    if not found:
        message = "has no step time and no phase that this step has"
        allowed = ", ".join(name for name, value in ours.items() if value > 0.0)
        raise bad_input("phases", dict(told), message, allowed)
    return found
