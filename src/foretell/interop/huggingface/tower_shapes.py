"""What the time of a vision or audio tower depends on: its layers, and how inputs become patches.

Weights of towers are counted in `towers.py`. A config seldom says how its processor cuts an image; the
rules of the released processors are `images` in families.toml.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foretell.interop.huggingface.config import LAYERS_MOST, Config
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Stack, Tower

HEADS = 16
"""Heads where a config does not say: those of SigLIP, which most towers began as."""
STRETCH_S, FRAMES_PER_S = 30.0, 50.0
"""Whisper's encoder reads stretches of 30 s, the last one filled with silence, at 50 positions a second."""
GEMMA_FRAMES_PER_S = 25.0
"""Those of Gemma-4's audio tower, behind two strides of two."""


def shaped(config: Config, rules: Mapping[str, Any], tower: Tower) -> Tower:
    """A tower with its layers and its family's rules for inputs, where the config has their sizes."""
    part = config.sub(f"{tower.name}_config")
    images = rules.get("images", {})
    tower = replace(
        tower,
        stack=_stack(part, gated=images.get("gated", False)),
        turned=images.get("turned", False),
    )
    if tower.name == "audio":
        return _audio(config, part, tower)
    merge = _first(part, "spatial_merge_size", "pooling_kernel_size") or _first(
        config, "spatial_merge_size", "scale_factor"
    )
    budget = images.get("budget", 0)
    return replace(
        tower,
        patch=_first(part, "patch_size"),
        merge=merge or images.get("merge", 1),
        image_side=_first(part, "image_size") if images.get("fixed") else 0,
        most_tiles=images.get("most_tiles", 1),
        most_tokens=images.get("most_tokens", 0),
        budget=budget and (_first(config, "vision_soft_tokens_per_image") or budget),
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
