"""Sizes of the models that the runner trains, and the record that predictions take of the same model."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from foretell.records import dataclass

if TYPE_CHECKING:
    from foretell.specs.model import Layer, Model

Style = Literal["llama", "gpt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSizes:
    """A decoder that the runner can build."""

    style: Style = "llama"
    """llama: RMS norms, rotary positions, gated, no biases; gpt: layer norms, learned positions, GELU,
    biases. Table and head are two matrices in both."""
    hidden: int
    """Width."""
    layers: int
    """Layers."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    ffn: int
    """Width of the feed-forward part."""
    vocab: int
    """Rows of the token table, and scores."""
    positions: int = 0
    """Rows of the table of positions (gpt)."""

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden // self.heads


def spec_of(sizes: DecoderSizes, name: str) -> "Model":
    """The model as predictions take it."""
    from foretell.specs.model import Embedding, Head, Model, Stack

    llama = sizes.style == "llama"
    return Model(
        id=name,
        family="llama" if llama else "gpt2",
        kind="decoder",
        stack=Stack(
            hidden=sizes.hidden,
            layers=(_layer(sizes),) * sizes.layers,
            final_norm="rms" if llama else "layer",
        ),
        embedding=Embedding(vocab=sizes.vocab, positions=sizes.positions),
        head=Head(outputs=sizes.vocab),
        max_positions=131072 if llama else sizes.positions,
    )


def _layer(sizes: DecoderSizes) -> "Layer":
    from foretell.specs.ffn import Dense
    from foretell.specs.mixers import Attention
    from foretell.specs.model import Layer

    llama = sizes.style == "llama"
    attention = Attention(
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        q_bias=not llama,
        k_bias=not llama,
        v_bias=not llama,
        o_bias=not llama,
    )
    ffn = Dense(
        width=sizes.ffn,
        gated=llama,
        activation="silu" if llama else "gelu_new",
        up_bias=not llama,
        down_bias=not llama,
    )
    return Layer(mixers=(attention,), ffn=ffn, norm_kind="rms" if llama else "layer")


def sizes_of(model: "Model") -> DecoderSizes | None:
    """The sizes of a model of the catalogue; None where it is more than the runner can build."""
    from foretell.specs.ffn import Dense
    from foretell.specs.mixers import Attention

    layer = model.stack.layers[0]
    mixer, ffn = layer.mixers[0] if layer.mixers else None, layer.ffn
    if not isinstance(mixer, Attention) or not isinstance(ffn, Dense):
        return None
    positions = model.embedding.positions
    sizes = DecoderSizes(
        style="gpt" if positions else "llama",
        hidden=model.stack.hidden,
        layers=len(model.stack.layers),
        heads=mixer.heads,
        kv_heads=mixer.kv_heads,
        ffn=ffn.width,
        vocab=model.embedding.vocab,
        positions=positions,
    )
    made = spec_of(sizes, model.id)
    alike = replace(
        model,
        family=made.family,
        max_positions=made.max_positions,
        dtype=made.dtype,
        assumptions=(),
    )
    return sizes if alike == made else None
