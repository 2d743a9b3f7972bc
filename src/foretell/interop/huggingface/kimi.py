"""Kimi-K2 (DeepSeek-V3's layers) and K2.5 to K2.7, which add a vision tower."""

from foretell.interop.huggingface import deepseek, towers
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.multimodal import finish, has_tower, read_text
from foretell.specs.model import Model


def read(config: Config) -> Model:
    """The text model as DeepSeek-V3's, and the tower of K2.5."""
    if config.family == "kimi_k2":
        return deepseek.read(config)
    model = read_text(config, {"kimi_k2": "deepseek_v3"}, "deepseek_v3")
    if not has_tower(config, "vision_config", "vision"):
        return finish(config, model, ())
    return finish(config, model, (towers.moonvit(config.sub("vision_config")),))
