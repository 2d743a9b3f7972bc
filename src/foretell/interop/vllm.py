"""`vllm serve`: engine arguments as of vllm/engine/arg_utils.py (0.10 and later), or a YAML of the same.

--gpu-memory-utilization is a share of the whole card. --max-num-seqs counts for one data-parallel rank,
so that an instance holds dp times as many.
"""

import json
from collections.abc import Mapping

from foretell.interop.arguments import ArgumentTable
from foretell.interop.kept_flags import own_flags
from foretell.interop.keys import Keys, plan_words, read_back
from foretell.interop.launch import Known, Launch
from foretell.interop.serving_words import (
    CACHES,
    DISPATCH_WORDS,
    QUANTISATIONS,
    Serving,
    command,
    drafter_word,
    largest,
    quantisation,
)

SWITCHES = frozenset(
    """enable_lora enable_dbo no_async_scheduling enable_expert_parallel ep enforce_eager
    trust_remote_code enable_chunked_prefill
    enable_prefix_caching no_enable_prefix_caching disable_log_requests disable_log_stats async_scheduling
    enable_auto_tool_choice headless data_parallel_hybrid_lb data_parallel_external_lb
    enable_sleep_mode language_model_only enable_eplb no_enable_chunked_prefill""".split()
)
IGNORED = frozenset(
    """host port api_key served_model_name trust_remote_code download_dir load_format seed tokenizer
    tokenizer_mode revision chat_template tool_call_parser reasoning_parser enable_auto_tool_choice
    disable_log_requests disable_log_stats uvicorn_log_level max_logprobs generation_config
    override_generation_config limit_mm_per_prompt mm_processor_kwargs hf_overrides hf_token
    distributed_executor_backend data_parallel_address data_parallel_rpc_port data_parallel_backend
    data_parallel_size_local data_parallel_start_rank master_addr master_port node_rank nnodes headless
    enable_prefix_caching enable_chunked_prefill block_size swap_space dtype compilation_config
    all2all_backend moe_backend attention_backend async_scheduling enable_eplb api_server_count
    rope_scaling rope_theta max_model_len m config enable_log_requests lora_modules fully_sharded_loras
    lora_dtype lora_extra_vocab_size temperature top_p top_k min_p max_tokens min_tokens n stop
    repetition_penalty presence_penalty frequency_penalty""".split()
)
RELEVANT = frozenset(
    """block_size swap_space compilation_config moe_backend attention_backend api_server_count
    kv_offloading_size kv_offloading_backend scheduling_policy max_num_partial_prefills
    max_long_partial_prefills long_prefill_token_threshold disable_custom_all_reduce
    disable_hybrid_kv_cache_manager mm_processor_kwargs limit_mm_per_prompt scheduler_cls
    enable_chunked_prefill calculate_kv_scales preemption_mode dbo_decode_token_threshold
    dbo_prefill_token_threshold eplb_config""".split()
)
"""Arguments that bear on latency or memory and are not modelled."""


SOURCES: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "model_path", "serve"),
    "gpus": ("tensor_parallel_size", "tp", "pipeline_parallel_size", "pp", "data_parallel_size", "dp"),
    "tp": ("tensor_parallel_size", "tp"), "pp": ("pipeline_parallel_size", "pp"),
    "dp": ("data_parallel_size", "dp"), "cp": ("prefill_context_parallel_size", "pcp"),
    "ep": ("enable_expert_parallel", "ep"), "weights": ("quantization", "q"), "kv": ("kv_cache_dtype",),
    "max_batch": ("max_num_seqs",), "max_tokens": ("max_num_batched_tokens",),
    "memory_fraction": ("gpu_memory_utilization",),
    "draft_tokens": ("speculative_config", "num_speculative_tokens",
                     "speculative_config.num_speculative_tokens"),
    "graph": ("enforce_eager",),
    "drafter": ("speculative_config",), "graph_batch": ("cuda_graph_sizes", "compilation_config"),
    "overlap": ("async_scheduling",), "chunked": ("enable_chunked_prefill",), "eplb": ("enable_eplb",),
    "redundant_experts": ("num_redundant_experts", "eplb_config.num_redundant_experts"),
    "tbo": ("enable_dbo",),
    "dispatch": ("all2all_backend",), "adapters": ("max_cpu_loras", "max_loras", "enable_lora"),
    "adapter_slots": ("max_loras",),
    "adapter_rank": ("max_lora_rank", "enable_lora"), "offload_gb": ("cpu_offload_gb",),
}  # fmt: skip
"""The flags that each value is from."""


def read(given: ArgumentTable, known: Known) -> Launch:
    """What the command says."""
    keys = Keys(given, tool="vllm", switches=SWITCHES)
    tp = keys.whole("tensor_parallel_size", "tp") or 1
    pp, dp = (
        keys.whole("pipeline_parallel_size", "pp") or 1,
        keys.whole("data_parallel_size", "dp") or 1,
    )
    cp = keys.whole("prefill_context_parallel_size", "pcp") or 1
    if (keys.whole("decode_context_parallel_size", "dcp") or 1) > 1:
        keys.doubt("decode_context_parallel_size is not known here: every rank keeps its own cache")
    spread = keys.flag("enable_expert_parallel", "ep")
    longest = keys.whole("max_model_len", low=-1)
    if longest is not None:
        keys.note(f"max_model_len {longest}: prompts and answers together must stay below it")
    draft, drafter = _draft(keys)
    if keys.has("kv_transfer_config"):
        role = str(keys.raw("kv_transfer_config"))
        side = (
            "prefill"
            if "kv_producer" in role
            else "decode"
            if "kv_consumer" in role
            else "one side"
        )
        keys.note(f"kv_transfer_config: this instance does {side} alone; --prefill-gpus and "
                  "--prefill-plan describe the other side")  # fmt: skip
    compiled = _compilation(keys)
    lora = keys.flag("enable_lora")
    loras, rank = keys.whole("max_loras") or 1, keys.whole("max_lora_rank")
    every = max(keys.whole("max_cpu_loras") or 1, loras)
    values: dict[str, object] = {
        "tp": tp, "pp": pp, "dp": dp if dp > 1 else None, "cp": cp if cp > 1 else None,
        "ep": tp * dp * cp if spread and tp * dp * cp > 1 else None,
        "weights": keys.choice(["quantization", "q"], {**QUANTISATIONS, **OWN}),
        "kv": keys.choice(["kv_cache_dtype"], {**CACHES, "fp8_inc": "fp8", "fp8_ds_mla": "fp8"}),
        "max_batch": keys.whole("max_num_seqs"),
        "max_tokens": keys.whole("max_num_batched_tokens"),
        "memory_fraction": keys.number("gpu_memory_utilization", low=0.01, high=1.0),
        "stream_interval": keys.whole("stream_interval"),
        "draft_tokens": draft,
        "drafter": drafter,
        "graph": False if keys.flag("enforce_eager") or compiled == 0 else None,
        "graph_batch": compiled or largest(keys.raw("cuda_graph_sizes", "cudagraph_capture_sizes")),
        "overlap": keys.flag("async_scheduling"),
        "chunked": False if keys.flag("enable_chunked_prefill") is False else None,
        "eplb": True if keys.flag("enable_eplb") else None,
        "redundant_experts": keys.whole("num_redundant_experts", "eplb_config.num_redundant_experts"),
        "tbo": True if keys.flag("enable_dbo") else None,
        "dispatch": DISPATCH_WORDS.get(str(keys.text("all2all_backend") or "").lower()),
        "adapters": every if lora else None,
        "adapter_slots": loras if lora and loras < every else None,
        "adapter_rank": (rank or 16) if lora else None,
        "offload_gb": keys.number("cpu_offload_gb", high=1e5) or None,
    }  # fmt: skip
    if values["weights"] == "":
        values["weights"] = None
    models = [*_positional(keys.words), *(name for name in [keys.text("model")] if name)]
    unmodelled = keys.unmodelled(RELEVANT)
    quiet, unknown = keys.rest(IGNORED)
    keys.raise_problems()
    gpus = tp * pp * dp * cp
    return Launch(
        tool="vllm",
        models=tuple(models),
        gpus=gpus,
        plan=plan_words(values),
        values=read_back(
            keys, {"model": next(iter(models), None), "gpus": gpus, **values}, SOURCES
        ),
        accelerator=given.accelerator,
        doubts=tuple(keys.doubts),
        notes=tuple(keys.notes),
        ignored=quiet,
        unknown=unknown,
        unmodelled=unmodelled,
        flags=own_flags(given, keys.pairs),
    )


OWN = {
    "compressed-tensors": "",
    "mxfp4": "",
    "gpt_oss_mxfp4": "",
    "bitsandbytes": "int4",
    "quark": "",
}
"""Formats that the checkpoint says by itself."""


def _positional(words: list[str]) -> list[str]:
    """The model behind `vllm serve`."""
    if "serve" in words:
        after = words[words.index("serve") + 1 :]
        return [word for word in after if word not in ("\\", "&", ";")][:1]
    return []


def _table(keys: Keys, name: str) -> dict[str, object]:
    """The JSON of an argument; empty where it is not given."""
    told = keys.text(name)
    if not told:
        return {}
    try:
        table = json.loads(told)
    except (ValueError, RecursionError):
        keys.problem(name, "is not JSON", told)
        return {}
    return table if isinstance(table, dict) else {}


def _draft(keys: Keys) -> tuple[int | None, str | None]:
    """Tokens that a draft proposes in each step, and who does where it is not the model itself."""
    table = _table(keys, "speculative_config")
    direct = keys.whole("num_speculative_tokens", "speculative_config.num_speculative_tokens")
    method = keys.raw("speculative_config.method") or table.get("method")
    other = keys.raw("speculative_config.model") or table.get("model")
    found = table.get("num_speculative_tokens")
    direct = found if isinstance(found, int) and 0 < found < 1000 else direct
    if not direct:
        return None, None
    drafter = drafter_word(str(method or ""))
    if drafter is None and other and not method:
        drafter = "model"
    return direct, drafter


def _compilation(keys: Keys) -> int | None:
    """Largest captured batch of a compilation config; 0: it captures none, None: it says nothing."""
    if not str(keys.raw("compilation_config") or "").lstrip().startswith("{"):
        return None
    table = _table(keys, "compilation_config")
    if str(table.get("cudagraph_mode", "")).upper() == "NONE":
        return 0
    return largest(table.get("max_cudagraph_capture_size")) or largest(
        table.get("cudagraph_capture_sizes")
    )


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
    draft = json.dumps({"method": "mtp", "num_speculative_tokens": d.draft_tokens})
    words: list[tuple[str, object]] = [
        ("--tensor-parallel-size", d.tp),
        ("--pipeline-parallel-size", d.pp),
        ("--data-parallel-size", d.dp),
        ("--prefill-context-parallel-size", d.cp),
        ("--enable-expert-parallel", "" if d.ep > 1 else None),
        ("--max-num-seqs", serving.rank_sequences),
        ("--max-num-batched-tokens", d.max_tokens),
        ("--gpu-memory-utilization", d.memory_fraction),
        ("--quantization", quantisation(d.weights)),
        ("--kv-cache-dtype", "fp8" if d.kv.startswith("fp8") else None),
        ("--stream-interval", d.stream_interval),
        ("--speculative-config", draft if d.draft_tokens else None),
        ("--enforce-eager", None if d.graph else ""),
        ("--enable-lora", "" if d.adapters else None),
        ("--max-loras", (d.adapter_slots or d.adapters) if d.adapters else None),
        ("--max-cpu-loras", d.adapters if d.adapter_slots else None),
        ("--max-lora-rank", d.adapter_rank if d.adapters else None),
        ("--cpu-offload-gb", f"{d.offload_gb:g}" if d.offload_gb else None),
    ]
    return command(f"vllm serve {serving.model}", words, DEGREES)
