"""Rules for cells that a row of serving results leaves blank: formats, drafts, options of the tools.

Each rule is a published default: of a checkpoint, an engine or a public benchmark's scripts.
"""

import re

from foretell.catalog.acceptance import read_speculative
from foretell.lab.calibrate.serving_rows import ServingRow
from foretell.serving.formats import cache_format, mixture_of, stored_formats
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
    return found


def formats_of(
    row: ServingRow, model: Model, system: System, profile: EngineProfile, said: list[str]
) -> tuple[Format, Format, Format]:
    """Formats of dense matrices, experts and cache."""
    precision = checkpoint_precision(row, model)
    if row.precision and not precision:
        said.append(f"the precision {row.precision} is not known: as the checkpoint is published")
    weights, experts = stored_formats(model, precision)
    given = precision_named(row.kv_precision)
    if given in ("fp16", "bf16", "fp8", "int8", "nvfp4"):
        kv: Format = "bf16" if given in ("fp16", "bf16") else given  # type: ignore[assignment]
        return weights, experts, kv
    kv = cache_format(weights, experts, profile.engine, system.chip)
    said.append(f"cache in {kv}")
    return weights, experts, kv


def draft_tokens(row: ServingRow, said: list[str]) -> tuple[Drafter, int]:
    """Drafter and tokens drafted a step, by the row's own `speculative` cell.

    A table without such a column serves without drafts, and so does a row that does not know: a version or a
    layout says nothing of it. Where the number is blank it is the usual one, as after `--speculative mtp`.
    """
    if row.speculative in ("unknown", "simulated"):
        said.append(f"speculative is {row.speculative}: as without drafts")
        return "mtp", 0
    found = read_speculative(row.speculative)
    if found is None:
        return "mtp", 0
    if row.draft_tokens is None:
        said.append(f"tokens drafted a step: {found[1]}")
    return found[0], row.draft_tokens or found[1]


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


def offline_limit(engine: EngineProfile) -> int:
    """Sequences at once in an offline maximum, where nothing is told: the tool's own default."""
    return TUNED_BATCH if engine.engine == "trtllm" and engine.since >= "1" else engine.max_batch
