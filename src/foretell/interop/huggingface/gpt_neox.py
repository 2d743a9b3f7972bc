"""GPT-NeoX (Pythia, GPT-NeoX-20B) and GPT-Neo."""

from foretell.interop.huggingface.common import even_heads, plain_ffn, token_decoder
from foretell.interop.huggingface.config import Config
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model


def read(config: Config) -> Model:
    """NeoX: rotary positions, parallel block; Neo: learned positions, every other layer local."""
    return _neox(config) if config.family == "gpt_neox" else _neo(config)


def _neox(config: Config) -> Model:
    why = "GPTNeoXConfig's defaults"
    hidden, heads = config.need("hidden_size"), config.need("num_attention_heads")
    biased = config.flag("attention_bias", default=True)
    attention = even_heads(config, hidden, heads).attention(biased=biased)
    ffn = plain_ffn(
        config.need("intermediate_size"), config.text("hidden_act", "gelu"), biased=True
    )
    layer = Layer(
        mixers=(attention,),
        ffn=ffn,
        norm_kind="layer",
        parallel=config.flag("use_parallel_residual", default=True, why=why),
    )
    length = config.get("max_position_embeddings", 2048, why, low=1)
    return token_decoder(config, (layer,) * config.layers(), hidden, length, why=why, tied=False)


def _neo(config: Config) -> Model:
    hidden, depth = config.need("hidden_size"), config.layers(key="num_layers")
    heads = config.need("num_heads", "num_attention_heads")
    head_dim = config.divides(hidden, heads, ("hidden_size", "num_heads"))
    ffn = plain_ffn(
        config.get("intermediate_size", 4 * hidden, None, low=1),
        config.text("activation_function", "gelu_new"),
        biased=True,
    )
    layers = [
        Layer(
            mixers=(
                Attention(
                    heads=heads, kv_heads=heads, head_dim=head_dim, window=window, o_bias=True
                ),
            ),
            ffn=ffn,
            norm_kind="layer",
        )
        for window in _neo_windows(config, depth)
    ]
    length, why = config.need("max_position_embeddings"), "GPTNeoConfig's defaults"
    return token_decoder(config, layers, hidden, length, why=why, tied=True, learned=True)


def _neo_windows(config: Config, depth: int) -> list[int | None]:
    """`attention_layers`, else `attention_types` ([[[kinds], repeats], ...]), else in turn."""
    width = config.get("window_size", 256, "GPTNeoConfig's defaults", low=1)
    kinds = config.texts("attention_layers", depth)
    if kinds is None:
        kinds = _expanded(config, depth)
    if kinds is None:
        config.assume("attention_types is absent: global and local layers in turn, as GPTNeoConfig")
        kinds = tuple("local" if i % 2 else "global" for i in range(depth))
    return [width if kind == "local" else None for kind in kinds]


def _expanded(config: Config, depth: int) -> tuple[str, ...] | None:
    value = config.raw("attention_types")
    if value is None:
        return None
    names: list[str] = []
    try:
        for kinds, repeats in value:  # type: ignore[attr-defined]
            names += [str(kind) for kind in kinds] * min(int(repeats), depth)
    except (TypeError, ValueError):
        config.problem("attention_types", "is not a list of [[kinds], repeats]", value)
        return None
    if len(names) != depth:
        config.problem("attention_types", f"gives {len(names)} layers for {depth}", value)
        return None
    return tuple(names)
