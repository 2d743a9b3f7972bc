"""`python -m sglang.launch_server`: arguments as of python/sglang/srt/server_args.py (0.4 to 0.5.23).

Its tp is all chips of a stage: with --enable-dp-attention, dp x cp of them have sequences of their own.
Without that switch --dp-size is whole copies of the engine. --mem-fraction-static covers weights and
cache together. Arguments that are not modelled stand in interop/tools.
"""

from collections.abc import Mapping

from foretell.interop.arguments import ArgumentTable
from foretell.interop.engine_launch import engine_launch
from foretell.interop.keys import Keys
from foretell.interop.launch import Known, Launch
from foretell.interop.serving_words import (
    CACHES,
    DISPATCH_WORDS,
    QUANTISATIONS,
    Serving,
    command,
    count_items,
    drafter_word,
    known_drafter,
    largest,
)
from foretell.specs.deployment import Deployment

SWITCHES = frozenset(
    """enable_dp_attention trust_remote_code disable_cuda_graph disable_radix_cache enable_metrics
    enable_torch_compile enable_mixed_chunk enable_dp_lm_head enable_two_batch_overlap enable_eplb
    enable_deepep_moe enable_prefill_cp enable_prefill_context_parallel disable_overlap_schedule
    enable_symm_mem enable_hierarchical_cache enable_lora disable_decode_cuda_graph disable_prefill_cuda_graph
    enable_prefill_delayer
    enable_hicache enable_lmcache enable_hisparse enable_pdmux enable_memory_saver disable_custom_all_reduce
    enable_nccl_nvls enable_mscclpp enable_single_batch_overlap enable_flashinfer_allreduce_fusion
    disable_shared_experts_fusion enable_cache_report enable_multimodal skip_server_warmup
    enable_deterministic_inference enable_dynamic_chunking enable_priority_scheduling enable_waterfill
    disable_chunked_prefix_cache enable_weights_cpu_backup language_only encoder_only""".split()
)
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
    "drafter": ("speculative_algorithm",), "cache_tokens": ("max_total_tokens",),
    "graph_batch": ("cuda_graph_max_bs", "cuda_graph_max_bs_decode", "cuda_graph_bs", "cuda_graph_bs_decode"),
    "receive_steps": ("scheduler_recv_interval",), "decode_steps": ("num_continuous_decode_steps",),
    "overlap": ("disable_overlap_schedule",), "mixed": ("enable_mixed_chunk",),
    "chunked": ("chunked_prefill_size",), "eplb": ("enable_eplb",),
    "redundant_experts": ("ep_num_redundant_experts",), "tbo": ("enable_two_batch_overlap",),
    "dispatch": ("moe_a2a_backend", "deepep_mode"), "max_context": ("context_length",),
    "wait_steps": ("enable_prefill_delayer", "prefill_delayer_max_delay_passes"),
    "adapters": ("lora_paths", "max_loaded_loras", "max_loras_per_batch", "enable_lora"),
    "adapter_slots": ("max_loras_per_batch",),
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
    return told


def read(given: ArgumentTable, known: Known) -> Launch:
    """What the command says."""
    keys = Keys(given, tool="sglang", switches=SWITCHES)
    left: list[str] = []
    layout, gpus, copies = _layout(keys)
    dp = int(str(layout["dp"] or 1))
    side = keys.text("disaggregation_mode")
    if side in ("prefill", "decode"):
        keys.note(f"disaggregation_mode: this instance does {side} alone; --prefill-gpus and "
                  "--prefill-plan describe the other side")  # fmt: skip
    values = {
        **layout, **_formats(keys, left), **_limits(keys, dp, copies), **_drafts(keys, left),
        **_steps(keys), **_moved(keys, left), **_adapters(keys),
    }  # fmt: skip
    values = _wide(keys, values)
    models = [name for name in [keys.text("model_path", "model")] if name]
    return engine_launch("sglang", given, keys, models, gpus, values, left, SOURCES)


def _layout(keys: Keys) -> tuple[dict[str, object], int, int]:
    """(degrees, chips, copies that share the limits on requests)."""
    ranks = keys.whole("tp_size", "tp", "tensor_parallel_size") or 1
    pp = keys.whole("pp_size", "pp", "pipeline_parallel_size") or 1
    copies = keys.whole("dp_size", "dp", "data_parallel_size") or 1
    cp = keys.whole("attn_cp_size", "attention_context_parallel_size") or 1
    ep = _experts(keys, ranks)
    apart = keys.flag("enable_dp_attention") or False
    inside = keys.whole("attn_dp_size", "attention_data_parallel_size") or 1
    if inside > 1:
        apart, copies = True, inside
    dp = copies if apart else 1
    if ranks % (dp * cp):
        keys.problem("tp_size", f"is no multiple of dp {dp} x cp {cp}", ranks)
    if copies > 1 and not apart:
        keys.note(
            f"dp_size without enable_dp_attention: {copies} copies of the engine side by side"
        )
    layout: dict[str, object] = {
        "tp": max(ranks // (dp * cp), 1), "pp": pp, "dp": dp if dp > 1 else None,
        "cp": cp if cp > 1 else None, "ep": ep if ep > 1 else None,
    }  # fmt: skip
    return layout, ranks * pp * (1 if apart else copies), copies


def _formats(keys: Keys, left: list[str]) -> dict[str, object]:
    """Formats of weights and cache."""
    weights = keys.choice(["quantization"], QUANTISATIONS)
    if weights == "":
        word = keys.text("quantization")
        keys.note(f"quantization {word}: the checkpoint's own format; weights= says another")
    if (keys.text("dtype") or "").lower() in ("float32", "float"):
        left.append("dtype=float32")
    return {
        "weights": None if weights in ("", "experts_int8") else weights,
        "kv": keys.choice(["kv_cache_dtype"], CACHES),
    }


def _limits(keys: Keys, dp: int, copies: int) -> dict[str, object]:
    """What bounds the batch, a step and the cache.

    chunked_prefill_size and max_running_requests count for all ranks together: the engine divides them
    (server_args.py, pool_configurator.py). max_total_tokens is of one rank's pool.
    """
    chunk = keys.whole("chunked_prefill_size", low=-1)
    running = keys.whole("max_running_requests")
    longest = keys.whole("context_length", low=-1)
    if longest is not None:
        keys.note(f"context_length {longest}: prompts and answers together must stay below it")
    if keys.flag("disable_radix_cache"):
        keys.note("prefix caching is off: --prefix-hit is to stay 0")
    backend = (keys.text("cuda_graph_backend_decode") or "").lower()
    bare = keys.flag("disable_cuda_graph") or keys.flag("disable_decode_cuda_graph")
    return {
        "max_context": longest if longest and longest > 0 else None,
        "max_batch": None if running is None else max(running // copies, 1),
        "max_tokens": max(chunk // dp, 1) if chunk is not None and chunk > 0 else None,
        "memory_fraction": keys.number("mem_fraction_static", low=0.01, high=1.0),
        "cache_tokens": keys.whole("max_total_tokens"),
        "chunked": False if chunk is not None and chunk <= 0 else None,
        "graph": False if bare or backend == "disabled" else None,
        "graph_batch": keys.whole("cuda_graph_max_bs", "cuda_graph_max_bs_decode")
        or largest(keys.raw("cuda_graph_bs", "cuda_graph_bs_decode")),
    }


def _drafts(keys: Keys, left: list[str]) -> dict[str, object]:
    """Tokens that a draft proposes in each step, and who does."""
    draft, method = keys.whole("speculative_num_draft_tokens"), keys.text("speculative_algorithm")
    steps = keys.whole("speculative_num_steps")
    if not method:
        return {}
    if (keys.whole("speculative_eagle_topk") or 1) > 1:
        left.append("speculative_eagle_topk")  # a tree of drafts; one is a chain, as is modelled
    draft = draft or (steps or 3) + 1
    if method.upper() == "EAGLE" and not keys.has(
        "speculative_draft_model_path", "speculative_draft_model"
    ):
        method = "NEXTN"  # without a draft of its own the model's prediction block drafts
    if not known_drafter(method):
        left.append(f"speculative_algorithm={method[:40]}")
    drafter = drafter_word(method) or (None if known_drafter(method) else "eagle3")
    return {"draft_tokens": draft - 1 if draft > 1 else None, "drafter": drafter}


def _steps(keys: Keys) -> dict[str, object]:
    """How the scheduler goes from step to step."""
    return {
        "stream_interval": keys.whole("stream_interval"),
        "receive_steps": keys.whole("scheduler_recv_interval"),
        "decode_steps": keys.whole("num_continuous_decode_steps"),
        "overlap": False if keys.flag("disable_overlap_schedule") else None,
        "mixed": True if keys.flag("enable_mixed_chunk") else None,
    }


def _moved(keys: Keys, left: list[str]) -> dict[str, object]:
    """How tokens reach experts, how these are placed, and what stays on the host."""
    spread = (keys.text("moe_a2a_backend") or "").lower()
    mode = keys.text("deepep_mode")
    if keys.flag("enable_deepep_moe"):
        spread = spread or "deepep"
    if spread and spread not in DISPATCH_WORDS:
        left.append(f"moe_a2a_backend={spread[:40]}")
    low = mode == "low_latency" and spread in ("", "deepep")
    return {
        "eplb": True if keys.flag("enable_eplb") else None,
        "redundant_experts": keys.whole("ep_num_redundant_experts", low=0) or None,
        "tbo": True if keys.flag("enable_two_batch_overlap") else None,
        "dispatch": DISPATCH_WORDS["low_latency"] if low else DISPATCH_WORDS.get(spread),
        "offload_gb": keys.number("cpu_offload_gb", high=1e5) or None,
    }


CHUNK, DELAY = 8192, 30
"""chunked_prefill_size of cards below 160 GB, and prefill_delayer_max_delay_passes, by default
(server_args.py)."""


def _wide(keys: Keys, values: dict[str, object]) -> dict[str, object]:
    """Values of a launch with experts over many ranks: neither balanced experts nor halves by turns, no wait
    for prompts of other ranks, and the default chunk divided by the ranks, unless it says so."""
    delayed = bool(keys.flag("enable_prefill_delayer"))
    passes = keys.whole("prefill_delayer_max_delay_passes")
    dp, ep = (int(str(values.get(name) or 1)) for name in ("dp", "ep"))
    if not Deployment(dp=dp, ep=ep).is_wide:
        return values
    chunk = values["max_tokens"]
    if chunk is None and values.get("chunked") is not False:
        chunk = max(CHUNK // dp, 1)
        keys.note(
            f"chunked_prefill_size {CHUNK} (default) is {chunk} tokens for each of {dp} ranks"
        )
    # Copies, or a file of places, balance experts without EPLB moving them on.
    placed = values.get("redundant_experts") or keys.text("init_expert_location")
    apart = keys.text("disaggregation_mode") in ("prefill", "decode")
    return values | {
        "max_tokens": chunk,
        "wait_steps": None if apart else float(passes or DELAY) if delayed else 0.0,
        "eplb": values.get("eplb") or (None if placed else False),
        "tbo": bool(values.get("tbo")),
    }


def _adapters(keys: Keys) -> dict[str, object]:
    """Low-rank adapters: those that the command names, else as many as may be on the host; the pool has
    max_loras_per_batch slots (srt/lora/mem_pool.py)."""
    named = count_items(keys.raw("lora_paths"))
    told, rank = keys.whole("max_loras_per_batch"), keys.whole("max_lora_rank")
    held = keys.whole("max_loaded_loras")
    if not (keys.flag("enable_lora") or named or told or held):
        return {}
    slots = told or 8
    every = named or max(held or 1, slots)
    return {
        "adapters": every,
        "adapter_slots": slots if slots != every else None,
        "adapter_rank": rank or 16,
    }


DEGREES = ("--pp-size", "--attn-cp-size", "--ep-size", "--stream-interval")
"""Flags that need no saying at one."""


ALGORITHMS = {
    "mtp": "NEXTN", "eagle3": "EAGLE3", "ngram": "NGRAM", "model": "STANDALONE", "dspark": "DSPARK",
}  # fmt: skip
"""Drafter -> SGLang's word (srt/speculative/spec_info.py)."""
DRAFTS = {"eagle3": "DRAFT_HEAD", "model": "DRAFT_MODEL", "dspark": "DRAFT_HEAD"}
"""What is to be named of a trained head and of a smaller model."""


def _wide_words(d: Deployment) -> list[tuple[str, object]]:
    """Flags of what is assumed of a deployment with experts over many ranks (serving/wide_experts.py)."""
    chunk = CHUNK * d.dp if d.max_tokens is None else None
    waits = DELAY if d.wait_steps is None else round(d.wait_steps)
    more = 32 if d.redundant_experts is None else d.redundant_experts
    return [
        ("--moe-a2a-backend", "deepep" if d.dispatch in ("auto", "deepep") else None),
        ("--chunked-prefill-size", chunk),
        ("--enable-prefill-delayer", "" if waits else None),
        ("--prefill-delayer-max-delay-passes", waits if waits not in (0, DELAY) else None),
        ("--enable-eplb", None if d.eplb is False else ""),
        ("--ep-num-redundant-experts", more if d.eplb is not False and more else None),
        ("--enable-two-batch-overlap", None if d.tbo is False else ""),
    ]


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
        ("--context-length", d.max_context),
        ("--max-running-requests", None if each is None else each * d.dp),
        ("--chunked-prefill-size", None if d.max_tokens is None else d.max_tokens * d.dp),
        ("--mem-fraction-static", d.memory_fraction),
        ("--quantization", serving.quantization),
        ("--kv-cache-dtype", "fp8_e4m3" if d.kv.startswith("fp8") else None),
        ("--max-total-tokens", d.cache_tokens),
        ("--stream-interval", d.stream_interval),
        ("--enable-lora", "" if d.adapters else None),
        ("--max-loras-per-batch", (d.adapter_slots or d.adapters) if d.adapters else None),
        ("--max-lora-rank", d.adapter_rank if d.adapters else None),
        ("--cpu-offload-gb", f"{d.offload_gb:g}" if d.offload_gb else None),
    ]
    if d.draft_tokens:
        words += [
            ("--speculative-algorithm", ALGORITHMS[d.drafter]),
            ("--speculative-num-steps", None if d.drafter == "ngram" else str(d.draft_tokens)),
            ("--speculative-eagle-topk", None if d.drafter == "ngram" else "1"),
            ("--speculative-num-draft-tokens", d.draft_tokens + 1),
            ("--speculative-draft-model-path", DRAFTS.get(d.drafter)),
        ]
    words.append(("--disable-cuda-graph", None if d.graph else ""))
    words += _wide_words(d) if d.is_wide else []
    start = f"python -m sglang.launch_server --model-path {serving.model}"
    return command(start, words, DEGREES)
