"""Llama and the families that differ from it in a trait or two."""

from dataclasses import replace

from foretell.interop.huggingface.common import HeadNames
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.llamalike import (
    Traits,
    Windows,
    all_but_every,
    every_layer,
    read_like,
)
from foretell.specs.model import Model

LLAMA = Traits(
    why="LlamaConfig's defaults",
    qkv_bias=("attention_bias", False),
    o_bias=("attention_bias", False),
    mlp_bias=("mlp_bias", False),
)
MISTRAL = Traits(
    why="MistralConfig's defaults",
    kv_default=8,
    windows=every_layer(4096, "MistralConfig's defaults"),
)


def _if_used(pattern: str) -> Windows:
    """SmolLM3: windows where `use_sliding_window` is on, on layers that `pattern` marks."""
    why = "SmolLM3Config's defaults"

    def windows(config: Config, layers: int) -> tuple[int | None, ...]:
        if not config.flag("use_sliding_window", False, why):
            return (None,) * layers
        return every_layer(None, why)(config, layers)

    return windows


def _own(name: str, **changes: object) -> Traits:
    """Llama's traits with some changed, under the name of another config class."""
    return replace(LLAMA, why=f"{name}'s defaults", **changes)  # type: ignore[arg-type]


def _gemma(name: str, **changes: object) -> Traits:
    """Gated GELU and tied tables; from Gemma 2 on norms also after each half, and windows."""
    base: dict[str, object] = {
        "why": f"{name}'s defaults",
        "activation": "gelu_pytorch_tanh",
        "activation_keys": ("hidden_activation", "hidden_act"),
        "qkv_bias": ("attention_bias", False),
        "o_bias": ("attention_bias", False),
        "tied": True,
        "kv_default": 4,
        "dim_default": 256,
    }
    return Traits(**(base | changes))  # type: ignore[arg-type]


TRAITS: dict[str, Traits] = {
    "llama": LLAMA,
    "Yi": LLAMA,
    "mistral": MISTRAL,
    "ministral": replace(
        MISTRAL,
        why="MinistralConfig's defaults",
        windows=every_layer(4096, "MinistralConfig's defaults"),
    ),
    "ministral3": replace(
        MISTRAL,
        why="Ministral3Config's defaults",
        dim_default=128,
        windows=every_layer(None, ""),
    ),
    "granite": _own("GraniteConfig"),
    "smollm3": _own("SmolLM3Config", tied=True, kv_default=4, windows=_if_used("layer_types")),
    "olmo": _own("OlmoConfig", norm="none", mlp_bias=False),
    "olmo2": _own("Olmo2Config", qk_norm="whole", mlp_bias=False),
    "olmo3": _own(
        "Olmo3Config",
        qk_norm="whole",
        mlp_bias=False,
        windows=all_but_every(4, 4096, "Olmo3Config's defaults"),
    ),
    "exaone4": _own(
        "Exaone4Config",
        qk_norm="head",
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        kv_default=32,
        windows=all_but_every(4, 4096, "Exaone4Config's defaults"),
    ),
    "exaone": Traits(
        why="the defaults of EXAONE 3's own code",
        layers_key="num_layers",
        activation_keys=("activation_function",),
    ),
    "starcoder2": Traits(
        why="Starcoder2Config's defaults",
        norm="layer",
        gated=False,
        activation="gelu_pytorch_tanh",
        qkv_bias=("use_bias", True),
        o_bias=("use_bias", True),
        mlp_bias=("use_bias", True),
        tied=True,
        kv_default=2,
        windows=every_layer(None, "Starcoder2Config's defaults"),
    ),
    "seed_oss": Traits(
        why="SeedOssConfig's defaults",
        qkv_bias=("attention_bias", True),
        o_bias=("attention_out_bias", False),
        mlp_bias=("mlp_bias", False),
        kv_default=8,
        dim_default=128,
    ),
    "hunyuan_v1_dense": _own("HunYuanDenseV1Config", qk_norm="head", mlp_bias=False),
    "arcee": _own("ArceeConfig", gated=False, activation="relu2"),
    "ernie4_5": Traits(
        why="Ernie4_5Config's defaults",
        qkv_bias=("use_bias", False),
        o_bias=("use_bias", False),
        mlp_bias=("use_bias", False),
        tied=True,
        kv_default=2,
        dim_default=128,
    ),
    "helium": Traits(
        why="HeliumConfig's defaults",
        qkv_bias=("attention_bias", False),
        mlp_bias=("mlp_bias", False),
        kv_default=20,
        dim_default=128,
    ),
    "apertus": _own(
        "ApertusConfig",
        gated=False,
        activation="xielu",
        qk_norm="head",
        mlp_bias=False,
        extra_per_layer=2,
    ),
    "nemotron": _own("NemotronConfig", norm="layer", gated=False, activation="relu2"),
    "internlm": Traits(
        why="the defaults of InternLM's own code",
        qkv_bias=("bias", True),
        o_bias=("bias", True),
        names=HeadNames(kv_heads=()),
    ),
    "internlm2": Traits(
        why="the defaults of InternLM2's own code",
        qkv_bias=("bias", False),
        o_bias=("bias", False),
    ),
    "internlm3": Traits(
        why="the defaults of InternLM3's own code",
        qkv_bias=("qkv_bias", False),
        o_bias=("bias", False),
        mlp_bias=("bias", False),
    ),
    "baichuan": Traits(
        why="the defaults of Baichuan's own code", names=HeadNames(kv_heads=(), head_dim=())
    ),
    "xverse": Traits(why="the defaults of XVERSE's own code", names=HeadNames(kv_heads=())),
    "orion": Traits(why="the defaults of Orion's own code", norm="layer"),
    # Command R, Aya and Command A: one norm without bias feeds both halves of a layer.
    "cohere": Traits(
        why="CohereConfig's defaults",
        norm="layer-nobias",
        norms=1,
        parallel=True,
        qkv_bias=("attention_bias", False),
        o_bias=("attention_bias", False),
        qk_norm="whole",
        qk_norm_key="use_qk_norm",
        tied=True,
    ),
    "cohere2": Traits(
        why="Cohere2Config's defaults",
        norm="layer-nobias",
        norms=1,
        parallel=True,
        qkv_bias=("attention_bias", False),
        o_bias=("attention_bias", False),
        tied=True,
        windows=all_but_every(4, 4096, "Cohere2Config's defaults"),
    ),
    "gemma": _gemma("GemmaConfig", kv_default=16),
    "gemma2": _gemma(
        "Gemma2Config", norms=4, windows=all_but_every(2, 4096, "Gemma2Config's defaults")
    ),
    "gemma3_text": _gemma(
        "Gemma3TextConfig",
        norms=4,
        qk_norm="head",
        windows=all_but_every(6, 4096, "Gemma3TextConfig's defaults"),
    ),
}
"""model_type -> its traits. Families of the library are compared with its modules in the tests."""
MODEL_TYPES = tuple(TRAITS)


def read(config: Config) -> Model:
    """A Llama-like decoder with the traits of its family."""
    return read_like(config, TRAITS[config.family])
