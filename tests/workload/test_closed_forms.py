"""Whole-model FLOPs and counts against closed forms and figures of the literature."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model, Stack
from foretell.workload.build import build
from foretell.workload.ops import AttentionCore, Gemm
from foretell.workload.parameters import count
from tests.workload.counting import all_ops, matrix_flop


def gpt(hidden: int, layers: int, heads: int, vocab: int) -> Model:
    """A GPT: four biased maps of attention, a feed-forward part of four times the width, tied
    head."""
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        q_bias=True,
        k_bias=True,
        v_bias=True,
        o_bias=True,
    )
    ffn = Dense(width=4 * hidden, gated=False, activation="gelu", up_bias=True, down_bias=True)
    layer = Layer(mixers=(attention,), ffn=ffn, norm_kind="layer")
    return Model(
        id="gpt",
        family="gpt",
        kind="decoder",
        stack=Stack(hidden=hidden, layers=(layer,) * layers, final_norm="layer"),
        embedding=Embedding(vocab=vocab, positions=2048),
        head=Head(outputs=vocab, tied=True),
        max_positions=2048,
    )


def llama(hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocab: int) -> Model:
    """A Llama: grouped queries, SwiGLU, RMS norms, a head of its own."""
    attention = Attention(heads=heads, kv_heads=kv_heads, head_dim=hidden // heads)
    layer = Layer(mixers=(attention,), ffn=Dense(width=ffn))
    return Model(
        id="llama",
        family="llama",
        kind="decoder",
        stack=Stack(hidden=hidden, layers=(layer,) * layers),
        embedding=Embedding(vocab=vocab),
        head=Head(outputs=vocab),
        max_positions=8192,
    )


def vit(hidden: int, layers: int, heads: int, patch: int) -> Model:
    """A ViT for 224 x 224 images and 1,000 classes, with a class token."""
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        causal=False,
        q_bias=True,
        k_bias=True,
        v_bias=True,
        o_bias=True,
    )
    ffn = Dense(width=4 * hidden, gated=False, activation="gelu", up_bias=True, down_bias=True)
    layer = Layer(mixers=(attention,), ffn=ffn, norm_kind="layer")
    positions = (224 // patch) ** 2 + 1
    return Model(
        id="vit",
        family="vit",
        kind="encoder",
        stack=Stack(hidden=hidden, layers=(layer,) * layers, final_norm="layer"),
        embedding=Embedding(
            patch_inputs=3 * patch * patch, positions=positions, extra_parameters=hidden
        ),
        head=Head(outputs=1000, bias=True, every_position=False),
        max_positions=positions,
    )


GPT_175B = gpt(12288, 96, 96, 51200)


@pytest.mark.parametrize(
    ("hidden", "layers", "heads"),
    # Korthikanti et al. 2022, table 3: 22B, 175B, 530B, 1T.
    [(6144, 48, 64), (12288, 96, 96), (20480, 105, 128), (25600, 128, 160)],
)
@given(batch=st.integers(1, 64), s=st.sampled_from([512, 2048, 8192]))
def test_korthikantis_model_flops(hidden: int, layers: int, heads: int, batch: int, s: int) -> None:
    """72 B L s h^2 (1 + s/(6h) + V/(12 h L)) (arXiv 2205.05198, eq. 7), whole squares."""
    B, L, h, V = float(batch), float(layers), float(hidden), 51200.0
    graph = build(gpt(hidden, layers, heads, 51200), batch=B, seq_len=float(s), flash=False)
    closed = 72.0 * B * L * s * h * h * (1.0 + s / (6.0 * h) + V / (12.0 * h * L))
    assert sum(matrix_flop(graph)) == pytest.approx(closed, rel=1e-12)


def test_gpt3s_forward_is_a_third_of_it() -> None:
    forward, backward = matrix_flop(build(GPT_175B, batch=1.0, seq_len=2048.0, flash=False))
    assert backward == 2.0 * forward


@pytest.mark.parametrize(
    "shape",
    [
        (4096, 32, 32, 32, 11008, 32000),  # Llama-2-7B
        (4096, 32, 32, 8, 14336, 128256),  # Llama-3.1-8B
        (16384, 126, 128, 8, 53248, 128256),  # Llama-3.1-405B
    ],
)
@pytest.mark.parametrize("s", [2048.0, 8192.0])
def test_palms_flops_per_token(shape: tuple[int, int, int, int, int, int], s: float) -> None:
    """6 N + 12 L H Q T (arXiv 2204.02311, appendix B), N the weights of matrices: not the input
    table, which is looked up, nor the norms."""
    hidden, layers, heads, _, _, vocab = shape
    model = llama(*shape)
    graph = build(model, batch=3.0, seq_len=s, flash=False)
    norms = (2 * layers + 1) * hidden
    matrices = count(model).text - vocab * hidden - norms
    closed = 6.0 * matrices + 12.0 * layers * heads * (hidden // heads) * s
    assert sum(matrix_flop(graph)) / (3.0 * s) == pytest.approx(closed, rel=1e-12)


def test_llama_405b_as_published() -> None:
    """405,853,388,800 weights, and 3.8e25 FLOP on 15.6T tokens by 6 N D (arXiv 2407.21783)."""
    model = llama(16384, 126, 128, 8, 53248, 128256)
    assert count(model).total == 405_853_388_800
    graph = build(model, batch=1.0, seq_len=8192.0)
    products = [op for op in all_ops(graph) if isinstance(op, Gemm)]
    per_token = sum(op.forward().matrix_flop + op.backward().matrix_flop for op in products) / 8192
    assert per_token * 15.6e12 == pytest.approx(3.8e25, rel=0.01)


@pytest.mark.parametrize(
    ("shape", "weights", "giga_macs"),
    # torchvision's metadata of vit_b_16 and vit_l_16: num_params and _ops (multiply-adds).
    [((768, 12, 12, 16), 86_567_656, 17.564), ((1024, 24, 16, 16), 304_326_632, 61.555)],
)
def test_vits_as_torchvision_has_them(
    shape: tuple[int, int, int, int], weights: int, giga_macs: float
) -> None:
    """The class token is no patch, but passes the patches' map in the graph: one row of 197
    more."""
    model = vit(*shape)
    assert count(model).total == weights
    graph = build(model, batch=1.0, seq_len=197.0, flash=False, phase="prefill")
    surplus = 2.0 * 3 * 16 * 16 * shape[0]
    assert round((matrix_flop(graph)[0] - surplus) / 2e9, 3) == giga_macs


@given(
    s=st.integers(1, 4096),
    window=st.none() | st.integers(1, 512),
)
def test_causal_attention_is_about_half_when_fused(s: int, window: int | None) -> None:
    """Fused, a causal mask leaves (s + 1)/2 of s keys, or at most the window."""
    model = GPT_175B
    if window is not None:
        layer = model.stack.layers[0]
        mixer = layer.mixers[0]
        assert isinstance(mixer, Attention)
        layers = (replace(layer, mixers=(replace(mixer, window=window),)),)
        model = replace(model, stack=replace(model.stack, layers=layers))
    whole = build(model, batch=1.0, seq_len=float(s), flash=False)
    fused = build(model, batch=1.0, seq_len=float(s), flash=True)

    def cores(ops: list[object]) -> float:
        return sum(float(op.forward().matrix_flop) for op in ops if isinstance(op, AttentionCore))

    ratio = cores([*all_ops(fused)]) / cores([*all_ops(whole)])
    assert ratio <= (s + 1) / (2 * s) * (1 + 1e-12)
    if window is None:
        assert ratio == pytest.approx((s + 1) / (2 * s), rel=1e-12)
    else:
        assert ratio <= window / s * (1 + 1e-12)
