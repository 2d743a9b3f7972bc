"""Plain text models behind a vision or audio tower: what the projector between them holds.

A family here is three things: the name of its text model where the config does not say, its tower,
and a formula for its projector.
"""

from collections.abc import Callable

from foretell.interop.huggingface import towers
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.multimodal import finish, has_tower, read_text
from foretell.interop.huggingface.towers import linear
from foretell.records import dataclass
from foretell.specs.model import Model, Tower

Projector = Callable[[Config, Config, int], int]
"""(whole config, tower's config, text width) -> weights of the projector."""

ENCODERS: dict[str, Callable[[Config], int]] = {
    "siglip_vision_model": towers.siglip,
    "clip_vision_model": towers.clip,
    "pixtral": towers.pixtral,
    "internvl_vision": towers.internvit,
    "intern_vit_6b": towers.internvit,
    "idefics3": towers.idefics,
    "idefics3_vision": towers.idefics,
    "smolvlm_vision": towers.idefics,
    "qwen2_audio_encoder": towers.whisper,
    "voxtral_encoder": towers.whisper,
}
"""The tower's `model_type` and its formula."""


def two_maps(config: Config, tower: Config, text: int) -> int:
    """tower -> text -> text."""
    biased = config.flag("multimodal_projector_bias", default=True)
    chosen = config.raw("vision_feature_layer")
    read = len(chosen) if isinstance(chosen, list) else 1
    wide = tower.need("hidden_size") * max(read, 1)
    return linear(wide, text, bias=biased) + linear(text, text, bias=biased)


def newline(config: Config, tower: Config, text: int) -> int:
    """Two maps and a learned line break."""
    return two_maps(config, tower, text) + text


def one_map(config: Config, tower: Config, text: int) -> int:
    """tower -> text with a bias."""
    return linear(tower.need("hidden_size", "d_model"), text, bias=True)


def projector_gemma3(config: Config, tower: Config, text: int) -> int:
    """Gemma-3: a norm of the tower's width and one map without a bias."""
    wide = tower.need("hidden_size")
    return wide + linear(wide, text)


def projector_mistral3(config: Config, tower: Config, text: int) -> int:
    """Mistral-Small-3: a norm, neighbouring patches merged into one, two maps."""
    wide = tower.need("hidden_size")
    patches = config.get("spatial_merge_size", 2, towers.WHY, low=1) ** 2
    biased = config.flag("multimodal_projector_bias", default=False)
    maps = linear(wide, text, bias=biased) + linear(text, text, bias=biased)
    return wide + linear(wide * patches, wide) + maps


def projector_internvl(config: Config, tower: Config, text: int) -> int:
    """InternVL: pixels shuffled into channels, a layer norm of that width, two maps."""
    ratio = config.number("downsample_ratio", 0.5, towers.WHY, low=1e-3)
    wide = tower.need("hidden_size") * round(1.0 / ratio) ** 2
    return 2 * wide + linear(wide, text, bias=True) + linear(text, text, bias=True)


def projector_idefics3(config: Config, tower: Config, text: int) -> int:
    """Idefics-3: `scale_factor` squared patches side by side, one map without a bias."""
    wide = tower.need("hidden_size") * config.get("scale_factor", 2, towers.WHY, low=1) ** 2
    return linear(wide, text)


def frames(config: Config, tower: Config, text: int) -> int:
    """Voxtral: frames side by side to the inner width, two maps without biases."""
    return linear(tower.need("intermediate_size"), text) + linear(text, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """How one family wraps its text model."""

    text: str
    """The text model's `model_type` where the config does not say."""
    tower: str
    """The tower's `model_type` where the config does not say."""
    projector: Projector
    """Weights between tower and text."""
    key: str = "vision_config"
    """Where the tower is described."""
    name: str = "vision"
    """What the tower reads."""
    text_key: str = "text_config"
    """Where the text model is described."""


WRAPPERS: dict[str, Wrapper] = {
    "gemma3": Wrapper(text="gemma3_text", tower="siglip_vision_model", projector=projector_gemma3),
    "paligemma": Wrapper(text="gemma", tower="siglip_vision_model", projector=one_map),
    "mistral3": Wrapper(text="mistral", tower="pixtral", projector=projector_mistral3),
    "llava": Wrapper(text="llama", tower="clip_vision_model", projector=two_maps),
    "llava_next": Wrapper(text="llama", tower="clip_vision_model", projector=newline),
    "llava_onevision": Wrapper(text="qwen2", tower="siglip_vision_model", projector=newline),
    "internvl": Wrapper(text="qwen2", tower="internvl_vision", projector=projector_internvl),
    "internvl_chat": Wrapper(
        text="qwen2", tower="intern_vit_6b", projector=projector_internvl, text_key="llm_config"
    ),
    "idefics3": Wrapper(text="llama", tower="idefics3_vision", projector=projector_idefics3),
    "smolvlm": Wrapper(text="llama", tower="smolvlm_vision", projector=projector_idefics3),
    "qwen2_audio": Wrapper(
        text="qwen2",
        tower="qwen2_audio_encoder",
        projector=one_map,
        key="audio_config",
        name="audio",
    ),
    "voxtral": Wrapper(
        text="llama", tower="voxtral_encoder", projector=frames, key="audio_config", name="audio"
    ),
}
WHOLE: dict[str, Callable[[Config], Tower]] = {"glm4v": towers.glm4v, "glm4v_moe": towers.glm4v}
"""Families whose tower comes with its projector, and their formula."""
TEXT = {"glm4v_text": "glm4", "glm4v_moe_text": "glm4_moe"}
"""Names of text models and the plain families that these are."""


def read(config: Config) -> Model:
    """The text model with its tower and projector."""
    if config.family in WHOLE:
        model = read_text(config, TEXT, f"{config.family}_text")
        if not has_tower(config, "vision_config", "vision"):
            return finish(config, model, ())
        return finish(config, model, (WHOLE[config.family](config.sub("vision_config")),))
    wrapper = WRAPPERS[config.family]
    model = read_text(config, {}, wrapper.text, wrapper.text_key)
    if not has_tower(config, wrapper.key, wrapper.name):
        return finish(config, model, ())
    tower = config.sub(wrapper.key)
    kind = tower.choice("model_type", tuple(ENCODERS), wrapper.tower)
    weights = ENCODERS[kind](tower) + wrapper.projector(config, tower, model.stack.hidden)
    return finish(config, model, (Tower(name=wrapper.name, parameters=weights),))
