"""StableLM."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.llamalike import Traits, read_like
from foretell.specs.model import Model

MODEL_TYPES = ("stablelm",)

TRAITS = Traits(
    why="StableLmConfig's defaults",
    norm="layer",
    qkv_bias=("use_qkv_bias", False),
    qk_norm="whole",
    qk_norm_key="qk_layernorm",
    kv_default=32,
)


def read(config: Config) -> Model:
    """Layer norms; with `use_parallel_residual` one norm feeds both halves of a layer."""
    if config.flag("use_parallel_residual", False, TRAITS.why):
        return read_like(config, replace(TRAITS, norms=1, parallel=True))
    return read_like(config, TRAITS)
