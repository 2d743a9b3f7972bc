"""What an image or a stretch of audio becomes in its tower: patches, tiles, frames, and tokens of the prompt.

Each family's processor decides it; its class in the transformers library is named beside each entry. Towers
of the Qwen-VL, GLM-V, Kimi and Mistral families take an image at its own size.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.specs.model import Tower

Sizes = Callable[[Config, Config, Tower], Tower]
WHISPER_FRAMES, WHISPER_HZ = 1500, 50.0
"""Frames of Whisper's window of 30 s, and of a second: hops of 10 ms, one convolution of stride two."""
GEMMA_HZ, GEMMA_WINDOW = 25.0, 24
"""Frames of a second of Gemma-4's audio tower (two strides of two), and frames of a chunk with its context
(models/gemma4: attention_chunk_size, attention_context_left, both 12)."""


def with_sizes(config: Config, tower: Tower) -> Tower:
    """A tower with the sizes that its tokens and its time depend on, where the config has them."""
    key = f"{tower.name}_config"
    if not config.has(key):
        return tower
    part = config.sub(key)
    sized = replace(
        tower,
        patch=first(part, "patch_size") if tower.name == "vision" else 0,
        merge=first(part, "spatial_merge_size", "pooling_kernel_size")
        or first(config, "spatial_merge_size")
        or _square(part, "merge_kernel_size")
        or 1,
        hidden=first(part, "hidden_size", "embed_dim", "vt_hidden_size", "d_model"),
        layers=first(part, "depth", "num_hidden_layers", "vt_num_hidden_layers", "encoder_layers"),
    )
    own = SIZES.get((config.family, tower.name))
    return sized if own is None else own(config, part, sized)


def first(config: Config, *names: str) -> int:
    """The first of some keys that has a whole number above 0; 0 where none has."""
    values = (config.raw(name) for name in names if config.has(name))
    return next((value for value in values if type(value) is int and value > 0), 0)


def _square(config: Config, name: str) -> int:
    """The side of a square given as a list of two."""
    value = config.raw(name) if config.has(name) else None
    return value[0] if isinstance(value, list) and value and type(value[0]) is int else 0


def _tiles(side: int, merge: int, most: int = 1) -> Sizes:
    """Images brought to tiles of one size."""

    def sizes(config: Config, part: Config, tower: Tower) -> Tower:
        return replace(tower, tile=first(part, "image_size") or side, merge=merge, tiles=most)

    return sizes


def _gemma4(config: Config, part: Config, tower: Tower) -> Tower:
    """Gemma4ImageProcessor: as large as `max_soft_tokens` allow, three by three patches to a token."""
    merge = first(part, "pooling_kernel_size") or 3
    tokens = first(config, "vision_soft_tokens_per_image", "max_soft_tokens") or 280
    return replace(tower, merge=merge, budget=tokens)


def _qwen2_5(config: Config, part: Config, tower: Tower) -> Tower:
    """Qwen2_5_VisionTransformer: windows of 112 pixels but for a few layers."""
    window = first(part, "window_size") // max(tower.patch, 1)
    full = part.raw("fullatt_block_indexes") if part.has("fullatt_block_indexes") else None
    if not window or not isinstance(full, list):
        return tower
    return replace(tower, window=window * window, full_layers=len(full))


def _kimi(config: Config, part: Config, tower: Tower) -> Tower:
    """MoonViT's patch merger: two by two."""
    return replace(tower, merge=_square(part, "merge_kernel_size") or 2)


def _idefics(config: Config, part: Config, tower: Tower) -> Tower:
    """Idefics3ImageProcessor: tiles of the tower's size, `scale_factor` squared patches to a token."""
    merge = first(config, "scale_factor") or 2
    return replace(tower, tile=first(part, "image_size") or 364, merge=merge, tiles=16)


def _whisper(pool: int) -> Sizes:
    """WhisperFeatureExtractor: windows of 30 s, the last one padded; `pool` frames to a token."""

    def sizes(config: Config, part: Config, tower: Tower) -> Tower:
        window = first(part, "max_source_positions") or WHISPER_FRAMES
        return replace(tower, merge=pool, window=window, frames_hz=WHISPER_HZ, padded=True)

    return sizes


def _voxtral(config: Config, part: Config, tower: Tower) -> Tower:
    """VoxtralForConditionalGeneration: frames side by side up to the inner width."""
    pool = max(first(part, "intermediate_size") // max(tower.hidden, 1), 1)
    sized = _whisper(pool)(config, part, tower)
    return replace(sized, budget=sized.window // pool)  # no mask: the padding has tokens too


def _gemma4_audio(config: Config, part: Config, tower: Tower) -> Tower:
    """Gemma4AudioModel: chunks with a little of what is before them."""
    return replace(tower, merge=1, window=GEMMA_WINDOW, frames_hz=GEMMA_HZ)


SIZES: Mapping[tuple[str, str], Sizes] = {
    ("gemma3", "vision"): _tiles(896, merge=4),  # Gemma3ImageProcessor, without pan and scan
    ("paligemma", "vision"): _tiles(224, merge=1),
    ("llava", "vision"): _tiles(336, merge=1),
    ("llava_next", "vision"): _tiles(336, merge=1, most=4),  # image_grid_pinpoints
    ("llava_onevision", "vision"): _tiles(384, merge=1, most=9),
    ("internvl", "vision"): _tiles(448, merge=2, most=12),  # GotOcr2ImageProcessor, max_patches 12
    ("internvl_chat", "vision"): _tiles(448, merge=2, most=12),
    ("llama4", "vision"): _tiles(336, merge=2, most=16),  # Llama4ImageProcessor, max_patches 16
    ("idefics3", "vision"): _idefics,
    ("smolvlm", "vision"): _idefics,
    ("gemma4", "vision"): _gemma4,
    ("qwen2_5_vl", "vision"): _qwen2_5,
    ("kimi_k25", "vision"): _kimi,
    ("kimi_k3", "vision"): _kimi,
    ("qwen2_audio", "audio"): _whisper(2),  # an average pool of two
    ("voxtral", "audio"): _voxtral,
    ("gemma4", "audio"): _gemma4_audio,
}
"""(family, what a tower reads) -> its sizes."""
