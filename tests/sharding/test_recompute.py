"""Recomputation by module and by block."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.kernels.memory import kept_bytes
from foretell.sharding.recompute import blend_layers, full_share, recompute_layer, waits_again
from foretell.specs.plan_forms import MODULES
from foretell.workload.build import build
from foretell.workload.graph import LayerGraph
from foretell.workload.ops import Gemm
from tests.builders import STACKS, make_model

SOME = st.lists(st.sampled_from(MODULES), unique=True)


def layers(name: str, *, flash: bool = True) -> tuple[LayerGraph, ...]:
    return build(make_model(name), batch=2.0, seq_len=256.0, flash=flash).kinds


@pytest.mark.parametrize("name", sorted(STACKS))
@pytest.mark.parametrize("flash", [True, False])
def test_nothing_and_the_core_are_none_and_selective(name: str, flash: bool) -> None:
    for layer in layers(name, flash=flash):
        kept = kept_bytes(layer, 1.0)
        none = recompute_layer(layer, (), flash=flash)
        core = recompute_layer(layer, ("core",), flash=flash)
        assert none.kept_bytes == kept.whole
        assert none.dropped_bytes == 0.0
        assert not any(none.ops)
        assert not none.graph.edges
        assert not core.graph.edges
        assert core.kept_bytes == pytest.approx(kept.selective)
        cores = [op.family in ("attention", "scan") for op in layer.ops]
        assert list(core.ops) == cores


@given(st.sampled_from(sorted(STACKS)), SOME, SOME, st.booleans())
def test_more_modules_keep_less_and_run_more(
    name: str, some: list[str], more: list[str], flash: bool
) -> None:
    for layer in layers(name, flash=flash):
        few, many = (
            recompute_layer(layer, some, flash=flash),
            recompute_layer(layer, some + more, flash=flash),
        )
        assert many.kept_bytes <= few.kept_bytes
        assert all(after or not before for before, after in zip(few.ops, many.ops, strict=True))
        for one in (few, many):
            whole = kept_bytes(layer, 1.0).whole
            assert one.kept_bytes + one.dropped_bytes == pytest.approx(whole)


def test_what_each_module_is() -> None:
    dense, experts = layers("moe")

    def names(layer: LayerGraph, *modules: str) -> set[str]:
        found = recompute_layer(layer, modules, flash=True)
        return {op.name for op, run in zip(layer.ops, found.ops, strict=True) if run}

    assert names(dense, "mlp") == {"ffn.up", "ffn.act", "ffn.down"}
    assert names(dense, "norm", "act") == {"norm", "ffn.act"}
    assert names(experts, "up") == {"attention.q_up", "attention.kv_up", "attention.join"}
    assert names(experts, "mlp") == set()
    assert names(experts, "attention") == {o.name for o in experts.ops if o.name[:4] == "atte"}
    assert names(experts, "moe") == {o.name for o in experts.ops if o.name[:4] == "moe."}
    assert [e.name for e in recompute_layer(experts, ("moe",), flash=True).graph.edges] == [
        "moe",
        "moe",
    ]
    assert [e.name for e in recompute_layer(dense, ("norm", "act"), flash=True).graph.edges] == []


def test_every_second_product_by_hand() -> None:
    """Grouped attention, gated: kept are entry, queries, values, the attention's result and the gate; keys,
    the way out and the other half of the gated part run again with all that is element-wise."""
    layer = layers("dense")[0]
    found = recompute_layer(layer, ("products",), flash=True)
    sizes = {tensor.name: tensor.elements for tensor in layer.saved}
    wide = [sizes["attention.q"], sizes["attention.out"], 0.5 * sizes["attention.kv"]]
    wide += [0.5 * sizes["ffn.up"], 0.5 * sizes["norm.in"]]
    assert found.kept_bytes == pytest.approx(2.0 * sum(wide) + 4.0 * sizes["attention.lse"])
    shares = {op.name: share for op, share in zip(layer.ops, found.ops, strict=True)}
    assert (shares["attention.core"], shares["ffn.down"]) == (0.0, 0.0)
    assert (shares["attention.o"], shares["ffn.up"], shares["norm"]) == (1.0, 0.5, 1.0)
    qkv = next(op for op in layer.ops if isinstance(op, Gemm) and op.name == "attention.qkv")
    assert shares["attention.qkv"] == pytest.approx(float(0.5 * qkv.n_kv / qkv.n))
    assert waits_again(layer, ("products",), "tensor_parallel") == 0.5


def test_dropped_bytes_by_hand() -> None:
    """512 tokens, width 2816 gated: up and act are 2 x 2 x 2816 elements; norms leave 2 x 1024."""
    (dense,) = layers("dense")
    assert recompute_layer(dense, ("mlp",), flash=True).dropped_bytes == 512 * 4 * 2816 * 2
    assert recompute_layer(dense, ("act",), flash=True).dropped_bytes == 512 * 2 * 2816 * 2
    assert recompute_layer(dense, ("norm",), flash=True).dropped_bytes == 512 * 2 * 1024 * 2


@given(st.integers(0, 40), st.integers(0, 60))
def test_blocks(held: int, limit: int) -> None:
    share = full_share(np.array([float(held)]), float(limit))
    assert 0.0 <= share[0] <= 1.0
    if held:
        assert share[0] * held == pytest.approx(min(held, limit))
    assert blend_layers(share, 5.0, 5.0) == pytest.approx(5.0)
    assert full_share(float(max(held, 1)), 10**6) == 1.0


def test_messages_that_are_sent_again() -> None:
    dense, experts = layers("moe")
    assert waits_again(dense, ("mlp",), "tensor_parallel") == 0.5
    assert waits_again(dense, ("mlp", "attention"), "tensor_parallel") == 1.0
    assert waits_again(dense, ("norm", "act", "core"), "tensor_parallel") == 0.0
    assert waits_again(experts, ("moe",), "expert_parallel") == 1.0
    assert waits_again(experts, ("moe",), "context_parallel") == 0.0
