"""From a row of serving results to a deployment and its load, and what we predict of it.

Blank cells are filled by rules, each said:

    engine      by its name and version, or year; the chip's generation decides among profiles
    layout      tp: all chips of a row where it is blank; dp, ep, pp: 1
    precision   fp4 is the checkpoint's own 4 bits, nvfp4 elsewhere
    cache       fp8 where TensorRT-LLM, or a Blackwell engine, serves weights of 8 or 4 bits; else 16 bits
    lengths     a fixed concurrency draws them between 0.8 and 1 of the nominal, ten requests for each in
                flight, the first wave at once (the public benchmark that such rows come from)
    fractions   of memory, where the notes tell them
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from foretell.calibrate.serving_rows import Row
from foretell.catalog.engines import profile as profile_for
from foretell.catalog.models import catalogue_model, find_model
from foretell.catalog.names import exists, find
from foretell.catalog.systems import named_system
from foretell.errors import BadInput
from foretell.serving.formats import stored_formats
from foretell.serving.memory import Memory, memory_of, sequences_that_fit
from foretell.serving.static import offline_tokens_per_s, static_batch
from foretell.serving.steady import steady, with_rate
from foretell.serving.steps import StepLoad, StepTimes, step_times
from foretell.specs.deployment import Deployment, Format, Traffic
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System

SPREAD = 0.8
"""Least length over the nominal, of a fixed concurrency."""
STEP_KINDS = ("decode_step", "prefill", "first_token_latency")
"""Rows that are one step."""
STATIC_KINDS = ("static_batch_latency", "static_batch_throughput")
"""Rows that are one batch from its prompts to its last tokens."""
EARLY = "2023, Splitwise"
"""Engine of rows whose long answers stopped early, so that their end-to-end times mean nothing."""
LONG_ANSWER = 1024.0
"""Tokens from which those answers are."""
MEMORY_NOTES = re.compile(
    r"(?:gpu_memory_utilization|free_gpu_mem(?:ory)?_fraction|mem[_-]fraction[_-]static)\D{0,3}(0?\.\d+)"
)
"""Fractions of memory as notes tell them."""
PRECISIONS: dict[str, str] = {
    "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "fp8_block": "fp8", "fp8-block": "fp8",
    "awq": "int4", "gptq": "int4", "w4a16": "int4", "w8a8": "int8", "w4a8": "int4",
}  # fmt: skip
"""Other names of precisions."""


class Unsupported(Exception):
    """Why a row is not predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row, understood."""

    row: Row
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

    @property
    def group(self) -> str:
        """Model, chip and engine: what is left out together."""
        return f"{self.model.id} x {self.system.chip.id} x {self.profile.engine}"

    @property
    def mixture(self) -> bool:
        """Whether the model has routed experts."""
        return any(layer.ffn is not None and hasattr(layer.ffn, "top_k") for layer in self.model.stack.layers)


def case_of(row: Row) -> Case:
    """A row understood; Unsupported with the reason where it cannot be."""
    said: list[str] = []
    model = model_named(row.model)
    system = system_named(row.gpu)
    if not row.framework:
        raise Unsupported("the engine is not told")
    try:
        profile = profile_for(row.framework, system.chip, row.version)
    except BadInput as error:
        raise Unsupported(f"no profile of the engine {row.framework}") from error
    weights, experts, kv = formats_of(row, model, system, profile, said)
    tp = row.tp or max((row.n_gpus or 1) // ((row.pp or 1) * (row.dp or 1)), 1)
    if row.tp is None:
        said.append(f"tp {tp}: all chips of the row")
    dp, ep, pp = row.dp or 1, row.ep or 1, row.pp or 1
    if tp * dp * pp > (row.n_gpus or tp * dp * pp) and (tp == dp or tp == ep):
        tp = 1  # tables that print the ranks of a group twice: as tp and as dp
    deployment = Deployment(
        tp=tp, pp=pp, dp=dp, ep=ep, weights=weights, experts=experts, kv=kv,
        memory_fraction=fraction_of(row),
    )  # fmt: skip
    if deployment.stage % ep:
        raise Unsupported(f"ep{ep} does not divide the {deployment.stage} chips of a stage")
    gpus = row.n_gpus or deployment.gpus
    if gpus % deployment.gpus:
        raise Unsupported(f"{gpus} chips are not whole instances of {deployment.gpus}")
    if profile.architectures and system.chip.architecture not in profile.architectures:
        said.append(f"profile {profile.id} is of another chip generation")
    return Case(
        row=row, model=model, system=system, deployment=deployment, profile=profile,
        replicas=gpus / deployment.gpus, said=tuple(said),
    )  # fmt: skip


@lru_cache(maxsize=256)
def model_named(name: str) -> Model:
    """The catalogue's model that a row names."""
    plain = name.replace("(?)", "").strip()
    found = find_model(plain)
    if found is None:
        raise Unsupported(f"the model {name} is not in the catalogue")
    return catalogue_model(found.id)


@lru_cache(maxsize=128)
def system_named(gpu: str) -> System:
    """The reference system of the chip that a row names."""
    if not gpu or not exists(gpu, ("chip",)):
        raise Unsupported(f"the chip {gpu or '(blank)'} is not in the catalogue")
    return named_system(find(gpu, ("chip",)).id)


def formats_of(
    row: Row, model: Model, system: System, profile: EngineProfile, said: list[str]
) -> tuple[Format, Format, Format]:
    """Formats of dense matrices, experts and cache."""
    precision = row.precision.lower()
    precision = PRECISIONS.get(precision, precision)
    if precision in ("fp4", "w4a16-mxfp4"):
        precision = "mxfp4" if model.dtype == "mxfp4" else "nvfp4"
    weights, experts = stored_formats(model, precision)
    given = row.kv_precision.lower()
    given = PRECISIONS.get(given, given)
    if given in ("fp16", "bf16", "fp8", "int8", "nvfp4"):
        kv: Format = "bf16" if given in ("fp16", "bf16") else given  # type: ignore[assignment]
        return weights, experts, kv
    narrow = precision in ("fp8", "nvfp4")
    eager = profile.engine == "trtllm" or system.chip.architecture.startswith("blackwell")
    kv = "fp8" if narrow and eager and "fp8" in system.chip.matrix_flop_per_s else "bf16"
    said.append(f"cache in {kv}")
    return weights, experts, kv


def fraction_of(row: Row) -> float | None:
    """The fraction of memory that the notes tell."""
    found = MEMORY_NOTES.search(row.notes)
    return float(found.group(1)) if found else None


def predicted(case: Case, profile: EngineProfile | None = None) -> dict[str, float]:
    """Metric -> our figure: ttft, tpot, e2e in milliseconds, throughput in output tokens a second."""
    engine = profile or case.profile
    times = step_times(case.model, case.system, case.deployment, engine)
    row = case.row
    if row.kind in STEP_KINDS or row.kind in STATIC_KINDS:
        return static_figures(case, times)
    memory = memory_of(case.model, case.system, case.deployment, engine)
    if not memory.fits:
        raise Unsupported("does not fit in memory by the engine's rule")
    isl, osl = told(row.isl, "isl"), told(row.osl, "osl")
    match row.kind:
        case "max_throughput":
            return offline_figures(case, times, memory, isl, osl)
        case "online_concurrency":
            each = told(row.batch, "the number in flight") / case.replicas
            traffic = Traffic(isl=isl, osl=osl, concurrency=max(each, 1.0), least=SPREAD)
            found = steady(times, memory, traffic)
            return loaded_figures(case, float(found.ttft_s), float(found.tpot_s), osl, each)
        case "online_serving":
            rate = told(row.rate, "the rate of requests") / case.replicas
            traffic = Traffic(isl=isl, osl=osl, concurrency=1.0)
            found, flight = with_rate(times, memory, traffic, rate)
            figures = loaded_figures(
                case, float(found.ttft_steady_s), float(found.tpot_s), osl, flight
            )
            return figures | {"throughput": rate * osl * case.replicas}
        case "online_trace" | "online_sharegpt":
            raise Unsupported("the row does not tell its load: the arrivals are in a file of its own")
        case "prefill_tokens_per_gpu_s" | "decode_tokens_per_gpu_s":
            raise Unsupported("the row does not tell its batch")
        case _:
            raise Unsupported(f"rows of the kind {row.kind} are not known")


def told(value: float | None, name: str) -> float:
    """A cell's number; Unsupported where it is blank."""
    if value is None:
        raise Unsupported(f"the row does not tell {name}")
    return value


def static_figures(case: Case, times: StepTimes) -> dict[str, float]:
    """One step, or one batch."""
    row = case.row
    n = told(row.batch, "its batch") / case.replicas
    isl = told(row.isl, "isl")
    if row.kind == "decode_step":
        return {"tpot": 1e3 * float(times.seconds(StepLoad(decoding=n, context_tokens=n * isl)))}
    if row.kind in ("prefill", "first_token_latency"):
        return {"ttft": 1e3 * float(times.seconds(StepLoad(prefill_tokens=n * isl, prompts=n)))}
    osl = told(row.osl, "osl")
    found = static_batch(times, n, isl, osl)
    figures = {
        "ttft": 1e3 * float(found.ttft_s),
        "tpot": 1e3 * float(found.tpot_s),
        "e2e": 1e3 * float(found.e2e_s),
        "throughput": n * osl / float(found.e2e_s) * case.replicas,
    }
    if EARLY in row.framework and osl >= LONG_ANSWER:
        del figures["e2e"]
    return figures


def offline_figures(
    case: Case, times: StepTimes, memory: Memory, isl: float, osl: float
) -> dict[str, float]:
    """The throughput of an endless queue."""
    d, p = case.deployment, times.profile
    room = sequences_that_fit(memory, case.model, d, p, isl + osl)
    limit = (d.max_batch or p.max_batch) * d.dp
    batch = max(min(float(np.floor(room)), float(limit)), 1.0)
    rate = float(offline_tokens_per_s(times, batch, isl, osl))
    return {"throughput": rate * case.replicas}


def loaded_figures(
    case: Case, ttft_s: float, tpot_s: float, osl: float, flight: float
) -> dict[str, float]:
    """Figures of a load, the throughput by Little's law."""
    e2e = ttft_s + tpot_s * max(osl - 1.0, 0.0)
    return {
        "ttft": 1e3 * ttft_s,
        "tpot": 1e3 * tpot_s,
        "e2e": 1e3 * e2e,
        "throughput": flight * osl / e2e * case.replicas,
    }


def measured(row: Row) -> dict[str, float]:
    """What a row has of the same metrics; throughput in total, else of one chip."""
    figures = {
        "ttft": row.ttft_ms,
        "tpot": row.tpot_ms,
        "e2e": row.e2e_ms,
        "throughput": row.tokens_per_s or row.tokens_per_s_per_gpu,
    }
    return {name: value for name, value in figures.items() if value is not None}


def in_their_unit(case: Case, figures: dict[str, float]) -> dict[str, float]:
    """Throughput of one chip where a row has no other."""
    if case.row.tokens_per_s is None and "throughput" in figures:
        gpus = case.deployment.gpus * case.replicas
        return figures | {"throughput": figures["throughput"] / gpus}
    return figures


def without_memory_note(case: Case) -> Case:
    """The same with the engine's own fraction, for fits that look for it."""
    return replace(case, deployment=replace(case.deployment, memory_fraction=None))
