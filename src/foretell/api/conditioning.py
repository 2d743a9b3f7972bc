"""Predictions conditioned on measured runs: rows of a user -> factors on the mechanisms of a system.

read_measured       files, logs and texts -> Measurements (api/measured_files.py reads files)
measured_steps      each of them as a scenario and a plan of its own, with its step time
condition_steps     all of them -> a posterior of the model of log error
Conditioned.answer  the step of a plan under it: every leaf, total and interval
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from foretell.api.measured_files import check_plausible
from foretell.catalog import model as catalog_model
from foretell.catalog.error_models import error_model
from foretell.errors import BadInput, Infeasible, Problem, bad_input
from foretell.inputs.question import collect, plan_of
from foretell.inputs.system import system_of
from foretell.records import dataclass
from foretell.search.leading import is_equal
from foretell.search.plan_checks import check_plan
from foretell.search.search import SearchResult, search_plans
from foretell.specs.corrections import TRAINING, TRAINING_MEMORY, Corrections
from foretell.specs.measurement import MEASURED_MEMORY, WATCHED, Measurement
from foretell.specs.plan import Plan, batch_of
from foretell.specs.result import Leaf, StepEstimate
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of
from foretell.training.step import evaluate
from foretell.training.variants import peak_slopes
from foretell.uncertainty.evidence import mechanism_of, shares_of, tree_of
from foretell.uncertainty.novelty import features_of, training_novelty
from foretell.uncertainty.posterior import MeasuredRun, NextRun, Posterior, condition

FAR = 1.2
"""Largest log-factor: beyond it a mechanism is another one."""
PHASE_NOISE = 0.1
"""Relative standard deviation of a part of a step: programs draw the line between parts differently."""
CONTRADICTS = 0.5
"""Probability from which a run is stated to contradict the rest."""
OPEN = 0.02
"""Slope from which a mechanism is given."""
RANKED = 12
"""Plans of a search that are ranked by the factors of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measured run as a scenario and a plan, with what was measured in seconds and bytes."""

    scenario: Scenario
    """What was run."""
    plan: Plan
    """How."""
    predicted: StepEstimate
    """What is predicted of it."""
    step_s: float | None
    """Measured time of a step."""
    peak_bytes: float | None
    """Measured peak of memory."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Measured seconds of parts of the step, by the leaves of its breakdown."""
    noise: float = 0.0
    """Relative standard deviation of the time."""
    source: str = ""
    """Where it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionedStep:
    """One step under a posterior."""

    said: NextRun
    """What the posterior says of it."""
    peak: NextRun | None
    """The same of its memory; none where none was measured."""
    corrections: Corrections
    """Factors on every mechanism."""

    def interval(self, step_s: float) -> dict[str, tuple[float, float]]:
        """p50 and p90 around a step time."""
        said = self.said
        return {
            key: (step_s * math.exp(low - said.median), step_s * math.exp(high - said.median))
            for key, (low, high) in said.interval.items()
        }

    def peak_ends(self, peak_bytes: float) -> dict[str, tuple[float, float]]:
        """p50 and p90 around a peak of memory."""
        assert self.peak is not None
        middle = self.peak.median
        return {
            key: (peak_bytes * math.exp(low - middle), peak_bytes * math.exp(high - middle))
            for key, (low, high) in self.peak.interval.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditioned:
    """A posterior for training steps, and what was left aside."""

    steps: Posterior
    """Of step times."""
    memory: Posterior
    """Of peaks of memory."""
    runs: tuple[MeasuredStep, ...]
    """What was measured."""
    notes: tuple[str, ...] = ()
    """Notes on the way."""

    def step(self, before: StepEstimate, *, another: bool = False) -> ConditionedStep:
        """What is held of a predicted step. `another` asks for a step like it and not for itself, whose own
        part may have been measured."""
        scenario, plan = asked_of(before), before.plan
        run = step_run(before)
        said = self.steps.of(replace(run, key=None) if another else run)
        logs = dict(zip(TRAINING, np.clip(said.factors, -FAR, FAR).tolist(), strict=True))
        found = _at_median(before, logs, said.median)
        peak = self.memory.of(_peak_run(scenario, plan)) if self.memory.runs else None
        if peak is not None:
            more = zip(TRAINING_MEMORY, np.clip(peak.factors, -FAR, FAR).tolist(), strict=True)
            found |= {name: math.exp(value) for name, value in more}
        return ConditionedStep(said=said, peak=peak, corrections=Corrections(**found))

    def corrected(self, scenario: Scenario, step: ConditionedStep) -> Scenario:
        """The scenario on a system whose mechanisms take what the posterior says."""
        system = scenario.system.with_corrections(step.corrections)
        return replace(scenario, system=system, assumptions=(*scenario.assumptions, *self.notes))

    def answer(self, scenario: Scenario, plan: Plan, *, chosen: bool) -> StepEstimate:
        """The step of a plan: numbers, tree and intervals are the posterior's."""
        before = answer_of(scenario, plan, chosen=chosen)
        step = self.step(before)
        found = answer_of(self.corrected(scenario, step), plan, chosen=chosen)
        return self.after(before, found, step)

    def after(
        self, before: StepEstimate, found: StepEstimate, step: ConditionedStep
    ) -> StepEstimate:
        """An answer under the factors with the posterior's intervals, and what was stated before."""
        interval = step.interval(found.step_s)
        deviations = dict(zip(TRAINING, step.said.deviations.tolist(), strict=True))
        tree = found.breakdown
        return replace(
            found,
            interval=interval,
            breakdown=None if tree is None else tree_of(tree, deviations, interval),
            peak_interval=None if step.peak is None else step.peak_ends(found.peak_memory_bytes),
            prior=plain_numbers(before),
            posterior_factors=self.factors(step),
        )

    def factors(self, step: ConditionedStep) -> dict[str, Any]:
        """Mechanism -> factor and its interval, of every mechanism that a measured run has."""
        said = step.said
        there = np.max([np.abs(run.slopes) for run in self.steps.runs], axis=0, initial=0.0)
        found = {
            name: factor_json(said.factors[i], said.deviations[i])
            for i, name in enumerate(TRAINING)
            if np.broadcast_to(there, len(TRAINING))[i] > OPEN
        }
        found["unexplained"] = {"factor": math.exp(said.unexplained), "interval": None}
        if step.peak is not None:
            for i, name in enumerate(TRAINING_MEMORY):
                found[name] = factor_json(step.peak.factors[i], step.peak.deviations[i])
        return found


def factor_json(mean: float, deviation: float) -> dict[str, Any]:
    """A log-factor as a factor with its interval."""
    ends = {"p50": 0.674, "p90": 1.645}
    return {
        "factor": math.exp(float(mean)),
        "interval": {
            key: (math.exp(mean - z * deviation), math.exp(mean + z * deviation))
            for key, z in ends.items()
        },
    }


def plain_numbers(found: StepEstimate) -> dict[str, Any]:
    """The numbers of an estimate, without its trees."""
    from foretell.training.answer import estimate_json

    without = ("breakdown", "memory", "memory_by_stage", "assumptions", "overrides", "run")
    return {k: v for k, v in estimate_json(found).items() if k not in without}


def condition_steps(runs: Sequence[MeasuredStep], left_out: str = "") -> Conditioned:
    """The posterior of some measured steps, by the model without the source that is left out."""
    model = error_model("training", left_out)
    timed = [run for run in runs if run.step_s]
    seen = [
        replace(
            step_run(run.predicted),
            log_ratio=math.log((run.step_s or 1.0) / run.predicted.step_s),
            noise=run.noise,
        )
        for run in timed
    ]
    found = condition(model, TRAINING, [*seen, *(one for run in runs for one in phase_runs(run))])
    held = [
        replace(_peak_run(run.scenario, run.plan), log_ratio=math.log(run.peak_bytes / _peak(run)))
        for run in runs
        if run.peak_bytes
    ]
    memory = condition(error_model("memory"), TRAINING_MEMORY, held)
    notes = [
        f"contradicts the other measured runs, and counts for less: {run.source}"
        for run, share in zip(timed, found.outlier_shares, strict=False)
        if share > CONTRADICTS
    ]
    notes += [
        f"has no time and no peak of memory, so that it changes nothing: {run.source}"
        for run in runs
        if not run.step_s and not run.peak_bytes and not run.phases
    ]
    return Conditioned(steps=found, memory=memory, runs=tuple(runs), notes=tuple(notes))


def _at_median(before: StepEstimate, logs: Mapping[str, float], median: float) -> dict[str, float]:
    """Factors by mechanism under which the step takes its median: those of the posterior, and one on all of
    them for what no mechanism explains."""
    scenario = asked_of(before)
    found = {name: math.exp(value) for name, value in logs.items()}
    system = scenario.system.with_corrections(Corrections(**found))
    step_s, _ = evaluate(replace(scenario, system=system), batch_of([before.plan]))
    rest = before.step_s * math.exp(median) / float(step_s[0])
    return {name: value * rest for name, value in found.items()}


def asked_of(before: StepEstimate) -> Scenario:
    """The scenario of an estimate."""
    assert before.scenario is not None
    return before.scenario


def step_run(before: StepEstimate) -> MeasuredRun:
    """A predicted step as the model of log error sees it: its shares, what it is like, what is new."""
    scenario, plan = asked_of(before), before.plan
    assert before.breakdown is not None
    return MeasuredRun(
        slopes=shares_of(before.breakdown),
        features=features_of(scenario, plan),
        novelty=training_novelty(scenario, plan),
        key=run_key(scenario, plan),
    )


def run_key(scenario: Scenario, plan: Plan) -> tuple[object, ...]:
    """What makes two runs one and the same."""
    return (scenario.model.id, scenario.system.id, scenario.job, str(plan))


def phase_runs(run: MeasuredStep) -> list[MeasuredRun]:
    """Measured parts of a step beside their leaves: each tells of its own mechanism alone."""
    if not run.phases:
        return []
    tree = run.predicted.breakdown
    leaves = {} if tree is None else leaf_values(tree)
    whole, found = step_run(run.predicted), []
    for name, seconds in run.phases.items():
        if leaves.get(name, 0.0) > 0.0:
            own = np.zeros(len(TRAINING))
            own[TRAINING.index(mechanism_of(name))] = 1.0
            found.append(
                replace(
                    whole,
                    slopes=own,
                    log_ratio=math.log(seconds / leaves[name]),
                    noise=math.hypot(PHASE_NOISE, run.noise),
                    key=None,
                )
            )
    return found


def leaf_values(tree: Leaf) -> dict[str, float]:
    """Every part of a tree by its name."""
    found = {tree.name: tree.value}
    for child in tree.children:
        found |= leaf_values(child)
    return found


def _peak(run: MeasuredStep) -> float:
    return peak_slopes(run.scenario, run.plan, TRAINING_MEMORY, np.zeros(2))[0]


def _peak_run(scenario: Scenario, plan: Plan) -> MeasuredRun:
    """A step's peak of memory by its slopes."""
    _, slopes = peak_slopes(scenario, plan, TRAINING_MEMORY, np.zeros(len(TRAINING_MEMORY)))
    return MeasuredRun(
        slopes=slopes,
        features=features_of(scenario, plan),
        key=run_key(scenario, plan),
    )


def measured_steps(
    scenario: Scenario, plan: Plan | str | None, given: Sequence[Measurement]
) -> list[MeasuredStep]:
    """Measurements as runs: what they leave open is the question's; BadInput with every problem."""
    problems: list[Problem] = []
    found = []
    for number, one in enumerate(given, start=1):
        said = list[Problem]()
        run = collect(lambda one=one: measured_step(scenario, plan, one), said)  # type: ignore[misc]
        problems += [replace(p, path=f"measured {number}: {p.path}") for p in said]
        found += [] if run is None else [run]
    if problems:
        raise BadInput(problems)
    return found


def measured_step(scenario: Scenario, plan: Plan | str | None, one: Measurement) -> MeasuredStep:
    """One measurement as a run; BadInput where it cannot be understood."""
    asked = one.asked
    if one.post_training:
        message = "is a step of post-training, not of training"
        raise bad_input("phases", None, message, "foretell post-train MODEL --measured FILE")
    job = replace(
        scenario.job,
        **{name: int(asked[name]) for name in ("gpus", "global_batch", "seq_len") if name in asked},
    )
    here = replace(scenario, job=job)
    if "model" in asked:
        here = replace(here, model=catalog_model(asked["model"]))
    if "system" in asked and asked["system"] != scenario.system.id:
        here = replace(here, system=system_of(asked["system"], (), {}))
    words: Plan | str | None = one.plan or plan
    if words is None:
        message = "its plan is not stated"
        allowed = '--plan, or its words before it, as in "tp8 pp4: 15 s" or "zero3 mbs1: run.log"'
        raise bad_input("plan", None, message, allowed)
    here, own = plan_of(here, words)
    try:
        check_plan(here, own)
    except Infeasible as error:  # what was measured did run: it was not told as it was
        raise BadInput(error.problems) from None
    values = one.values
    predicted = answer_of(here, own, chosen=False)
    step_s = step_seconds(values, predicted)
    if step_s is None and not one.phases and not {*MEASURED_MEMORY, *WATCHED} & {*values}:
        message = "has neither a step time, a rate nor a peak of memory"
        raise bad_input("values", dict(values), message)
    _refuse_beyond_peak(one, predicted, step_s)
    peak_bytes = _measured_peak(values, predicted)
    told = {"step_s": (step_s, predicted.step_s), "peak": (peak_bytes, predicted.peak_memory_bytes)}
    told |= {name: (max(s, predicted.step_s), predicted.step_s) for name, s in one.phases.items()}
    check_plausible(one.source, {n: (v, p) for n, (v, p) in told.items() if v})
    return MeasuredStep(
        scenario=here,
        plan=own,
        predicted=predicted,
        step_s=step_s,
        peak_bytes=peak_bytes,
        phases=one.phases,
        noise=one.noise,
        source=one.source,
    )


def _measured_peak(values: Mapping[str, float], predicted: StepEstimate) -> float | None:
    """What a process held: as measured, or what its tensors or its allocator took with the rest as
    predicted."""
    name = next((one for one in MEASURED_MEMORY if one in values), None)
    if name is None:
        return None
    return values[name] + predicted.peak_memory_bytes - float(getattr(predicted, name))


def _refuse_beyond_peak(one: Measurement, predicted: StepEstimate, step_s: float | None) -> None:
    """BadInput where a step is beyond the peak of its chips, attention counted as its mask leaves it."""
    mfu = predicted.mfu_causal * predicted.step_s / step_s if step_s else 0.0
    if mfu <= 1.0:
        return
    run = (
        f"{predicted.plan} on {predicted.gpus} x {predicted.system}, "
        f"global batch {predicted.global_batch} x {predicted.seq_len} tokens"
    )
    message = (
        f"faster than the chips' peak allows: a step of {step_s:.4g} s is an MFU of {mfu:.0%} ({run}); "
        "likely it is of another batch, sequence length, number of GPUs or precision, or of one micro-batch"
    )
    allowed = f"a step of {mfu * (step_s or 0.0):.4g} s or more"
    raise bad_input("step_s", one.source, message, allowed)


def step_seconds(values: Mapping[str, float], predicted: StepEstimate) -> float | None:
    """Time of a step from what was measured of it; rates by the tokens and FLOP that we count."""
    if "step_s" in values:
        return values["step_s"]
    for name in ("tokens_per_s_per_gpu", "tokens_per_s", "mfu", "tflops_per_gpu"):
        if name in values:
            return predicted.step_s * float(getattr(predicted, name)) / values[name]
    if "samples_per_s" in values:
        return predicted.global_batch / values["samples_per_s"]
    return None


def search_given(
    known: Conditioned, scenario: Scenario, base: Plan, top: int, **how: Any
) -> SearchResult:
    """The best plans given what was measured; `how` as of `search_plans`.

    What is common to runs that are alike is taken as of the first measured run and searched with; the best of
    these are answered with the factors of their own, those that clearly fit first and the fastest of them
    first.
    """
    step = known.step(known.runs[0].predicted, another=True)
    said = (*scenario.assumptions, *known.notes)
    there = replace(
        scenario, system=scenario.system.with_corrections(step.corrections), assumptions=said
    )
    found = search_plans(there, base, max(top, RANKED), **how)
    own = [
        replace(
            known.answer(scenario, one.plan, chosen=one.plan_chosen), assumptions=one.assumptions
        )
        for one in found.plans
    ]
    ranked = sorted(own, key=_order)[:top]
    equal = tuple(is_equal(ranked[0], one) for one in ranked)
    return replace(found, plans=tuple(ranked), equal=equal)


def _order(found: StepEstimate) -> tuple[bool, float]:
    """The place of a plan among others: those that clearly fit, then by their time."""
    return found.fits != "yes", found.step_s
