"""What a kernel or a collective is, by its name.

Rules are tried in order; the first that matches a name (anywhere, whatever its case) decides. Names are those
of CUDA and ROCm libraries, of kernels that torch.compile writes, and of PyTorch's operations where a trace
has no accelerator.
"""

import re
from functools import lru_cache

COMMUNICATION = "communication"
COPY, MEMSET, OPTIMIZER, ATTENTION, GEMM, NORM, LOSS, EMBEDDING, ELEMENTWISE, ROUTING, OTHER = (
    "copy",
    "memset",
    "optimizer",
    "attention",
    "gemm",
    "norm",
    "loss",
    "embedding",
    "elementwise",
    "routing",
    "other",
)
"""Families of kernels; `grouped-gemm` and `scan` are those of experts and recurrent layers."""

_RULES: tuple[tuple[str, str], ...] = (
    (
        COMMUNICATION,
        r"^_?nccl|^rccl|^msccl|ncclkernel|nccldevkernel|nvshmem|cross_device_reduce|deep_ep",
    ),
    (COMMUNICATION, r"custom_?all_?reduce|(one|two)_?shot_all_?reduce|multimem_all|userbuffers"),
    (
        OPTIMIZER,
        r"multi_tensor_apply|multi_tensor_|fused_?adam|adam_?w?_kernel|lamb_|distopt|foreach",
    ),
    (
        ATTENTION,
        r"flash|fmha|attention|attn|sdpa|cudnn.*mha|softmax_scale|dot_do_o|mha_|ring_?attn",
    ),
    (
        "scan",
        r"selective_scan|mamba|chunk_(scan|state|fwd|bwd|gated)|state_passing|delta_rule|causal_conv1d",
    ),
    ("grouped-gemm", r"grouped_?gemm|grouped_mm|moe_gemm|group_gemm|fused_moe"),
    (
        NORM,
        r"layer_?norm|rms_?norm|gammabeta|batch_?norm|group_?norm|triton_\w*(rsqrt|native_layer)",
    ),
    (
        GEMM,
        r"gemm|gemv|cutlass|cublas|nvjet|xmma|wgmma|splitk|cijk_|dot_kernel|matmul|_s\d+816|sm\d+_\w*mma",
    ),
    (GEMM, r"triton_tem_\w*(mm|conv)|addmm|\bbmm\b"),
    (LOSS, r"soft_?max|nll_?loss|cross_?entropy|xent|logsumexp|triton_\w*loss"),
    (
        EMBEDDING,
        r"embedding|index_?select|vectorized_gather|compute_grad_weight|sum_and_scatter|krn_partial",
    ),
    (
        ROUTING,
        r"topk|radix|bitonic|sort|permute|scatter|histogram|cumsum|scan_by|token_dispatch|index_put|gather",
    ),
    (
        COPY,
        r"memcpy|catarray|copy_device|direct_copy|copy_kernel|transpose_kernel|split_with_sizes|chunk_cat",
    ),
    (MEMSET, r"memset|fillfunctor"),
    (
        ELEMENTWISE,
        r"elementwise|vectorized|unrolled|pointwise|triton_|gelu|silu|swiglu|dropout|rotary|rope",
    ),
    (ELEMENTWISE, r"reduce|distribution|cast|scale|quantize|amax|bias|activation|relu|fused"),
)
"""Families of accelerators' kernels."""
_KERNELS = tuple((family, re.compile(rule, re.IGNORECASE)) for family, rule in _RULES)

_PLAIN = re.compile(
    r"aten::(_?empty\w*|new_\w+|view\w*|_?reshape\w*|as_strided\w*|t|transpose|permute|expand\w*|detach\w*|alias|"
    r"select|slice|narrow|unsqueeze|squeeze|split\w*|chunk|unbind|to|_to_copy|type_as|item|_local_scalar_dense|"
    r"result_type|resolve_\w+|is_\w+|set_|resize_|size|stride|lift_fresh|contiguous|_unsafe_view|unflatten|"
    r"linear|matmul|layer_norm|rms_norm|embedding_backward|cross_entropy_loss|scaled_dot_product_attention|"
    r"softmax|log_softmax|dropout|ones_like|zeros_like|zeros|ones|zero_|full|randn|rand|arange)"
)
"""PyTorch operations that compute nothing themselves: views, storage, and those made of others."""
_CPU_RULES: tuple[tuple[str, str], ...] = (
    (ATTENTION, r"attention|flash"),
    (
        GEMM,
        r"::(_?addmm\w*|mm|bmm|baddbmm|dot|mv|addmv|addbmm|mkldnn_linear\w*|_grouped_mm|einsum)$|mkldnn|onednn",
    ),
    (NORM, r"norm"),
    (LOSS, r"softmax|nll_loss|cross_entropy|logsumexp"),
    (EMBEDDING, r"embedding|index_select"),
    (ROUTING, r"topk|sort|scatter|cumsum|histc|bincount|index_put|gather|nonzero|::index$"),
    (COPY, r"copy|::cat$|::clone$|reducer"),
    (MEMSET, r"fill_"),
    (OPTIMIZER, r"_fused_adam|_foreach_"),
    (ELEMENTWISE, r"^aten::"),
)
"""Families of operations that run on the host itself."""
_CPU = tuple((family, re.compile(rule)) for family, rule in _CPU_RULES)

_COLLECTIVES: tuple[tuple[str, str], ...] = (
    ("all-to-all", r"all_?to_?all"),
    ("reduce-scatter", r"reduce_?scatter"),
    ("all-gather", r"all_?gather"),
    ("all-reduce", r"all_?reduce"),
    ("broadcast", r"broadcast"),
    ("send-recv", r"send|recv"),
    ("reduce", r"reduce"),
    ("gather", r"gather"),
    ("scatter", r"scatter"),
    ("barrier", r"barrier"),
)
_SENT = tuple((kind, re.compile(rule, re.IGNORECASE)) for kind, rule in _COLLECTIVES)

BUS_ROUNDS = {"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0, "all-to-all": 1.0}
"""How often (n - 1) / n of a message passes every link, as nccl-tests counts it; others send it once."""
DTYPE_BYTES = {
    "float": 4, "float32": 4, "int": 4, "int32": 4, "double": 8, "float64": 8, "long": 8, "long int": 8,
    "int64": 8, "half": 2, "float16": 2, "c10::half": 2, "bfloat16": 2, "c10::bfloat16": 2, "short": 2,
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "unsigned char": 1, "signed char": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1,
}  # fmt: skip
"""Bytes of an element, by the names that traces have for types."""


@lru_cache(maxsize=1 << 16)
def kernel_family(name: str) -> str:
    """Family of an accelerator's kernel."""
    return next((family for family, rule in _KERNELS if rule.search(name)), OTHER)


@lru_cache(maxsize=1 << 16)
def host_family(name: str) -> str | None:
    """Family of an operation that runs on the host; None where it computes nothing itself."""
    if _PLAIN.fullmatch(name):
        return None
    if not name.startswith(
        ("aten::", "torch::distributed", "torch.distributed", "mkldnn", "onednn")
    ):
        return None
    return next((family for family, rule in _CPU if rule.search(name)), None)


@lru_cache(maxsize=1 << 14)
def collective_kind(name: str) -> str:
    """Which collective a kernel, an annotation or a name of c10d is."""
    return next((kind for kind, rule in _SENT if rule.search(name)), OTHER)


def bus_factor(kind: str, members: int) -> float:
    """What every link carries of a message, over its size."""
    rounds = BUS_ROUNDS.get(kind)
    return 1.0 if rounds is None else rounds * (members - 1) / members


def element_bytes(dtype: object) -> int | None:
    """Bytes of one element; None where the type is not known."""
    return DTYPE_BYTES.get(str(dtype).lower())
