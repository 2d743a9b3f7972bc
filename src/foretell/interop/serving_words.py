"""What the launch commands of serving engines share: formats, degrees, how a command is written."""

import shlex
from collections.abc import Mapping, Sequence

from foretell.interop.kept_flags import OwnFlags
from foretell.interop.whole_numbers import whole_number
from foretell.records import dataclass
from foretell.specs.deployment import Deployment

QUANTISATIONS: Mapping[str, str] = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "modelopt": "fp8", "modelopt_fp8": "fp8", "ptpc_fp8": "fp8",
    "w8a8_fp8": "fp8", "modelopt_fp4": "nvfp4", "nvfp4": "nvfp4", "awq": "int4", "awq_marlin": "int4",
    "gptq": "int4", "gptq_marlin": "int4", "w8a8_int8": "int8", "int8": "int8", "auto_awq": "int4",
    "auto_gptq": "int4", "moe_wna16": "int4", "fp8_per_tensor": "fp8", "fp8_per_channel": "fp8",
    "fp8_per_block": "fp8-block", "modelopt_mxfp8": "fp8-block", "mxfp8": "fp8-block",
    "int8_per_channel_weight_only": "int8", "nvfp4_per_token": "nvfp4", "nvfp4_online": "nvfp4",
    "petit_nvfp4": "nvfp4", "quark_mxfp4": "mxfp4", "mxfp_w4a8": "mxfp4", "bitsandbytes": "int4",
    "w4afp8": "int4", "auto-round": "int4", "auto-round-int8": "int8", "mlx_q4": "int4", "mlx_q8": "int8",
    "unquant": "bf16", "experts_int8": "experts_int8",
    **dict.fromkeys(
        ("compressed-tensors", "mxfp4", "gpt_oss_mxfp4", "quark", "quark_int4fp8_moe", "modelopt_mixed",
         "inc", "torchao", "humming", "online", "deepseek_v4_fp8", "fp_quant", "gguf", "modelslim"), ""),
}  # fmt: skip
"""--quantization of vLLM (0.32) and SGLang (0.5.23), and the format of the weights; empty: the
checkpoint's."""
CACHES: Mapping[str, str] = {
    "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bfloat16": "bf16", "bf16": "bf16",
    "float16": "fp16", "fp16": "fp16", "half": "fp16", "int8": "int8", "fp4": "nvfp4", "nvfp4": "nvfp4",
    "fp4_e2m1": "nvfp4", "fp8_inc": "fp8", "fp8_ds_mla": "fp8", "fp8_per_token_head": "fp8",
    "int8_per_token_head": "int8", "int4_per_token_head": "int4", "nvfp4_ds_mla": "nvfp4",
    "nvfp4_4over6": "nvfp4", "turboquant_4bit_nc": "int4", "ultraquant_4bit": "int4",
    "turboquant_k8v4": "int8", "turboquant_k3v4_nc": "int4", "turboquant_3bit_nc": "int4",
}  # fmt: skip
"""Formats of the cache as engines name them."""
NEAREST_CACHES = frozenset({"turboquant_k8v4", "turboquant_k3v4_nc", "turboquant_3bit_nc"})
"""Of these, formats for which the next wider one is taken."""


DRAFTER_WORDS: Mapping[str, str] = {
    "mtp": "mtp", "deepseek_mtp": "mtp", "nextn": "mtp", "eagle": "eagle3", "eagle3": "eagle3",
    "medusa": "eagle3", "mlp_speculator": "eagle3", "ngram": "ngram", "suffix": "ngram",
    "lookahead": "ngram", "draft_model": "model", "draft_target": "model", "standalone": "model",
    "dspark": "dspark", "ngram_gpu": "ngram",
}  # fmt: skip
"""Methods of speculative decoding as engines name them, and the drafter."""
DISPATCH_WORDS: Mapping[str, str] = {
    "deepep_high_throughput": "deepep", "deepep_low_latency": "deepep-low-latency",
    "deepep": "deepep", "pplx": "pplx", "naive": "gather", "allgather_reducescatter": "gather",
    "mori": "mori", "none": "gather", "low_latency": "deepep-low-latency", "normal": "deepep",
    "deepep_v2": "deepep-2", "mori_high_throughput": "mori", "mori_low_latency": "mori-low-latency",
    "flashinfer": "nvlink-one-sided", "flashinfer_nvlink_one_sided": "nvlink-one-sided",
    "flashinfer_nvlink_two_sided": "nvlink-two-sided", "flashinfer_all2allv": "nvlink-two-sided",
}  # fmt: skip
"""Kernels that bring tokens to experts as engines name them."""


def drafter_word(method: str | None) -> str | None:
    """The drafter of a method; None where it is the model's own prediction block, or not told."""
    plain = (method or "").strip().lower()
    found = "mtp" if plain.endswith("mtp") else DRAFTER_WORDS.get(plain)
    return None if found in (None, "mtp") else found


def known_drafter(method: str | None) -> bool:
    """Whether a method of speculative decoding is one of those known."""
    plain = (method or "").strip().lower()
    return plain in DRAFTER_WORDS or plain.endswith("mtp")


def count_items(values: object) -> int:
    """Items of an argument that may be one or many: 0 where it is not given."""
    if values is None or values is False:
        return 0
    return len(values) if isinstance(values, list | dict) else 1


def largest(values: object) -> int | None:
    """The largest whole number of a list, or of a text of numbers; None where there is none."""
    items = values if isinstance(values, list) else str(values or "").replace(",", " ").split()
    found = [whole_number(str(item).strip("[] ")) for item in items]
    return max((one for one in found if one is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A deployment to be written."""

    model: str
    """What the engine is to load: a repository, a folder or a name."""
    deployment: Deployment
    """How one instance is laid out; its memory_fraction by the rule of the engine that is written for."""
    batch: int | None = None
    """Sequences at once of one instance; None: what the deployment says, or the engine's own."""

    own: OwnFlags = ()
    """Flags of the launch that it comes from, which stay where they do not change."""
    as_read: Deployment | None = None
    """The deployment that the launch said."""
    alone: bool = True
    """Whether it is the only instance."""
    narrowed: bool = True
    """Whether the weights are made narrow as they are loaded; else the checkpoint has their format."""

    @property
    def quantization(self) -> str | None:
        """The flag's value for formats that vLLM and SGLang make of any checkpoint."""
        made = {"fp8": "fp8", "fp8-block": "fp8"}.get(self.deployment.weights)
        return made if self.narrowed else None

    @property
    def rank_sequences(self) -> int | None:
        """Sequences at once of one data-parallel rank."""
        if self.batch is None:
            return self.deployment.max_batch
        return -(-self.batch // self.deployment.dp)


Words = Sequence[tuple[str, object]]
"""Flags and values; a value of "" is a flag alone, None leaves it out."""


def command(start: str, words: Words, degrees: Sequence[str] = ()) -> str:
    """A command line; what was not given is left out, and so are `degrees` of one."""
    said = [
        f"{flag} {shell_value(value)}".strip()
        for flag, value in words
        if value is not None and not (value == 1 and flag in degrees)
    ]
    return " ".join([start, *said])


def shell_value(value: object) -> str:
    """A value as a shell takes it; numbers without digits that say nothing."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return shlex.quote(value) if isinstance(value, str) and value else str(value)
