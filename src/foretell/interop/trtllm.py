"""`trtllm-serve` and its YAML of options (tensorrt_llm/commands/serve.py, llm_args.py; 1.0 to 1.3).

Its tp is all chips of a stage; with `enable_attention_dp` each of them has sequences of its own, and
--max_batch_size counts for one. Its memory fraction is of what is left once weights and buffers are there.
"""

from collections.abc import Mapping

from foretell.interop.arguments import ArgumentTable
from foretell.interop.kept_flags import own_flags
from foretell.interop.keys import Keys, plan_words, read_back
from foretell.interop.launch import Known, Launch
from foretell.interop.serving_words import CACHES, Serving, command, drafter_word, largest

SWITCHES = frozenset(
    """trust_remote_code enable_chunked_prefill allow_run_as_root oversubscribe
    fail_fast_on_attention_window_too_large""".split()
)
IGNORED = frozenset(
    """host port backend log_level tokenizer max_beam_width trust_remote_code gpus_per_node revision config
    extra_llm_api_options reasoning_parser tool_parser num_postprocess_workers enable_chunked_prefill
    max_seq_len print_iter_log enable_autotuner enable_iter_perf_stats perf_metrics_max_requests
    return_perf_metrics guided_decoding_backend n allow_run_as_root oversubscribe mpi
    enable_layerwise_nvtx_marker max_input_len cuda_graph_config.enable_padding custom_tokenizer
    custom_module_dirs chat_template media_io_kwargs otlp_traces_endpoint metadata_server_config_file
    server_role disagg_cluster_uri fail_fast_on_attention_window_too_large sampler_type load_format
    checkpoint_format garbage_collection_gen0_threshold
    kv_cache_config.enable_block_reuse speculative_config.decoding_type""".split()
)
RELEVANT = frozenset(
    """scheduler_config.* moe_config.* attention_dp_config.* cuda_graph_config.* kv_cache_config.*
    speculative_config.* torch_compile_config.* batch_wait_max_tokens_ratio attention_backend
    attn_backend enable_min_latency enable_lm_head_tp_in_adp pp_partition.* cp_config.* cluster_size
    nvfp4_gemm_config.* moe_cluster_parallel_size num_postprocess_workers cache_transceiver_config.*
    allreduce_strategy sparse_attention_config.* lora_config.*""".split()
)
"""Arguments that bear on latency or memory and are not modelled."""


SOURCES: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "model_path", "serve"),
    "gpus": ("tp_size", "tensor_parallel_size", "tp", "pp_size", "pipeline_parallel_size", "pp"),
    "tp": ("tp_size", "tensor_parallel_size", "tp"), "pp": ("pp_size", "pipeline_parallel_size", "pp"),
    "dp": ("enable_attention_dp",), "cp": ("cp_size", "context_parallel_size"),
    "ep": ("ep_size", "moe_expert_parallel_size", "ep"),
    "kv": ("kv_cache_config.dtype", "kv_cache_dtype"), "max_batch": ("max_batch_size",),
    "max_tokens": ("max_num_tokens",),
    "memory_fraction": ("kv_cache_free_gpu_memory_fraction", "free_gpu_memory_fraction",
                        "kv_cache_config.free_gpu_memory_fraction"),
    "draft_tokens": ("speculative_config.num_nextn_predict_layers", "speculative_config.max_draft_len"),
    "wait_steps": ("batch_wait_timeout_iters", "attention_dp_config.batching_wait_iters"),
    "graph": ("cuda_graph_config",),
    "drafter": ("speculative_config.decoding_type",), "overlap": ("disable_overlap_scheduler",),
    "graph_batch": ("cuda_graph_config.max_batch_size", "cuda_graph_config.batch_sizes"),
    "adapters": ("lora_config.max_loras",), "adapter_rank": ("lora_config.max_lora_rank",),
}  # fmt: skip
"""The flags and keys that each value is from."""


def read(given: ArgumentTable, known: Known) -> Launch:
    """What the command and the files it writes say."""
    keys = Keys(given, tool="trtllm", switches=SWITCHES)
    ranks = keys.whole("tp_size", "tensor_parallel_size", "tp") or 1
    pp = keys.whole("pp_size", "pipeline_parallel_size", "pp") or 1
    cp = keys.whole("cp_size", "context_parallel_size") or 1
    ep = keys.whole("ep_size", "moe_expert_parallel_size", "ep") or 1
    apart = keys.flag("enable_attention_dp") or False
    keys.whole("moe_tensor_parallel_size")
    longest = keys.whole("max_seq_len")
    if longest is not None:
        keys.note(f"max_seq_len {longest}: prompts and answers together must stay below it")
    graphs = keys.has("cuda_graph_config") and keys.raw("cuda_graph_config") is None
    drafts = ("num_nextn_predict_layers", "max_draft_len")
    draft = keys.whole(*(f"speculative_config.{name}" for name in drafts), low=0)
    method = keys.text("speculative_config.decoding_type")
    waits = keys.number("batch_wait_timeout_iters", high=1e5)
    if waits is None and apart:
        waits = keys.number("attention_dp_config.batching_wait_iters", high=1e5) or None
    fraction = keys.number(
        "kv_cache_free_gpu_memory_fraction", "free_gpu_memory_fraction",
        "kv_cache_config.free_gpu_memory_fraction", low=0.01, high=1.0,
    )  # fmt: skip
    values: dict[str, object] = {
        "tp": 1 if apart else ranks, "pp": pp, "dp": ranks if apart and ranks > 1 else None,
        "cp": cp if cp > 1 else None, "ep": ep if ep > 1 else None,
        "kv": keys.choice(["kv_cache_config.dtype", "kv_cache_dtype"], CACHES),
        "max_batch": keys.whole("max_batch_size"),
        "max_tokens": keys.whole("max_num_tokens"),
        "memory_fraction": fraction,
        "stream_interval": keys.whole("stream_interval"),
        "draft_tokens": draft or None,
        "drafter": drafter_word(method) if draft else None,
        "overlap": False if keys.flag("disable_overlap_scheduler") else None,
        "graph_batch": keys.whole("cuda_graph_config.max_batch_size")
        or largest(keys.raw("cuda_graph_config.batch_sizes")),
        "adapters": keys.whole("lora_config.max_loras"),
        "adapter_rank": keys.whole("lora_config.max_lora_rank"),
        "wait_steps": f"{waits:g}" if waits else None,
        "graph": False if graphs else None,
    }  # fmt: skip
    models = [*_positional(keys.words), *(name for name in [keys.text("model")] if name)]
    quiet, _ = keys.rest(IGNORED)
    unmodelled = tuple(name for name in keys.unmodelled(RELEVANT) if name not in quiet)
    quiet, unknown = keys.rest(IGNORED)
    keys.raise_problems()
    gpus = ranks * pp * cp
    return Launch(
        tool="trtllm",
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


def _positional(words: list[str]) -> list[str]:
    """The model behind `trtllm-serve` (or `trtllm-serve serve`)."""
    for at, word in enumerate(words):
        if word.rpartition("/")[2] in ("trtllm-serve", "trtllm-llmapi-launch"):
            after = [w for w in words[at + 1 :] if w not in ("serve", "trtllm-serve")]
            if after:
                return after[:1]
    return []


DEGREES = ("--pp_size", "--cp_size", "--ep_size")
"""Flags that need no saying at one."""


def write(serving: Serving) -> str:
    """The command, and before it the file of options where it needs one."""
    d = serving.deployment
    words: list[tuple[str, object]] = [
        ("--tp_size", d.tp * d.dp),
        ("--pp_size", d.pp),
        ("--cp_size", d.cp),
        ("--ep_size", d.ep),
        ("--max_batch_size", serving.rank_sequences),
        ("--max_num_tokens", d.max_tokens),
        ("--kv_cache_free_gpu_memory_fraction", d.memory_fraction),
    ]
    inside = []
    inside += ["enable_attention_dp: true"] if d.dp > 1 else []
    inside += ["kv_cache_config:", "  dtype: fp8"] if d.kv.startswith("fp8") else []
    inside += [f"stream_interval: {d.stream_interval}"] if d.stream_interval > 1 else []
    inside += [f"batch_wait_timeout_iters: {d.wait_steps:g}"] if d.wait_steps else []
    inside += [] if d.graph else ["cuda_graph_config: null"]
    if d.draft_tokens:
        inside += ["speculative_config:", "  decoding_type: MTP"]
        inside += [f"  num_nextn_predict_layers: {d.draft_tokens}"]
    words.append(("--config", "extra.yml" if inside else None))
    text = command(f"trtllm-serve {serving.model}", words, DEGREES)
    if not inside:
        return text
    lines = "\n".join(inside)
    return f"cat > extra.yml <<'EOF'\n{lines}\nEOF\n{text}"
