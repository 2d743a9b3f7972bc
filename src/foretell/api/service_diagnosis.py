"""What is wrong with a service: its latencies beside their predictions, likely causes, what to measure next.

A benchmark (`vllm bench serve`, SGLang's `bench_serving`, a row, or a text such as "c64 tp4: ttft 310 ms,
tpot 18 ms") tells a layout, a load and latencies; what it leaves open is as in the question. All figures
condition one posterior, so that the TPOT says what the TTFT alone cannot.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from foretell.api.measured_serving import (
    FAR,
    SCALED,
    ConditionedService,
    condition_service,
    figure_of,
    run_of,
)
from foretell.api.run_causes import Cause, likely_causes
from foretell.api.serving import closed_form
from foretell.api.serving_questions import question_of
from foretell.errors import BadInput, Infeasible, wrong
from foretell.records import Answer, as_json, dataclass
from foretell.serving.corrections import served_slopes
from foretell.serving.serve import ServeQuestion, serve_one
from foretell.specs.corrections import SERVING, Corrections
from foretell.specs.deployment_text import deployment_text
from foretell.specs.measurement import DECODED, HELD, SERVED, TRAINED, Measurement
from foretell.specs.questions.diagnose import DiagnoseQuestion
from foretell.specs.questions.serving import ServiceQuestion
from foretell.specs.service import ServiceEstimate
from foretell.uncertainty.intervals import of_served
from foretell.uncertainty.posterior import MeasuredRun, Posterior, condition
from foretell.uncertainty.words import REST, SHARED

CHECKS: Mapping[str, str] = {
    "prefill": "chunked prefill and its token budget, prefix caching, attention backend, quantised GEMMs",
    "decode_weights": "weight format really loaded, fused experts, quantised GEMM kernels, tp inside a node",
    "decode_cache": "attention backend (FlashInfer, FlashAttention 3, MLA kernels), cache dtype, page size",
    "step_overhead": "CUDA graphs (enforce_eager off), async scheduling, detokeniser and API server's CPUs",
    "queueing": "clients that start together, router or proxy, max_num_seqs, transfer of caches",
    "cache_capacity": "gpu_memory_utilization, cache dtype, preemptions in the engine's log, max_model_len",
    SHARED: "power cap, clocks, another model, format or number of chips than stated",
    REST: "lengths or a load that are not stated, warm-up in the figures: measure again",
}
"""Mechanism -> what to look at."""
WAITING = {
    **CHECKS,
    REST: "waiting outside the engine: clients that start together, router, tokeniser; or lengths not stated",
}
"""The same of a first token."""
LOADS = ((0.0, 1.0), (0.25, 1.0), (4.0, 1.0), (0.0, 0.125), (1.0, 0.125), (1.0, 4.0))
"""Loads that are looked at for the next measurement: requests at a time (0: one) and tokens of a prompt, over
those of the measured service."""
LEAST_PROMPT = 64.0
"""Tokens of the shortest prompt that is proposed."""
AS_HELD = 0.1
"""Share by which what an engine holds may differ from its prediction without a cause."""
HELD_CHECKS: Mapping[str, str] = {
    "kv_cache_tokens": "gpu_memory_utilization (mem_fraction_static), cache dtype, tp, other processes on "
    "the chips, layers with a window or without attention",
    "kv_bytes": "gpu_memory_utilization (mem_fraction_static), CUDA graphs, tokens of the profiling run",
    "weight_bytes": "weight format really loaded, tp, a draft or vision model beside it",
}
"""Figure of an engine's memory -> what to look at."""
LARGER_IS_BETTER = ("output_tokens_per_s", "output_tokens_per_s_per_gpu", "requests_per_s")
ZERO = np.zeros(len(SERVING))


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureDiagnosis:
    """One figure of a measured service beside its prediction."""

    source: str
    """Where it was read."""
    plan: str
    """Layout of an instance."""
    profile: str
    """Engine profile of the prediction."""
    concurrency: float | None
    """Requests at a time; None under a rate."""
    rate: float | None
    """Requests a second; None under a fixed concurrency."""
    isl: float
    """Tokens of a prompt."""
    osl: float
    """Tokens of an answer."""
    metric: str
    """What was measured."""
    measured: float
    """Its value, in the unit of its name."""
    predicted: float
    """Predicted before anything was measured."""
    interval: dict[str, tuple[float, float]] | None
    """The prediction's p50 and p90."""
    gap: float
    """measured / predicted - 1."""
    causes: tuple[Cause, ...]
    """The likeliest first."""
    not_told_apart: tuple[tuple[str, str], ...]
    """Pairs of causes that this measurement cannot tell apart."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class NextBenchmark:
    """The benchmark that would say most of the causes."""

    plan: str
    """Layout of an instance."""
    concurrency: float
    """Requests at a time."""
    isl: float
    """Tokens of a prompt."""
    osl: float
    """Tokens of an answer."""
    ttft_ms: float
    """What it is predicted to give, what was measured taken in."""
    tpot_ms: float
    """The same of its time per output token."""
    about: str
    """Whose causes it would tell apart."""
    narrower: float
    """By which share the doubt about what each mechanism takes there would shrink."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesDiagnosis(Answer):
    """What is wrong with some services, and what to measure next."""

    verb = "diagnose"

    model: str
    """Model id."""
    system: str
    """System id."""
    runs: tuple[FigureDiagnosis, ...]
    """Each figure of each measured service."""
    best_plan: str | None
    """The best layout for the first one's load given what was measured; None where none was found."""
    best_ttft_ms: float | None
    """Its TTFT."""
    best_tpot_ms: float | None
    """Its TPOT."""
    next: NextBenchmark | None
    """What to measure next."""
    notes: tuple[str, ...]
    """Notes on the way."""

    to_dict = as_json()


def is_service(row: Measurement) -> bool:
    """Whether a measured row is of a service."""
    return any(name in row.values for name in (*SERVED, *HELD)) and not any(
        name in row.values for name in TRAINED
    )


def diagnose_services(question: DiagnoseQuestion, rows: Sequence[Measurement]) -> ServicesDiagnosis:
    """Every figure of every measured service beside its prediction."""
    _refuse_training(question)
    rows = [_with_tpot(row) for row in rows]
    asked = service_question(question, rows[0])
    loaded = [row for row in rows if any(name in row.values for name in SERVED)]
    known, first = condition_service(asked, loaded) if loaded else (None, question_of(asked)[0])
    found = (
        [] if known is None else [f for i, r in enumerate(loaded) for f in _figures(known, i, r)]
    )
    found += [one for row in rows for one in _held(asked, row)]
    best = None if known is None else _best(known, asked)
    told = [
        f"{row.source}: {name} is not stated: {getattr(asked, name):g} tokens"
        for row in loaded
        for name in ("isl", "osl")
        if name not in row.asked
    ]
    told += [f"{row.source}: {note}" for row in rows if row not in loaded for note in row.notes]
    return ServicesDiagnosis(
        model=first.model.id,
        system=first.system.id,
        runs=tuple(found),
        best_plan=None if best is None else best.plan,
        best_ttft_ms=None if best is None else best.ttft_ms.mean,
        best_tpot_ms=None if best is None else best.tpot_ms.mean,
        next=None if known is None else next_benchmark(known, loaded[0].source),
        notes=(*(() if known is None else known.notes), *told),
    )


def _with_tpot(row: Measurement) -> Measurement:
    """An engine's own log with the time of its decode step as TPOT, where that is all it says of latency."""
    if DECODED not in row.values or any(
        f"{name}_ms" in row.values for name in ("ttft", "tpot", "e2e")
    ):
        return row
    values = {name: value for name, value in row.values.items() if name not in SERVED}
    return replace(row, values={**values, "tpot_ms": 1e3 * row.values[DECODED]})


def _held(asked: ServiceQuestion, row: Measurement) -> Iterator[FigureDiagnosis]:
    """What an engine holds once it is up, beside what is predicted of its memory."""
    if not any(name in row.values for name in HELD):
        return
    q, given = question_of(asked)
    before = closed_form(q, given)
    predicted = {
        "kv_cache_tokens": before.kv_cache_tokens,
        "kv_bytes": before.kv_bytes,
        "weight_bytes": before.weight_bytes,
    }
    for name in HELD:
        if name in row.values and predicted[name] > 0.0:
            gap = row.values[name] / predicted[name] - 1.0
            yield FigureDiagnosis(
                source=row.source,
                plan=before.plan,
                profile=q.profile.id,
                concurrency=None,
                rate=None,
                isl=float(np.asarray(q.traffic.isl)),
                osl=float(np.asarray(q.traffic.osl)),
                metric=name,
                measured=row.values[name],
                predicted=predicted[name],
                interval=None,
                gap=gap,
                causes=(_memory_cause(name, gap),) if abs(gap) > AS_HELD else (),
                not_told_apart=(),
            )


def _memory_cause(name: str, gap: float) -> Cause:
    """Why an engine holds another amount than predicted: one mechanism for each figure."""
    factor = 1.0 + gap
    return Cause(
        mechanism="cache_capacity" if name != "weight_bytes" else "decode_weights",
        probability=1.0,
        factor=factor,
        interval={"p50": (factor, factor), "p90": (factor, factor)},
        gain=0.0,
        check=HELD_CHECKS[name],
    )


def _refuse_training(question: DiagnoseQuestion) -> None:
    """BadInput for flags that are of training."""
    problems = [
        wrong(name, value, "has no effect on a service", allowed)
        for name, allowed in (
            ("global_batch", 'a concurrency, as in "c64 tp4: ttft 310 ms"'),
            ("seq_len", 'lengths, as in "c64 isl=1024 osl=256 tp4: ttft 310 ms"'),
            ("target_len", 'lengths, as in "c64 isl=1024 osl=256 tp4: ttft 310 ms"'),
        )
        if (value := getattr(question, name)) is not None
    ]
    if problems:
        raise BadInput(problems)


def service_question(question: DiagnoseQuestion, row: Measurement) -> ServiceQuestion:
    """The service of a benchmark: what it tells, and what was given beside it."""
    told = {n: row.asked[n] for n in ("isl", "osl", "concurrency", "rate") if n in row.asked}
    gpus = question.gpus if question.gpus is not None else row.asked.get("gpus")
    assert question.model is not None
    degrees = [int(n) for n in re.findall(r"\b(?:tp|pp|dp)([0-9]{1,6})\b", row.plan)]
    return ServiceQuestion(
        question.model,
        system=question.system or (None if gpus and "x" in str(gpus) else row.asked.get("system")),
        gpus=gpus if gpus is not None or not degrees else math.prod(degrees),
        plan=question.plan if isinstance(question.plan, str) else (row.plan or None),
        engine=row.asked.get("engine"),
        set=question.set,
        **told,
    )


def _figures(known: ConditionedService, number: int, row: Measurement) -> Iterator[FigureDiagnosis]:
    """The figures of one measured service."""
    q = known.questions[number]
    before, slopes = serve_one(q), served_slopes(q, ZERO)
    at_once = None if q.rate is not None else float(np.asarray(q.traffic.concurrency))
    ends = of_served(before)
    for place, name in known.places(number):
        key = SCALED.get(name, name)
        sign = -1.0 if name in LARGER_IS_BETTER else 1.0

        def gain(mechanism: str, factor: float, key: str = key, sign: float = sign) -> float:
            if mechanism in (SHARED, REST):
                return float(max(1.0 - factor ** (-sign), 0.0))
            there = replace(q, system=q.system.with_corrections(Corrections(**{mechanism: factor})))
            slow = served_slopes(there, ZERO)[key][0]
            return float(max(1.0 - (slopes[key][0] / slow) ** sign, 0.0))

        causes, pairs = likely_causes(
            known.posterior, place, WAITING if name == "ttft_ms" else CHECKS, FAR, gain
        )
        predicted, measured = figure_of(slopes, q, name), row.values[name]
        yield FigureDiagnosis(
            source=row.source,
            plan=deployment_text(q.deployment),
            profile=q.profile.id,
            concurrency=at_once,
            rate=q.rate,
            isl=float(np.asarray(q.traffic.isl)),
            osl=float(np.asarray(q.traffic.osl)),
            metric=name,
            measured=measured,
            predicted=predicted,
            interval=ends.get(name),
            gap=measured / predicted - 1.0,
            causes=causes,
            not_told_apart=pairs,
        )


def _best(known: ConditionedService, asked: ServiceQuestion) -> ServiceEstimate | None:
    """The best layout of the same chips for the same load."""
    try:
        q, _ = question_of(replace(asked, plan=None))
        return known.served(q, given=False)
    except (Infeasible, BadInput):
        return None


def next_benchmark(known: ConditionedService, source: str) -> NextBenchmark | None:
    """The load whose measurement would say most of what each mechanism takes in the first service."""
    q = known.questions[0]
    asked = [run_of(q, name, s) for name, (_, s) in served_slopes(q, ZERO).items()][:2]
    now, scores = _doubt(known.posterior, asked), []
    for one in _loads(q):
        try:
            serve_one(one)
        except Infeasible:
            continue
        figures = served_slopes(one, ZERO)
        runs = [run_of(one, name, s) for name, (_, s) in figures.items()][:2]
        said = [known.posterior.of(run) for run in runs]
        seen = [replace(run, log_ratio=next_.median) for run, next_ in zip(runs, said, strict=True)]
        after = condition(known.posterior.model, SERVING, [*known.posterior.runs, *seen])
        values = [figures[n][0] * np.exp(s.median) for n, s in zip(figures, said, strict=False)]
        scores.append((1.0 - _doubt(after, asked) / now, one, values))
    if not scores:
        return None
    narrower, one, (ttft_ms, tpot_ms) = max(scores, key=lambda score: score[0])
    return NextBenchmark(
        plan=deployment_text(one.deployment),
        concurrency=float(np.asarray(one.traffic.concurrency)),
        isl=float(np.asarray(one.traffic.isl)),
        osl=float(np.asarray(one.traffic.osl)),
        ttft_ms=float(ttft_ms),
        tpot_ms=float(tpot_ms),
        about=source,
        narrower=narrower,
    )


def _loads(q: ServeQuestion) -> Iterator[ServeQuestion]:
    """Loads of the same service that could be measured."""
    prompt, flight = (float(np.asarray(v)) for v in (q.traffic.isl, q.traffic.concurrency))
    for many, longer in LOADS:
        at_once = max(round(many * flight), q.replicas)
        isl = max(float(round(longer * prompt)), LEAST_PROMPT)
        if (at_once, isl) != (flight, prompt):
            yield replace(q, rate=None, traffic=replace(q.traffic, concurrency=at_once, isl=isl))


def _doubt(posterior: Posterior, asked: Sequence[MeasuredRun]) -> float:
    """Standard deviation of what the mechanisms take of some figures."""
    parts = [(run.slopes * posterior.of(run).deviations) ** 2 for run in asked]
    return float(np.sqrt(np.sum(parts)))
