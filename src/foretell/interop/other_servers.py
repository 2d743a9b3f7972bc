"""Services that run another engine, or one without a profile here: Dynamo, llm-d, TGI, llama.cpp.

    dynamo      python -m dynamo.vllm|sglang|trtllm with the engine's own flags
    llm-d       Helm values of its model service: decode and prefill replicas, parallelism.tensor, vLLM's args
    tgi         text-generation-launcher: --num-shard, --quantize, --max-concurrent-requests
    llama.cpp   llama-server: --model or -hf, --parallel, --ctx-size, -ngl; tensor splits across GPUs

An engine without a profile is computed with vLLM's, and said.
"""

from collections.abc import Mapping
from dataclasses import replace

from foretell.interop import sglang, trtllm, vllm
from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import CHIP_KEYS, Keys, plan_words, read_back
from foretell.interop.launch import Known, Launch
from foretell.interop.several_servers import joined_halves
from foretell.interop.whole_numbers import whole_number

TGI_IGNORED = frozenset(
    """port hostname shard_uds_path master_addr master_port huggingface_hub_cache weights_cache_override
    disable_custom_kernels json_output otlp_* cors_allow_origin api_key revision validation_workers
    max_stop_sequences max_top_n_tokens max_best_of max_input_* max_total_tokens waiting_served_ratio
    trust_remote_code tokenizer_config* disable_grammar_support max_client_batch_size enable_cuda_graphs
    cuda_graphs watermark_* ngrok* env p v d gpus shm_size rm it name e image volume max_batch_total_tokens
    usage_stats payload_limit graceful_termination_timeout max_waiting_tokens""".split()
)
LLAMA_IGNORED = frozenset(
    """host port alias api_key threads t threads_batch tb batch_size b ubatch_size ub flash_attn fa no_mmap
    mlock cont_batching cb jinja chat_template* log_* verbose metrics slots props embeddings reranking temp
    top_k top_p seed no_webui mmproj hf_file hff lora* rope_* keep n_predict n split_mode sm main_gpu mg
    numa timeout to no_context_shift no_warmup""".split()
)
QUANTISED = {
    "fp8": "fp8", "awq": "int4", "gptq": "int4", "bitsandbytes": "int8", "bitsandbytes-nf4": "int4",
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
    keys.raise_problems()
    sources = {"model": ("modelArtifacts.name", "modelArtifacts.uri"), "tp": ("decode.parallelism.tensor",),
               "gpus": ("decode.replicas", "decode.parallelism.tensor")}  # fmt: skip
    found = _service(keys, given, "llm-d", model, gpus, values, sources, (quiet, unknown))
    return joined_halves(found, apart * own, f"tp{own}") if apart else found


def read_tgi(given: ArgumentTable, known: Known) -> Launch:
    """`text-generation-launcher`, in a container or not."""
    keys = Keys(given, tool="tgi")
    tp = keys.whole("num_shard") or 1
    if not keys.has("num_shard"):
        keys.note("no num_shard: one GPU; TGI takes all that it sees by default")
    told = keys.choice(["quantize"], QUANTISED)
    values: dict[str, object] = {
        "tp": tp, "pp": 1, "weights": told,
        "kv": keys.choice(["kv_cache_dtype"], {"fp8_e4m3fn": "fp8", "fp8_e5m2": "fp8"}),
        "max_batch": keys.whole("max_concurrent_requests"),
        "max_tokens": keys.whole("max_batch_prefill_tokens"),
        "memory_fraction": keys.number("cuda_memory_fraction", low=0.01, high=1.0),
        "draft_tokens": keys.whole("speculate"),
    }  # fmt: skip
    keys.text("dtype")
    keys.note("TGI has no profile here: computed with vLLM's")
    model = keys.text("model_id") or ""
    quiet, unknown = keys.rest(TGI_IGNORED)
    keys.raise_problems()
    sources = {"model": ("model_id",), "gpus": ("num_shard",), "tp": ("num_shard",), "weights": ("quantize",),
               "max_batch": ("max_concurrent_requests",), "max_tokens": ("max_batch_prefill_tokens",),
               "memory_fraction": ("cuda_memory_fraction",), "kv": ("kv_cache_dtype",)}  # fmt: skip
    return _service(keys, given, "tgi", model, tp, values, sources, (quiet, unknown))


def read_llama_cpp(given: ArgumentTable, known: Known) -> Launch:
    """`llama-server`: layers are dealt to GPUs, one after the other."""
    keys = Keys(given, tool="llama.cpp")
    split = keys.text("tensor_split", "ts")
    gpus = known.gpus or (len(split.split(",")) if split else 1)
    layers = keys.raw("n_gpu_layers", "ngl", "gpu_layers")
    some = whole_number(layers)
    if some is not None and some < 99:
        keys.doubt(f"n_gpu_layers {layers} leaves layers on the host: all are taken on the GPU")
    file = keys.text("model", "m", "hf_repo", "hf") or ""
    values: dict[str, object] = {
        "tp": 1, "pp": gpus if gpus > 1 else 1, "weights": _gguf(keys, file),
        "kv": keys.choice(["cache_type_k", "ctk"], {"f16": "fp16", "bf16": "bf16", "q8_0": "int8"}),
        "max_batch": keys.whole("parallel", "np"),
    }  # fmt: skip
    keys.raw("cache_type_v", "ctv", "ctx_size", "c")
    keys.note("llama.cpp has no profile here: computed with vLLM's")
    quiet, unknown = keys.rest(LLAMA_IGNORED)
    keys.raise_problems()
    name = file.partition(":")[0].removesuffix("-GGUF")
    if name.endswith(".gguf"):
        name = name.rpartition("/")[2].removesuffix(".gguf").rpartition("-")[0]
    sources = {"model": ("model", "m", "hf_repo", "hf"), "gpus": ("tensor_split", "ts", *CHIP_KEYS),
               "pp": ("tensor_split", "ts"), "weights": ("model", "m", "hf", "hf_repo"),
               "max_batch": ("parallel", "np"), "kv": ("cache_type_k", "ctk")}  # fmt: skip
    return _service(keys, given, "llama.cpp", name, gpus, values, sources, (quiet, unknown))


def _gguf(keys: Keys, file: str) -> str | None:
    """The format of the weights by the file's name: Q4_K_M, Q8_0, BF16."""
    plain = file.upper()
    if "Q8" in plain:
        return "int8"
    if any(mark in plain for mark in ("Q4", "IQ4")):
        return "int4"
    if any(mark in plain for mark in ("Q2", "Q3", "Q5", "Q6", "IQ")):
        keys.doubt("weights of 2, 3, 5 or 6 bits are not known here: taken as 4")
        return "int4"
    return None


def _service(
    keys: Keys,
    given: ArgumentTable,
    tool: str,
    model: str,
    gpus: int,
    values: Mapping[str, object],
    sources: Mapping[str, tuple[str, ...]],
    left: tuple[tuple[str, ...], tuple[str, ...]],
) -> Launch:
    """The record of what was read."""
    models = (model,) if model else ()
    told = {"model": model or None, "gpus": gpus, **values}
    return Launch(
        tool=tool,  # type: ignore[arg-type]
        models=models,
        gpus=gpus,
        plan=plan_words(values),
        values=read_back(keys, told, sources),
        accelerator=given.accelerator,
        notes=tuple(keys.notes),
        doubts=tuple(keys.doubts),
        ignored=left[0],
        unknown=left[1],
    )
