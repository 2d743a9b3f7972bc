"""Vision and audio towers with their projectors, as weight counts: rows of towers.toml, and four computed.

What the time of a tower depends on is in `tower_shapes.py`.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.rows import Row
from foretell.interop.package_tables import packaged_table
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


def block(
    hidden: int, inner: int, form: Form, attention: int | None = None, shared: int | None = None
) -> int:
    """One encoder layer: q, k, v and output maps, feed-forward part, two norms.

    `attention` is the width of the queries where it is not the hidden width, `shared` that of keys and values
    where it is not the queries'.
    """
    width = hidden if attention is None else attention
    return (
        linear(hidden, width, bias=form.qkv_bias)
        + 2 * linear(hidden, width if shared is None else shared, bias=form.qkv_bias)
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


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """The rows of towers and projectors."""
    return packaged_table(Path(__file__).with_name("towers.toml"))


def tower_weights(config: Config, part: Config, tower: str | Mapping[str, str], text: int) -> int:
    """The weights of a tower and its projector: a word for both, or an encoder where the tower does not name
    its own and a projector."""
    if isinstance(tower, str) and tower in COMPUTED:
        return COMPUTED[tower](config, part, text)
    if isinstance(tower, str):
        name, behind = tower, tower
    else:
        names = table()["names"]
        name = names[part.choice("model_type", tuple(names), tower["encoder"])]
        behind = tower["projector"]
    row = Row(part, {**table()["defaults"], **table()["towers"][name]}, WHY)
    row.known["text"] = text
    total = encoder_weights(row)
    projector = table()["projectors"].get(behind)
    if projector is None:
        return total
    other = Row(config, {**table()["defaults"], **projector}, WHY)
    other.known = {"text": text, "hidden": row.whole("hidden")}
    if behind == name:
        other.known["merge"] = row.whole("merge")
    if any("inner" in one for one in projector["maps"]):
        other.known["inner"] = row.whole("inner")
    return total + counted(other)


def encoder_weights(row: Row) -> int:
    """Layers, maps and vectors of a tower."""
    part, rules = row.config, row.rules
    if any("pixels" in one for one in rules["maps"]):
        patch = side(part, "patch_size", rules.get("patch"))
        row.known["pixels"] = row.whole("channels") * row.whole("frames") * patch * patch
    if "square" in rules:
        row.known["patches"] = patches(part)
    first, *others = rules["depth"]
    given = all(isinstance(key, str) for key in others)
    depth = part.layers(*others, key=first) if given else row.whole("depth")
    form = Form(
        qkv_bias=row.flag("qkv_bias"),
        out_bias=row.flag("out_bias"),
        mlp_bias=row.flag("mlp_bias"),
        gated=row.flag("gated"),
        layer_norm=not row.flag("rms"),
    )
    sizes = (row.whole(name) for name in ("attention", "shared"))
    each = block(row.whole("hidden"), row.whole("inner"), form, *sizes)
    each += counted(row.within({"maps": (), "vectors": rules.get("layer", ())}))
    return depth * each + counted(row)


def counted(row: Row) -> int:
    """Weights of the maps and vectors of a row."""
    total = 0
    for inputs, outputs, *more in row.rules.get("maps", ()):
        biased = bool(row.value(more[0])) if more else False
        many = int(row.value(more[1], 0)) if more[1:] else 1
        if many:
            total += many * linear(row.whole(inputs), row.whole(outputs), bias=biased)
    for width, many in row.rules.get("vectors", ()):
        total += int(row.value(many, 0)) * row.whole(width)
    return total


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


COMPUTED: dict[str, Callable[[Config, Config, int], int]] = {
    "moonvit": moonvit,
    "gemma4": gemma4,
    "gemma4_audio": gemma4_audio,
    "mllama": mllama,
}
"""Towers that are computed: (whole config, tower's, text width) -> weights, projector included."""
