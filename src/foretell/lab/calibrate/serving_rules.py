"""Rules for cells that a row of serving results leaves blank: formats, drafts, options of the tools.

Each rule is a published default: of a checkpoint, an engine or a public benchmark's scripts.
"""

import math
import re

from foretell.catalog.acceptance import read_speculative
from foretell.catalog.engines import numbers_of, wide_card
from foretell.lab.calibrate.serving_rows import ServingRow
from foretell.serving.formats import mixture_of, stored_formats
from foretell.specs.chip import Chip
from foretell.specs.deployment import Drafter, Format
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System

MEMORY_NOTES = re.compile(
    r"(?:gpu_memory_utilization|free_gpu_mem(?:ory)?_fraction|mem[_-]fraction[_-]static)\D{0,3}(0?\.\d+)"
)
"""Fractions of memory as notes tell them."""
EVEN_NOTES = re.compile(r"balanced experts|perfect eplb|perfect(?:ly)? balance")
"""How notes say that every rank had as much."""
PRECISIONS: dict[str, str] = {
    "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "fp8_block": "fp8", "fp8-block": "fp8",
    "awq": "int4", "gptq": "int4", "w4a16": "int4", "w8a8": "int8", "w4a8": "int4",
}  # fmt: skip
"""Other names of precisions."""
SHORT, MANY_RANKS, BATCH_WAIT = 1024.0, 8, 20.0
"""Lengths and degree for which the benchmark's scripts let prompts wait, and for how many steps
(github.com/SemiAnalysisAI/InferenceX, benchmarks)."""
SCRIPT_FAMILY, BLOCK_TOKENS = "deepseek_v3", 64
"""Family of the models whose scripts set the tokens of a step, and the blocks that these are rounded to."""
WORDS = (
    ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("fp4", "fp4"), ("awq", "int4"), ("gptq", "int4"),
    ("int4", "int4"), ("w4a", "int4"), ("4bit", "int4"), ("fp8", "fp8"), ("int8", "int8"),
    ("w8a", "int8"), ("8bit", "int8"), ("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16"),
    ("float16", "fp16"), ("fp32", "fp32"),
)  # fmt: skip
"""Words in the names of precisions, the narrowest first."""
TUNED_BATCH = 4096
"""Most sequences at once that TensorRT-LLM's own benchmark sets where the cache holds as many
(tensorrt_llm/bench/build/tuning.py: finetune_setting)."""
VLLM_BATCH, VLLM_FIRST_BATCH, VLLM_SECOND = 1024, 256, [0, 8]
"""Sequences at once that vLLM allows by default on large cards with its second engine, and elsewhere
(vllm/engine/arg_utils.py: get_batch_defaults); the version from which that engine is the default."""


def precision_named(text: str) -> str:
    """The precision that a text means; empty where it means none known here.

    Of several words the narrowest counts, since it is what the text tells beyond the usual: int4-awq, w4afp8.
    """
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    found = PRECISIONS.get(text.lower(), PRECISIONS.get(plain, ""))
    return found or next((name for word, name in WORDS if word in plain), "")


def formats_of(
    row: ServingRow, model: Model, system: System, profile: EngineProfile, said: list[str]
) -> tuple[Format, Format, Format]:
    """Formats of dense matrices, experts and cache."""
    precision = precision_named(row.precision)
    if row.precision and not precision:
        said.append(f"the precision {row.precision} is not known: as the checkpoint is published")
    if precision in ("fp4", "w4a16-mxfp4"):
        precision = "mxfp4" if model.dtype == "mxfp4" else "nvfp4"
    weights, experts = stored_formats(model, precision)
    given = precision_named(row.kv_precision)
    if given in ("fp16", "bf16", "fp8", "int8", "nvfp4"):
        kv: Format = "bf16" if given in ("fp16", "bf16") else given  # type: ignore[assignment]
        return weights, experts, kv
    narrow = precision in ("fp8", "nvfp4")
    eager = profile.engine == "trtllm" or system.chip.architecture.startswith("blackwell")
    kv = "fp8" if narrow and eager and "fp8" in system.chip.matrix_flop_per_s else "bf16"
    said.append(f"cache in {kv}")
    return weights, experts, kv


def draft_tokens(row: ServingRow, dp: int, said: list[str]) -> tuple[Drafter, int]:
    """Drafter and tokens drafted a step, by the row's own `speculative` cell.

    A table without such a column serves without drafts, and so does a row that does not know: a version or a
    layout says nothing of it. Where the number is blank it is three, one with attention data parallel (the
    public benchmark's scripts, github.com/SemiAnalysisAI/InferenceX at bf3456727).
    """
    if row.speculative in ("unknown", "simulated"):
        said.append(f"speculative is {row.speculative}: as without drafts")
        return "mtp", 0
    found = read_speculative(row.speculative)
    if found is None:
        return "mtp", 0
    many = row.draft_tokens
    if many is None:
        many = 1 if dp > 1 else 3
        said.append("tokens drafted a step: three, one with attention data parallel")
    return found[0], many


def script_wait(
    row: ServingRow, model: Model, profile: EngineProfile, tp: int, said: list[str]
) -> float | None:
    """Steps that prompts wait for each other, by the benchmark's scripts."""
    if row.kind != "online_concurrency" or profile.engine != "trtllm" or not profile.since >= "1":
        return None
    if not mixture_of(model) and row.isl == SHORT and row.osl == SHORT and tp < MANY_RANKS:
        said.append(f"prompts wait up to {BATCH_WAIT:g} steps for each other")
        return BATCH_WAIT
    return None


def script_tokens(
    row: ServingRow, model: Model, profile: EngineProfile, drafts: int, said: list[str]
) -> int | None:
    """Tokens of a step by the benchmark's scripts: those of DeepSeek-R1 under TensorRT-LLM take one prompt.

    Its dsr1_*_trt*.sh set max_num_tokens to (drafts + 1) x concurrency + the prompt's tokens + 64, in whole
    blocks of 64.
    """
    if row.kind != "online_concurrency" or row.disaggregated or row.batch is None or not row.isl:
        return None
    if profile.engine != "trtllm" or not profile.since >= "1" or model.family != SCRIPT_FAMILY:
        return None
    tokens = (drafts + 1) * row.batch + row.isl + BLOCK_TOKENS
    found = math.ceil(tokens / BLOCK_TOKENS) * BLOCK_TOKENS
    said.append("tokens of a step: one prompt and a token of each sequence")
    return found


def balance_of(row: ServingRow) -> float | None:
    """1 where the notes tell that experts were balanced perfectly, as simulated runs are."""
    return 1.0 if EVEN_NOTES.search(row.notes.lower()) else None


def fraction_of(row: ServingRow) -> float | None:
    """The fraction of memory that the notes tell."""
    found = MEMORY_NOTES.search(row.notes)
    return float(found.group(1)) if found else None


def attention_ranks(
    row: ServingRow, model: Model, profile: EngineProfile, ranks: int, said: list[str]
) -> tuple[int, int]:
    """tp and dp of a row that has the chips of a stage in one number.

    TensorRT-LLM's tables of offline maxima serve mixtures with attention data parallel on all ranks (its
    perf-overview.md since 0.19: `enable_attention_dp: true` for mixtures).
    """
    offline = row.kind == "max_throughput" and profile.engine == "trtllm" and profile.since >= "1"
    if row.dp is not None or not offline or not mixture_of(model) or ranks == 1:
        return ranks, row.dp or 1
    said.append(f"attention data parallel over the {ranks} ranks")
    return 1, ranks


def offline_limit(row: ServingRow, engine: EngineProfile, chip: Chip) -> int:
    """Sequences at once in an offline maximum, where nothing is told: the tool's own default."""
    if engine.engine == "trtllm" and engine.since >= "1":
        return TUNED_BATCH
    if engine.engine == "vllm":
        version = numbers_of(row.version)
        second = wide_card(chip) and (not version or version >= VLLM_SECOND)
        return VLLM_BATCH if second else VLLM_FIRST_BATCH
    return engine.max_batch
