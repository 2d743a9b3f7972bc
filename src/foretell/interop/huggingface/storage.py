"""The precision in which the weights are published."""

from collections.abc import Mapping

from foretell.interop.huggingface.config import Config

PLAIN = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32",
    "float8_e4m3fn": "fp8", "float64": "fp64",
}  # fmt: skip
"""Names of `torch_dtype` and ours."""
METHODS = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "nvfp4": "nvfp4", "fp8_pb_wo": "fp8",
    "fp8_per_channel_per_token": "fp8", "w4a16_awq": "int4", "w4a8_awq": "int4", "int4_awq": "int4",
    "w4a8_nvfp4_fp8": "nvfp4", "w4a8_mxfp4_fp8": "mxfp4", "mxfp8": "mxfp8",
    "mixed_precision": "nvfp4",
}  # fmt: skip
"""Names of quantisation methods and the precision of most weights."""


MX_BLOCK = 32
"""Values that share a scale in the MX formats; NVFP4 has 16."""


def dtype(config: Config, text: Config | None = None) -> str:
    """bf16, fp16, fp32, fp8, nvfp4, mxfp4, int8, int4: of most weights as they are published.

    From hf_quant_config.json, else `quantization_config`, else `torch_dtype` (or `dtype`) of the
    config or of its text part; absent: bf16 is assumed.
    """
    for level in (config, text):
        if level is None:
            continue
        for key in ("hf_quant_config", "quantization_config"):
            value = level.raw(key)
            if isinstance(value, Mapping):
                found = _quantised(value)
                if found is not None:
                    return found
                config.assume(f"{key} has a method that is not known here: plain weights assumed")
    for level in (config, text):
        if level is not None:
            for key in ("torch_dtype", "dtype"):
                value = level.raw(key)
                if isinstance(value, str) and value.removeprefix("torch.") in PLAIN:
                    return PLAIN[value.removeprefix("torch.")]
    config.assume("the config names no dtype: bf16 assumed")
    return "bf16"


def _quantised(table: Mapping[str, object]) -> str | None:
    """The precision that a quantisation table names, or None where it names none known here."""
    inner = table.get("quantization")  # hf_quant_config.json keeps its table under this key
    if isinstance(inner, Mapping):
        return _quantised(inner)
    for key in ("quant_algo", "quant_method", "fmt"):
        value = table.get(key)
        if isinstance(value, str) and value.lower() in METHODS:
            return METHODS[value.lower()]
    bits = table.get("bits", table.get("w_bit"))
    if isinstance(bits, int) and not isinstance(bits, bool) and bits in (4, 8):
        return f"int{bits}"
    groups = table.get("config_groups")  # compressed-tensors
    if isinstance(groups, Mapping):
        return _grouped(groups)
    return None


def _grouped(groups: Mapping[str, object]) -> str | None:
    """The narrowest weights among the groups of a compressed-tensors table."""
    found: list[tuple[int, str]] = []
    for group in groups.values():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            continue
        bits, kind = weights.get("num_bits"), weights.get("type")
        if isinstance(bits, int) and kind in ("float", "int"):
            block = weights.get("group_size")
            four = "mxfp4" if block == MX_BLOCK else "nvfp4"
            name = {("float", 8): "fp8", ("float", 4): four}.get((str(kind), bits), f"int{bits}")
            found.append((bits, name))
    return min(found)[1] if found else None
