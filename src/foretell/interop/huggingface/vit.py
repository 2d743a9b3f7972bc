"""Vision transformers: ViT, DeiT, DINOv2."""

from foretell.interop.huggingface.common import even_heads
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.storage import dtype
from foretell.specs.ffn import Dense
from foretell.specs.model import Embedding, Head, Layer, Model, Stack

WHY = {"vit": "ViTConfig's defaults", "deit": "DeiTConfig's defaults",
       "dinov2": "Dinov2Config's defaults"}  # fmt: skip


def read(config: Config) -> Model:
    """Patches by a strided convolution, learned positions, pre-norm layers, one score vector."""
    why = WHY[config.family]
    dino = config.family == "dinov2"
    hidden, heads = config.need("hidden_size"), config.need("num_attention_heads")
    biased = config.flag("qkv_bias", default=True, why=why)
    attention = even_heads(config, hidden, heads).attention(
        biased=biased, o_bias=True, causal=False
    )
    layer = Layer(
        mixers=(attention,),
        ffn=_ffn(config, hidden, why),
        norm_kind="layer",
        extra_parameters=2 * hidden if dino else 0,  # the two layer scales
    )
    image, patch = config.need("image_size"), config.need("patch_size")
    config.check(patch <= image, ("patch_size", "image_size"), "a patch is larger than the image")
    tokens = 2 if config.family == "deit" else 1
    positions = (image // patch) ** 2 + tokens
    mask = dino and config.flag("use_mask_token", default=True)
    return Model(
        id=config.id,
        family=config.family,
        kind="encoder",
        stack=Stack(hidden=hidden, layers=(layer,) * config.layers(), final_norm="layer"),
        embedding=Embedding(
            positions=positions,
            patch_inputs=config.get("num_channels", 3, why, low=1) * patch * patch,
            extra_parameters=(tokens + int(mask)) * hidden,
        ),
        head=_head(config, hidden, wide=dino),
        max_positions=positions,
        dtype=dtype(config),
    )


def _ffn(config: Config, hidden: int, why: str) -> Dense:
    """DINOv2 gives a ratio, and may be gated with two thirds of the width, rounded up to eights."""
    activation = config.text("hidden_act", "gelu")
    gated = False
    if config.family == "dinov2":
        width = int(hidden * config.number("mlp_ratio", 4.0, why, low=0.01))
        gated = config.flag("use_swiglu_ffn", default=False, why=why)
        if gated:
            width = (int(width * 2 / 3) + 7) // 8 * 8
    else:
        width = config.need("intermediate_size")
    return Dense(width=width, gated=gated, activation=activation, up_bias=True, down_bias=True)


def _head(config: Config, hidden: int, *, wide: bool) -> Head:
    """Class scores from the class token (DINOv2: beside the mean of the patches)."""
    names = config.raw("id2label")
    if isinstance(names, dict) and names:
        classes = len(names)
    else:
        classes = config.get("num_labels", 2, "the library's default of two classes")
    more = hidden * classes if wide else 0
    return Head(outputs=classes, bias=True, every_position=False, extra_parameters=more)
