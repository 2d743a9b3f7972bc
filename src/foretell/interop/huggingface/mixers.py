"""Mixers of a layer by the rules of a row: attention, latent attention, state spaces, convolutions."""

from collections.abc import Callable
from dataclasses import replace

from foretell.interop.huggingface.rows import Row
from foretell.records import dataclass
from foretell.specs.mixers import Attention, DeltaNet, Indexer, LatentAttention, Mamba2
from foretell.specs.model import Layer, Projection


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The three numbers that shape softmax attention."""

    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    head_dim: int
    """Width of each."""


def read_heads(row: Row) -> Heads:
    """Heads, key and value heads, width of a head, and the rules between them.

    Null or absent key and value heads are as many as query heads, such a width is hidden / heads, unless
    the row has a default.
    """
    heads = row.whole("heads")
    kv_heads = row.heads_or("kv_heads", heads) or 1
    keys = row.keys("heads"), row.keys("kv_heads")
    row.config.check(
        heads % kv_heads == 0,
        keys,
        f"{heads} query heads cannot share {kv_heads} key and value heads evenly",
    )
    width = row.heads_or("head_dim", None)
    if width is None:
        even = (row.keys("hidden"), row.keys("heads"))
        width = row.config.divides(row.whole("hidden"), heads, even)
    return Heads(heads=heads, kv_heads=kv_heads, head_dim=width)


def attention(row: Row) -> Attention:
    """Softmax attention."""
    shape = read_heads(row)
    biased, normed = row.flag("qkv_bias"), row.word("qk_norm")
    return Attention(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        value_dim=row.optional("value_dim"),
        window=row.optional("window"),
        chunked=row.flag("chunked"),
        causal=row.word("causal"),
        q_bias=biased,
        k_bias=biased,
        v_bias=biased,
        o_bias=row.flag("o_bias"),
        qk_norm=normed,
        qk_norm_bias=row.flag("qk_norm_bias") and normed != "none",
        scaled_rotary=row.flag("scaled_rotary"),
        output_gate=row.word("output_gate"),
    )


def latent_attention(row: Row) -> LatentAttention:
    """Multi-head latent attention, with an indexer where the row has one; a null rank projects queries
    directly."""
    config = row.config
    if config.given("q_lora_rank"):
        rank = config.get("q_lora_rank", None, low=1)
    else:
        rank = config.get("q_lora_rank", 1536, row.why, low=1)
    mixer = LatentAttention(
        heads=config.need("num_attention_heads"),
        q_rank=rank,
        kv_rank=config.need("kv_lora_rank"),
        nope_dim=config.need("qk_nope_head_dim"),
        rope_dim=config.need("qk_rope_head_dim"),
        value_dim=config.need("v_head_dim"),
        bias=config.flag("attention_bias", default=False, why=row.why),
        output_gate=row.word("output_gate"),
    )
    owns = row.rules.get("indexer")
    if owns is None:
        return mixer
    indexer = Indexer(
        heads=config.need("index_n_heads"),
        head_dim=config.need("index_head_dim"),
        top_k=config.need("index_topk"),
        query_inputs=mixer.q_rank or row.whole("hidden"),
        owns_weights=owns == "own",
    )
    return replace(mixer, indexer=indexer)


def mamba2(row: Row) -> Mamba2:
    """A Mamba-2 mixer, whose heads and their width make its inner width."""
    heads, width = row.whole("heads"), row.whole("inner") if "inner" in row.rules else None
    keys = (row.keys("heads"), row.keys("inner"))
    if width is not None and row.config.raw(row.keys("head_dim")) in (None, "auto"):
        head_dim = row.config.divides(width, heads, keys)
    else:
        head_dim = row.whole("head_dim")
    row.config.check(
        width in (None, heads * head_dim),
        (row.keys("head_dim"), *keys, row.keys("hidden")),
        f"{heads} heads of {head_dim} do not make {width}",
    )
    groups = row.whole("groups")
    row.config.check(
        heads % groups == 0,
        (row.keys("heads"), row.keys("groups")),
        f"{heads} heads cannot share {groups} groups evenly",
    )
    return Mamba2(
        heads=heads,
        head_dim=head_dim,
        state=row.whole("state"),
        groups=groups,
        conv_kernel=row.whole("taps"),
        conv_bias=row.flag("conv_bias"),
        proj_bias=row.flag("proj_bias"),
        gated_norm=row.flag("gated_norm"),
        chunk=row.whole("chunk"),
    )


def delta_net(row: Row) -> DeltaNet:
    """Gated linear attention with a delta-rule state."""
    return DeltaNet(
        key_heads=row.whole("key_heads"),
        value_heads=row.whole("value_heads"),
        key_dim=row.whole("key_dim"),
        value_dim=row.whole("value_dim"),
        conv_kernel=row.whole("taps"),
    )


def mamba1(row: Row) -> Layer:
    """Maps of a Mamba-1 mixer, and its other weights: convolution, decay, skip, and Jamba's three norms."""
    config, hidden = row.config, row.whole("hidden")
    config.assume("the Mamba-1 recurrence is not timed; its maps are")
    inner, state, taps = row.whole("inner"), row.whole("state"), row.whole("taps")
    automatic = config.raw(row.keys("rank")) in (None, "auto")
    rank = -(-hidden // 16) if automatic else row.whole("rank")
    norms = rank + 2 * state if row.flag("inner_norms") else 0
    biased = row.flag("proj_bias")
    maps = (
        Projection(name="mamba.in", inputs=hidden, outputs=2 * inner, bias=biased, split="col"),
        Projection(name="mamba.x", inputs=inner, outputs=rank + 2 * state, split="row"),
        Projection(name="mamba.dt", inputs=rank, outputs=inner, bias=True, split="col"),
        Projection(name="mamba.out", inputs=inner, outputs=hidden, bias=biased, split="row"),
    )
    convolution = inner * taps + (inner if row.flag("conv_bias") else 0)
    return Layer(
        projections=tuple(replace(one, part="mixer") for one in maps),
        extra_parameters=convolution + inner * state + inner + norms,
    )


def short_convolution(row: Row) -> Layer:
    """LFM2: a map to three hidden widths, a short convolution and a map back."""
    hidden, biased = row.whole("hidden"), row.flag("conv_bias")
    maps = (
        Projection(name="conv.in", inputs=hidden, outputs=3 * hidden, bias=biased, split="col"),
        Projection(name="conv.out", inputs=hidden, outputs=hidden, bias=biased, split="row"),
    )
    extra = hidden * row.whole("taps") + (hidden if biased else 0)
    return Layer(projections=maps, extra_parameters=extra)


def lightning(row: Row) -> Layer:
    """MiniMax-01: a joint map to q, k and v, a gate, a norm of their width and a map back."""
    hidden, shape = row.whole("hidden"), read_heads(row)
    row.config.assume("the linear attention's recurrence is not timed; its maps are")
    inner = shape.heads * shape.head_dim
    maps = (
        Projection(name="lightning.qkv", inputs=hidden, outputs=3 * inner, split="col", qkv=True),
        Projection(name="lightning.gate", inputs=hidden, outputs=inner, split="col"),
        Projection(name="lightning.out", inputs=inner, outputs=hidden, split="row"),
    )
    return Layer(projections=maps, extra_parameters=inner)


FORMS: dict[str, Callable[[Row], Layer]] = {
    "attention": lambda row: Layer(mixers=(attention(row),)),
    "latent": lambda row: Layer(mixers=(latent_attention(row),)),
    "mamba2": lambda row: Layer(mixers=(mamba2(row),)),
    "delta": lambda row: Layer(mixers=(delta_net(row),)),
    "mamba1": mamba1,
    "convolution": short_convolution,
    "lightning": lightning,
}
"""Mixers by the word `form` of a row: a layer that has nothing else."""
