"""What most decoder families share: heads, windows, and the model around the layers."""

from collections.abc import Sequence
from typing import Any

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.storage import dtype
from foretell.records import dataclass
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model, NormKind, Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The three numbers that shape softmax attention."""

    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    head_dim: int
    """Width of each."""

    def attention(self, *, biased: bool, **more: Any) -> Attention:
        """Softmax attention of these heads, with biases on all four maps or on none."""
        told: dict[str, Any] = dict.fromkeys(("q_bias", "k_bias", "v_bias", "o_bias"), biased)
        told |= {"heads": self.heads, "kv_heads": self.kv_heads, "head_dim": self.head_dim}
        return Attention(**told | more)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNames:
    """What a family calls the numbers of its heads."""

    heads: tuple[str, ...] = ("num_attention_heads",)
    """Query heads."""
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    """Key and value heads; empty where there are as many as query heads."""
    head_dim: tuple[str, ...] = ("head_dim",)
    """Width of a head; empty where it is always hidden / heads."""


COMMON_NAMES = HeadNames()
"""The names that most families use."""


def read_heads(
    config: Config,
    hidden: int,
    names: HeadNames = COMMON_NAMES,
    *,
    kv_default: int | None = None,
    dim_default: int | None = None,
    why: str = "the library's default",
) -> Heads:
    """Heads, key and value heads, width of a head, and the rules between them.

    Absent key and value heads are as many as query heads, and an absent width is hidden / heads,
    unless the family has a default of its own, which is stated with `why`.
    """
    heads = config.need(*names.heads)
    kv_heads = heads
    if names.kv_heads:
        first, *others = names.kv_heads
        if kv_default is None or config.given(first):
            kv_heads = config.get(first, heads, None, *others, low=1)
        else:
            kv_heads = config.get(first, kv_default, why, *others, low=1)
        config.check(
            heads % kv_heads == 0,
            (names.heads[0], first),
            f"{heads} query heads cannot share {kv_heads} key and value heads evenly",
        )
    width = None
    if names.head_dim:
        first, *others = names.head_dim
        if dim_default is None or config.given(first):
            width = config.get(first, None, None, *others, low=1)
        else:
            width = config.get(first, dim_default, why, *others, low=1)
    if width is None:
        width = config.divides(hidden, heads, ("hidden_size", names.heads[0]))
    return Heads(heads=heads, kv_heads=kv_heads, head_dim=width)


EVEN = ("hidden_size", "num_attention_heads")
"""Keys of a width and of the heads that share it."""


def even_heads(
    config: Config,
    hidden: int,
    heads: int,
    keys: tuple[str, ...] = EVEN,
    *,
    kv_heads: int | None = None,
) -> Heads:
    """Heads that divide the width evenly, as many for keys and values unless it is reported."""
    width = config.divides(hidden, heads, keys)
    return Heads(heads=heads, kv_heads=heads if kv_heads is None else kv_heads, head_dim=width)


def plain_ffn(width: int, activation: str, *, biased: bool) -> Dense:
    """A feed-forward part without a gate, with biases on both maps or on none."""
    return Dense(width=width, gated=False, activation=activation, up_bias=biased, down_bias=biased)


def positions(config: Config, *others: str, default: int = 2048) -> int:
    """`max_position_embeddings`, or the default, which is reported."""
    why = "a length assumed here"
    return config.get("max_position_embeddings", default, why, *others, low=1)


def tied_embeddings(config: Config, *, default: bool, why: str) -> bool:
    """Whether the scoring matrix is the token table."""
    return config.flag("tie_word_embeddings", default=default, why=why)


def decoder(
    config: Config,
    layers: Sequence[Layer],
    *,
    embedding: Embedding,
    head: Head,
    hidden: int,
    max_positions: int,
    final_norm: NormKind = "rms",
) -> Model:
    """A causal model of one stack."""
    return Model(
        id=config.id,
        family=config.family,
        kind="decoder",
        stack=Stack(hidden=hidden, layers=tuple(layers), final_norm=final_norm),
        embedding=embedding,
        head=head,
        max_positions=max_positions,
        dtype=dtype(config),
    )


def token_decoder(
    config: Config,
    layers: Sequence[Layer],
    hidden: int,
    length: int,
    *,
    why: str,
    tied: bool,
    learned: bool = False,
    head_bias: bool = False,
    norm: NormKind = "layer",
) -> Model:
    """A causal model of the years before Llama: a token table, learned positions or none, and its norm."""
    vocab = config.need("vocab_size")
    return decoder(
        config,
        layers,
        embedding=Embedding(vocab=vocab, positions=length if learned else 0),
        head=Head(
            outputs=vocab, tied=tied_embeddings(config, default=tied, why=why), bias=head_bias
        ),
        hidden=hidden,
        max_positions=length,
        final_norm=norm,
    )


def plain_decoder(
    config: Config, layers: Sequence[Layer], hidden: int, *, longest: int, why: str
) -> Model:
    """A causal model of one stack with a token table, and a head of its own unless the config shares it;
    `longest` and what it does not name are the library's defaults, which `why` says."""
    length = positions(config, default=longest)
    return token_decoder(config, layers, hidden, length, why=why, tied=False, norm="rms")
