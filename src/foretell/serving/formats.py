"""Formats as kernels run them: what a chip lacks is widened on the way."""

from foretell.kernels.families.base import DTYPES
from foretell.specs.chip import Chip
from foretell.specs.deployment import Deployment, Format
from foretell.specs.ffn import Experts
from foretell.specs.model import Model
from foretell.workload.ops import Gemm, Op
from foretell.workload.roles import OpRole, Region

STORED: dict[str, tuple[Format, Format]] = {
    "bf16": ("bf16", "bf16"),
    "fp16": ("fp16", "fp16"),
    "fp32": ("bf16", "bf16"),
    "fp8": ("fp8", "fp8"),
    "mxfp8": ("fp8", "fp8"),
    "int8": ("int8", "int8"),
    "int4": ("int4", "int4"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "mxfp4": ("mxfp4", "mxfp4"),
}
"""Precision of a checkpoint -> formats of its dense matrices and of its experts."""
BLOCKS = ("deepseek", "kimi", "glm", "qwen3", "minimax", "mimo", "step")
"""Families, by how their names begin, whose fp8 checkpoints have a scale for each block of 128 x 128."""
EXPERTS_ALONE: dict[str, tuple[str, ...]] = {"fp8": ("llama4",)}
"""Precision -> families whose checkpoints have it in the routed experts alone (Meta's `fp8_mixed`)."""
NARROW_EXPERTS: dict[str, Format] = {"deepseek_v4": "mxfp4"}
"""Families whose fp8 checkpoints have narrower routed experts (`expert_dtype` fp4, scales in ue8m0:
config.json of deepseek-ai/DeepSeek-V4-Pro and V4-Flash)."""
NARROW_DENSE = ("deepseek_v3", "deepseek_v32")
"""Families whose checkpoints in nvfp4 have the attention's output projection, dense feed-forward parts and
shared experts in 4 bits too (`exclude_modules` of nvidia/DeepSeek-V3.1-NVFP4 and V3.2-NVFP4 names the other
four products of the attention; DeepSeek-R1-0528-FP4-v2's card: it additionally quantizes the wo module)."""
WHOLE_MIXTURES = ("nemotron",)
"""Families of mixtures whose checkpoints in 4 bits have all of their matrices so."""


NARROW_CACHE: tuple[Format, ...] = ("fp8", "fp8-block", "nvfp4")
"""Formats of weights beside which the cache has 8 bits as well (`cache_format`)."""


def mixture_of(model: Model) -> bool:
    """Whether a model has routed experts."""
    return any(isinstance(layer.ffn, Experts) for layer in model.stack.layers)


def stored_formats(model: Model, precision: str = "") -> tuple[Format, Format]:
    """Formats of the dense matrices and of the experts, of a checkpoint or of a named precision.

    Mixtures in 4 bits keep what is not routed experts in 16 bits: so do NVIDIA's checkpoints of DeepSeek-V4,
    Kimi-K2.6, GLM-5.1, MiniMax-M2, Gemma-4-26B-A4B and Qwen3.5 (`exclude_modules` of their
    hf_quant_config.json: self_attn, in most of them the shared experts too), and gpt-oss. Those of
    DeepSeek-V3 keep only a part of it (`is_narrow`).
    """
    name = precision or model.dtype
    dense, experts = STORED.get(name, ("bf16", "bf16"))
    if name == "fp8" and model.family.startswith(BLOCKS):
        return "fp8-block", NARROW_EXPERTS.get(model.family, "fp8-block")
    mixture = mixture_of(model)
    narrow = name in ("nvfp4", "mxfp4") and not model.family.startswith(WHOLE_MIXTURES)
    if mixture and (narrow or model.family.startswith(EXPERTS_ALONE.get(name, ()))):
        return "bf16", experts
    return dense, experts


def checkpoint_formats(model: Model, precision: Format) -> tuple[Format, Format]:
    """Formats of the dense matrices and of the experts of a checkpoint in a format."""
    return stored_formats(model, precision) if precision in STORED else (precision, precision)


def narrow_dense(model: Model, deployment: Deployment) -> bool:
    """Whether dense products of a mixture's checkpoint are as narrow as its experts, but for the first ones
    of the attention."""
    kept = deployment.weights == "bf16" and deployment.experts == "nvfp4"
    return kept and model.family in NARROW_DENSE


def is_narrow(op: Op) -> bool:
    """Whether a product is one of those: the attention's output, a feed-forward part, a shared expert."""
    parts = (Region.FEED_FORWARD, Region.SHARED_EXPERTS)
    output = op.region is Region.ATTENTION and op.role is OpRole.OUTPUT
    return isinstance(op, Gemm) and (output or op.region in parts)


def kernel_format(name: str, chip: Chip, *, experts: bool = False) -> str:
    """The format whose kernels run weights of a format on a chip.

    Weights of 4 bits are multiplied as they are where the chip has such units, else widened to 16 bits;
    so are those of 8 bits on chips without such units. Experts in mxfp4 meet activations of 8 bits.
    """
    if name in ("nvfp4", "mxfp4") and "fp4" not in chip.matrix_flop_per_s:
        return "w4a16-mxfp4" if name == "mxfp4" else "int4"
    if name == "mxfp4" and experts:
        return "w4a8-mxfp4"
    if name == "fp16" and "bf16" in chip.matrix_flop_per_s:
        return "bf16"
    return name


def cache_format(weights: Format, experts: Format, engine: str, chip: Chip) -> Format:
    """The format of the cache where nobody says it: 8 bits for narrow checkpoints under TensorRT-LLM, and
    under every engine on Blackwell, else 16.

    NVIDIA's checkpoints in fp8 and nvfp4 say so themselves (`kv_cache_quant_algo` of hf_quant_config.json),
    which TensorRT-LLM's `auto` follows; public recipes of vLLM and SGLang set it on Blackwell
    (`--kv-cache-dtype fp8`: github.com/SemiAnalysisAI/InferenceX, benchmarks). Those of gpt-oss, whose
    experts are in mxfp4, set it for TensorRT-LLM on Blackwell alone (gptoss_fp4_b200_trt.sh; `auto` on H200).
    """
    blackwell = chip.architecture.startswith("blackwell")
    narrow = weights in NARROW_CACHE or experts in NARROW_CACHE
    narrow = narrow or (experts == "mxfp4" and engine == "trtllm" and blackwell)
    wanted = engine == "trtllm" or blackwell
    return "fp8" if narrow and wanted and "fp8" in chip.matrix_flop_per_s else "bf16"


def weight_width(name: str) -> float:
    """Bytes of a weight with its share of the scales."""
    return DTYPES[name].weight_bytes


def attention_format(deployment: Deployment, chip: Chip, engine: str, phase: str) -> str:
    """The format in which attention runs: 8 bits where the cache has them and kernels take them."""
    if deployment.kv not in ("fp8", "fp8-block") or "fp8" not in chip.matrix_flop_per_s:
        return "bf16"
    # TensorRT-LLM multiplies prompts in 8 bits too; the others widen what they read back.
    return "fp8" if phase == "decode" or engine == "trtllm" else "bf16"
