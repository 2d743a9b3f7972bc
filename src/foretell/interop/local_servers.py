"""Servers of one machine: llama.cpp, Ollama (which runs it) and MLX.

llama.cpp   llama-server: --model or -hf, --parallel, --ctx-size, --ubatch-size; layers split across GPUs
ollama      ollama run NAME:TAG, OLLAMA_NUM_PARALLEL and the like set before it
mlx         mlx_lm.server --model mlx-community/NAME-4bit
"""

import re
from collections.abc import Mapping

from foretell.interop.arguments import ArgumentTable
from foretell.interop.engine_launch import service_launch
from foretell.interop.keys import CHIP_KEYS, Keys, LeftArguments
from foretell.interop.launch import Known, Launch
from foretell.interop.serving_words import largest
from foretell.interop.whole_numbers import whole_number

LLAMA_QUIET = frozenset(
    """host port alias a api_key* threads t threads_batch tb batch_size b no_mmap mlock cont_batching cb jinja
    no_jinja chat_template* log_* verbose v metrics slots no_slots props embeddings reranking temp top_k top_p
    min_p seed no_webui webui* hf_file hff hft hf_token rope_* keep n_predict n main_gpu mg timeout to
    no_context_shift context_shift no_warmup warmup prio prio_batch poll path api_prefix ssl_*
    reasoning_format reasoning_budget special spm_infill pooling grammar* json_schema* samplers perf no_perf
    model_url mu cache_prompt cache_reuse slot_save_path slot_prompt_similarity offline
    threads_http""".split()
)
"""Options of llama-server that move neither latency nor memory of a request."""
LLAMA_BEARS = frozenset(
    """flash_attn fa no_flash_attn cpu_moe cmoe n_cpu_moe ncmoe override_tensor ot override_kv no_kv_offload
    nkvo kv_unified kvu swa_full numa lora* control_vector* mmproj* no_mmproj* split_mode sm draft_min
    draft_p_min n_gpu_layers_draft ngld ctx_size_draft cd device dev device_draft devd cache_type_k_draft
    cache_type_v_draft yarn_* group_attn_n group_attn_w rpc cache_ram no_op_offload no_repack""".split()
)
"""Those that do and are not modelled (llama.cpp, tools/server/README.md)."""
CACHE_TYPES = {
    "f32": "bf16", "f16": "fp16", "bf16": "bf16", "q8_0": "int8", "q4_0": "int4", "q4_1": "int4",
    "iq4_nl": "int4", "q5_0": "int8", "q5_1": "int8",
}  # fmt: skip
"""--cache-type-k and the format of the cache; of 5 bits the next wider one, of 32 the next narrower."""


def read_llama_cpp(given: ArgumentTable, known: Known) -> Launch:
    """`llama-server`: layers are dealt to GPUs, one after the other."""
    keys = Keys(given, tool="llama.cpp")
    split = keys.text("tensor_split", "ts")
    gpus = known.gpus or (len(split.split(",")) if split else 1)
    layers = keys.raw("n_gpu_layers", "ngl", "gpu_layers")
    some = whole_number(layers)
    if some is not None and some < 99:
        keys.doubt(f"n_gpu_layers {layers} leaves layers on the host: all are taken on the GPU")
    file = keys.text("model", "m", "hf_repo", "hf", "hfr") or ""
    left: list[str] = []
    drafts = bool(keys.text("model_draft", "md", "hf_repo_draft", "hfrd", "hfd"))
    most = keys.whole("draft_max", "draft", "draft_n")
    values: dict[str, object] = {
        "tp": 1, "pp": gpus if gpus > 1 else 1, "weights": gguf_format(file, left),
        "kv": keys.choice(["cache_type_k", "ctk"], CACHE_TYPES),
        "max_batch": keys.whole("parallel", "np", low=-1),
        "max_tokens": keys.whole("ubatch_size", "ub"),
        "cache_tokens": keys.whole("ctx_size", "c", low=0) or None,
        "draft_tokens": (most or 16) if drafts else None,
        "drafter": "model" if drafts else None,
    }  # fmt: skip
    if int(str(values["max_batch"] or 1)) < 1:
        values["max_batch"] = None
    keys.raw("cache_type_v", "ctv")
    if str(keys.pairs.get("flash_attn", keys.pairs.get("fa"))).lower() in (
        "true",
        "on",
        "auto",
        "1",
    ):
        keys.raw("flash_attn", "fa")  # its kernels are the ones that are taken
    rest = keys.leftovers(LLAMA_BEARS, LLAMA_QUIET)
    keys.raise_problems()
    name = file.partition(":")[0].removesuffix("-GGUF")
    if name.endswith(".gguf"):
        name = name.rpartition("/")[2].removesuffix(".gguf").rpartition("-")[0]
    sources = {"model": ("model", "m", "hf_repo", "hf"), "gpus": ("tensor_split", "ts", *CHIP_KEYS),
               "pp": ("tensor_split", "ts"), "weights": ("model", "m", "hf", "hf_repo"),
               "max_batch": ("parallel", "np"), "kv": ("cache_type_k", "ctk"),
               "max_tokens": ("ubatch_size", "ub"), "cache_tokens": ("ctx_size", "c"),
               "draft_tokens": ("draft_max", "model_draft", "md"),
               "drafter": ("model_draft", "md")}  # fmt: skip
    rest = rest._replace(bears=(*left, *rest.bears))
    return service_launch(keys, given, "llama.cpp", (name,), gpus, values, sources, rest)


def gguf_format(file: str, left: list[str]) -> str | None:
    """The format of the weights by the file's name: Q4_K_M, Q8_0, BF16; of 5 bits 4, of 6 bits 8, said."""
    match = re.search(r"(?:^|[^A-Z0-9])(I?Q)([2-8])(?:[_0-9A-Z]*)", file.upper())
    if match is None:
        return None
    bits = int(match[2])
    if bits not in (4, 8):
        left.append(f"weights of {bits} bits")
    return "int4" if bits < 6 else "int8"


def read_ollama(given: ArgumentTable, known: Known) -> Launch:
    """`ollama run NAME:TAG`: llama.cpp with four bits and one slot where nothing else is said."""
    keys = Keys(given, tool="ollama")
    said = {name.lower(): value for name, value in keys.variables.items()}
    words = [word for word in keys.words if word not in ("run", "serve", "pull", "&&", "&", ";")]
    at = next((place for place, word in enumerate(words) if word.endswith("ollama")), -1)
    name = next(iter(words[at + 1 :]), "")
    stem, _, tag = name.partition(":")
    size = next((part for part in tag.split("-") if re.fullmatch(r"[0-9x.]+b", part)), "")
    spelt = re.sub(r"(?<=[a-z])(?=[0-9])", "-", stem.rpartition("/")[2], count=1)
    names = [f"{one}-{size}".strip("-") for one in (spelt, stem)]
    # Ollama's deepseek-r1 below 671b is one of the distilled models.
    names += [f"{stem}-distill-{kind}-{size}" for kind in ("llama", "qwen") if size]
    names += [spelt, stem] if size in ("", "671b") else []
    left: list[str] = []
    weights = "bf16" if "fp16" in tag or "bf16" in tag else gguf_format(f"-{tag}", left)
    if weights is None:
        weights = "int4"
        keys.note("no format in the tag: Q4_K_M, the one that Ollama's library has by default")
    values: dict[str, object] = {
        "tp": 1, "pp": 1, "weights": weights,
        "kv": {"q8_0": "int8", "q4_0": "int4"}.get(said.get("ollama_kv_cache_type", "")),
        "max_batch": largest(said.get("ollama_num_parallel")) or 1,
        "cache_tokens": None,
    }  # fmt: skip
    context = largest(said.get("ollama_context_length"))
    if context:
        values["cache_tokens"] = context * int(str(values["max_batch"]))
    rest = keys.leftovers(
        frozenset(), frozenset("verbose keepalive format insecure nowordwrap".split())
    )
    sources = {"model": ("run",), "max_batch": ("ollama_num_parallel",), "kv": ("ollama_kv_cache_type",),
               "cache_tokens": ("ollama_context_length",), "weights": ("run",)}  # fmt: skip
    rest = rest._replace(bears=(*left, *rest.bears))
    return service_launch(
        keys, given, "ollama", tuple(names) if stem else (), 1, values, sources, rest
    )


MLX_QUIET = frozenset(
    """host port allowed_origins adapter_path trust_remote_code log_level chat_template*
    use_default_chat_template temp top_p top_k min_p max_tokens prompt seed verbose""".split()
)
"""Options of mlx_lm that move neither latency nor memory of a request (mlx_lm/server.py, generate.py)."""
MLX_BEARS = frozenset(
    """prompt_concurrency prompt_cache_size prompt_cache_bytes max_kv_size kv_group_size quantized_kv_start
    pipeline""".split()
)
"""Those that do and are not modelled."""
MLX_BITS: Mapping[str, str] = {
    "2bit": "int4", "3bit": "int4", "4bit": "int4", "5bit": "int4", "6bit": "int8", "8bit": "int8",
    "mxfp4": "mxfp4", "bf16": "bf16", "fp16": "fp16",
}  # fmt: skip
"""Words of the names of mlx-community's repositories and the format of the weights."""


def read_mlx(given: ArgumentTable, known: Known) -> Launch:
    """`mlx_lm.server` or `mlx_lm.generate`."""
    keys = Keys(given, tool="mlx")
    repository = keys.text("model") or ""
    words = repository.lower().split("-")
    bits = next((word for word in reversed(words) if word in MLX_BITS), "")
    drafts = bool(keys.text("draft_model"))
    values: dict[str, object] = {
        "tp": 1, "pp": 1, "weights": MLX_BITS.get(bits),
        "kv": {"4": "int4", "8": "int8"}.get(str(keys.raw("kv_bits") or "")),
        "max_batch": keys.whole("decode_concurrency"),
        "max_tokens": keys.whole("prefill_step_size"),
        "draft_tokens": (keys.whole("num_draft_tokens") or 3) if drafts else None,
        "drafter": "model" if drafts else None,
    }  # fmt: skip
    rest = keys.leftovers(MLX_BEARS, MLX_QUIET)
    keys.raise_problems()
    if bits in ("2bit", "3bit", "5bit", "6bit"):
        rest = LeftArguments((f"weights of {bits[0]} bits", *rest.bears), rest.quiet, rest.unknown)
    sources = {"model": ("model",), "weights": ("model",), "kv": ("kv_bits",),
               "max_batch": ("decode_concurrency",), "max_tokens": ("prefill_step_size",),
               "draft_tokens": ("num_draft_tokens", "draft_model"), "drafter": ("draft_model",)}  # fmt: skip
    bare = re.sub(rf"-{bits}$", "", repository, flags=re.IGNORECASE) if bits else repository
    names = (bare.rpartition("/")[2], bare, repository)
    return service_launch(keys, given, "mlx", names, 1, values, sources, rest)
