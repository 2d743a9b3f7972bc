"""`python -m sglang.launch_server`: arguments as of python/sglang/srt/server_args.py (0.5 and later).

Its tp is all chips of a stage: with --enable-dp-attention, dp x cp of them have sequences of their own.
Without that switch --dp-size is whole copies of the engine. --mem-fraction-static covers weights and
cache together.
"""

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
    """enable_dp_attention trust_remote_code disable_cuda_graph disable_radix_cache enable_metrics
    enable_torch_compile enable_mixed_chunk enable_dp_lm_head enable_two_batch_overlap enable_eplb
    enable_deepep_moe enable_prefill_cp enable_prefill_context_parallel disable_overlap_schedule
    enable_symm_mem enable_hierarchical_cache enable_lora""".split()
)
IGNORED = frozenset(
    """host port api_key served_model_name trust_remote_code tokenizer_path tokenizer_mode chat_template
    tool_call_parser reasoning_parser enable_metrics log_level random_seed download_dir load_format revision
    dist_init_addr nnodes node_rank disable_radix_cache context_length watchdog_timeout dtype m
    decode_log_interval speculative_draft_model_path enable_prefill_cp enable_prefill_context_parallel
    device json_model_override_args disaggregation_bootstrap_port disaggregation_ib_device
    disaggregation_transfer_backend""".split()
)
RELEVANT = frozenset(
    """attention_backend sampling_backend moe_runner_backend enable_torch_compile schedule_policy
    schedule_conservativeness max_total_tokens max_prefill_tokens page_size enable_dp_lm_head
    speculative_eagle_topk speculative_num_steps cp_strategy mm_attention_backend tokenizer_worker_num
    enable_symm_mem prefill_attention_backend decode_attention_backend moe_dense_tp_size hicache_ratio
    hicache_size enable_hierarchical_cache enable_torch_compile torch_compile_max_bs
    disable_custom_all_reduce enable_dynamic_batch_tokenizer tbo_token_distribution_threshold
    enable_single_batch_overlap max_queued_requests enable_deterministic_inference
    load_balance_method init_expert_location expert_distribution_recorder_mode deepep_config
    eplb_rebalance_num_iterations speculative_attention_mode""".split()
)
"""Arguments that bear on latency or memory and are not modelled."""


SPREAD = frozenset(
    "megamoe deepep deepep_v2 mooncake nixl ascend_fuseep flashinfer flashinfer_megamoe mori pplx".split()
)
"""moe_a2a_backend values with which the engine makes expert-parallel ranks of all tensor-parallel ones
(arg_groups/overrides.py, _a2a_ep_size)."""
SOURCES: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "model_path", "serve"),
    "gpus": ("tp_size", "tp", "tensor_parallel_size", "pp_size", "pp", "dp_size", "dp"),
    "tp": ("tp_size", "tp", "tensor_parallel_size"), "pp": ("pp_size", "pp", "pipeline_parallel_size"),
    "dp": ("attn_dp_size", "dp_size", "dp", "data_parallel_size", "enable_dp_attention"),
    "cp": ("attn_cp_size", "attention_context_parallel_size"),
    "ep": ("ep_size", "ep", "expert_parallel_size", "moe_a2a_backend", "enable_deepep_moe"),
    "weights": ("quantization",), "kv": ("kv_cache_dtype",), "max_batch": ("max_running_requests",),
    "max_tokens": ("chunked_prefill_size",), "memory_fraction": ("mem_fraction_static",),
    "draft_tokens": ("speculative_num_draft_tokens",), "graph": ("disable_cuda_graph",),
    "drafter": ("speculative_algorithm",), "graph_batch": ("cuda_graph_max_bs", "cuda_graph_bs"),
    "receive_steps": ("scheduler_recv_interval",), "decode_steps": ("num_continuous_decode_steps",),
    "overlap": ("disable_overlap_schedule",), "mixed": ("enable_mixed_chunk",),
    "chunked": ("chunked_prefill_size",), "eplb": ("enable_eplb",),
    "redundant_experts": ("ep_num_redundant_experts",), "tbo": ("enable_two_batch_overlap",),
    "dispatch": ("moe_a2a_backend", "deepep_mode"), "adapters": ("max_loras_per_batch", "enable_lora"),
    "adapter_rank": ("max_lora_rank", "enable_lora"), "offload_gb": ("cpu_offload_gb",),
}  # fmt: skip
"""The flags that each value is from."""


def _experts(keys: Keys, ranks: int) -> int:
    """Expert-parallel ranks: told, or all tensor-parallel ones where the exchange of tokens needs it."""
    told = keys.whole("ep_size", "ep", "expert_parallel_size") or 1
    backend = (keys.text("moe_a2a_backend") or "none").lower()
    if backend in SPREAD or keys.flag("enable_deepep_moe"):
        if told not in (1, ranks):
            keys.note(f"ep_size {told} becomes {ranks}: all tensor-parallel ranks with {backend}")
        return ranks
    if backend != "none":
        keys.doubt(f"moe_a2a_backend {backend[:40]} is not known here")
    return told


def read(given: ArgumentTable, known: Known) -> Launch:
    """What the command says."""
    keys = Keys(given, tool="sglang", switches=SWITCHES)
    ranks = keys.whole("tp_size", "tp", "tensor_parallel_size") or 1
    pp = keys.whole("pp_size", "pp", "pipeline_parallel_size") or 1
    copies = keys.whole("dp_size", "dp", "data_parallel_size") or 1
    cp = keys.whole("attn_cp_size", "attention_context_parallel_size") or 1
    ep = _experts(keys, ranks)
    apart = keys.flag("enable_dp_attention") or False
    inside = keys.whole("attn_dp_size") or 1
    if inside > 1:
        apart, copies = True, inside
    dp = copies if apart else 1
    if ranks % (dp * cp):
        keys.problem("tp_size", f"is no multiple of dp {dp} x cp {cp}", ranks)
    if copies > 1 and not apart:
        keys.note(
            f"dp_size without enable_dp_attention: {copies} copies of the engine side by side"
        )
    draft, method = keys.whole("speculative_num_draft_tokens"), keys.text("speculative_algorithm")
    steps = keys.whole("speculative_num_steps")
    if method and not draft:
        draft = (steps or 3) + 1
    if (method or "").upper() == "EAGLE" and not keys.has("speculative_draft_model_path"):
        method = "NEXTN"  # without a draft of its own the model's prediction block drafts
    side = keys.text("disaggregation_mode")
    if side in ("prefill", "decode"):
        keys.note(f"disaggregation_mode: this instance does {side} alone; --prefill-gpus and "
                  "--prefill-plan describe the other side")  # fmt: skip
    spread = keys.text("moe_a2a_backend")
    mode = keys.text("deepep_mode")
    if keys.flag("enable_deepep_moe"):
        spread = spread or "deepep"
    loras, rank = keys.whole("max_loras_per_batch"), keys.whole("max_lora_rank")
    lora = bool(keys.flag("enable_lora") or keys.raw("lora_paths") or loras)
    longest = keys.whole("context_length", low=-1)
    if longest is not None:
        keys.note(f"context_length {longest}: prompts and answers together must stay below it")
    # Both count for all ranks together: the engine divides them (server_args.py, pool_configurator.py).
    chunk = keys.whole("chunked_prefill_size", low=-1)
    running = keys.whole("max_running_requests")
    quantised = keys.choice(
        ["quantization"], {**QUANTISATIONS, "mxfp4": "", "compressed-tensors": ""}
    )
    values: dict[str, object] = {
        "tp": max(ranks // (dp * cp), 1), "pp": pp, "dp": dp if dp > 1 else None,
        "cp": cp if cp > 1 else None, "ep": ep if ep > 1 else None,
        "weights": quantised or None,
        "kv": keys.choice(["kv_cache_dtype"], CACHES),
        "max_batch": None if running is None else max(running // copies, 1),
        "max_tokens": max(chunk // dp, 1) if chunk is not None and chunk > 0 else None,
        "memory_fraction": keys.number("mem_fraction_static", low=0.01, high=1.0),
        "stream_interval": keys.whole("stream_interval"),
        "draft_tokens": draft - 1 if draft and draft > 1 else None,
        "drafter": drafter_word(method),
        "graph": False if keys.flag("disable_cuda_graph") else None,
        "graph_batch": keys.whole("cuda_graph_max_bs") or largest(keys.raw("cuda_graph_bs")),
        "receive_steps": keys.whole("scheduler_recv_interval"),
        "decode_steps": keys.whole("num_continuous_decode_steps"),
        "overlap": False if keys.flag("disable_overlap_schedule") else None,
        "mixed": True if keys.flag("enable_mixed_chunk") else None,
        "chunked": False if chunk is not None and chunk <= 0 else None,
        "eplb": True if keys.flag("enable_eplb") else None,
        "redundant_experts": keys.whole("ep_num_redundant_experts", low=0) or None,
        "tbo": True if keys.flag("enable_two_batch_overlap") else None,
        "dispatch": DISPATCH_WORDS.get(mode or "", None) if mode in ("low_latency",)
        else DISPATCH_WORDS.get((spread or "").lower()),
        "adapters": (loras or 8) if lora else None,
        "adapter_rank": (rank or 16) if lora else None,
        "offload_gb": keys.number("cpu_offload_gb", high=1e5) or None,
    }  # fmt: skip
    models = [name for name in [keys.text("model_path", "model")] if name]
    unmodelled = keys.unmodelled(RELEVANT)
    quiet, unknown = keys.rest(IGNORED)
    keys.raise_problems()
    gpus = ranks * pp * (1 if apart else copies)
    return Launch(
        tool="sglang",
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


DEGREES = ("--pp-size", "--attn-cp-size", "--ep-size", "--stream-interval")
"""Flags that need no saying at one."""


def write(serving: Serving) -> str:
    """The command."""
    d = serving.deployment
    several, each = d.dp > 1, serving.rank_sequences
    words: list[tuple[str, object]] = [
        ("--tp-size", d.tp * d.dp * d.cp),
        ("--pp-size", d.pp),
        ("--dp-size", d.dp if several else None),
        ("--enable-dp-attention", "" if several else None),
        ("--attn-cp-size", d.cp),
        ("--enable-prefill-cp", "" if d.cp > 1 else None),
        ("--ep-size", d.ep),
        ("--max-running-requests", None if each is None else each * d.dp),
        ("--chunked-prefill-size", None if d.max_tokens is None else d.max_tokens * d.dp),
        ("--mem-fraction-static", d.memory_fraction),
        ("--quantization", quantisation(d.weights)),
        ("--kv-cache-dtype", "fp8_e4m3" if d.kv.startswith("fp8") else None),
        ("--stream-interval", d.stream_interval),
        ("--enable-lora", "" if d.adapters else None),
        ("--max-loras-per-batch", (d.adapter_slots or d.adapters) if d.adapters else None),
        ("--max-lora-rank", d.adapter_rank if d.adapters else None),
        ("--cpu-offload-gb", f"{d.offload_gb:g}" if d.offload_gb else None),
    ]
    if d.draft_tokens:
        words += [
            ("--speculative-algorithm", "NEXTN"),
            ("--speculative-num-steps", str(d.draft_tokens)),
            ("--speculative-eagle-topk", "1"),
            ("--speculative-num-draft-tokens", d.draft_tokens + 1),
        ]
    words.append(("--disable-cuda-graph", None if d.graph else ""))
    start = f"python -m sglang.launch_server --model-path {serving.model}"
    return command(start, words, DEGREES)
