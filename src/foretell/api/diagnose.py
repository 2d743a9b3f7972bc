"""What is wrong with a run: likely causes of the gap to its prediction, and what to measure next."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foretell.api.conditioning import (
    FAR,
    RANKED,
    Conditioned,
    MeasuredStep,
    condition_steps,
    leaf_values,
    measured_steps,
    search_given,
    step_run,
)
from foretell.api.measured_files import read_measured
from foretell.api.post_training_diagnosis import LoopsDiagnosis, diagnose_loops, is_loop
from foretell.api.run_causes import Cause, PhaseGap, likely_causes, part_causes, part_gaps
from foretell.api.service_diagnosis import ServicesDiagnosis, diagnose_services, is_service
from foretell.catalog import model as catalog_model
from foretell.catalog.prices import chip_named
from foretell.errors import BadInput, Infeasible, bad_input
from foretell.inputs.question import as_texts, plan_of, scenario_for
from foretell.interop.step_series import series_findings
from foretell.records import Answer, as_json, dataclass
from foretell.specs.corrections import TRAINING, Corrections
from foretell.specs.measurement import PART_NAMES, Measurement
from foretell.specs.model import Model
from foretell.specs.plan import Plan, batch_of
from foretell.specs.questions.diagnose import DiagnoseQuestion
from foretell.specs.questions.flags import asks
from foretell.specs.questions.training import StepQuestion
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of
from foretell.training.step import evaluate
from foretell.uncertainty.posterior import condition
from foretell.uncertainty.words import REST, SHARED

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
LITTLE = 0.02
"""Share of the step below which nothing of a part stands out."""
DRAWS_LESS = -0.25
"""Gap of a chip's power below which it is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFigure:
    """Memory or power of a chip beside its prediction."""

    metric: str
    """peak_memory_bytes, reserved_bytes, allocated_bytes, memory_used_bytes or power_watts."""
    measured: float
    """In the unit of its name."""
    predicted: float
    """What is predicted of it."""
    gap: float
    """measured / predicted - 1."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDiagnosis:
    """One run beside its prediction."""

    source: str
    """Where it was read."""
    plan: str
    """Its plan."""
    measured_s: float | None
    """Measured time of a step; None where only power or memory was watched."""
    predicted_s: float
    """Predicted before anything was measured."""
    interval: dict[str, tuple[float, float]] | None
    """The prediction's p50 and p90."""
    gap: float | None
    """measured / predicted - 1."""
    causes: tuple[Cause, ...]
    """The likeliest first: the timed parts that take longer, where the log times parts, else mechanisms."""
    not_told_apart: tuple[tuple[str, str], ...]
    """Pairs of causes that this measurement cannot tell apart."""
    phases: tuple[PhaseGap, ...]
    """Timed parts of the step beside the same parts of the prediction, the longest first."""
    watched: tuple[WatchedFigure, ...]
    """Memory and power of a chip beside the prediction's."""
    said: tuple[str, ...]
    """What stands out of parts, memory and power, a sentence each."""
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
        raise bad_input("runs", None, message, allowed)
    rows = read_measured(given)
    question = from_logs(question, rows)
    if rows and all(is_loop(row) for row in rows):
        return diagnose_loops(question, rows)
    if rows and all(is_service(row) for row in rows):
        return diagnose_services(question, rows)
    names = ("system", "gpus", "global_batch", "seq_len", "target_len", "set", "plan")
    assert question.model is not None
    step = StepQuestion(question.model, **{name: getattr(question, name) for name in names})
    scenario = scenario_for(step)
    if question.global_batch is None:
        rows = [with_batch(row, scenario) for row in rows]
    runs = measured_steps(scenario, question.plan, rows)
    known = condition_steps(runs)
    both = list(zip(rows, runs, strict=True))
    timed = [(row, run) for row, run in both if run.step_s]
    found = [_diagnosis(known, i, row, run) for i, (row, run) in enumerate(timed)]
    found += [_diagnosis(known, None, row, run) for row, run in both if not run.step_s]
    best, following = _next(known, timed[0][1], as_texts(question.set)) if timed else (None, None)
    notes = [f"{row.source}: {note}" for row in rows for note in row.notes]
    return RunsDiagnosis(
        model=scenario.model.id,
        system=scenario.system.id,
        runs=tuple(found),
        best_plan=None if best is None else str(best[0]),
        best_step_s=None if best is None else best[1],
        next=following,
        notes=(*(known.notes if timed else ()), *notes),
    )


def _model_named(name: str) -> Model:
    """The catalogue's model of a name in a log, or of the folder that it names; no file is opened."""
    for text in (name, name.rstrip("/").rpartition("/")[2]):
        try:
            return catalog_model(text, files=False)
        except BadInput:
            continue
    message, allowed = f"the log names {name}, which is not known here", "--model ID|PATH"
    raise bad_input("model", name, message, allowed)


def with_batch(row: Measurement, scenario: Scenario) -> Measurement:
    """A run whose log prints the tokens of a step with the sequences that these are."""
    job = scenario.job
    tokens = row.stated.get("step_tokens")
    if tokens is None and "gpu_step_tokens" in row.stated:
        tokens = row.stated["gpu_step_tokens"] * float(row.asked.get("gpus", job.gpus))
    if tokens is None or "global_batch" in row.asked:
        return row
    batch = max(round(tokens / float(row.asked.get("seq_len", job.seq_len))), 1)
    note = f"global batch {batch}: {tokens:,.0f} tokens of a step, by its rate"
    return replace(row, asked={**row.asked, "global_batch": batch}, notes=(*row.notes, note))


def from_logs(question: DiagnoseQuestion, rows: Sequence[Measurement]) -> DiagnoseQuestion:
    """The question with what the logs state where it leaves it open: model, system, chips."""
    stated: dict[str, Any] = {}
    for row in rows:
        stated = {
            **row.stated,
            **({"gpus": row.asked["gpus"]} if "gpus" in row.asked else {}),
            **stated,
        }
    model = question.model
    if model is None and isinstance(named := stated.get("model"), str):
        model = _model_named(named)
    elif model is None:
        model = stated.get("model")
    if model is None:
        message, allowed = "missing: the measured runs do not name one", "--model ID|PATH"
        raise bad_input("model", None, message, allowed)
    gpus = question.gpus if question.gpus is not None else stated.get("gpus")
    by_gpus = isinstance(gpus, str) and not gpus.isdigit()
    chip = chip_named(stated["system"]) if "system" in stated else None
    system = question.system or (None if by_gpus else chip)
    return replace(question, model=model, gpus=gpus, system=system)


def _diagnosis(
    known: Conditioned, place: int | None, row: Measurement, run: MeasuredStep
) -> RunDiagnosis:
    """One run: its gap, and the causes; `place` is that of its time among the posterior's runs."""
    before = answer_of(run.scenario, run.plan, chosen=False)
    measured = run.step_s
    gaps = part_gaps(row.phases, leaf_values(before.breakdown) if before.breakdown else {})
    causes: tuple[Cause, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    if measured and gaps:
        low, high = (before.interval or {}).get("p90", (measured, measured))
        causes = part_causes(gaps, measured, math.log(high / low) / 3.29)
    elif place is not None:
        causes, pairs = likely_causes(
            known.steps, place, CHECKS, FAR, lambda name, factor: _gain(run, name, factor)
        )
    watched = _watched(row, before)
    return RunDiagnosis(
        source=run.source,
        plan=str(run.plan),
        measured_s=measured,
        predicted_s=before.step_s,
        interval=before.interval,
        gap=measured / before.step_s - 1.0 if measured else None,
        causes=causes,
        not_told_apart=pairs,
        phases=gaps,
        watched=watched,
        said=tuple(_said(gaps, watched, row, measured)),
        over_time=series_findings(_seconds(row, measured))
        if measured and len(row.steps_s) > 2
        else None,
    )


def _watched(row: Measurement, before: StepEstimate) -> tuple[WatchedFigure, ...]:
    """Memory and power that were measured, beside the prediction's."""
    joules = before.energy_joules or 0.0
    predicted = {
        "peak_memory_bytes": before.peak_memory_bytes,
        "reserved_bytes": before.reserved_bytes,
        "allocated_bytes": before.allocated_bytes,
        "memory_used_bytes": before.peak_memory_bytes,
        "power_watts": joules / before.step_s / before.gpus,
    }
    return tuple(
        WatchedFigure(
            metric=name,
            measured=row.values[name],
            predicted=value,
            gap=row.values[name] / value - 1.0,
        )
        for name, value in predicted.items()
        if name in row.values and value > 0.0
    )


def _said(
    gaps: Sequence[PhaseGap],
    watched: Sequence[WatchedFigure],
    row: Measurement,
    step_s: float | None,
) -> Iterator[str]:
    """What stands out of the timed parts and of what was watched."""
    late = [
        one
        for one in gaps
        if one.verdict == "slower" and one.measured_s - one.predicted_s > LITTLE * (step_s or 0.0)
    ]
    if late and step_s:
        worst = max(late, key=lambda one: one.measured_s - one.predicted_s)
        more = worst.measured_s - worst.predicted_s
        yield (
            f"{PART_NAMES[worst.phase]}: {worst.ratio:.1f} x what is predicted, {more:,.3g} s more of a "
            f"step of {step_s:,.4g} s"
        )
    elif gaps:
        yield "no timed part takes much longer than predicted"
    for one in watched:
        if one.metric == "power_watts" and one.gap < DRAWS_LESS:
            yield (
                f"the chips draw {-one.gap:.0%} less power than predicted: they wait for the host, data or "
                "the network, or their clocks are capped"
            )
    if "idle_watts" in row.values and not row.values.get("step_s"):
        yield f"the chips were idle ({row.values['idle_watts']:.0f} W): watch them while the job runs"


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
    base = replace(base, framework=run.plan.framework, precision=run.plan.precision)
    try:
        plans = search_given(known, scenario, base, RANKED).plans
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
