"""FLOPs and weights of the graph against real modules, counted by torch.

Conventions. torch counts matrix products, convolutions and fused attention; it counts the whole
square of attention, whatever the mask. With separate products (`flash=False` here) the graph has
the same square and the same four products backward, so both passes agree exactly, for every family.
Fused attention (`flash=True`) has five products backward in both; the graph then counts only the
pairs that the mask leaves, so it agrees exactly where the mask leaves all, and by the ratio of
pairs elsewhere.
"""

from dataclasses import replace

import pytest

from foretell import zoo
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model
from foretell.workload.build import build
from foretell.workload.graph import Graph
from foretell.workload.ops import AttentionCore, Scan
from foretell.workload.parameters import count
from tests.workload.counting import all_ops, matrix_flop, unread_states_flop
from tests.workload.models import ALL, BOTH, DECODERS, DELTAS, ENCODERS, decoder, vit

torch = pytest.importorskip(
    "torch", reason="torch is not installed: FLOPs cannot be held against real modules"
)
from torch.utils import flop_counter  # noqa: E402

BATCH, LENGTH, TARGET = 2, 24, 17
CONVOLUTIONS = ("aten.convolution", "aten.convolution_backward")
LLAMA = ("hidden", "layers", "heads", "kv_heads", "ffn", "vocab", "published")


def run(model: Model, *, fused: bool = False) -> tuple[dict[str, int], dict[str, int]]:
    """torch's count by operation, forward and backward."""
    torch.manual_seed(0)
    module = zoo.build(model, fused=fused)
    inputs = _inputs(model)
    with flop_counter.FlopCounterMode(display=False, custom_mapping=_cpu_formulas()) as forward:
        total = module(*inputs).total()
    with flop_counter.FlopCounterMode(display=False, custom_mapping=_cpu_formulas()) as backward:
        total.backward()
    return _by_name(forward), _by_name(backward)


def _inputs(model: Model) -> list[object]:
    """Ids or patches. Patches want a gradient, as the graph counts one for every product's
    input."""

    def one(embedding: object, length: int) -> object:
        patches = getattr(embedding, "patch_inputs", 0)
        if patches:
            return torch.randn(BATCH, length, patches, requires_grad=True)
        return torch.randint(0, 50, (BATCH, length))

    if model.encoder is None:
        return [one(model.embedding, LENGTH)]
    return [one(model.embedding, TARGET), one(model.encoder_embedding, LENGTH)]


def _by_name(counter: object) -> dict[str, int]:
    return {str(op): n for op, n in counter.get_flop_counts()["Global"].items()}


def _cpu_formulas() -> dict[object, object]:
    """torch's own formulas for fused attention, which it has not tied to the kernel for CPUs."""

    def forward(q: object, k: object, v: object, *_: object, **__: object) -> int:
        return flop_counter.sdpa_flop_count(q, k, v)

    def backward(g: object, q: object, k: object, v: object, *_: object, **__: object) -> int:
        return flop_counter.sdpa_backward_flop_count(g, q, k, v)

    aten = torch.ops.aten
    return {
        aten._scaled_dot_product_flash_attention_for_cpu: forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }


def products(counts: dict[str, int]) -> int:
    """All but convolutions, which the graph has as plain operations."""
    return sum(n for name, n in counts.items() if name not in CONVOLUTIONS)


def graph_of(model: Model, *, flash: bool = False) -> Graph:
    return build(
        model, batch=float(BATCH), seq_len=float(LENGTH), target_len=float(TARGET), flash=flash
    )


@pytest.mark.parametrize("name", ALL)
def test_weights_equal_the_modules(name: str) -> None:
    module = zoo.build(ALL[name])
    assert count(ALL[name]).total == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("name", [*DECODERS, *ENCODERS, *BOTH])
def test_forward_and_backward_equal_torch(name: str) -> None:
    forward, backward = run(ALL[name])
    assert (products(forward), products(backward)) == matrix_flop(graph_of(ALL[name]))


@pytest.mark.parametrize("name", DELTAS)
def test_delta_rule_equals_torch(name: str) -> None:
    forward, backward = run(DELTAS[name])
    skipped = unread_states_flop(DELTAS[name], BATCH)
    assert skipped > 0
    mine = matrix_flop(graph_of(DELTAS[name]))
    assert (products(forward), products(backward) + skipped) == mine


@pytest.mark.parametrize("name", ["mamba-2", "hybrid", *DELTAS])
def test_convolutions_equal_torch(name: str) -> None:
    """Forward only: backward, torch's formula takes depthwise convolutions for full ones."""
    forward, _ = run(ALL[name])
    convolutions = [op for op in all_ops(graph_of(ALL[name])) if op.name.endswith(".conv")]
    values, silu = sum(float(op.elements) for op in convolutions), 4.0
    assert forward["aten.convolution"] == 2.0 * 4 * values
    total = sum(float(op.forward().vector_flop) for op in convolutions)
    assert total == forward["aten.convolution"] + silu * values


def test_fused_attention_equals_torch_where_every_pair_is_seen() -> None:
    forward, backward = run(vit(), fused=True)
    assert "aten.bmm" not in forward, "attention was not fused"
    assert (products(forward), products(backward)) == matrix_flop(graph_of(vit(), flash=True))


@pytest.mark.parametrize("window", [None, 5])
def test_fused_attention_differs_by_the_masks_pairs_alone(window: int | None) -> None:
    mixer = Attention(heads=5, kv_heads=5, head_dim=8, window=window)
    model = decoder(Layer(mixers=(mixer,)))
    forward, backward = run(model, fused=True)
    graph = graph_of(model, flash=True)
    core = next(op for op in all_ops(graph) if isinstance(op, AttentionCore))
    whole = replace(core, pairs=float(LENGTH * LENGTH))
    mine = matrix_flop(graph)
    assert products(forward) == mine[0] + float(
        whole.forward().matrix_flop - core.forward().matrix_flop
    )
    assert products(backward) == mine[1] + float(
        whole.backward().matrix_flop - core.backward().matrix_flop
    )
    seen = zoo_mask(window).sum().item()
    assert core.pairs == seen


def zoo_mask(window: int | None) -> object:
    from foretell.zoo.layers import visible

    return visible(LENGTH, torch.device("cpu"), causal=True, window=window, chunked=False)


@pytest.mark.parametrize(("heads", "kv_heads", "wide"), [(4, 4, 16), (8, 2, 32), (6, 1, 8)])
def test_core_equals_torchs_flash_kernels(heads: int, kv_heads: int, wide: int) -> None:
    """The kernels of GPUs, run on shapes alone."""
    core = AttentionCore(
        name="core",
        batch=3.0,
        heads=float(heads),
        kv_heads=float(kv_heads),
        q_len=64.0,
        kv_len=48.0,
        pairs=64.0 * 48.0,
        qk_dim=float(wide),
        v_dim=float(wide),
    )

    def empty(count: int, length: int) -> object:
        return torch.empty(
            3, count, length, wide, device="meta", dtype=torch.bfloat16, requires_grad=True
        )

    q, k, v = empty(heads, 64), empty(kv_heads, 48), empty(kv_heads, 48)
    k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
    with flop_counter.FlopCounterMode(display=False) as counter:
        out = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)[0]
        assert counter.get_total_flops() == core.forward().matrix_flop
        out.sum().backward()
    both = core.forward().matrix_flop + core.backward().matrix_flop
    assert counter.get_total_flops() == both


def test_scan_with_a_short_sequence_takes_one_short_chunk() -> None:
    model = DECODERS["mamba-2"]
    torch.manual_seed(0)
    module = zoo.build(model)
    with flop_counter.FlopCounterMode(display=False) as counter:
        module(torch.randint(0, 50, (BATCH, 5)))
    graph = build(model, batch=float(BATCH), seq_len=5.0, flash=False)
    assert products(_by_name(counter)) == matrix_flop(graph)[0]
    assert any(isinstance(op, Scan) for op in all_ops(graph))


@pytest.mark.parametrize(
    LLAMA,
    [
        (4096, 32, 32, 32, 11008, 32000, 6_738_415_616),  # Llama-2-7B
        (8192, 80, 64, 8, 28672, 128256, 70_553_706_496),  # Llama-3.1-70B
    ],
)
def test_real_shapes(
    hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocab: int, published: int
) -> None:
    """Whole models on torch's meta device: no memory, all shapes; counts as published."""
    from foretell.specs.ffn import Dense
    from foretell.specs.model import Embedding, Head, Stack

    attention = Attention(heads=heads, kv_heads=kv_heads, head_dim=128)
    layer = Layer(mixers=(attention,), ffn=Dense(width=ffn))
    model = Model(
        id="llama",
        family="llama",
        kind="decoder",
        stack=Stack(hidden=hidden, layers=(layer,) * layers),
        embedding=Embedding(vocab=vocab),
        head=Head(outputs=vocab),
        max_positions=4096,
    )
    with torch.device("meta"):
        module = zoo.build(model)
    tokens = torch.zeros(1, 512, dtype=torch.long, device="meta")
    with flop_counter.FlopCounterMode(display=False) as counter:
        module(tokens).total().backward()
    assert count(model).total == published
    assert sum(p.numel() for p in module.parameters()) == published
    graph = build(model, batch=1.0, seq_len=512.0, flash=False)
    assert counter.get_total_flops() == sum(matrix_flop(graph))
