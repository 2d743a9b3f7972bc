"""Services that run another engine, and Hugging Face's: Dynamo, llm-d, TGI.

    dynamo      python -m dynamo.vllm|sglang|trtllm with the engine's own flags
    llm-d       Helm values of its model service: decode and prefill replicas, parallelism.tensor, vLLM's args
    tgi         text-generation-launcher: --num-shard, --quantize, --max-concurrent-requests

Servers of one machine (llama.cpp, Ollama, MLX) are read in local_servers.py.
"""

from dataclasses import replace

from foretell.interop import sglang, trtllm, vllm
from foretell.interop.arguments import ArgumentTable
from foretell.interop.engine_launch import service_launch
from foretell.interop.keys import Keys, LeftArguments
from foretell.interop.launch import Known, Launch
from foretell.interop.serving_words import largest
from foretell.interop.several_servers import joined_halves

TGI_IGNORED = frozenset(
    """port hostname shard_uds_path master_addr master_port huggingface_hub_cache weights_cache_override
    disable_custom_kernels json_output otlp_* cors_allow_origin api_key revision validation_workers
    max_stop_sequences max_top_n_tokens max_best_of max_input_* max_total_tokens
    trust_remote_code tokenizer_config* disable_grammar_support max_client_batch_size enable_cuda_graphs
    watermark_* ngrok* env p v d gpus shm_size rm it name e image volume
    usage_stats payload_limit graceful_termination_timeout sharded""".split()
)
TGI_BEARS = frozenset(
    """waiting_served_ratio max_waiting_tokens disable_custom_kernels rope_scaling rope_factor
    enable_prefill_logprobs enable_speculative_decoding""".split()
)
"""Options of TGI that move latency or memory and are not modelled (launcher/src/main.rs)."""
QUANTISED = {
    "fp8": "fp8", "awq": "int4", "gptq": "int4", "bitsandbytes": "int8", "bitsandbytes-nf4": "nf4",
    "bitsandbytes-fp4": "int4", "eetq": "int8", "marlin": "int4",
}  # fmt: skip
"""TGI's --quantize and the format of the weights."""


def read_dynamo(given: ArgumentTable, known: Known) -> Launch:
    """The engine inside a Dynamo command."""
    words = " ".join((*given.words, *(str(v) for k, v in given.pairs if k == "m"))).lower()
    engine = next(
        (name for name in ("sglang", "trtllm", "vllm") if f"dynamo.{name}" in words), "vllm"
    )
    read = {"sglang": sglang.read, "trtllm": trtllm.read, "vllm": vllm.read}[engine]
    half = [key for key, _ in given.pairs if key in ("is_prefill_worker", "disaggregation_mode")]
    launch = read(replace(given, pairs=tuple(p for p in given.pairs if p[0] not in half)), known)
    more = ("one half of a disaggregated service: the other is not read",) if half else ()
    named = [str(value) for key, value in given.pairs if key in ("model", "model_path")]
    return replace(launch, models=launch.models or tuple(named), doubts=(*launch.doubts, *more))


def read_llm_d(given: ArgumentTable, known: Known) -> Launch:
    """Helm values of llm-d's model service."""
    keys = Keys(given, tool="llm-d")
    tp = keys.whole("decode.parallelism.tensor", "parallelism.tensor") or 1
    dp = keys.whole("decode.parallelism.data", "parallelism.data") or 1
    copies = keys.whole("decode.replicas") or 1
    prefill = keys.whole("prefill.replicas", low=0) or 0
    own = keys.whole("prefill.parallelism.tensor", "parallelism.tensor") or 1
    apart = prefill if keys.flag("prefill.create") is not False else 0
    name = keys.text("modelArtifacts.name", "modelArtifacts.uri") or ""
    model = name.removeprefix("hf://")
    values: dict[str, object] = {"tp": tp, "pp": 1, "dp": dp if dp > 1 else None}
    gpus = known.gpus or tp * dp * copies
    quiet, unknown = keys.rest(
        frozenset(
            """routing.* modelArtifacts.* decode.* prefill.* schedulerName multinode serviceAccount*
            endpointPicker.*
        inferencePool.* httpRoute.* fullnameOverride nameOverride accelerator.* tracing.*""".split()
        )
    )
    rest = LeftArguments(bears=(), quiet=quiet, unknown=unknown)
    keys.raise_problems()
    sources = {"model": ("modelArtifacts.name", "modelArtifacts.uri"), "tp": ("decode.parallelism.tensor",),
               "gpus": ("decode.replicas", "decode.parallelism.tensor")}  # fmt: skip
    found = service_launch(keys, given, "llm-d", (model,), gpus, values, sources, rest)
    return joined_halves(found, apart * own, f"tp{own}") if apart else found


def read_tgi(given: ArgumentTable, known: Known) -> Launch:
    """`text-generation-launcher`, in a container or not."""
    keys = Keys(given, tool="tgi")
    tp = keys.whole("num_shard") or 1
    if not keys.has("num_shard"):
        keys.note("no num_shard: one GPU; TGI takes all that it sees by default")
    captured = keys.text("cuda_graphs")
    adapters = [name for name in (keys.text("lora_adapters") or "").split(",") if name]
    places = [
        many
        for many in (keys.whole("max_concurrent_requests"), keys.whole("max_batch_size"))
        if many
    ]
    values: dict[str, object] = {
        "tp": tp, "pp": 1, "weights": keys.choice(["quantize"], QUANTISED),
        "kv": keys.choice(["kv_cache_dtype"], {"fp8_e4m3fn": "fp8", "fp8_e5m2": "fp8"}),
        "max_batch": min(places) if places else None,
        "max_tokens": keys.whole("max_batch_prefill_tokens"),
        "cache_tokens": keys.whole("max_batch_total_tokens"),
        "memory_fraction": keys.number("cuda_memory_fraction", low=0.01, high=1.0),
        "graph": False if captured == "0" else None,
        "graph_batch": largest(captured) if captured != "0" else None,
        "adapters": len(adapters) or None,
        "draft_tokens": keys.whole("speculate"),
        "drafter": "ngram" if keys.has("speculate") else None,
    }  # fmt: skip
    keys.text("dtype")
    model = keys.text("model_id") or ""
    rest = keys.leftovers(TGI_BEARS, TGI_IGNORED)
    keys.raise_problems()
    sources = {"model": ("model_id",), "gpus": ("num_shard",), "tp": ("num_shard",), "weights": ("quantize",),
               "max_batch": ("max_concurrent_requests", "max_batch_size"), "kv": ("kv_cache_dtype",),
               "max_tokens": ("max_batch_prefill_tokens",), "cache_tokens": ("max_batch_total_tokens",),
               "memory_fraction": ("cuda_memory_fraction",), "graph": ("cuda_graphs",),
               "graph_batch": ("cuda_graphs",), "adapters": ("lora_adapters",),
               "draft_tokens": ("speculate",), "drafter": ("speculate",)}  # fmt: skip
    return service_launch(keys, given, "tgi", (model,), tp, values, sources, rest)
