"""A row of serving results as the arguments of `foretell serve`: what a user would type for it.

An argument says what the row says; what is blank there `serve` fills, as for everybody. Conventions of the
tables, which no cell tells:

    concurrency   public benchmarks send ten requests for each concurrent one (five where prefill is apart, by
                  the drain of such rows), all of the first wave at once, lengths even between 0.8 and 1;
                  others as many as notes say, of equal lengths, or even from nothing to twice the mean
    ranks         attention's ranks are inside SGLang's tp, and in tables that print more ranks than chips
    prefill apart a flag, or a number of ranks (dynamo-sglang prints ep 1, dp 1 for all chips of a worker)
    places        1,075 requests at a decode worker mean batches of 1,024: the rest queues
    offline       TensorRT-LLM's tables since 0.19 serve mixtures with attention data parallel
    tuned         servers of the public benchmark, and those for prefill alone, have recipes' options
    notes         fractions of memory, and experts that were balanced perfectly
"""

import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from foretell.catalog.acceptance import read_speculative
from foretell.catalog.engines import profile as profile_for
from foretell.catalog.model_names import find_model
from foretell.catalog.models import catalogue_model
from foretell.catalog.names import exists, find
from foretell.catalog.systems import named_system
from foretell.errors import BadInput
from foretell.lab.calibrate.serving_rows import ServingRow, WorkerCells
from foretell.records import dataclass
from foretell.serving.engine_options import with_acceptance
from foretell.serving.formats import mixture_of
from foretell.specs._base import release_numbers
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model

Arguments = dict[str, Any]
"""Name of an argument of `serve` -> its value."""
ONLINE, RATED = "online_concurrency", "online_serving"
LOADED = (ONLINE, RATED)
"""Kinds of services under a load."""
KINDS: Mapping[str, tuple[tuple[str, ...], Arguments]] = {
    "decode_step": (("batch", "isl"), {"batching": "static", "osl": 2.0}),
    "decode_tokens_per_gpu_s": (("batch", "isl"), {"batching": "static", "osl": 2.0}),
    "prefill": (("batch", "isl"), {"batching": "static", "osl": 1.0}),
    "first_token_latency": (("batch", "isl"), {"batching": "static", "osl": 1.0}),
    "static_batch_latency": (("batch", "isl", "osl"), {"batching": "static"}),
    "static_batch_throughput": (("batch", "isl", "osl"), {"batching": "static"}),
    "max_throughput": (("isl", "osl"), {"batching": "offline"}),
    "prefill_tokens_per_gpu_s": (("isl",), {"batching": "offline", "osl": 1.0, "tuned": True}),
    RATED: (("rate", "isl", "osl"), {}),
    ONLINE: (("batch", "isl", "osl"), {}),
}
"""Kind -> cells without which nothing can be asked, and what the kind says of the question."""
COLUMNS: Mapping[str, str] = {
    "isl": "isl", "osl": "osl", "batch": "concurrency", "rate": "rate", "prefix_hit": "prefix_hit",
}  # fmt: skip
"""Cell -> the argument that it is."""
BENCHMARK = "ai-dynamo/aiconfigurator"
"""Collection of InferenceX's results (github.com/SemiAnalysisAI/InferenceX), as sources begin to name it."""
RANKS_SINCE: Mapping[str, str] = {"vllm": "0.19"}
"""Engine -> version from which on the benchmark's scripts of one node start attention of each rank's own: of
vLLM's none reads DP_ATTENTION before minimaxm2.5_fp4_b200.sh of April 2026, whatever a configuration says."""
WAVES, WAVES_APART = 10.0, 5.0
"""Requests over concurrency in the public benchmark."""
USUAL_ENGINE = "vllm"
"""Engine in the place of one that has no profile."""
PREFILL_TOKENS = 16384
"""Prompt tokens of a rank in one step of an instance for prefill (SGLang's max_prefill_tokens; DeepSeek's
published profile)."""
DEGREES = ("tp", "pp", "dp", "ep")
"""Words of a layout."""
FULL, ROUND = 1.13, 1.32
"""Concurrency of a worker over its largest batch at most: of any, and of numbers that are not round (no
multiple of an eighth of it)."""
LEAST_PLACES = 8
"""Largest batch from which a concurrency above it tells it."""
MEMORY_NOTES = re.compile(
    r"(?:gpu_memory_utilization|free_gpu_mem(?:ory)?_fraction|mem[_-]fraction[_-]static)\D{0,3}(0?\.\d+)"
)
"""Fractions of memory as notes tell them."""
EVEN_NOTES = re.compile(r"balanced experts|perfect eplb|perfect(?:ly)? balance")
"""How notes say that every rank had as much."""
EVEN_LENGTHS = "uniform 0..that"
"""How notes say that lengths are even from nothing to a most, and that cells have their means."""
COUNT_NOTES = re.compile(r"(?<![\d.])(\d+) (?:requests|prompts)")
"""How notes say of how many requests a benchmark is."""
ATTENTION_DP = "attention data parallel"
"""What is filled where a table of offline maxima does not say it."""
CAPPED = re.compile(r"\(power-capped (\d+)%\)")
"""How a chip's name says that its power was limited to a share of the usual."""
BENCHMARK_SPREAD, LEAST_SPREAD = 0.8, 0.01
"""Shortest over longest length of the public benchmark, and where lengths begin at nothing."""
APART_NOTES = re.compile(r"disagg|(?<![a-z0-9])\d+p\d+d(?![a-z0-9])")
"""How notes say that prefill and decode were on chips apart."""
PRECISIONS: dict[str, str] = {
    "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "fp8_block": "fp8", "fp8-block": "fp8",
    "awq": "int4", "gptq": "int4", "w4a16": "int4", "w8a8": "int8", "w4a8": "int4",
}  # fmt: skip
"""Other names of precisions."""
WORDS = (
    ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("fp4", "fp4"), ("awq", "int4"), ("gptq", "int4"),
    ("int4", "int4"), ("w4a", "int4"), ("4bit", "int4"), ("fp8", "fp8"), ("int8", "int8"),
    ("w8a", "int8"), ("8bit", "int8"), ("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16"),
    ("float16", "fp16"), ("fp32", "fp32"),
)  # fmt: skip
"""Words in the names of precisions, the narrowest first."""


class UnsupportedRow(Exception):
    """Why a row is not predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Degrees of one instance."""

    tp: int = 1
    """Tensor-parallel ranks."""
    pp: int = 1
    """Stages."""
    dp: int = 1
    """Ranks with attention of their own."""
    ep: int = 1
    """Expert-parallel ranks."""

    @property
    def words(self) -> list[str]:
        """As a plan has them."""
        told = ((name, getattr(self, name)) for name in DEGREES)
        return [f"{name}{many}" for name, many in told if name == "tp" or many > 1]


def arguments_of(row: ServingRow) -> tuple[Arguments, tuple[str, ...]]:
    """The arguments of a row, and what of it was read as something else.

    Raises UnsupportedRow with the reason where the row cannot be asked.
    """
    model, (system, settings) = model_of(row), system_of(row)
    reason = unasked(row)
    if reason:
        raise UnsupportedRow(reason)
    said: list[str] = []
    engine, profile = engine_of(row, model, system, said)
    needs, fixed = KINDS[row.kind]
    load = {COLUMNS[name]: getattr(row, name) for name in (*needs, "prefix_hit")}
    found: Arguments = {
        "model": model.id, "system": system, "engine": engine, **load, **fixed, **settings,
    }  # fmt: skip
    if apart(row):
        layout, front = (worker_layout(row, side) for side in (row.decode, row.prefill))
        gpus = (row.prefill.gpus or 0) + (row.decode.gpus or 0)
        found |= {"prefill_gpus": row.prefill.gpus, "prefill_plan": " ".join(front.words)}
    else:
        layout = layout_of(row, model, profile, said)
        gpus = row.n_gpus or layout.tp * layout.pp * layout.dp
    if is_benchmark(row):
        found["tuned"] = True
    if row.kind == ONLINE:
        found |= benchmark_load(row)
    if row.kind == RATED and (told := COUNT_NOTES.search(f"{row.notes} {row.source}")):
        found["requests"] = int(told[1])
    drafts = draft_words(row, model, found, said)
    words = [*layout.words, *option_words(row, model, profile, layout, said), *drafts]
    found |= {"gpus": gpus, "plan": " ".join(words)}
    return {name: value for name, value in found.items() if value is not None}, tuple(said)


def command(arguments: Arguments, name_of_row: str) -> str:
    """The line that a user would type for a row."""
    words = []
    model = arguments["model"]
    for name, value in arguments.items():
        if name == "model":
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words.append(f"--{name.replace('_', '-')}")
            if one is not True:
                words.append(f"{one:.12g}" if isinstance(one, float) else str(one))
    return f"foretell serve {shlex.join([model, *words])} # {name_of_row}"


def is_benchmark(row: ServingRow) -> bool:
    """Whether a row is of the public benchmark, whose servers are started with tuned options."""
    return row.kind == ONLINE and (row.source.startswith(BENCHMARK) or bool(row.run))


def benchmark_load(row: ServingRow) -> Arguments:
    """Requests of a row under a fixed concurrency, and how their lengths are spread."""
    waves = WAVES_APART if apart(row) else WAVES
    told = None if is_benchmark(row) else COUNT_NOTES.search(row.notes)
    found: Arguments = {
        "requests": int(told[1]) if told else max(round(waves * (row.batch or 1.0)), 1)
    }
    if EVEN_LENGTHS in row.notes:
        return found | {
            "isl": 2.0 * (row.isl or 1.0), "osl": 2.0 * (row.osl or 1.0), "spread": LEAST_SPREAD,
        }  # fmt: skip
    return found | ({"spread": BENCHMARK_SPREAD} if is_benchmark(row) else {})


def unasked(row: ServingRow) -> str:
    """Why a row cannot be asked of a service, in words; empty where it can."""
    if row.kind in ("online_trace", "online_sharegpt"):
        return "the row does not tell its load: the arrivals are in a file of its own"
    if row.kind not in KINDS:
        return f"rows of the kind {row.kind} are not known"
    missing = [name for name in KINDS[row.kind][0] if getattr(row, name) is None]
    if missing:
        return f"the row does not tell its {', '.join(missing)}"
    if not row.framework:
        return "the engine is not stated"
    if apart(row):
        return missing_workers(row)
    if APART_NOTES.search(row.notes.lower()):
        return "prompts and answers on chips apart: the row does not tell how many of each"
    return ""


def apart(row: ServingRow) -> bool:
    """Whether a row's prefill and decode have workers of their own."""
    return row.disaggregated and row.kind == ONLINE


def model_of(row: ServingRow) -> Model:
    """The catalogue's model that a row names."""
    found = find_model(row.model.replace("(?)", "").strip())
    if found is None:
        raise UnsupportedRow(f"the model {row.model} is not in the catalogue")
    return catalogue_model(found.id)


def system_of(row: ServingRow) -> tuple[str, Arguments]:
    """The reference system of the chip that a row names, or the system that it names in its place; and the
    settings of a chip whose power is limited."""
    capped = CAPPED.search(row.gpu)
    name = row.gpu[: capped.start()].strip() if capped else row.gpu
    for kind in ("chip", "system"):
        if name and exists(name, (kind,)):
            found = named_system(find(name, (kind,)).id)
            if not capped:
                return found.id, {}
            watts = float(capped[1]) / 100.0 * float(np.asarray(found.chip.tdp_watts))
            return found.id, {"set": (f"chip.tdp_watts={watts:g}",)}
    raise UnsupportedRow(f"the chip {row.gpu or '(blank)'} is not in the catalogue")


def engine_of(
    row: ServingRow, model: Model, system: str, said: list[str]
) -> tuple[str, EngineProfile]:
    """Engine and version of a row, and its profile; the usual engine where it has none."""
    chip, mixture = named_system(system).chip, mixture_of(model)
    named = f"{row.framework}@{row.version}" if row.version else row.framework
    try:
        return named, profile_for(row.framework, chip, row.version, mixture=mixture)
    except BadInput:
        found = profile_for(USUAL_ENGINE, chip, mixture=mixture)
        said.append(f"{row.framework} has no profile: as {found.id}")
        return USUAL_ENGINE, found


def layout_of(row: ServingRow, model: Model, profile: EngineProfile, said: list[str]) -> Layout:
    """Degrees of an instance that does prefill and decode."""
    pp = row.pp or 1
    tp = row.tp or max((row.n_gpus or 1) // (pp * (row.dp or 1)), 1)
    if row.tp is None:
        said.append(f"tp {tp}: all chips of the row")
    offline = row.kind == "max_throughput" and profile.engine == "trtllm" and profile.since >= "1"
    if row.dp is None and offline and mixture_of(model) and tp > 1:
        # Its perf-overview.md since 0.19 has `enable_attention_dp: true` for mixtures.
        said.append(f"{ATTENTION_DP} over the {tp} ranks")
        return Layout(pp=pp, dp=tp, ep=row.ep or tp)
    dp, ep = row.dp or 1, row.ep or 1
    first = release_numbers(RANKS_SINCE.get(profile.engine, ""))
    if dp > 1 and is_benchmark(row) and row.version and release_numbers(row.version) < first:
        said.append(f"dp {dp} is not read: the benchmark's scripts of then do not pass it on")
        dp = 1
    inside = profile.engine == "sglang" and row.tp is not None and tp % dp == 0
    twice = tp * dp * pp > (row.n_gpus or tp * dp * pp)
    if inside and tp >= dp > 1:
        tp //= dp
    elif twice and tp in (dp, ep):
        tp = 1
    elif twice and tp % dp == 0:
        tp //= dp
    return Layout(tp=tp, pp=pp, dp=dp, ep=ep)


def worker_layout(row: ServingRow, side: WorkerCells) -> Layout:
    """Degrees of one worker of a disaggregated row's side."""
    chips = (side.gpus or 1) // (side.workers or 1)
    tp, dp, ep = side.tp or 1, side.dp or 0, side.ep or 1
    if row.run or "0" in (str(row.prefill.dp), str(row.decode.dp)):
        own = dp > 0  # a flag
    else:
        own = dp > 1 or (dp == 1 and tp == 1 and chips > 1)
    ranks = chips if own and (dp <= 1 or row.run) else max(dp, 1)
    ranks = ranks if own and chips % ranks == 0 else (chips if own else 1)
    spread = chips if ep == 1 and tp == 1 and own else ep
    return Layout(tp=chips // ranks, dp=ranks, ep=spread if chips % spread == 0 else 1)


def missing_workers(row: ServingRow) -> str:
    """Why a disaggregated row cannot be predicted; empty where it can."""
    sides = {"prefill": row.prefill, "decode": row.decode}
    blank = [name for name, side in sides.items() if not side.gpus or not side.workers]
    if blank:
        return f"disaggregated: the row does not tell how many chips and workers do {' and '.join(blank)}"
    uneven = [name for name, side in sides.items() if (side.gpus or 0) % (side.workers or 1)]
    return f"disaggregated: chips of {uneven[0]} are no whole workers" if uneven else ""


def worker_places(row: ServingRow) -> int | None:
    """Sequences of one decode worker, where the concurrency tells them; None: as many as the engine takes."""
    each = (row.batch or 0.0) / (row.decode.workers or 1)
    if each <= LEAST_PLACES:
        return None
    places = 2 ** math.floor(math.log2(each))
    over = each / places
    uneven = each % (places / 8.0) > 0.0
    return places if 1.0 < over <= (ROUND if uneven else FULL) else None


def option_words(
    row: ServingRow, model: Model, profile: EngineProfile, layout: Layout, said: list[str]
) -> list[str]:
    """Formats and options that the row tells, as words of a plan."""
    found = []
    precision = checkpoint_precision(row, model)
    if precision:
        found.append(f"weights={precision}")
    elif row.precision:
        said.append(f"the precision {row.precision} is not known: as the checkpoint is published")
    cache = precision_named(row.kv_precision or cache_precision(row, model))
    if cache in ("fp16", "bf16", "fp8", "int8", "nvfp4"):
        found.append(f"kv={'bf16' if cache == 'fp16' else cache}")
    fraction = MEMORY_NOTES.search(row.notes)
    if fraction:
        found.append(f"memory_fraction={float(fraction.group(1)):g}")
    if EVEN_NOTES.search(row.notes.lower()):
        found.append("balance=1")
    if row.kind == "prefill_tokens_per_gpu_s":
        found.append(f"max_tokens={PREFILL_TOKENS}")
    if not apart(row):
        return found
    places = worker_places(row)
    if places is not None:
        found.append(f"max_batch={max(places // layout.dp, 1)}")
        said.append("largest batch of a decode worker: the power of two below its concurrency")
    wide = Deployment(tp=layout.tp, pp=layout.pp, dp=layout.dp, ep=layout.ep).is_wide
    if profile.engine == "trtllm" and wide:
        # Its load balancer is off unless a configuration has one (MoeConfig.load_balancer).
        found.append("no-eplb")
        said.append("experts are not balanced by load: off by default in TensorRT-LLM")
    return found


def draft_words(row: ServingRow, model: Model, found: Arguments, said: list[str]) -> list[str]:
    """What the row's `speculative` cell says: `speculative` among the arguments, and the drafts kept.

    A table without such a column serves without drafts, and so does a row that does not know: a version or a
    layout says nothing of it. Where the number is blank it is the usual one, as after `--speculative mtp`.
    """
    if row.speculative in ("unknown", "simulated"):
        said.append(f"speculative is {row.speculative}: as without drafts")
        return []
    told = read_speculative(row.speculative)
    if told is None:
        return []
    drafter, usual = told
    if row.draft_tokens is None:
        said.append(f"tokens drafted a step: {usual}")
    drafts = row.draft_tokens or usual
    found["speculative"] = f"{drafter}:{drafts}"
    # Benchmarks of a fixed concurrency send random tokens, of which drafters keep less.
    one = Deployment(drafter=drafter, draft_tokens=drafts)
    kept, _ = with_acceptance(model, one, random=row.kind == ONLINE)
    return [f"accepted={kept.accepted:g}"]


def precision_named(text: str) -> str:
    """The precision that a text means; empty where it means none known here.

    Of several words the narrowest counts, since it is what the text tells beyond the usual: int4-awq, w4afp8.
    """
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    found = PRECISIONS.get(text.lower(), PRECISIONS.get(plain, ""))
    return found or next((name for word, name in WORDS if word in plain), "")


def checkpoint_precision(row: ServingRow, model: Model) -> str:
    """The precision of a row's checkpoint as a plan says it; empty: as published."""
    found = precision_named(row.precision)
    if found in ("fp4", "w4a16-mxfp4"):
        return "mxfp4" if model.dtype == "mxfp4" else "nvfp4"
    return "" if cache_precision(row, model) else found


def cache_precision(row: ServingRow, model: Model) -> str:
    """A precision that says how the cache is kept: checkpoints published in 4 bits are served so."""
    narrow = model.dtype == "mxfp4" and precision_named(row.precision) == "fp8"
    return "fp8" if narrow else ""
