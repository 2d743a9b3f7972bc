"""Which module reads which `model_type`; only the one that is asked for is imported."""

import importlib
from typing import Protocol

from foretell.errors import nearest_name
from foretell.interop.huggingface.config import Config
from foretell.specs.model import Model

FAMILIES: dict[str, str] = {
    # decoders like Llama
    **dict.fromkeys(
        ("llama", "Yi", "mistral", "ministral", "ministral3", "granite", "smollm3", "olmo", "olmo2",
         "olmo3", "exaone", "exaone4", "starcoder2", "seed_oss", "hunyuan_v1_dense", "arcee",
         "ernie4_5", "helium", "apertus", "nemotron", "internlm", "internlm2", "internlm3",
         "baichuan", "xverse", "orion", "cohere", "cohere2", "gemma", "gemma2", "gemma3_text"),
        "llama",
    ),
    **dict.fromkeys(("stablelm",), "stablelm"),
    **dict.fromkeys(("qwen", "qwen2", "qwen3"), "qwen"),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe"), "qwen_moe"),
    **dict.fromkeys(("mixtral", "phimoe", "olmoe"), "mixtral"),
    **dict.fromkeys(("phi", "phi3"), "phi"),
    **dict.fromkeys(("glm", "glm4", "chatglm"), "glm"),
    **dict.fromkeys(("glm4_moe",), "glm_moe"),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), "deepseek"),
    # older decoders
    **dict.fromkeys(("gpt2", "gpt_bigcode"), "gpt2"),
    **dict.fromkeys(("opt",), "opt"),
    **dict.fromkeys(("bloom",), "bloom"),
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel"), "falcon"),
    **dict.fromkeys(("gpt_neox", "gpt_neo"), "gpt_neox"),
    **dict.fromkeys(("gptj", "codegen"), "gptj"),
    **dict.fromkeys(("mpt",), "mpt"),
    **dict.fromkeys(("dbrx",), "dbrx"),
    **dict.fromkeys(("grok-1",), "grok"),
    # encoders and encoder-decoders
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "distilbert", "electra"), "bert"),
    **dict.fromkeys(("esm",), "esm"),
    **dict.fromkeys(("vit", "deit", "dinov2"), "vit"),
    **dict.fromkeys(("t5", "mt5", "umt5"), "t5"),
    **dict.fromkeys(("bart", "mbart", "marian", "pegasus"), "bart"),
    **dict.fromkeys(("whisper",), "whisper"),
    # state space and hybrids
    **dict.fromkeys(("mamba2", "mamba_ssm"), "mamba"),
    **dict.fromkeys(("bamba", "falcon_h1"), "bamba"),
    # sparse, linear and latent attention of 2025 and 2026; multimodal wrappers
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), "deepseek_sparse"),
    **dict.fromkeys(("deepseek_v4", "deepseek_ref"), "deepseek_v4"),
    **dict.fromkeys(("kimi_k2", "kimi_k25"), "kimi"),
    **dict.fromkeys(("kimi_linear", "kimi_k3"), "kimi_linear"),
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), "qwen_next"
    ),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"), "qwen_vl"),
    **dict.fromkeys(("llama4", "llama4_text"), "llama4"),
    **dict.fromkeys(("gemma4", "gemma4_text"), "gemma4"),
    **dict.fromkeys(("nemotron_h",), "nemotron_h"),
    **dict.fromkeys(("nemotron-nas",), "nemotron_nas"),
    **dict.fromkeys(("gpt_oss",), "gpt_oss"),
    **dict.fromkeys(("mimo_v2_flash",), "mimo"),
    **dict.fromkeys(("minimax_m2",), "minimax"),
    **dict.fromkeys(("step3p5", "step3p7"), "step"),
    **dict.fromkeys(
        ("gemma3", "paligemma", "mistral3", "llava", "llava_next", "llava_onevision", "internvl",
         "internvl_chat",
         "idefics3", "smolvlm", "qwen2_audio", "voxtral", "glm4v", "glm4v_moe"),
        "tower_models",
    ),
    **dict.fromkeys(
        ("ernie4_5_moe", "bailing_moe", "bailing_moe_v2", "dots1", "exaone_moe", "solar_open"),
        "fine_experts",
    ),
    **dict.fromkeys(("hunyuan_v1_moe", "hunyuan"), "hunyuan"),
    **dict.fromkeys(("glm4_moe_lite", "mistral4"), "glm_lite"),
    **dict.fromkeys(("longcat_flash",), "longcat"),
    **dict.fromkeys(("granitemoehybrid",), "granite_hybrid"),
    **dict.fromkeys(("lfm2", "lfm2_moe"), "lfm2"),
    **dict.fromkeys(("mllama", "mllama_text_model"), "mllama"),
    **dict.fromkeys(("minimax_m3_vl", "minimax_m3_vl_text", "minimax_m3"), "minimax_m3"),
    **dict.fromkeys(("minimax", "minimax_text_01", "minimax_m1"), "minimax_01"),
    **dict.fromkeys(("jamba",), "jamba"),
}  # fmt: skip
"""model_type -> module of this package that has `MODEL_TYPES` and `read(config)`."""

SUFFIXES = (
    "ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "ForMaskedLM", "ForPreTraining",
    "ForImageClassification", "ForSequenceClassification", "EncoderModel", "Model",
)  # fmt: skip
"""Endings of a class name in `architectures`: what stands before is the family."""


class FamilyReader(Protocol):
    """A module of this package that reads one family."""

    MODEL_TYPES: tuple[str, ...]
    """The `model_type`s it reads."""

    def read(self, config: Config) -> Model:
        """The model that the config describes."""
        ...


def family_of(config: Config) -> tuple[str, str]:
    """(family, module): by `model_type`, else by `architectures`, else by form; else generic."""
    if config.model_type in FAMILIES:
        return config.model_type, FAMILIES[config.model_type]
    named = _by_architecture(config)
    if named is not None:
        found = config.model_type or "absent"
        config.assume(f"model_type {found} is not known here: read as {named}, by architectures")
        return named, FAMILIES[named]
    if config.has("ssm_cfg") and config.has("d_model"):
        return "mamba_ssm", "mamba"
    return config.model_type, "generic"


def load(module: str) -> FamilyReader:
    """The module of a family."""
    return importlib.import_module(f"{__package__}.{module}")


def nearest_family(model_type: str) -> str | None:
    """The known `model_type` most like this one."""
    return nearest_name(model_type, FAMILIES)


def _by_architecture(config: Config) -> str | None:
    """The known family whose class is the first of `architectures`."""
    names = config.raw("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        return None
    stem = names[0]
    for suffix in SUFFIXES:
        if stem.endswith(suffix):
            stem = stem.removesuffix(suffix)
            break
    plain = {name.replace("_", "").replace("-", "").lower(): name for name in FAMILIES}
    return plain.get(stem.lower())
