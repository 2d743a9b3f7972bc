"""From a row of serving results to a deployment and its load, and what we predict of it.

Blank cells are filled by rules, each said:

    engine      by its name and version, or year; the chip's generation decides among profiles
    layout      tp: all chips of a row where it is blank; dp, ep, pp: 1
    precision   fp4 is the checkpoint's own 4 bits, nvfp4 elsewhere
    cache       fp8 where TensorRT-LLM, or a Blackwell engine, serves weights of 8 or 4 bits; else 16 bits
    lengths     a fixed concurrency draws them between 0.8 and 1 of the nominal, ten requests for each in
                flight (five where prefill is apart), the first wave at once (the public benchmark that such
                rows come from); its throughput is all tokens over the whole time, the drain at the end
                included
    fractions   of memory, where the notes tell them
    options     the engine's own limits, as a user's are: what scripts set is for fits (serving_launched.py)
    drafts      as the row's `speculative` cell says, kept as the drafter's curve says; else none
    workers     of prefill and decode apart: serving_workers.py
    offline     TensorRT-LLM's tables since 0.19: mixtures with attention data parallel, up to 4096 at once
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.engines import knows_kind
from foretell.catalog.engines import profile as profile_for
from foretell.catalog.models import catalogue_model, find_model
from foretell.catalog.names import exists, find
from foretell.catalog.systems import named_system
from foretell.errors import BadInput
from foretell.lab.calibrate.serving_loops import joules_per_token, median_first_s
from foretell.lab.calibrate.serving_rows import ServingRow
from foretell.lab.calibrate.serving_rules import (
    attention_ranks,
    balance_of,
    draft_tokens,
    formats_of,
    fraction_of,
    offline_limit,
)
from foretell.lab.calibrate.serving_workers import decode_worker, missing_workers, worker_layout
from foretell.records import dataclass
from foretell.serving.arrivals import with_rate
from foretell.serving.disaggregation import Pair, PrefillPool, loop_state
from foretell.serving.drafts import with_acceptance
from foretell.serving.formats import mixture_of
from foretell.serving.layouts import query_heads
from foretell.serving.memory import Memory, memory_of, sequences_that_fit
from foretell.serving.static import offline_tokens_per_s, static_batch
from foretell.serving.steady import steady
from foretell.serving.steps import StepLoad, StepTimes, step_times
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System

Array = NDArray[np.float64]

USUAL_ENGINE = "vllm"
"""Engine in the place of one that has no profile."""
SPREAD = 0.8
"""Least length over the nominal, of a fixed concurrency."""
WAVES, WAVES_APART = 10.0, 5.0
"""Requests over concurrency in the public benchmark; where prefill is apart, by the drain of its rows."""
DRAIN = 0.235
"""Mean times of a request that the end of such a run lasts longer than its steady part would: ten waves of
recorded rows took 1.023 times as long as their requests, whatever engine, chip and concurrency."""
DERIVED = "derived"
"""How notes say that a throughput was computed from latencies, of nominal lengths."""
NEEDS: dict[str, tuple[str, ...]] = {
    "decode_step": ("batch", "isl"),
    "prefill": ("batch", "isl"),
    "first_token_latency": ("batch", "isl"),
    "static_batch_latency": ("batch", "isl", "osl"),
    "static_batch_throughput": ("batch", "isl", "osl"),
    "max_throughput": ("isl", "osl"),
    "online_concurrency": ("batch", "isl", "osl"),
    "online_serving": ("rate", "isl", "osl"),
    "decode_tokens_per_gpu_s": ("batch", "isl"),
    "prefill_tokens_per_gpu_s": ("isl",),
}
"""Kind -> cells without which nothing can be said."""
PREFILL_TOKENS = 16384.0
"""Prompt tokens of a rank in one step of an instance for prefill, where nothing is told (SGLang's
max_prefill_tokens; DeepSeek's published profile)."""
STATIC_KINDS = ("static_batch_latency", "static_batch_throughput")
"""Rows that are one batch from its prompts to its last tokens."""
EARLY = "2023, Splitwise"
"""Engine of rows whose long answers stopped early, so that their end-to-end times mean nothing."""
LONG_ANSWER = 1024.0
"""Tokens from which those answers are."""
LEAST_CACHE = 0.03
"""Share of a card that the cache of a run that was measured had at least."""


class UnsupportedRow(Exception):
    """Why a row is not predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCase:
    """A row, understood."""

    row: ServingRow
    """The row."""
    model: Model
    """What is served."""
    system: System
    """On what."""
    deployment: Deployment
    """How: one instance."""
    profile: EngineProfile
    """By which engine."""
    replicas: float
    """Instances side by side."""
    said: tuple[str, ...]
    """What was filled."""
    prefill: PrefillPool | None = None
    """Prefill workers of a disaggregated row, of which the instances then decode."""

    @property
    def group(self) -> str:
        """Model, chip and engine: what is left out together."""
        return f"{self.model.id} x {self.system.chip.id} x {self.profile.engine}"

    @property
    def mixture(self) -> bool:
        """Whether the model has routed experts."""
        return mixture_of(self.model)


def case_of(row: ServingRow) -> ServingCase:
    """A row understood; Unsupported with the reason where it cannot be."""
    said: list[str] = []
    model = model_named(row.model)
    system = system_named(row.gpu)
    mixture = mixture_of(model)
    if not row.framework:
        raise UnsupportedRow("the engine is not stated")
    try:
        profile = profile_for(row.framework, system.chip, row.version, mixture=mixture)
    except BadInput:
        profile = profile_for(USUAL_ENGINE, system.chip, mixture=mixture)
        said.append(f"{row.framework} has no profile: as {profile.id}")
    weights, experts, kv = formats_of(row, model, system, profile, said)
    tp = row.tp or max((row.n_gpus or 1) // ((row.pp or 1) * (row.dp or 1)), 1)
    if row.tp is None and not row.disaggregated:
        said.append(f"tp {tp}: all chips of the row")
    tp, dp = attention_ranks(row, model, profile, tp, said)
    ep, pp = row.ep or (dp if row.dp is None else 1), row.pp or 1
    if tp * dp * pp > (row.n_gpus or tp * dp * pp) and tp in (dp, ep):
        tp = 1  # tables that print the ranks of a group twice: as tp and as dp
    base = Deployment(
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        weights=weights,
        experts=experts,
        kv=kv,
        memory_fraction=fraction_of(row),
        balance=balance_of(row),
    )
    pool = None
    if row.disaggregated and row.kind == "online_concurrency":
        reason = missing_workers(row)
        if reason:
            raise UnsupportedRow(reason)
        front, base = (worker_layout(row, side, base) for side in (row.prefill, row.decode))
        base = decode_worker(row, base, profile.engine, said)
        front = replace(front, eplb=base.eplb)
        pool = PrefillPool(
            system=system, deployment=front, profile=profile, gpus=row.prefill.gpus or front.gpus
        )
        tp, ep, dp = base.tp, base.ep, base.dp
    elif re.search(r"disagg|(?<![a-z0-9])\d+p\d+d(?![a-z0-9])", row.notes.lower()):
        raise UnsupportedRow(
            "prompts and answers on chips apart: the row does not tell how many of each"
        )
    drafter, drafts = draft_tokens(row, said)
    # Benchmarks of a fixed concurrency send random tokens.
    deployment, kept = with_acceptance(
        model,
        replace(base, drafter=drafter, draft_tokens=drafts),
        random=row.kind == "online_concurrency",
    )
    said += kept
    if query_heads(model) % tp:
        raise UnsupportedRow(
            f"tp{tp} does not divide the heads: ranks of several workers in one number"
        )
    if deployment.stage % ep:
        raise UnsupportedRow(f"ep{ep} does not divide the {deployment.stage} chips of a stage")
    gpus = (row.decode.gpus if pool else row.n_gpus) or deployment.gpus
    if gpus % deployment.gpus:
        raise UnsupportedRow(f"{gpus} chips are not whole instances of {deployment.gpus}")
    if profile.architectures and system.chip.architecture not in profile.architectures:
        said.append(f"profile {profile.id} is of another chip generation")
    if not knows_kind(profile, mixture=mixture):
        said.append(f"profile {profile.id} is of {' and '.join(profile.families)} models")
    return ServingCase(
        row=row, model=model, system=system, deployment=deployment, profile=profile,
        replicas=gpus / deployment.gpus, said=tuple(said), prefill=pool,
    )  # fmt: skip


@lru_cache(maxsize=256)
def model_named(name: str) -> Model:
    """The catalogue's model that a row names."""
    plain = name.replace("(?)", "").strip()
    found = find_model(plain)
    if found is None:
        raise UnsupportedRow(f"the model {name} is not in the catalogue")
    return catalogue_model(found.id)


@lru_cache(maxsize=128)
def system_named(gpu: str) -> System:
    """The reference system of the chip that a row names, or the system that it names in its place."""
    for kind in ("chip", "system"):
        if gpu and exists(gpu, (kind,)):
            return named_system(find(gpu, (kind,)).id)
    raise UnsupportedRow(f"the chip {gpu or '(blank)'} is not in the catalogue")


Figures = dict[str, float]
"""Metric -> figure: ttft, tpot, e2e in milliseconds, throughput in output tokens a second."""
Columns = dict[str, Array]
"""The same of several rows."""


def predict_case(case: ServingCase, profile: EngineProfile | None = None) -> Figures:
    """Our figures of a row; Unsupported with the reason where there are none."""
    found = predicted_all([case], lambda one: profile or one.profile)[0]
    if isinstance(found, str):
        raise UnsupportedRow(found)
    return found


def predicted_all(
    cases: Sequence[ServingCase], profile: Callable[[ServingCase], EngineProfile]
) -> list[Figures | str]:
    """Our figures of many rows, or the reason why there are none: those of one deployment at once."""
    found: list[Figures | str] = [""] * len(cases)
    groups: dict[Any, list[int]] = {}
    for i, case in enumerate(cases):
        reason = blank(case.row)
        if reason:
            found[i] = reason
            continue
        key = (
            case.model.id,
            case.system.id,
            case.deployment,
            profile(case),
            case.row.kind,
            case.replicas,
            case.prefill,
        )
        groups.setdefault(key, []).append(i)
    for members in groups.values():
        told = figures_of([cases[i] for i in members], profile(cases[members[0]]))
        for place, i in enumerate(members):
            found[i] = (
                told
                if isinstance(told, str)
                else {name: float(column[place]) for name, column in told.items()}
            )
    return found


def blank(row: ServingRow) -> str:
    """What a row lacks to be predicted, in words; empty: nothing."""
    if row.kind in ("online_trace", "online_sharegpt"):
        return "the row does not tell its load: the arrivals are in a file of its own"
    if row.kind not in NEEDS:
        return f"rows of the kind {row.kind} are not known"
    missing = [name for name in NEEDS[row.kind] if getattr(row, name) is None]
    return f"the row does not tell its {', '.join(missing)}" if missing else ""


def figures_of(cases: Sequence[ServingCase], engine: EngineProfile) -> Columns | str:
    """Figures of rows of one deployment, kind and engine."""
    first = cases[0]
    times = step_times(first.model, first.system, first.deployment, engine)

    def column(name: str) -> Array:
        return np.array([getattr(case.row, name) or np.nan for case in cases], float)

    isl, osl = column("isl"), column("osl")
    n = np.maximum(column("batch") / first.replicas, 1.0)
    kind, copies = first.row.kind, first.replicas
    if kind == "decode_step":
        return {"tpot": 1e3 * times.seconds(StepLoad(decoding=n, context_tokens=n * isl))}
    if kind == "decode_tokens_per_gpu_s":
        step = times.seconds(StepLoad(decoding=n, context_tokens=n * isl))
        return {"throughput": n * (1.0 + first.deployment.accepted) / step * copies}
    if kind == "prefill_tokens_per_gpu_s":
        # Steps full of prompts on every rank, as an instance that does nothing else has them.
        ranks = first.deployment.dp * first.deployment.cp
        full = np.maximum(float(first.deployment.max_tokens or PREFILL_TOKENS), isl) * ranks
        step = times.seconds(StepLoad(prefill_tokens=full, prompts=full / isl))
        return {"input_throughput": full / step / first.deployment.gpus}
    if kind in ("prefill", "first_token_latency"):
        return {"ttft": 1e3 * times.seconds(StepLoad(prefill_tokens=n * isl, prompts=n))}
    if kind in STATIC_KINDS:
        batch = static_batch(times, n, isl, osl)
        return in_ms(batch.ttft_s, batch.tpot_s, batch.e2e_s, n * osl / batch.e2e_s * copies)
    memory = memory_of(first.model, first.system, first.deployment, engine)
    if memory.weight_bytes > memory.card_bytes:
        return "does not fit in memory"
    # What was measured did run: where a rule leaves nothing, the cache had a little all the same.
    memory = replace(memory, kv_bytes=max(memory.kv_bytes, LEAST_CACHE * memory.card_bytes))
    if kind == "max_throughput":
        batch_fit = offline_batch(first, engine, memory, isl + osl)
        return {"throughput": offline_tokens_per_s(times, batch_fit, isl, osl) * copies}
    if kind == "online_serving":
        return poisson_figures(cases, times, memory)
    waves = WAVES if first.prefill is None else WAVES_APART
    traffic = Traffic(isl=isl, osl=osl, concurrency=n, least=SPREAD, waves=waves)
    if first.prefill is not None:
        whole = replace(traffic, concurrency=column("batch"))
        loop = loop_state(pair_of(first, times, engine), memory, whole)
    else:
        loop = steady(times, memory, traffic)
    # Lengths are drawn below the nominal: a mean request is shorter.
    answer = 0.5 * (1.0 + SPREAD) * osl
    e2e = loop.ttft_s + loop.tpot_s * np.maximum(answer - 1.0, 0.0)
    nominal = loop.ttft_s + loop.tpot_s * np.maximum(osl - 1.0, 0.0)
    asked = column("batch") if first.prefill is not None else n * copies
    found = in_ms(loop.ttft_s, loop.tpot_s, e2e, asked * answer / e2e / (1.0 + DRAIN / waves))
    found |= {"throughput_derived": asked * osl / nominal}
    found |= {"joules": joules_per_token(times, memory, (traffic, loop), first.prefill)}
    if not any(case.row.ttft_median_ms for case in cases):
        return found
    return found | {"ttft_median": 1e3 * median_first_s(loop, 1.0 / traffic.waves)}


def pair_of(case: ServingCase, times: StepTimes, engine: EngineProfile) -> Pair:
    """Prefill and decode workers of a disaggregated row."""
    pool = case.prefill
    assert pool is not None
    front = step_times(case.model, pool.system, pool.deployment, engine)
    return Pair(front=front, fronts=pool.replicas, back=times, backs=round(case.replicas))


def in_ms(ttft_s: Array, tpot_s: Array, e2e_s: Array, tokens_per_s: Array) -> Columns:
    """Figures by their metrics."""
    return {
        "ttft": 1e3 * ttft_s, "tpot": 1e3 * tpot_s, "e2e": 1e3 * e2e_s, "throughput": tokens_per_s,
    }  # fmt: skip


def poisson_figures(cases: Sequence[ServingCase], times: StepTimes, memory: Memory) -> Columns:
    """Rows under a rate of requests, one after the other."""
    rows = []
    for case in cases:
        rate = (case.row.rate or 0.0) / case.replicas
        isl, osl = case.row.isl or 1.0, case.row.osl or 1.0
        found, _ = with_rate(times, memory, Traffic(isl=isl, osl=osl, concurrency=1.0), rate)
        tpot = float(found.tpot_s)
        ttft = float(found.ttft_steady_s)
        served = min(rate, float(found.requests_per_s)) * osl * case.replicas
        rows.append((ttft, tpot, ttft + tpot * max(osl - 1.0, 0.0), served))
    ttfts, tpots, spans, rates = np.array(rows).T
    return in_ms(ttfts, tpots, spans, rates)


def offline_batch(
    case: ServingCase, engine: EngineProfile, memory: Memory, context: Array
) -> Array:
    """Sequences at once with an endless queue."""
    d = case.deployment
    room = sequences_that_fit(memory, case.model, d, engine, context)
    most = d.max_batch or offline_limit(engine)
    return np.maximum(np.minimum(np.floor(room), most * d.dp), 1.0)


def measured_figures(row: ServingRow) -> dict[str, float]:
    """What a row has of the same metrics; throughput in total, else of one chip."""
    figures = {
        "ttft": row.ttft_median_ms or row.ttft_ms,
        "ttft_mean": row.ttft_ms if row.ttft_median_ms else None,
        "tpot": row.tpot_ms,
        "e2e": row.e2e_ms,
        "throughput": row.tokens_per_s or row.tokens_per_s_per_gpu,
        "joules": measured_joules(row),
        "input_throughput": row.input_tokens_per_s_per_gpu,
    }
    if EARLY in row.framework and (row.osl or 0.0) >= LONG_ANSWER:
        figures["e2e"] = None
    return {name: value for name, value in figures.items() if value is not None}


def measured_joules(row: ServingRow) -> float | None:
    """Joules of an output token: as printed, or by the chips' mean power and the rate."""
    if row.joules_per_output_token is not None:
        return row.joules_per_output_token
    if row.watts_per_gpu is None or row.n_gpus is None or not row.tokens_per_s:
        return None
    return row.watts_per_gpu * row.n_gpus / row.tokens_per_s


def in_their_unit(case: ServingCase, figures: dict[str, float]) -> dict[str, float]:
    """Throughput of one chip where a row has no other, and the median TTFT where the row has it.

    Output tokens of a disaggregated row are counted for each chip that decodes.
    """
    figures = dict(figures)
    median, derived = figures.pop("ttft_median", None), figures.pop("throughput_derived", None)
    if derived is not None and DERIVED in case.row.notes.lower():
        figures["throughput"] = derived
    if case.row.ttft_median_ms and median is not None:
        figures |= {"ttft": median, "ttft_mean": figures["ttft"]}
    if case.row.tokens_per_s is None and "throughput" in figures:
        gpus = case.deployment.gpus * case.replicas
        return figures | {"throughput": figures["throughput"] / gpus}
    return figures
