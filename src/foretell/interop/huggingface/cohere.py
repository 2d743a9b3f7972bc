"""Command R and Aya (cohere), Command R7B and A (cohere2)."""

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.llamalike import Traits, all_but_every, read_like
from foretell.specs.model import Model

MODEL_TYPES = ("cohere", "cohere2")

TRAITS: dict[str, Traits] = {
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
}


def read(config: Config) -> Model:
    """Parallel block with one norm without bias; tied tables."""
    return read_like(config, TRAITS[config.family])
