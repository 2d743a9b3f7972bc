"""Which module reads which `model_type`; only the one that is asked for is imported."""

import importlib
from typing import Protocol

from foretell.errors import nearest_name
from foretell.interop.huggingface.config import Config
from foretell.specs.model import Model

MODULES = {
    "llama": "llama Yi mistral ministral ministral3 granite smollm3 olmo olmo2 olmo3 exaone "
    "exaone4 starcoder2 seed_oss hunyuan_v1_dense arcee ernie4_5 helium apertus "
    "nemotron internlm internlm2 internlm3 baichuan xverse orion cohere cohere2 gemma "
    "gemma2 gemma3_text stablelm qwen qwen2 qwen3 mixtral phimoe olmoe phi phi3 grok-1 "
    "hunyuan_v1_moe hunyuan",
    "qwen_moe": "qwen2_moe qwen3_moe",
    "glm": "glm glm4 chatglm",
    "glm_moe": "glm4_moe",
    "deepseek": "deepseek_v2 deepseek_v3",
    "gpt2": "gpt2 gpt_bigcode",
    "opt": "opt",
    "bloom": "bloom",
    "falcon": "falcon RefinedWeb RefinedWebModel",
    "gpt_neox": "gpt_neox gpt_neo",
    "gptj": "gptj codegen",
    "mpt": "mpt",
    "dbrx": "dbrx",
    "bert": "bert roberta xlm-roberta distilbert electra",
    "esm": "esm",
    "vit": "vit deit dinov2",
    "t5": "t5 mt5 umt5",
    "bart": "bart mbart marian pegasus",
    "whisper": "whisper",
    "mamba": "mamba2 mamba_ssm",
    "bamba": "bamba falcon_h1",
    "deepseek_sparse": "deepseek_v32 glm_moe_dsa",
    "deepseek_v4": "deepseek_v4 deepseek_ref",
    "kimi": "kimi_k2 kimi_k25",
    "kimi_linear": "kimi_linear kimi_k3",
    "qwen_next": "qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text",
    "qwen_vl": "qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe",
    "llama4": "llama4 llama4_text",
    "gemma4": "gemma4 gemma4_text",
    "nemotron_h": "nemotron_h",
    "nemotron_nas": "nemotron-nas",
    "gpt_oss": "gpt_oss",
    "mimo": "mimo_v2_flash",
    "minimax": "minimax_m2",
    "step": "step3p5 step3p7",
    "tower_models": "gemma3 paligemma mistral3 llava llava_next llava_onevision internvl internvl_chat "
    "idefics3 smolvlm qwen2_audio voxtral glm4v glm4v_moe",
    "fine_experts": "ernie4_5_moe bailing_moe bailing_moe_v2 dots1 exaone_moe solar_open",
    "glm_lite": "glm4_moe_lite mistral4",
    "longcat": "longcat_flash",
    "granite_hybrid": "granitemoehybrid",
    "lfm2": "lfm2 lfm2_moe",
    "mllama": "mllama mllama_text_model",
    "minimax_m3": "minimax_m3_vl minimax_m3_vl_text minimax_m3",
    "minimax_01": "minimax minimax_text_01 minimax_m1",
    "jamba": "jamba",
}  # fmt: skip
"""Module of this package that has `read(config)` -> every `model_type` that it reads."""
FAMILIES: dict[str, str] = {
    name: module for module, names in MODULES.items() for name in names.split()
}
"""model_type -> its module."""

SUFFIXES = (
    "ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "ForMaskedLM", "ForPreTraining",
    "ForImageClassification", "ForSequenceClassification", "EncoderModel", "Model",
)  # fmt: skip
"""Endings of a class name in `architectures`: what precedes is the family."""


class FamilyReader(Protocol):
    """A module of this package that reads one family."""

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
