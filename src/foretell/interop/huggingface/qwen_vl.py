"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: Qwen text models with a vision tower."""

from collections.abc import Callable

from foretell.interop.huggingface import towers
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.multimodal import finish, has_tower, read_text
from foretell.specs.model import Model, Tower

TEXT = {
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
}
"""Names of their text models and the plain families that these are."""
TOWERS: dict[str, Callable[[Config], Tower]] = {
    "qwen2_vl": towers.qwen2_vl,
    "qwen2_5_vl": towers.qwen2_5_vl,
    "qwen3_vl": towers.qwen3_vl,
    "qwen3_vl_moe": towers.qwen3_vl,
}


def read(config: Config) -> Model:
    """The text model and, where the config describes it, the tower."""
    model = read_text(config, TEXT, config.family)
    if not has_tower(config, "vision_config", "vision"):
        return finish(config, model, ())
    return finish(config, model, (TOWERS[config.family](config.sub("vision_config")),))
