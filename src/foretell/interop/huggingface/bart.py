"""BART, mBART, Marian and Pegasus: translation and summary models."""

from foretell.interop.huggingface.common import plain_ffn
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.storage import dtype
from foretell.records import dataclass
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model, NormKind, Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class BartKind:
    """Where these families differ."""

    why: str
    """Whose defaults are taken."""
    offset: int = 0
    """Rows of a position table beyond `max_position_embeddings`."""
    table_norm: NormKind = "none"
    """Normalisation of each embedding."""
    final_norm: NormKind = "none"
    """Normalisation after each stack (pre-norm families)."""


KINDS = {
    "bart": BartKind(why="BartConfig's defaults", offset=2, table_norm="layer"),
    "mbart": BartKind(
        why="MBartConfig's defaults", offset=2, table_norm="layer", final_norm="layer"
    ),
    "marian": BartKind(why="MarianConfig's defaults"),
    "pegasus": BartKind(why="PegasusConfig's defaults", final_norm="layer"),
}


def read(config: Config) -> Model:
    """Two stacks with biases and position tables of their own (fixed ones are stored too)."""
    kind = KINDS[config.family]
    hidden = config.need("d_model", "hidden_size")
    length, vocab = config.need("max_position_embeddings"), config.need("vocab_size")
    encoder = side_layers(config, hidden, "encoder")
    decoder = side_layers(config, hidden, "decoder")
    positions = length + kind.offset
    return Model(
        id=config.id,
        family=config.family,
        kind="encoder-decoder",
        stack=Stack(hidden=hidden, layers=decoder, final_norm=kind.final_norm),
        encoder=Stack(hidden=hidden, layers=encoder, final_norm=kind.final_norm),
        embedding=Embedding(vocab=vocab, positions=positions, norm=kind.table_norm),
        encoder_embedding=Embedding(positions=positions, norm=kind.table_norm),
        head=Head(
            outputs=vocab, tied=config.flag("tie_word_embeddings", default=True, why=kind.why)
        ),
        max_positions=length,
        dtype=dtype(config),
    )


def side_layers(
    config: Config, hidden: int, side: str, *, key_bias: bool = True
) -> tuple[Layer, ...]:
    """The layers of one side, by `encoder_...` or `decoder_...` keys."""
    heads = config.need(f"{side}_attention_heads")
    depth = config.layers(key=f"{side}_layers")
    head_dim = config.divides(hidden, heads, ("d_model", f"{side}_attention_heads"))

    def attention(*, causal: bool = False, cross: bool = False) -> Attention:
        return Attention(
            heads=heads,
            kv_heads=heads,
            head_dim=head_dim,
            causal=causal,
            cross=cross,
            q_bias=True,
            k_bias=key_bias,
            v_bias=True,
            o_bias=True,
        )

    ffn = plain_ffn(
        config.need(f"{side}_ffn_dim"), config.text("activation_function", "gelu"), biased=True
    )
    if side == "encoder":
        layer = Layer(mixers=(attention(),), ffn=ffn, norm_kind="layer")
    else:
        mixers = (attention(causal=True), attention(cross=True))
        layer = Layer(mixers=mixers, ffn=ffn, norms=3, norm_kind="layer")
    return (layer,) * depth
