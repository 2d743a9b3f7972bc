"""`vllm serve`: engine arguments as of vllm/engine/arg_utils.py (0.10 to 0.32), or a YAML of the same.

Arguments that are tables are read in vllm_tables.py; those that are not modelled stand in interop/tools.

--gpu-memory-utilization is a share of the whole card. --max-num-seqs counts for one data-parallel rank,
so that an instance holds dp times as many.
"""

import json
from collections.abc import Mapping

from foretell.interop.arguments import ArgumentTable
from foretell.interop.engine_launch import engine_launch
from foretell.interop.keys import Keys
from foretell.interop.launch import Known, Launch
from foretell.interop.serving_words import (
    CACHES,
    DISPATCH_WORDS,
    NEAREST_CACHES,
    QUANTISATIONS,
    Serving,
    command,
    count_items,
)
from foretell.interop.vllm_tables import (
    read_drafts,
    read_experts,
    read_graphs,
    read_transfer,
)
from foretell.specs.deployment import Deployment

SWITCHES = frozenset(
    """enable_lora enable_dbo no_async_scheduling enable_expert_parallel ep enforce_eager
    trust_remote_code enable_chunked_prefill
    enable_prefix_caching no_enable_prefix_caching disable_log_requests disable_log_stats async_scheduling
    enable_auto_tool_choice headless data_parallel_hybrid_lb data_parallel_external_lb
    enable_sleep_mode language_model_only enable_eplb no_enable_chunked_prefill O0 O1 O2 O3
    enable_prompt_embeds fully_sharded_loras enable_log_requests disable_custom_all_reduce
    disable_sliding_window enable_return_routed_experts enable_ssl_refresh grpc""".split()
)
SOURCES: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "model_path", "serve"),
    "gpus": ("tensor_parallel_size", "tp", "pipeline_parallel_size", "pp", "data_parallel_size", "dp"),
    "tp": ("tensor_parallel_size", "tp"), "pp": ("pipeline_parallel_size", "pp"),
    "dp": ("data_parallel_size", "dp"), "cp": ("prefill_context_parallel_size", "pcp"),
    "ep": ("enable_expert_parallel", "ep"), "weights": ("quantization", "q"), "kv": ("kv_cache_dtype",),
    "max_context": ("max_model_len",),
    "max_batch": ("max_num_seqs",), "max_tokens": ("max_num_batched_tokens",),
    "memory_fraction": ("gpu_memory_utilization",),
    "draft_tokens": ("speculative_config", "sc", "spec_tokens", "num_speculative_tokens",
                     "speculative_config.num_speculative_tokens"),
    "graph": ("enforce_eager", "compilation_config", "O0", "optimization_level"),
    "drafter": ("speculative_config", "sc", "spec_method", "speculative_config.method"),
    "accepted": ("speculative_config", "sc"), "cache_gb": ("kv_cache_memory_bytes",),
    "cache_tokens": ("num_gpu_blocks_override", "block_size"), "experts": ("quantization", "q"),
    "graph_batch": ("cuda_graph_sizes", "cudagraph_capture_sizes", "max_cudagraph_capture_size",
                    "compilation_config", "cc"),
    "overlap": ("async_scheduling",), "chunked": ("enable_chunked_prefill",), "eplb": ("enable_eplb",),
    "redundant_experts": ("eplb_config", "num_redundant_experts", "eplb_config.num_redundant_experts"),
    "tbo": ("enable_dbo",),
    "dispatch": ("all2all_backend",),
    "adapters": ("lora_modules", "max_cpu_loras", "max_loras", "enable_lora"),
    "adapter_slots": ("max_loras",),
    "adapter_rank": ("max_lora_rank", "enable_lora"), "offload_gb": ("cpu_offload_gb",),
}  # fmt: skip
"""The flags that each value is from."""


def read(given: ArgumentTable, known: Known) -> Launch:
    """What the command says."""
    keys = Keys(given, tool="vllm", switches=SWITCHES)
    left: list[str] = []
    values = {
        **_layout(keys, left),
        **_limits(keys, left),
        **_experts(keys, left),
        **_adapters(keys),
    }
    read_transfer(keys, left)
    values["max_context"] = _lengths(keys, left)
    models = [*_positional(keys.words), *(name for name in [keys.text("model")] if name)]
    gpus = 1
    for name in ("tp", "pp", "dp", "cp"):
        gpus *= int(str(values[name] or 1))
    return engine_launch("vllm", given, keys, models, gpus, values, left, SOURCES)


def _layout(keys: Keys, left: list[str]) -> dict[str, object]:
    """Degrees."""
    tp = keys.whole("tensor_parallel_size", "tp") or 1
    pp = keys.whole("pipeline_parallel_size", "pp") or 1
    dp = keys.whole("data_parallel_size", "dp") or 1
    cp = keys.whole("prefill_context_parallel_size", "pcp") or 1
    if (keys.whole("decode_context_parallel_size", "dcp") or 1) > 1:
        left.append("decode_context_parallel_size")
    stage = tp * dp * cp
    spread = keys.flag("enable_expert_parallel", "ep") and stage > 1
    return {
        "tp": tp, "pp": pp, "dp": dp if dp > 1 else None, "cp": cp if cp > 1 else None,
        "ep": stage if spread else None,
    }  # fmt: skip


def _limits(keys: Keys, left: list[str]) -> dict[str, object]:
    """Formats, memory, and what bounds a step."""
    weights = keys.choice(["quantization", "q"], QUANTISATIONS)
    if weights == "":
        word = keys.text("quantization", "q")
        keys.note(f"quantization {word}: the checkpoint's own format; weights= says another")
    cache = keys.text("kv_cache_dtype")
    left += [f"kv_cache_dtype={cache}"] if (cache or "").lower() in NEAREST_CACHES else []
    graph, graph_batch = read_graphs(keys, left)
    blocks = keys.whole("num_gpu_blocks_override")
    page = keys.whole("block_size") if blocks else None
    cache_bytes = keys.number("kv_cache_memory_bytes", "kv_cache_memory", high=1e15)
    return {
        "weights": None if weights in ("", "experts_int8") else weights,
        "experts": "int8" if weights == "experts_int8" else None,
        "kv": keys.choice(["kv_cache_dtype"], CACHES),
        "max_batch": _least(keys.whole("max_num_seqs"), keys.whole("max_num_active_seqs")),
        "max_tokens": _least(
            keys.whole("max_num_batched_tokens"), keys.whole("max_num_scheduled_tokens")
        ),
        "memory_fraction": keys.number("gpu_memory_utilization", low=0.01, high=1.0),
        "cache_gb": cache_bytes / 1e9 if cache_bytes else None,
        "cache_tokens": blocks * (page or PAGE) if blocks else None,
        "stream_interval": keys.whole("stream_interval"),
        **read_drafts(keys, left),
        "graph": graph,
        "graph_batch": graph_batch,
        "overlap": keys.flag("async_scheduling"),
        "chunked": False if keys.flag("enable_chunked_prefill") is False else None,
        "offload_gb": keys.number("cpu_offload_gb", high=1e5) or None,
    }


def _experts(keys: Keys, left: list[str]) -> dict[str, object]:
    """How experts are spread and reached."""
    backend = str(keys.text("all2all_backend") or "").lower()
    if backend and backend not in DISPATCH_WORDS:
        left.append(f"all2all_backend={backend[:40]}")
    return {
        "eplb": True if keys.flag("enable_eplb") else None,
        "redundant_experts": read_experts(keys, left),
        "tbo": True if keys.flag("enable_dbo") else None,
        "dispatch": DISPATCH_WORDS.get(backend),
    }


def _adapters(keys: Keys) -> dict[str, object]:
    """Low-rank adapters: those that the command names, else as many as may be on the host; slots for
    max_loras of them are on the chips whether they are filled or not (vllm/lora/lora_model_runner)."""
    named = count_items(keys.raw("lora_modules"))
    slots, rank = keys.whole("max_loras") or 1, keys.whole("max_lora_rank")
    held = keys.whole("max_cpu_loras")
    if not (keys.flag("enable_lora") or named):
        return {}
    every = named or max(held or 1, slots)
    return {
        "adapters": every,
        "adapter_slots": slots if slots != every else None,
        "adapter_rank": rank or 16,
    }


def _lengths(keys: Keys, left: list[str]) -> int | None:
    """The longest request, and what is said of the format of numbers."""
    longest = keys.whole("max_model_len", low=-1)
    if longest is not None:
        keys.note(f"max_model_len {longest}: prompts and answers together must stay below it")
    if keys.flag("enable_prefix_caching") is False:
        keys.note("prefix caching is off: --prefix-hit is to stay 0")
    if (keys.text("dtype") or "").lower() in ("float32", "float", "fp32"):
        left.append("dtype=float32")
    return longest if longest and longest > 0 else None


def _least(*values: int | None) -> int | None:
    """The smallest of those that are given."""
    return min((value for value in values if value is not None), default=None)


PAGE = 16
"""Tokens of a block of the cache where no block_size is given (vllm/config/cache.py)."""


def _positional(words: list[str]) -> list[str]:
    """The model behind `vllm serve`."""
    if "serve" in words:
        after = words[words.index("serve") + 1 :]
        return [word for word in after if word not in ("\\", "&", ";")][:1]
    return []


def drafts_of(d: Deployment) -> dict[str, object]:
    """vLLM's table of a drafter (config/speculative.py); heads and models that draft are to be named."""
    named = {"eagle3": "DRAFT_HEAD", "model": "DRAFT_MODEL", "dspark": "DRAFT_HEAD"}
    method = {"model": "draft_model"}.get(d.drafter, d.drafter)
    table: dict[str, object] = {"method": method, "num_speculative_tokens": d.draft_tokens}
    return table | ({"model": named[d.drafter]} if d.drafter in named else {})


DEGREES = (
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--prefill-context-parallel-size",
    "--stream-interval",
)
"""Flags that need no saying at one."""


def write(serving: Serving) -> str:
    """The command."""
    d = serving.deployment
    words: list[tuple[str, object]] = [
        ("--tensor-parallel-size", d.tp),
        ("--pipeline-parallel-size", d.pp),
        ("--data-parallel-size", d.dp),
        ("--prefill-context-parallel-size", d.cp),
        ("--enable-expert-parallel", "" if d.ep > 1 else None),
        ("--max-model-len", d.max_context),
        ("--max-num-seqs", serving.rank_sequences),
        ("--max-num-batched-tokens", d.max_tokens),
        ("--gpu-memory-utilization", d.memory_fraction),
        ("--quantization", serving.quantization),
        ("--kv-cache-dtype", "fp8" if d.kv.startswith("fp8") else None),
        ("--kv-cache-memory-bytes", round(1e9 * d.cache_gb) if d.cache_gb else None),
        ("--num-gpu-blocks-override", d.cache_tokens // PAGE if d.cache_tokens else None),
        ("--stream-interval", d.stream_interval),
        ("--speculative-config", json.dumps(drafts_of(d)) if d.draft_tokens else None),
        ("--enforce-eager", None if d.graph else ""),
        ("--enable-lora", "" if d.adapters else None),
        ("--max-loras", (d.adapter_slots or d.adapters) if d.adapters else None),
        ("--max-cpu-loras", d.adapters if d.adapter_slots else None),
        ("--max-lora-rank", d.adapter_rank if d.adapters else None),
        ("--cpu-offload-gb", f"{d.offload_gb:g}" if d.offload_gb else None),
    ]
    return command(f"vllm serve {serving.model}", words, DEGREES)
