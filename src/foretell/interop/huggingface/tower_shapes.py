"""What the time of a vision or audio tower depends on: its layers, and how inputs become patches.

Weights of towers are counted in `towers.py`. A config seldom says how its processor cuts an image; the
rules of the released processors are in one table here.
"""

from dataclasses import replace

from foretell.interop.huggingface.config import LAYERS_MOST, Config
from foretell.records import dataclass
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Stack, Tower

HEADS = 16
"""Heads where a config does not say: those of SigLIP, which most towers began as."""
STRETCH_S, FRAMES_PER_S = 30.0, 50.0
"""Whisper's encoder reads stretches of 30 s, the last one filled with silence, at 50 positions a second."""
GEMMA_FRAMES_PER_S = 25.0
"""Those of Gemma-4's audio tower, behind two strides of two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRule:
    """How a family's processor cuts images."""

    fixed: bool = False
    """Whether every image is scaled to the config's `image_size`."""
    most_tiles: int = 1
    """Tiles of that size that a large image is cut into, one of the whole image beside them."""
    most_tokens: int = 0
    """Tokens of one image at most, larger ones are scaled down; 0: no limit is known."""
    budget: int = 0
    """Tokens that every image is scaled to have; 0: as many as its size has."""
    merge: int = 0
    """Patches along each side of a token where the config does not say."""


NATIVE = ImageRule()
RULES: dict[str, ImageRule] = {
    # transformers, image_processing_qwen2_vl.py: max_pixels 12,845,056 at 28 x 28 pixels a token.
    "qwen2_vl": ImageRule(most_tokens=16384),
    "qwen2_5_vl": ImageRule(most_tokens=16384),
    # Qwen3-VL's preprocessor_config.json: 16,777,216 pixels at 32 x 32 a token.
    "qwen3_vl": ImageRule(most_tokens=16384),
    "qwen3_vl_moe": ImageRule(most_tokens=16384),
    "qwen3_5": ImageRule(most_tokens=16384),
    "qwen3_5_moe": ImageRule(most_tokens=16384),
    # Gemma-3 pools 64 x 64 patches to 256 tokens; Gemma-4 pools 3 x 3, 280 tokens by default.
    "gemma3": ImageRule(fixed=True, merge=4),
    "gemma4": ImageRule(budget=280, merge=3),
    "paligemma": ImageRule(fixed=True),
    "llava": ImageRule(fixed=True),
    "llava_next": ImageRule(fixed=True, most_tiles=4),
    "llava_onevision": ImageRule(fixed=True, most_tiles=9),
    # MoonViT: patches are merged 2 x 2, at most 16,384 of them (Kimi-K2.5's preprocessor_config.json).
    "kimi_k25": ImageRule(most_tokens=4096, merge=2),
    "kimi_k3": ImageRule(most_tokens=4096, merge=2),
    # Llama-4: 576 patches of a tile are shuffled to 144 tokens; at most 16 tiles.
    "llama4": ImageRule(fixed=True, most_tiles=16, merge=2),
    "mllama": ImageRule(fixed=True, most_tiles=4),
    "internvl": ImageRule(fixed=True, most_tiles=12, merge=2),
    "internvl_chat": ImageRule(fixed=True, most_tiles=12, merge=2),
    "mistral3": ImageRule(most_tokens=3025, merge=2),
    "idefics3": ImageRule(fixed=True, most_tiles=16, merge=2),
    "smolvlm": ImageRule(fixed=True, most_tiles=16, merge=2),
}
"""Rules by the whole config's family; others take images as they come."""
TURNED = (
    "gemma3", "paligemma", "llava", "llava_next", "llava_onevision", "internvl", "internvl_chat",
    "idefics3", "smolvlm", "qwen2_audio", "voxtral",
)  # fmt: skip
"""Families whose patches or frames come from a convolution over the whole input."""
GATED = ("qwen2_5_vl", "glm4v", "glm4v_moe", "mistral3", "gemma4")
"""Families whose towers have gated feed-forward parts."""


def shaped(config: Config, tower: Tower) -> Tower:
    """A tower with its layers and its rule for inputs, where the config has their sizes."""
    key = f"{tower.name}_config"
    if not config.has(key):
        return tower
    part = config.sub(key)
    stack = _stack(part, gated=config.family in GATED)
    if tower.name == "audio":
        return _audio(config, part, replace(tower, stack=stack, turned=config.family in TURNED))
    rule = RULES.get(config.family, NATIVE)
    merge = _first(part, "spatial_merge_size", "pooling_kernel_size") or _first(
        config, "spatial_merge_size", "scale_factor"
    )
    return replace(
        tower,
        stack=stack,
        turned=config.family in TURNED,
        patch=_first(part, "patch_size"),
        merge=merge or rule.merge or 1,
        image_side=_first(part, "image_size") if rule.fixed else 0,
        most_tiles=rule.most_tiles,
        most_tokens=rule.most_tokens,
        budget=rule.budget and (_first(config, "vision_soft_tokens_per_image") or rule.budget),
    )


def _audio(config: Config, part: Config, tower: Tower) -> Tower:
    """Whisper's encoder pools two frames to a token in Qwen2-Audio; in Voxtral as many as fill its inner
    width, those of the silence too. Gemma-4's convolutions leave 25 frames a second and no silence."""
    if config.family == "gemma4":
        return replace(tower, frames_per_s=GEMMA_FRAMES_PER_S, merge=1)
    hidden, inner = _first(part, "d_model", "hidden_size"), _first(part, "intermediate_size")
    heard = replace(tower, frames_per_s=FRAMES_PER_S, stretch_s=STRETCH_S, merge=2)
    if config.family != "voxtral" or not hidden or inner < hidden:
        return heard
    pooled = inner // hidden
    return replace(heard, merge=pooled, budget=int(STRETCH_S * FRAMES_PER_S) // pooled)


def _stack(part: Config, *, gated: bool) -> Stack | None:
    """The layers; none where the config has no sizes of them."""
    hidden = _first(part, "vt_hidden_size", "embed_dim", "d_model", "width", "hidden_size")
    depth = _first(
        part, "depth", "vt_num_hidden_layers", "encoder_layers", "layers", "num_hidden_layers"
    )
    inner = _first(part, "vt_intermediate_size", "encoder_ffn_dim", "intermediate_size")
    ratio = part.raw("mlp_ratio") if part.has("mlp_ratio") else 4.0
    if not inner and isinstance(ratio, int | float):
        inner = int(hidden * ratio)
    if not (hidden and 0 < depth <= LAYERS_MOST and inner):
        return None
    heads = _first(part, "num_heads", "vt_num_attention_heads", "num_attention_heads",
                   "encoder_attention_heads", "attention_heads", "heads") or HEADS  # fmt: skip
    width = _first(part, "qkv_hidden_size") or hidden
    whole = Attention(
        heads=heads, kv_heads=heads, head_dim=max(width // heads, 1), causal=False,
        q_bias=True, k_bias=True, v_bias=True, o_bias=True,
    )  # fmt: skip
    dense = Dense(width=inner, gated=gated, activation="silu" if gated else "gelu")
    layer = Layer(mixers=(whole,), ffn=dense, norm_kind="rms" if gated else "layer")
    windowed = layer
    window = _first(part, "window_size") // (_first(part, "patch_size") or 1)
    full = part.wholes("fullatt_block_indexes") if window else None
    if window and full is not None:
        near = replace(whole, window=window * window, chunked=True)
        windowed = replace(layer, mixers=(near,))
    alike = set(full or ())
    layers = tuple(layer if full is None or i in alike else windowed for i in range(depth))
    return Stack(hidden=hidden, layers=layers, final_norm=layer.norm_kind)


def _first(part: Config, *names: str) -> int:
    """The first of some keys that is a whole number above 0 (or a list that begins with one)."""
    for name in names:
        value = part.raw(name) if part.has(name) else None
        if isinstance(value, list | tuple) and value:
            value = value[0]
        if type(value) is int and value > 0:
            return value
    return 0
