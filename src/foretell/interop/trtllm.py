"""`trtllm-serve` and its YAML of options (tensorrt_llm/commands/serve.py, llm_args.py; 1.0 to 1.3).

Its tp is all chips of a stage; with `enable_attention_dp` each of them has sequences of its own, and
--max_batch_size counts for one. Its memory fraction is of what is left once weights and buffers are there.
Options that are not modelled stand in interop/tools.
"""

from collections.abc import Mapping

from foretell.interop.arguments import ArgumentTable
from foretell.interop.engine_launch import engine_launch
from foretell.interop.keys import Keys
from foretell.interop.launch import Known, Launch
from foretell.interop.serving_words import (
    CACHES,
    Serving,
    command,
    count_items,
    drafter_word,
    known_drafter,
    largest,
)

SWITCHES = frozenset(
    """trust_remote_code enable_chunked_prefill allow_run_as_root oversubscribe
    fail_fast_on_attention_window_too_large""".split()
)
SOURCES: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "model_path", "serve"),
    "gpus": ("tp_size", "tensor_parallel_size", "tp", "pp_size", "pipeline_parallel_size", "pp"),
    "tp": ("tp_size", "tensor_parallel_size", "tp"), "pp": ("pp_size", "pipeline_parallel_size", "pp"),
    "dp": ("enable_attention_dp",), "cp": ("cp_size", "context_parallel_size"),
    "ep": ("ep_size", "moe_expert_parallel_size", "ep"),
    "kv": ("kv_cache_config.dtype", "kv_cache_dtype", "quant_config.kv_cache_quant_algo"),
    "max_context": ("max_seq_len",), "max_batch": ("max_batch_size",),
    "max_tokens": ("max_num_tokens",),
    "memory_fraction": ("kv_cache_free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction",
    "free_gpu_memory_fraction",
                        "kv_cache_config.free_gpu_memory_fraction"),
    "draft_tokens": ("speculative_config.num_nextn_predict_layers", "speculative_config.max_draft_len",
                     "speculative_config.decoding_type"),
    "wait_steps": ("batch_wait_timeout_iters", "attention_dp_config.batching_wait_iters"),
    "graph": ("cuda_graph_config",),
    "drafter": ("speculative_config.decoding_type",), "overlap": ("disable_overlap_scheduler",),
    "graph_batch": ("cuda_graph_config.max_batch_size", "cuda_graph_config.batch_sizes"),
    "adapters": ("lora_config.lora_dir", "lora_config.max_cpu_loras", "lora_config.max_loras", "enable_lora"),
    "adapter_slots": ("lora_config.max_loras",), "adapter_rank": ("lora_config.max_lora_rank", "enable_lora"),
    "weights": ("quant_config.quant_algo",), "cache_gb": ("kv_cache_config.max_gpu_total_bytes",),
    "cache_tokens": ("kv_cache_config.max_tokens",), "chunked": ("enable_chunked_prefill",),
}  # fmt: skip
"""The flags and keys that each value is from."""


def read(given: ArgumentTable, known: Known) -> Launch:
    """What the command and the files it writes say."""
    keys = Keys(given, tool="trtllm", switches=SWITCHES)
    left: list[str] = []
    layout, gpus = _layout(keys)
    values = {
        **layout, **_formats(keys, left), **_limits(keys), **_drafts(keys, left), **_adapters(keys),
    }  # fmt: skip
    models = [*_positional(keys.words), *(name for name in [keys.text("model")] if name)]
    return engine_launch("trtllm", given, keys, models, gpus, values, left, SOURCES)


def _layout(keys: Keys) -> tuple[dict[str, object], int]:
    """(degrees and what goes with attention data parallel, chips)."""
    ranks = keys.whole("tp_size", "tensor_parallel_size", "tp") or 1
    pp = keys.whole("pp_size", "pipeline_parallel_size", "pp") or 1
    cp = keys.whole("cp_size", "context_parallel_size") or 1
    told = keys.whole("ep_size", "moe_expert_parallel_size", "ep")
    cut = keys.whole("moe_tensor_parallel_size", "moe_tp_size")
    ep = told or (ranks // cut if cut and not ranks % cut else 1)
    if cut and cut * ep != ranks:
        keys.problem("moe_tensor_parallel_size", f"times ep {ep} is not the {ranks} ranks", cut)
    apart = keys.flag("enable_attention_dp") or False
    waits = keys.number("batch_wait_timeout_iters", high=1e5)
    if waits is None and apart:
        waits = keys.number("attention_dp_config.batching_wait_iters", high=1e5) or None
    layout: dict[str, object] = {
        "tp": 1 if apart else ranks, "pp": pp, "dp": ranks if apart and ranks > 1 else None,
        "cp": cp if cp > 1 else None, "ep": ep if ep > 1 else None,
        "wait_steps": f"{waits:g}" if waits else None,
    }  # fmt: skip
    return layout, ranks * pp * cp


def _formats(keys: Keys, left: list[str]) -> dict[str, object]:
    """Formats of weights and cache (tensorrt_llm/quantization/mode.py: QuantAlgo)."""
    if (keys.text("dtype") or "").lower() in ("float32", "float"):
        left.append("dtype=float32")
    cache = ["kv_cache_config.dtype", "kv_cache_dtype", "quant_config.kv_cache_quant_algo"]
    return {
        "weights": keys.choice(["quant_config.quant_algo"], ALGORITHMS) or None,
        "kv": keys.choice(cache, CACHES),
    }


def _limits(keys: Keys) -> dict[str, object]:
    """What bounds the batch, a step and the cache, and how steps follow each other."""
    longest = keys.whole("max_seq_len")
    if longest is not None:
        keys.note(f"max_seq_len {longest}: prompts and answers together must stay below it")
    if keys.flag("kv_cache_config.enable_block_reuse") is False:
        keys.note("prefix caching is off: --prefix-hit is to stay 0")
    if keys.pairs.get("enable_autotuner") is True:
        keys.flag("enable_autotuner")  # its default
    graphs = keys.has("cuda_graph_config") and keys.raw("cuda_graph_config") is None
    most = keys.number("kv_cache_config.max_gpu_total_bytes", high=1e15)
    cut = keys.flag("enable_chunked_prefill", "enable_chunked_context")
    return {
        "max_context": longest,
        "max_batch": keys.whole("max_batch_size"),
        "max_tokens": keys.whole("max_num_tokens"),
        "memory_fraction": keys.number(
            "kv_cache_free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction", "free_gpu_memory_fraction",
            "kv_cache_config.free_gpu_memory_fraction", low=0.01, high=1.0,
        ),
        "cache_gb": most / 1e9 if most else None,
        "cache_tokens": keys.whole("kv_cache_config.max_tokens"),
        "stream_interval": keys.whole("stream_interval"),
        "overlap": False if keys.flag("disable_overlap_scheduler") else None,
        "chunked": False if cut is False else None,
        "graph_batch": keys.whole("cuda_graph_config.max_batch_size", low=0)
        or largest(keys.raw("cuda_graph_config.batch_sizes")),
        "graph": False if graphs else None,
    }  # fmt: skip


def _drafts(keys: Keys, left: list[str]) -> dict[str, object]:
    """Tokens that a draft proposes in each step, and who does; a prediction block drafts one by itself."""
    names = ("max_draft_len", "num_nextn_predict_layers", "max_ngram_size")
    draft = keys.whole(*(f"speculative_config.{name}" for name in names), low=0)
    keys.raw(*(f"speculative_config.{name}" for name in names))
    method = keys.text("speculative_config.decoding_type")
    plain = (method or "").replace("_", "").lower()
    if not method and not draft:
        return {}
    if not draft and plain == "mtp":
        draft = 1
        keys.note("speculative_config names no max_draft_len: 1, the prediction block's own")
    if not draft:
        keys.doubt(f"speculative_config {method} names no max_draft_len")
        return {}
    word = {"drafttarget": "draft_target"}.get(plain, plain)
    if word and not known_drafter(word):
        left.append(f"speculative_config.decoding_type={method}")
    drafter = drafter_word(word) or (None if not word or known_drafter(word) else "eagle3")
    return {"draft_tokens": draft, "drafter": drafter}


def _adapters(keys: Keys) -> dict[str, object]:
    """Low-rank adapters: those on the host, and slots on the chips."""
    named = count_items(keys.raw("lora_config.lora_dir"))
    slots, held = keys.whole("lora_config.max_loras"), keys.whole("lora_config.max_cpu_loras")
    rank = keys.whole("lora_config.max_lora_rank")
    if not (keys.flag("enable_lora") or named or slots or held):
        return {}
    every = named or max(held or 1, slots or 1)
    return {
        "adapters": every,
        "adapter_slots": slots if slots and slots != every else None,
        "adapter_rank": rank or 64,
    }


ALGORITHMS: Mapping[str, str] = {
    "fp8": "fp8", "fp8_per_channel_per_token": "fp8", "fp8_block_scales": "fp8-block", "nvfp4": "nvfp4",
    "w4a16": "int4", "w4a16_awq": "int4", "w4a16_gptq": "int4", "w4a8_awq": "int4", "w8a16": "int8",
    "w8a16_gptq": "int8", "int8": "int8", "w8a8_sq_per_channel": "int8", "w4a8_mxfp4_fp8": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4", "w4a16_mxfp4": "mxfp4", "w4a8_nvfp4_fp8": "nvfp4", "mixed_precision": "",
    "no_quant": "bf16",
}  # fmt: skip
"""quant_config.quant_algo and the format of the weights; empty: the checkpoint's."""


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


DECODING = {
    "mtp": "MTP", "eagle3": "Eagle3", "ngram": "NGram", "model": "Draft_Target", "dspark": "DSpark",
}  # fmt: skip
"""Drafter -> decoding_type (tensorrt_llm/llmapi/llm_args.py)."""
DRAFTS = {"eagle3": "DRAFT_HEAD", "model": "DRAFT_MODEL", "dspark": "DRAFT_HEAD"}
"""What is to be named of a trained head and of a smaller model."""


def write(serving: Serving) -> str:
    """The command, and before it the file of options where it needs one."""
    d = serving.deployment
    words: list[tuple[str, object]] = [
        ("--tp_size", d.tp * d.dp),
        ("--pp_size", d.pp),
        ("--cp_size", d.cp),
        ("--ep_size", d.ep),
        ("--max_seq_len", d.max_context),
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
        inside += ["speculative_config:", f"  decoding_type: {DECODING[d.drafter]}"]
        length = "num_nextn_predict_layers" if d.drafter == "mtp" else "max_draft_len"
        inside += [f"  {length}: {d.draft_tokens}"]
        inside += [f"  speculative_model: {DRAFTS[d.drafter]}"] if d.drafter in DRAFTS else []
    words.append(("--config", "extra.yml" if inside else None))
    text = command(f"trtllm-serve {serving.model}", words, DEGREES)
    if not inside:
        return text
    lines = "\n".join(inside)
    return f"cat > extra.yml <<'EOF'\n{lines}\nEOF\n{text}"
