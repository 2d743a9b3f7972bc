"""Vision and audio towers with their projectors, as weight counts.

Every formula follows the released module of its family; the tests compare them with the library's own
modules. What the time of a tower depends on is in `tower_shapes.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.records import dataclass

WHY = "the tower's usual size"


def linear(inputs: int, outputs: int, *, bias: bool = False) -> int:
    """inputs x outputs, and one weight per output where there is a bias."""
    return inputs * outputs + (outputs if bias else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What an encoder layer is made of; the defaults are those of the first vision transformers."""

    qkv_bias: bool = True
    """Biases of the query, key and value maps."""
    out_bias: bool = True
    """Bias of the attention's output."""
    mlp_bias: bool = True
    """Biases of the feed-forward part."""
    gated: bool = False
    """Whether the feed-forward part has a second map up."""
    layer_norm: bool = True
    """Norms with a weight and a shift, or (RMS) a weight alone."""


PLAIN = Form()
BARE = Form(qkv_bias=False, out_bias=False, mlp_bias=False, gated=True, layer_norm=False)
"""No biases, a gate, RMS norms."""


def block(hidden: int, inner: int, form: Form = PLAIN, attention: int | None = None) -> int:
    """One encoder layer: q, k, v and output maps, feed-forward part, two norms.

    `attention` is the width of the queries where it differs from the hidden width.
    """
    width = hidden if attention is None else attention
    return (
        3 * linear(hidden, width, bias=form.qkv_bias)
        + linear(width, hidden, bias=form.out_bias)
        + (2 if form.gated else 1) * linear(hidden, inner, bias=form.mlp_bias)
        + linear(inner, hidden, bias=form.mlp_bias)
        + 2 * hidden * (2 if form.layer_norm else 1)
    )


def side(config: Config, key: str, default: int | None = None) -> int:
    """A square's side, given as a number or as a list of two equal ones."""
    if isinstance(config.raw(key), list | tuple):
        sides = config.wholes(key, low=1) or (1,)
        config.check(len(set(sides)) == 1, (key,), "is not square")
        return sides[0]
    return config.need(key) if default is None else config.get(key, default, WHY, low=1)


def patches(config: Config) -> int:
    """Patches of one image: (image / patch)^2, where their number is not given."""
    if config.has("num_patches"):
        return config.need("num_patches")
    across = side(config, "image_size") // side(config, "patch_size")
    return across * across


def channels(config: Config) -> int:
    """Colours of a pixel."""
    return config.get("num_channels", 3, None, "in_channels", "in_chans", low=1)


def pixels(part: Config, hidden: int, *, bias: bool) -> int:
    """The map of a patch's pixels."""
    return linear(channels(part) * side(part, "patch_size") ** 2, hidden, bias=bias)


def encoder(vision: Config, *, bias: bool, token: int, norms: int, each: int | None = None) -> int:
    """Patches, positions, layers, `norms` vectors of the hidden width; with a class token or without."""
    h, inner = vision.need("hidden_size"), vision.need("intermediate_size")
    layer = block(h, inner) if each is None else each
    tables = (patches(vision) + 2 * token) * h
    return pixels(vision, h, bias=bias) + tables + vision.layers() * layer + norms * h


def siglip(vision: Config) -> int:
    """SigLIP: a pooling head behind the layers unless `vision_use_head` is false."""
    h, inner = vision.need("hidden_size"), vision.need("intermediate_size")
    pool = linear(h, 3 * h, bias=True) + linear(h, h, bias=True) + h + 2 * h
    pool += linear(h, inner, bias=True) + linear(inner, h, bias=True)
    return idefics(vision) + (pool if vision.flag("vision_use_head", default=True) else 0)


def idefics(vision: Config) -> int:
    """The SigLIP of Idefics-3 and SmolVLM: no pooling head."""
    return encoder(vision, bias=True, token=0, norms=2)


def clip(vision: Config) -> int:
    """CLIP: class token, patches without a bias, norms before and after the layers."""
    return encoder(vision, bias=False, token=1, norms=4)


def pixtral(vision: Config) -> int:
    """Pixtral: gated layers without biases, RMS norms, rotary positions."""
    h, inner = vision.need("hidden_size"), vision.need("intermediate_size")
    return pixels(vision, h, bias=False) + h + vision.layers() * block(h, inner, BARE)


def internvit(vision: Config) -> int:
    """InternViT: class token, layers with two learned scales each; normalised queries and keys and RMS
    norms in the 6B one. The second names are those of its own code."""
    h, inner = vision.need("hidden_size"), vision.need("intermediate_size")
    own = vision.has("qkv_bias")
    biased = vision.flag("qkv_bias" if own else "attention_bias", default=False)
    rms = vision.text("norm_type", "layer_norm") == "rms_norm"
    each = block(h, inner, Form(qkv_bias=biased, layer_norm=not rms)) + 2 * h
    if vision.flag("qk_normalization" if own else "use_qk_norm", default=False):
        each += 2 * h
    norms = 0 if vision.flag("use_mean_pooling", default=True) else 2
    return encoder(vision, bias=True, token=1, norms=norms, each=each)


def whisper(audio: Config) -> int:
    """Whisper's encoder: two convolutions over the spectrum, positions, layers whose keys have no
    bias, final norm."""
    h = audio.need("d_model", "hidden_size")
    inner = audio.need("encoder_ffn_dim", "intermediate_size")
    depth = audio.layers("num_hidden_layers", key="encoder_layers")
    mel = audio.get("num_mel_bins", 128, WHY, low=1)
    total = linear(3 * mel, h, bias=True) + linear(3 * h, h, bias=True)
    total += audio.get("max_source_positions", 1500, WHY, low=1) * h
    return total + depth * (block(h, inner) - h) + 2 * h


def qwen2_vl(config: Config, vision: Config, text: int) -> int:
    """Qwen2-VL: patches of two frames without a bias, layers of `embed_dim`, merger to the text."""
    h = vision.get("embed_dim", 1280, WHY, low=1)
    out = vision.need("hidden_size")
    inner = round(h * vision.number("mlp_ratio", 4.0, WHY))
    depth = vision.get("depth", 32, WHY, low=1)
    merged = h * vision.get("spatial_merge_size", 2, WHY, low=1) ** 2
    total = _two_frames(vision, h, 14) + depth * block(h, inner)
    total += 2 * h + linear(merged, merged, bias=True) + linear(merged, out, bias=True)
    return total


def qwen2_5_vl(config: Config, vision: Config, text: int) -> int:
    """Qwen2.5-VL: gated layers with biases and RMS norms, windows, merger to the text."""
    h = vision.get("hidden_size", 1280, WHY, low=1)
    inner = vision.get("intermediate_size", 3420, WHY, low=1)
    out = vision.need("out_hidden_size")
    depth = vision.get("depth", 32, WHY, low=1)
    merged = h * vision.get("spatial_merge_size", 2, WHY, low=1) ** 2
    heads = vision.get("num_heads", 16, low=1)
    shared = h - h // heads * vision.get("num_key_value_heads", heads, low=1)  # EXAONE-4.5
    each = block(h, inner, Form(gated=True, layer_norm=False)) - 2 * shared * (h + 1)
    total = _two_frames(vision, h, 14) + depth * each
    total += h + linear(merged, merged, bias=True) + linear(merged, out, bias=True)
    return total


def qwen3_vl(config: Config, vision: Config, text: int) -> int:
    """Qwen3-VL and Qwen3.5: positions, one merger for the output (its norm before the merge)
    and one for each deep-stack layer (its norm after it)."""
    h, inner = vision.need("hidden_size"), vision.need("intermediate_size")
    out = vision.need("out_hidden_size")
    merged = h * vision.get("spatial_merge_size", 2, WHY, low=1) ** 2
    deep = vision.wholes("deepstack_visual_indexes")
    maps = linear(merged, merged, bias=True) + linear(merged, out, bias=True)
    total = _two_frames(vision, h, 16) + h  # this generation's patch map has a bias
    total += vision.need("num_position_embeddings") * h + vision.layers(key="depth") * block(
        h, inner
    )
    total += maps + 2 * h + len(deep or ()) * (maps + 2 * merged)
    return total


def _two_frames(vision: Config, hidden: int, patch_default: int) -> int:
    """Weights of the patch map of the Qwen-VL families, without its bias."""
    patch = side(vision, "patch_size", patch_default)
    frames = vision.get("temporal_patch_size", 2, WHY, low=1)
    return channels(vision) * frames * patch * patch * hidden


def glm4v(config: Config, vision: Config, text: int) -> int:
    """GLM-4.1V to 4.6V: gated layers of the text's width inside, RMS norms, a strided convolution to
    the text's width and a gated merger behind it."""
    h, inner = vision.need("hidden_size"), vision.need("intermediate_size")
    out = vision.need("out_hidden_size")
    merge = vision.get("spatial_merge_size", 2, WHY, low=1)
    biased = vision.flag("attention_bias", default=False)
    each = block(h, out, replace(BARE, qkv_bias=biased))
    total = _two_frames(vision, h, 14) + h + patches(vision) * h + vision.layers(key="depth") * each
    total += 2 * h + linear(merge * merge * h, out, bias=True)
    return total + out * out + 2 * out + 3 * out * inner


def llama4(config: Config, vision: Config, text: int) -> int:
    """Llama-4: CLIP's form, pixel-shuffle adapter and projector."""
    ratio = vision.number("pixel_shuffle_ratio", 0.5, WHY, low=1e-3)
    shuffled = round(vision.need("hidden_size") / ratio**2)
    out, middle = vision.need("projector_output_dim"), vision.need("projector_input_dim")
    total = clip(vision) + linear(shuffled, middle) + linear(middle, out)
    return total + linear(vision.need("vision_output_dim"), text)


def moonvit(config: Config, vision: Config, text: int) -> int:
    """MoonViT of Kimi-K2.5 and K3: learned 2-D positions (the temporal part is fixed), layers whose
    biases, norms and attention width the config chooses, patch-merging projector."""
    h = vision.need("vt_hidden_size", "hidden_size")
    inner = vision.need("vt_intermediate_size", "intermediate_size")
    depth = vision.layers("num_hidden_layers", key="vt_num_hidden_layers")
    patch = side(vision, "patch_size")
    rms = vision.choice("norm_type", ("layernorm", "rmsnorm"), "layernorm") == "rmsnorm"
    per_norm = h if rms else 2 * h
    attention = vision.get("qkv_hidden_size", h, low=1)
    attn_bias, mlp_bias = (
        vision.flag("attn_bias", default=True),
        vision.flag("linear_bias", default=True),
    )
    form = Form(qkv_bias=attn_bias, out_bias=attn_bias, mlp_bias=mlp_bias, layer_norm=not rms)
    each = block(h, inner, form, attention)
    tall = vision.need("init_pos_emb_height", "pos_emb_height")
    wide = vision.need("init_pos_emb_width", "pos_emb_width")
    total = linear(3 * patch * patch, h, bias=vision.flag("patch_embed_proj_bias", default=True))
    total += tall * wide * h + depth * each + per_norm
    total += _patch_merger(vision, h, text)
    return total


def _patch_merger(vision: Config, hidden: int, text: int) -> int:
    """MoonViT's projector: two maps over merged patches; the second version has no bias and a norm
    of the text width after them, the first a layer norm before them."""
    kernel = vision.wholes("merge_kernel_size", low=1) or (2, 2)
    merged = vision.get("mm_hidden_size", hidden, low=1)
    norm_in = merged
    for step in kernel:
        merged *= step
    out = vision.get("text_hidden_size", text, low=1)
    known = ("patchmerger", "patchmergerv2")
    if vision.choice("mm_projector_type", known, "patchmerger") == "patchmergerv2":
        return linear(merged, merged) + linear(merged, out) + out
    return 2 * norm_in + linear(merged, merged, bias=True) + linear(merged, out, bias=True)


def gemma4(config: Config, vision: Config, text: int) -> int:
    """Gemma-4: two tables of positions, gated layers with four RMS norms and normalised queries and
    keys, one projection to the text."""
    h, inner = vision.need("hidden_size"), vision.need("intermediate_size")
    heads = vision.need("num_attention_heads")
    kv = vision.get("num_key_value_heads", heads, low=1)
    dim = vision.get("head_dim", h // heads, low=1)
    patch = side(vision, "patch_size")
    biased = vision.flag("attention_bias", default=False)
    each = linear(h, heads * dim, bias=biased) + 2 * linear(h, kv * dim, bias=biased)
    each += linear(heads * dim, h, bias=biased) + 3 * h * inner + 2 * dim + 4 * h
    total = linear(3 * patch * patch, h) + 2 * vision.need("position_embedding_size") * h
    total += vision.layers() * each + linear(h, text)
    return total


def mllama(config: Config, vision: Config, text: int) -> int:
    """Llama-3.2 Vision: tile and position tables with gates, local and gated global layers."""
    h, inner = vision.need("hidden_size"), vision.need("intermediate_size")
    patch, tiles = side(vision, "patch_size"), vision.need("max_num_tiles")
    ratios = vision.raw("supported_aspect_ratios")
    tables = (len(ratios) if isinstance(ratios, list) else 8) + 1
    rows = patches(vision) + 1
    each = block(h, inner, Form(qkv_bias=False, out_bias=False))
    total = h + linear(3 * patch * patch, h) + 1 + rows * h + tables * tiles * rows * h
    total += 2 * (1 + tables * tiles * h) + 4 * h
    total += vision.layers() * each + vision.layers(key="num_global_layers") * (each + 2)
    total += linear(vision.need("vision_output_dim"), text, bias=True)
    return total


def step(config: Config, vision: Config, text: int) -> int:
    """Step-3.x: learned positions beside rotary ones, scaled layers, two strided convolutions that
    double the width, one projection."""
    h = vision.need("width", "hidden_size")
    inner = int(h * vision.number("mlp_ratio", 8960 / 1536, WHY))
    patch = side(vision, "patch_size")
    total = linear(3 * patch * patch, h) + patches(vision) * h + 2 * h
    total += vision.layers("num_hidden_layers", key="layers") * (block(h, inner) + 2 * h)
    total += linear(9 * h, 2 * h, bias=True) + linear(9 * 2 * h, 4 * h, bias=True)
    biased = config.flag("projector_bias", default=False)
    total += linear(4 * h, text, bias=biased)
    return total


def gemma4_audio(config: Config, audio: Config, text: int) -> int:
    """Gemma-4's conformer: two strided convolutions over 128 mel bins, layers of two half-step
    feed-forward parts, chunked attention with relative keys and a convolution, two projections."""
    h = audio.get("hidden_size", 1024, WHY, low=1)
    heads = audio.get("num_attention_heads", 8, WHY, low=1)
    taps = audio.get("conv_kernel_size", 5, WHY, low=1)
    widths = audio.wholes("subsampling_conv_channels", low=1) or (128, 32)
    audio.check(len(widths) == 2, ("subsampling_conv_channels",), "are not two widths")
    first, second = widths[0], widths[-1]
    out = audio.get("output_proj_dims", 1536, WHY, low=1)
    bins = 128 // 4  # each convolution halves the spectrum
    total = 9 * first + first + 9 * first * second + second + linear(second * bins, h)
    feed = 2 * 4 * h * h + 2 * h
    attention = 5 * h * h + h // heads
    convolution = 3 * h * h + taps * h + 2 * h
    depth = audio.get("num_hidden_layers", 12, WHY, low=1)
    total += depth * (2 * feed + attention + convolution + 3 * h)
    total += linear(h, out, bias=True) + linear(out, text)
    return total


def minimax_m3(config: Config, vision: Config, text: int) -> int:
    """MiniMax-M3: patches of two frames, a norm before the layers, two maps, two more over merged
    patches."""
    h, inner = vision.need("hidden_size"), vision.need("intermediate_size")
    projector = config.get("projector_hidden_size", text, low=1)
    merged = text * vision.get("spatial_merge_size", 2, WHY, low=1) ** 2
    total = _two_frames(vision, h, 14) + 2 * h + vision.layers() * block(h, inner)
    total += linear(h, projector, bias=True) + linear(projector, text, bias=True)
    total += linear(merged, projector, bias=True) + linear(projector, text, bias=True)
    return total


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
    patches = config.get("spatial_merge_size", 2, WHY, low=1) ** 2
    biased = config.flag("multimodal_projector_bias", default=False)
    maps = linear(wide, text, bias=biased) + linear(text, text, bias=biased)
    return wide + linear(wide * patches, wide) + maps


def projector_internvl(config: Config, tower: Config, text: int) -> int:
    """InternVL: pixels shuffled into channels, a layer norm of that width, two maps."""
    ratio = config.number("downsample_ratio", 0.5, WHY, low=1e-3)
    wide = tower.need("hidden_size") * round(1.0 / ratio) ** 2
    return 2 * wide + linear(wide, text, bias=True) + linear(text, text, bias=True)


def projector_idefics3(config: Config, tower: Config, text: int) -> int:
    """Idefics-3: `scale_factor` squared patches side by side, one map without a bias."""
    wide = tower.need("hidden_size") * config.get("scale_factor", 2, WHY, low=1) ** 2
    return linear(wide, text)


def projector_lfm2(config: Config, tower: Config, text: int) -> int:
    """LFM2-VL: neighbouring patches merged, a layer norm, two maps over a width of their own."""
    wide = tower.need("hidden_size") * config.get("downsample_factor", 2, WHY, low=1) ** 2
    middle = config.get("projector_hidden_size", text, low=1)
    biased = config.flag("projector_bias", default=True)
    norm = 2 * wide if config.flag("projector_use_layernorm", default=True) else 0
    return norm + linear(wide, middle, bias=biased) + linear(middle, text, bias=biased)


def projector_cohere2(config: Config, tower: Config, text: int) -> int:
    """Command-A Vision: neighbouring patches merged, a gated pair of maps."""
    wide = tower.need("hidden_size") * config.get("downsample_factor", 2, WHY, low=1) ** 2
    middle = config.get("alignment_intermediate_size", 36864, WHY, low=2)
    return linear(wide, middle, bias=True) + linear(middle // 2, text, bias=True)


def frames(config: Config, tower: Config, text: int) -> int:
    """Voxtral: frames side by side to the inner width, two maps without biases."""
    return linear(tower.need("intermediate_size"), text) + linear(text, text)


ENCODERS: dict[str, Callable[[Config], int]] = {
    "siglip_vision_model": siglip,
    "siglip2_vision_model": siglip,
    "clip_vision_model": clip,
    "pixtral": pixtral,
    "internvl_vision": internvit,
    "intern_vit_6b": internvit,
    "idefics3": idefics,
    "idefics3_vision": idefics,
    "smolvlm_vision": idefics,
    "qwen2_audio_encoder": whisper,
    "voxtral_encoder": whisper,
}
"""Towers without a projector, by their own `model_type`."""
PROJECTORS: dict[str, Callable[[Config, Config, int], int]] = {
    "one map": one_map,
    "two maps": two_maps,
    "two maps and a line break": newline,
    "gemma3": projector_gemma3,
    "mistral3": projector_mistral3,
    "internvl": projector_internvl,
    "idefics3": projector_idefics3,
    "lfm2": projector_lfm2,
    "cohere2": projector_cohere2,
    "frames": frames,
}
"""Projectors between a tower and the text model: (whole config, tower's, text width) -> weights."""
WHOLE: dict[str, Callable[[Config, Config, int], int]] = {
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "glm4v": glm4v,
    "llama4": llama4,
    "moonvit": moonvit,
    "gemma4": gemma4,
    "gemma4_audio": gemma4_audio,
    "mllama": mllama,
    "step": step,
    "minimax_m3": minimax_m3,
}
"""Towers with their projectors."""


def tower_weights(config: Config, part: Config, tower: str | Mapping[str, str], text: int) -> int:
    """The weights of a tower and its projector: a word of `WHOLE`, or an encoder where the tower does not
    name its own and a projector."""
    if isinstance(tower, str):
        return WHOLE[tower](config, part, text)
    kind = part.choice("model_type", tuple(ENCODERS), tower["encoder"])
    return ENCODERS[kind](part) + PROJECTORS[tower["projector"]](config, part, text)
