"""A config of an unknown family, read from the keys that most decoders share."""

from collections.abc import Mapping

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.llamalike import Traits, dense_ffn, every_layer, read_like
from foretell.interop.huggingface.registry import family_of, load, nearest_family
from foretell.specs.ffn import Dense, Experts
from foretell.specs.model import Model

WHY = "values assumed for an unknown family"
TRAITS = Traits(
    why=WHY,
    qkv_bias=("attention_bias", False),
    o_bias=("attention_bias", False),
    mlp_bias=("mlp_bias", False),
    windows=every_layer(None, WHY),
)
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""Names of the number of routed experts."""


def read(config: Config) -> Model:
    """A Llama-like decoder, with experts where the config has them, and a sentence that says so."""
    name = config.model_type or "absent"
    if not config.has("hidden_size") and isinstance(config.raw("text_config"), Mapping):
        return _text_alone(config, name)
    near = nearest_family(config.model_type) if config.model_type else None
    config.assume(
        f"model_type {name} is not known here: read as a Llama-like decoder from its generic keys "
        "(RMS norms, gated feed-forward, no position table)"
        + (f"; the nearest known family is {near}" if near else "")
    )
    ffns = _ffns(config) if config.has(*EXPERTS) else None
    model = read_like(config, TRAITS, ffns)
    if config.problems:
        config.problem(
            "model_type",
            "is no family known here, and the keys that most families share do not describe it",
            config.raw("model_type"),
            nearest=near,
        )
    return model


def _text_alone(config: Config, name: str) -> Model:
    """The text part of an unknown multimodal config."""
    text = config.sub("text_config")
    text.family, module = family_of(text)
    config.assume(
        f"model_type {name} is not known here: its text_config is read alone, and its towers are "
        "not counted"
    )
    return load(module).read(text)


def _ffns(config: Config) -> tuple[Dense | Experts, ...]:
    """Experts in every layer after the leading dense ones."""
    depth = config.layers()
    dense_first = min(config.get("first_k_dense_replace", 0), depth)
    shared = config.get("n_shared_experts", 0)
    has_own = config.has("moe_intermediate_size")
    width = config.need("moe_intermediate_size" if has_own else "intermediate_size")
    experts = config.need(*EXPERTS)
    top_k = config.need("num_experts_per_tok", "moe_topk", "top_k")
    config.check(
        top_k <= experts, ("num_experts_per_tok",), f"{top_k} of {experts} experts per token"
    )
    routed = Experts(experts=experts, top_k=top_k, width=width, shared_width=shared * width)
    if dense_first == 0:
        return (routed,) * depth
    return (dense_ffn(config, TRAITS),) * dense_first + (routed,) * (depth - dense_first)
