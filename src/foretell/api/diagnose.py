"""What is wrong with a run: likely causes of the gap to its prediction, and what to measure next."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foretell.api.conditioning import (
    FAR,
    Conditioned,
    MeasuredStep,
    condition_steps,
    measured_steps,
    place_of_search,
    step_run,
)
from foretell.api.measured_files import read_measured
from foretell.api.post_training_diagnosis import LoopsDiagnosis, diagnose_loops, is_loop
from foretell.api.run_causes import Cause, likely_causes
from foretell.api.service_diagnosis import ServicesDiagnosis, diagnose_services, is_service
from foretell.errors import BadInput, Infeasible, Problem
from foretell.inputs.question import as_texts, plan_of, scenario_for
from foretell.interop.step_series import series_findings
from foretell.records import Answer, as_json, dataclass
from foretell.search.search import search_plans
from foretell.specs.corrections import TRAINING, Corrections
from foretell.specs.measurement import Measurement
from foretell.specs.plan import Plan, batch_of
from foretell.specs.questions.diagnose import DiagnoseQuestion
from foretell.specs.questions.flags import asks
from foretell.specs.questions.training import StepQuestion
from foretell.training.answer import answer_of
from foretell.training.step import evaluate
from foretell.uncertainty.causes import REST, SHARED
from foretell.uncertainty.posterior import condition

CHECKS: Mapping[str, str] = {
    "gemm": "precision and shapes (multiples of 64), cuBLAS version, clocks (nvidia-smi -q -d CLOCK)",
    "experts": "grouped GEMM kernels, balance of tokens between experts",
    "attention": "which attention kernel runs (FlashAttention 3 or cuDNN), head size, packed sequences",
    "memory_bound": "fused norms, rotary and loss kernels, torch.compile, dtype of gradients",
    "tensor_parallel": "NVLink state, NCCL_ALGO, NVLS, --tp-comm-overlap, whether tp stays inside a node",
    "context_parallel": "ring order, overlap with attention, links between its ranks",
    "expert_parallel": "DeepEP or NCCL all-to-all, NVSHMEM and IB settings, tokens dropped or not",
    "pipeline_parallel": "uneven stages, NCCL_IB settings between stages, micro-batches per step",
    "data_parallel": "overlap (--overlap-grad-reduce, --overlap-param-gather), GPUDirect RDMA, NCCL_IB_HCA",
    "host": "CUDA graphs, garbage collection, data loading, CPU clocks and binding",
    "fixed": "logging, loss reduction and data loading every step",
    SHARED: "power cap, clocks, stragglers, another precision than stated",
    REST: "a setting that is not stated, or an odd measurement: measure again",
}
"""Mechanism -> what to look at."""
TRIED = 12
"""Plans that are looked at for the next measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDiagnosis:
    """One run beside its prediction."""

    source: str
    """Where it was read."""
    plan: str
    """Its plan."""
    measured_s: float
    """Measured time of a step."""
    predicted_s: float
    """Predicted before anything was measured."""
    interval: dict[str, tuple[float, float]] | None
    """The prediction's p50 and p90."""
    gap: float
    """measured / predicted - 1."""
    causes: tuple[Cause, ...]
    """The likeliest first."""
    not_told_apart: tuple[tuple[str, str], ...]
    """Pairs of causes that this measurement cannot tell apart."""
    over_time: dict[str, Any] | None
    """What the steps of a log show; None without a log."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class NextMeasurement:
    """The plan whose measurement would say most."""

    plan: str
    """The plan."""
    step_s: float
    """What it is predicted to take."""
    about: str
    """The plan whose prediction it would sharpen."""
    narrower: float
    """By which share the interval of that prediction would shrink."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsDiagnosis(Answer):
    """What is wrong with some runs, and what to measure next."""

    verb = "diagnose"

    model: str
    """Model id."""
    system: str
    """System id."""
    runs: tuple[RunDiagnosis, ...]
    """Each run."""
    best_plan: str | None
    """The best plan given what was measured; None where none was found."""
    best_step_s: float | None
    """Its step time."""
    next: NextMeasurement | None
    """What to measure next."""
    notes: tuple[str, ...]
    """Notes on the way."""

    to_dict = as_json()


@asks(DiagnoseQuestion)
def diagnose(question: DiagnoseQuestion) -> RunsDiagnosis | LoopsDiagnosis | ServicesDiagnosis:
    """Measured runs beside their predictions: likely causes, what fixing them gains, what to measure next.

    Logs of reinforcement learning are laid beside their predictions phase by phase, benchmarks of a service
    latency by latency.
    """
    one = question.runs
    given = [one] if isinstance(one, str | Path) else list(one)
    if not given:
        message, allowed = "missing", "a log, a table, or a text such as 'tp8 pp4: 15.2 s'"
        raise BadInput([Problem(path="runs", value=None, message=message, allowed=allowed)])
    names = ("system", "gpus", "global_batch", "seq_len", "target_len", "set", "plan")
    step = StepQuestion(question.model, **{name: getattr(question, name) for name in names})
    rows = read_measured(given)
    if rows and all(is_loop(row) for row in rows):
        return diagnose_loops(question, rows)
    if rows and all(is_service(row) for row in rows):
        return diagnose_services(question, rows)
    if step.gpus is None and (
        chips := next((r.asked["gpus"] for r in rows if "gpus" in r.asked), 0)
    ):
        step = replace(step, gpus=chips)
    scenario = scenario_for(step)
    runs = measured_steps(scenario, question.plan, rows)
    known = condition_steps(runs)
    timed = [(row, run) for row, run in zip(rows, runs, strict=True) if run.step_s]
    if not timed:
        message = "has no step time: it cannot be diagnosed"
        raise BadInput([Problem(path="runs", value=None, message=message)])
    found = tuple(_diagnosis(known, i, row, run) for i, (row, run) in enumerate(timed))
    best, following = _next(known, timed[0][1], as_texts(question.set))
    notes = [f"{row.source}: {note}" for row in rows for note in row.notes]
    return RunsDiagnosis(
        model=scenario.model.id,
        system=scenario.system.id,
        runs=found,
        best_plan=None if best is None else str(best[0]),
        best_step_s=None if best is None else best[1],
        next=following,
        notes=(*known.notes, *notes),
    )


def _diagnosis(known: Conditioned, place: int, row: Measurement, run: MeasuredStep) -> RunDiagnosis:
    """One run: its gap, and the causes."""
    before = answer_of(run.scenario, run.plan, chosen=False)
    measured = run.step_s or 0.0
    causes, pairs = likely_causes(
        known.steps, place, CHECKS, FAR, lambda name, factor: _gain(run, name, factor)
    )
    return RunDiagnosis(
        source=run.source,
        plan=str(run.plan),
        measured_s=measured,
        predicted_s=before.step_s,
        interval=before.interval,
        gap=measured / before.step_s - 1.0,
        causes=causes,
        not_told_apart=pairs,
        over_time=series_findings(_seconds(row, measured)) if len(row.steps_s) > 2 else None,
    )


def _seconds(row: Measurement, step_s: float) -> list[float]:
    """The steps of a log in seconds, also where it prints rates alone."""
    scale = 1.0 if "step_s" in row.values else step_s / float(np.median(row.steps_s))
    return [scale * value for value in row.steps_s]


def _gain(run: MeasuredStep, mechanism: str, factor: float) -> float:
    """Share of the step that is won where a mechanism takes what is predicted and not `factor` times that."""
    if mechanism in (SHARED, REST):
        return max(1.0 - 1.0 / factor, 0.0)

    def step_s(known: Corrections) -> float:
        system = run.scenario.system.with_corrections(known)
        found, _ = evaluate(replace(run.scenario, system=system), batch_of([run.plan]))
        return float(found[0])

    slow = Corrections(**{mechanism: max(factor, 1.0)})
    return 1.0 - step_s(Corrections()) / step_s(slow)


def _next(
    known: Conditioned, run: MeasuredStep, settings: Sequence[str]
) -> tuple[tuple[Plan, float] | None, NextMeasurement | None]:
    """The best plan given what was measured, and the plan that would say most of it."""
    scenario, base = plan_of(run.scenario, None, settings, searched=True)
    place = place_of_search(known, scenario)
    base = replace(base, framework=run.plan.framework, precision=run.plan.precision)
    try:
        plans = place.ranked(search_plans(place.scenario, base, top=TRIED).plans)
    except (Infeasible, BadInput):
        return None, None
    if not plans:
        return None, None
    best = plans[0]
    target = step_run(answer_of(scenario, best.plan, chosen=True))
    now = _width(known, target)
    scores = []
    for one in plans:
        if one.plan == run.plan:
            continue
        candidate = step_run(answer_of(scenario, one.plan, chosen=True))
        expected = replace(candidate, log_ratio=known.steps.of(candidate).median)
        after = condition(known.steps.model, TRAINING, [*known.steps.runs, expected])
        scores.append((1.0 - _width(replace(known, steps=after), target) / now, one))
    if not scores:
        return (best.plan, best.step_s), None
    narrower, chosen = max(scores, key=lambda pair: pair[0])
    return (best.plan, best.step_s), NextMeasurement(
        plan=str(chosen.plan),
        step_s=chosen.step_s,
        about=str(best.plan),
        narrower=narrower,
    )


def _width(known: Conditioned, target: Any) -> float:
    low, high = known.steps.of(target).interval["p90"]
    return high - low
