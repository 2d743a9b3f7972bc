"""Maps of one input as one product, or as products of their own."""

from dataclasses import replace

import pytest

from foretell.catalog import model as catalog_model
from foretell.kernels.call_records import FrameworkForm
from foretell.kernels.calls import call_stacks, calls_of, maps_of
from foretell.workload.build import build
from foretell.workload.ops import AttentionCore, Gemm, Pointwise
from foretell.workload.roles import OpRole, Region

QKV = Gemm(
    name="attention.qkv", m=4096.0, n=6144.0, k=4096.0, n_kv=2048.0, n_kv_min=256.0,
    role=OpRole.QKV, region=Region.ATTENTION,
)  # fmt: skip
UP = Gemm(
    name="ffn.up", m=4096.0, n=28672.0, k=4096.0,
    role=OpRole.UP, region=Region.FEED_FORWARD, gated=True,
)  # fmt: skip
DOWN = Gemm(
    name="ffn.down", m=4096.0, n=4096.0, k=14336.0, role=OpRole.DOWN, region=Region.FEED_FORWARD
)
UNGATED = replace(UP, n=14336.0, gated=False)
KEYLESS = replace(QKV, n=4096.0, n_kv=0.0, n_kv_min=0.0)
EXPERTS = replace(UP, name="moe.up", family="grouped-gemm", region=Region.EXPERTS)


@pytest.mark.parametrize(("op", "widths"), [
    (QKV, (4096.0, 1024.0, 1024.0)), (UP, (14336.0, 14336.0)), (DOWN, (4096.0,)),
    (UNGATED, (14336.0,)), (KEYLESS, (4096.0,)), (EXPERTS, (28672.0,)),
])  # fmt: skip
def test_outputs_are_dealt_to_the_maps(op: Gemm, widths: tuple[float, ...]) -> None:
    maps = maps_of(op)
    assert tuple(one.n for one in maps) == widths
    assert sum(one.parameters for one in maps) == op.parameters


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("op", [QKV, UP, DOWN, UNGATED], ids=lambda op: op.name)
def test_the_same_arithmetic_and_one_cast_of_the_common_input(op: Gemm, backward: bool) -> None:
    one, apart = (
        [
            c
            for c in calls_of(op, 0, backward=backward, written=FrameworkForm(apart=way))
            if c.family == "gemm"
        ]
        for way in (False, True)
    )
    flop = [sum(c.work.matrix_flop for c in calls) for calls in (one, apart)]
    assert flop[0] == flop[1]
    # Forward and for the gradient of the weights the input is cast; every map's own gradient is another.
    casts = [
        sum(c.sizes["cast"] * c.sizes["m"] * c.sizes["k"] for c in calls) for calls in (one, apart)
    ]
    assert casts[0] == pytest.approx(casts[1], rel=1e-12)
    held = [
        sum(c.sizes["held"] * c.sizes["n"] * c.sizes["k"] for c in calls) for calls in (one, apart)
    ]
    assert held[0] == held[1] == op.n * op.k


@pytest.mark.parametrize(("name", "maps"), [("gpt2-xl", 1), ("t5-base", 1), ("llama-2-7b", 2)])
def test_a_part_without_a_gate_is_one_map(name: str, maps: int) -> None:
    """Under frameworks with a product for each map: one, and one gradient for its input, which none joins."""
    graph = build(catalog_model(name), batch=1.0, seq_len=512.0)
    apart = FrameworkForm(apart=True)
    ups = [op for kind in graph.kinds for op in kind.ops if op.role is OpRole.UP]
    assert ups
    for op in ups:
        forward = calls_of(op, 0, backward=False, written=apart)
        assert [call.family for call in forward] == ["gemm"] * maps
        joins = [c for c in calls_of(op, 0, backward=True, written=apart) if c.kind == "join"]
        assert len(joins) == (maps > 1)


def test_frozen_weights_keep_one_gradient_for_the_input() -> None:
    stacks = call_stacks([QKV], 1, lambda op: 1, written=FrameworkForm(apart=True))
    backward = next(s for s in stacks if s.family == "gemm")
    assert list(backward.rows) == [0, 0, 0, 1]


def test_gradients_of_slices_are_read_and_written_once() -> None:
    """Queries, keys and values of m tokens, both factors of a gated part of e elements: backward alone."""
    plain = Pointwise(name="ffn.act", elements=4096.0 * 14336.0, role=OpRole.ACTIVATION)
    act = replace(plain, reads=2.0)
    for op, kind, elements in (
        (QKV, "heads", 2.0 * 4096.0 * 6144.0),
        (act, "halves", 4.0 * 4096.0 * 14336.0),
        (plain, "halves", 0.0),
        (DOWN, "heads", 0.0),
    ):
        found = [c for c in calls_of(op, 0, backward=True) if c.kind == kind]
        assert sum(c.work.activation_elements for c in found) == elements
        assert not [c for c in calls_of(op, 0, backward=False) if c.kind == kind]


@pytest.mark.parametrize(("kv_heads", "repeats"), [(8.0, 4.0), (32.0, 0.0)])
def test_shared_keys_are_written_out_for_every_head(kv_heads: float, repeats: float) -> None:
    """Read once and written for each head; backward a gradient of each is written, and read to be added."""
    core = AttentionCore(
        name="attention.core", batch=2.0, heads=32.0, kv_heads=kv_heads, q_len=4096.0, kv_len=4096.0,
        pairs=4096.0 * 2048.0, qk_dim=128.0, v_dim=128.0,
    )  # fmt: skip
    shared = 2.0 * kv_heads * 4096.0 * 256.0
    for backward, elements in ((False, (repeats + 1.0) * shared), (True, 2.0 * repeats * shared)):
        for written, share in (
            (FrameworkForm(repeated=True), 1.0 * (repeats > 0.0)),
            (FrameworkForm(), 0.0),
        ):
            calls = calls_of(core, 0, backward=backward, written=written)
            found = sum(float(c.work.activation_elements) for c in calls if c.kind == "repeat")
            assert found == share * elements
