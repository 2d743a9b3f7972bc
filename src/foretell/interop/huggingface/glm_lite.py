"""GLM-4.7-Flash and Mistral-Small-4: latent attention and experts as DeepSeek-V3 has them."""

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.deepseek import read_like_v3
from foretell.specs.model import Model

WHY = "the defaults of Glm4MoeLiteConfig and Mistral4Config"


def read(config: Config) -> Model:
    """Experts behind the leading dense layers; a prediction block with copies of the tables."""
    biased = config.family == "glm4_moe_lite"
    return read_like_v3(config, biased=biased, longest=202752, why=WHY)
