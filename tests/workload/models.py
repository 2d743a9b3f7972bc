"""Small models of every family, with dims that share few factors so that errors do not cancel."""

from dataclasses import replace

from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention, DeltaNet, Indexer, LatentAttention, Mamba2, Replacement
from foretell.specs.model import (
    Embedding,
    Head,
    Layer,
    Model,
    NormKind,
    Projection,
    Stack,
    TokenPrediction,
)

HIDDEN = 40
VOCAB = 53

GQA = Attention(heads=6, kv_heads=2, head_dim=10)
MHA = Attention(heads=5, kv_heads=5, head_dim=8, q_bias=True, k_bias=True, v_bias=True, o_bias=True)
MQA = Attention(heads=5, kv_heads=1, head_dim=8)
GELU = Dense(width=84, gated=False, activation="gelu", up_bias=True, down_bias=True)
SWIGLU = Dense(width=68)
MAMBA = Mamba2(heads=6, head_dim=8, state=14, groups=2, conv_kernel=4, chunk=8)
DELTA = DeltaNet(key_heads=2, value_heads=4, key_dim=10, value_dim=6, conv_kernel=4, chunk=8)
KIMI = replace(DELTA, key_heads=4, decay="channel", decay_rank=7, gate_rank=9, conv_bias=True)
LATENT = LatentAttention(heads=5, q_rank=18, kv_rank=22, nope_dim=8, rope_dim=4, value_dim=6)
INDEXER = Indexer(heads=3, head_dim=12, top_k=5, query_inputs=18)
EXPERTS = Experts(experts=7, top_k=2, width=26)


def decoder(*layers: Layer, norm: NormKind = "rms", **parts: object) -> Model:
    """A causal language model of these layers."""
    rest: dict[str, object] = {
        "embedding": Embedding(vocab=VOCAB),
        "head": Head(outputs=VOCAB),
        **parts,
    }
    return Model(
        id="small",
        family="test",
        kind="decoder",
        stack=Stack(hidden=HIDDEN, layers=layers, final_norm=norm),
        max_positions=64,
        **rest,  # type: ignore[arg-type]
    )


def vit() -> Model:
    """Patches in, classes out."""
    layer = Layer(mixers=(replace(MHA, causal=False),), ffn=GELU, norm_kind="layer")
    return Model(
        id="vit",
        family="vit",
        kind="encoder",
        stack=Stack(hidden=HIDDEN, layers=(layer,) * 2, final_norm="layer"),
        embedding=Embedding(patch_inputs=27, positions=24, extra_parameters=HIDDEN),
        head=Head(outputs=11, bias=True, every_position=False),
        max_positions=24,
    )


def bert() -> Model:
    """Token, position and segment tables with a norm; a transform before the tied scores."""
    layer = Layer(mixers=(replace(MHA, causal=False),), ffn=GELU, norm_kind="layer")
    transform = Projection(name="head.transform", inputs=HIDDEN, outputs=HIDDEN, bias=True)
    return Model(
        id="bert",
        family="bert",
        kind="encoder",
        stack=Stack(hidden=HIDDEN, layers=(layer,) * 2, final_norm="none"),
        embedding=Embedding(vocab=VOCAB, positions=24, token_types=2, norm="layer"),
        head=Head(
            outputs=VOCAB,
            tied=True,
            bias=True,
            projections=(transform,),
            extra_parameters=2 * HIDDEN,
        ),
        max_positions=24,
    )


def encoder_decoder(cross_inputs: int | None = None, own: Embedding | None = None) -> Model:
    """Both stacks; the encoder on the shared table, or on an input and a width of its own."""
    wide = cross_inputs or HIDDEN
    inner = Layer(mixers=(replace(MHA, causal=False),), ffn=GELU, norm_kind="layer")
    outer = Layer(
        mixers=(MHA, replace(MHA, cross=True, causal=False, cross_inputs=cross_inputs)),
        ffn=SWIGLU,
        norms=3,
        norm_kind="layer",
    )
    return Model(
        id="both",
        family="test",
        kind="encoder-decoder",
        stack=Stack(hidden=HIDDEN, layers=(outer,) * 2, final_norm="layer"),
        encoder=Stack(hidden=wide, layers=(inner,), final_norm="layer", extra_parameters=15),
        embedding=Embedding(vocab=VOCAB),
        encoder_embedding=own,
        head=Head(outputs=VOCAB, tied=True),
        max_positions=64,
    )


DECODERS: dict[str, Model] = {
    "mha, gelu, layer norm, positions, tied": decoder(
        *(Layer(mixers=(MHA,), ffn=GELU, norm_kind="layer"),) * 2,
        norm="layer",
        embedding=Embedding(vocab=VOCAB, positions=64),
        head=Head(outputs=VOCAB, tied=True),
    ),
    "gqa, swiglu, rms norm": decoder(*(Layer(mixers=(GQA,), ffn=SWIGLU),) * 3),
    "mqa, parallel block": decoder(
        *(Layer(mixers=(MQA,), ffn=GELU, parallel=True, norms=1, norm_kind="layer-nobias"),) * 2
    ),
    "parallel block with two norms": decoder(Layer(mixers=(MQA,), ffn=SWIGLU, parallel=True)),
    "sliding windows, four norms, query norms": decoder(
        Layer(mixers=(replace(GQA, window=5, qk_norm="head"),), ffn=SWIGLU, norms=4),
        Layer(mixers=(replace(GQA, qk_norm="whole", qk_norm_bias=True),), ffn=SWIGLU, norms=4),
    ),
    "chunked windows, values of their own width": decoder(
        Layer(mixers=(replace(GQA, window=6, chunked=True, value_dim=14),), ffn=SWIGLU)
    ),
    "low ranks, shared keys, gates": decoder(
        Layer(mixers=(replace(GQA, q_rank=18, o_rank=7, o_groups=3),), ffn=SWIGLU),
        Layer(mixers=(replace(GQA, owns_kv=False, output_gate="head"),), ffn=SWIGLU),
        Layer(mixers=(replace(GQA, value_is_key=True, output_gate="element"),), ffn=SWIGLU),
    ),
    "narrow table": decoder(
        Layer(mixers=(GQA,), ffn=SWIGLU),
        embedding=Embedding(
            vocab=VOCAB,
            width=16,
            projections=(Projection(name="in", inputs=16, outputs=HIDDEN),),
        ),
        head=Head(
            outputs=VOCAB,
            tied=True,
            projections=(Projection(name="out", inputs=HIDDEN, outputs=16, groups=4),),
        ),
    ),
    "latent attention": decoder(
        Layer(mixers=(LATENT,), ffn=SWIGLU),
        Layer(mixers=(replace(LATENT, q_rank=None, bias=True, output_gate="head"),), ffn=SWIGLU),
    ),
    "latent attention with an indexer": decoder(
        Layer(mixers=(replace(LATENT, indexer=INDEXER),), ffn=SWIGLU),
        Layer(
            mixers=(
                replace(
                    LATENT, indexer=replace(INDEXER, owns_weights=False), output_gate="element"
                ),
            ),
            ffn=SWIGLU,
        ),
    ),
    "attention with an indexer": decoder(
        Layer(mixers=(replace(GQA, q_rank=18, indexer=INDEXER),), ffn=SWIGLU),
        Layer(
            mixers=(replace(GQA, q_rank=18, indexer=replace(INDEXER, head_weights=False)),),
            ffn=SWIGLU,
        ),
    ),
    "experts, leading dense, shared": decoder(
        Layer(mixers=(GQA,), ffn=SWIGLU),
        Layer(
            mixers=(GQA,),
            ffn=replace(EXPERTS, shared_width=22, shared_gate=True, router_bias=True),
        ),
        Layer(mixers=(GQA,), ffn=replace(EXPERTS, expert_bias=True, gated=False)),
    ),
    "latent experts, beside a dense part, by table": decoder(
        Layer(mixers=(GQA,), ffn=replace(EXPERTS, latent=12, latent_norm=True)),
        Layer(mixers=(GQA,), ffn=replace(EXPERTS, has_router=False), dense_beside=SWIGLU),
    ),
    "mamba-2": decoder(*(Layer(mixers=(MAMBA,), norms=1),) * 2),
    "hybrid": decoder(
        Layer(mixers=(replace(MAMBA, proj_bias=True),), norms=1),
        Layer(ffn=replace(SWIGLU, gated=False, activation="relu2"), norms=1),
        Layer(mixers=(GQA,), norms=1),
        Layer(ffn=EXPERTS, norms=1),
        Layer(mixers=(replace(MAMBA, conv_bias=False, gated_norm=False),), norms=1),
    ),
    "every layer its own (pruned)": decoder(
        Layer(mixers=(Replacement(bias=True),), ffn=replace(SWIGLU, width=20)),
        Layer(ffn=replace(SWIGLU, linear=True), norms=1),
        Layer(mixers=(GQA,), ffn=SWIGLU, extra_parameters=6),
        Layer(norms=0),
    ),
    "multi-token prediction": decoder(
        Layer(mixers=(GQA,), ffn=SWIGLU),
        prediction=TokenPrediction(
            layers=(Layer(mixers=(GQA,), ffn=EXPERTS),),
            repeats=2,
            projections=(Projection(name="joint", inputs=2 * HIDDEN, outputs=HIDDEN),),
            own_tables=100,
        ),
        extra_parameters=3,
    ),
}
"""Causal language models whose forward takes token ids."""

DELTAS: dict[str, Model] = {
    "gated delta rule": decoder(*(Layer(mixers=(DELTA,), ffn=SWIGLU),) * 2),
    "kimi delta attention": decoder(Layer(mixers=(KIMI,), ffn=SWIGLU)),
    "delta hybrid": decoder(
        Layer(mixers=(DELTA,), ffn=EXPERTS),
        Layer(mixers=(replace(GQA, output_gate="element"),), ffn=EXPERTS),
    ),
}
"""The same with delta-rule mixers, whose backward pass torch does not run in full."""

ENCODERS: dict[str, Model] = {"vit": vit(), "bert": bert()}
"""Encoders."""

BOTH: dict[str, Model] = {
    "shared table": encoder_decoder(),
    "own frames and width": encoder_decoder(
        cross_inputs=48, own=Embedding(patch_inputs=33, positions=24)
    ),
}
"""Encoder-decoders."""

ALL = {**DECODERS, **DELTAS, **ENCODERS, **BOTH}
