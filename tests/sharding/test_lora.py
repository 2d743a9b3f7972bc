"""Adapters: weights, work, what is trained."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.kernels.calls import calls_of
from foretell.kernels.memory import kept_bytes
from foretell.sharding.lora import (
    backward_products,
    has_adapter,
    is_trained,
    with_adapters,
)
from foretell.sharding.tensor import tensor_parallel
from foretell.sharding.tuning_methods import adapter
from foretell.specs._base import Num
from foretell.specs.plan import QUANTISED, Plan, parse_plan
from foretell.workload.build import build
from foretell.workload.graph import LayerGraph
from foretell.workload.ops import Gemm
from tests.builders import STACKS, make_model

STACK = st.sampled_from(sorted(STACKS))
RANK = st.integers(1, 256)


def parts(name: str) -> tuple[LayerGraph, ...]:
    graph = build(make_model(name), batch=1.0, seq_len=128.0)
    return (*graph.kinds, graph.embedding, graph.head)


def trained_and_frozen(graph: LayerGraph, rank: int) -> tuple[Num, Num]:
    """Weights; all are trained where there are no adapters."""
    plan = Plan(lora=rank)
    trained = sum((op.parameters for op in graph.ops if is_trained(op, plan)), start=0.0)
    frozen = sum((op.parameters for op in graph.ops if not is_trained(op, plan)), start=0.0)
    return trained, frozen


@given(STACK)
def test_rank_zero_is_identity(name: str) -> None:
    for part in parts(name):
        assert with_adapters(part, 0) is part
        assert trained_and_frozen(part, 0)[1] == 0.0
        assert all(backward_products(op, Plan()) == 2 for op in part.ops)


@given(STACK, RANK)
def test_weights_are_those_of_the_layer_and_r_times_the_sides(name: str, rank: int) -> None:
    for part in parts(name):
        trained, frozen = trained_and_frozen(with_adapters(part, rank), rank)
        sides = sum(op.groups * (op.k + op.n) for op in part.ops if has_adapter(op))  # type: ignore[attr-defined]
        assert trained == rank * sides
        assert frozen == trained_and_frozen(part, 0)[0]


@given(STACK, RANK, st.sampled_from([2.0, 4.0]))
def test_work_is_conserved_over_tensor_ranks(name: str, rank: int, tp: float) -> None:
    """Where one side is on every rank (A by columns, B by rows) its product is done tp times."""
    for part in parts(name):
        whole = with_adapters(part, rank)
        cut = tensor_parallel(whole, tp, 1.0)
        for op, one in zip(whole.ops, cut.ops, strict=True):
            if not is_trained(op, Plan(lora=rank)) or op.split == "none":
                continue
            assert isinstance(op, Gemm)
            assert isinstance(one, Gemm)
            if op.n_kv == 0.0:
                assert one.forward().matrix_flop * tp == pytest.approx(op.forward().matrix_flop)


def test_llama_8b_rank_16() -> None:
    """q k v o, gate, up and down of Llama 3.1 8B at rank 16 hold 41.9 million weights.

    Joined maps have one adapter each here, where separate ones have q, k, v and gate, up: fewer inputs.
    """
    h, f, kv = 4096.0, 14336.0, 1024.0
    maps = [(h, h + 2 * kv), (h, h), (h, 2 * f), (f, h)]
    ops = [Gemm(name="ffn.up", m=1.0, n=n, k=k) for k, n in maps]
    total = 32 * sum(float(sum(o.parameters for o in adapter(op, 16.0))) for op in ops)
    separate = 32 * 16 * ((h + h) + 2 * (h + kv) + (h + h) + 2 * (h + f) + (f + h))
    assert separate == 41_943_040
    assert total == separate - 32 * 16 * 3 * h


@given(STACK, RANK)
def test_frozen_matrices_have_their_data_gradient_alone(name: str, rank: int) -> None:
    for part in parts(name):
        for op in with_adapters(part, rank).ops:
            calls = calls_of(op, 0, backward=True)[: backward_products(op, Plan(lora=rank))]
            if is_trained(op, Plan(lora=rank)):
                assert len(calls) == 2
            elif isinstance(op, Gemm):
                # The first backward product is the data gradient: as many columns as inputs.
                (only,) = calls
                assert only.sizes["n"] == op.k
                assert only.sizes["k"] == op.n
            elif op.family == "embedding":
                assert calls == []


def test_an_adapter_keeps_its_narrow_middle() -> None:
    (dense, _, _) = parts("dense")
    extra = kept_bytes(with_adapters(dense, 8), 1.0).whole - kept_bytes(dense, 1.0).whole
    assert extra == 4 * 128 * 8 * 2.0


def test_a_batch_of_degrees_is_each_of_them() -> None:
    (dense, _, _) = parts("dense")
    tp = np.array([1.0, 2.0, 4.0])
    many, _ = trained_and_frozen(tensor_parallel(with_adapters(dense, 8), tp, np.zeros(3)), 8)
    each = [trained_and_frozen(tensor_parallel(with_adapters(dense, 8), t, 0.0), 8)[0] for t in tp]
    assert np.asarray(many).tolist() == each


def test_where_adapters_stand() -> None:
    names = {
        where: {op.name for op in parts("dense")[0].ops if has_adapter(op, where)}
        for where in ("all", "attention", "qkv")
    }
    assert names["qkv"] == {"attention.qkv"}
    assert names["attention"] == {"attention.qkv", "attention.o"}
    assert names["all"] == {"attention.qkv", "attention.o", "ffn.up", "ffn.down"}


@given(STACK, RANK)
def test_fewer_adapters_keep_and_train_less(name: str, rank: int) -> None:
    for part in parts(name):
        found = [with_adapters(part, rank, where) for where in ("qkv", "attention", "all")]
        kept = [float(kept_bytes(graph, 1.0).whole) for graph in found]
        trained = [float(trained_and_frozen(graph, rank)[0]) for graph in found]
        assert kept == sorted(kept)
        assert trained == sorted(trained)
        assert kept[0] >= 0.0


def test_inputs_of_frozen_matrices_are_not_kept() -> None:
    """Per token of 1024: one of two entries, and of the gated 2 x 2816 the product."""
    (dense, _, _) = parts("dense")
    whole = kept_bytes(dense, 1.0).whole
    found = kept_bytes(with_adapters(dense, 8, "attention"), 1.0).whole
    assert whole - found == 128 * 2.0 * (1024 + 2816) - 2 * 128 * 8 * 2.0


@pytest.mark.parametrize(
    ("given", "spelled"),
    [("v+q", "qv"), ("q+k+v+o", "attention"), ("up+down", "mlp"), ("qkv+o+mlp", "all"),
     ("o+q", "q+o"), ("all+ends", "all+ends")],
)  # fmt: skip
def test_targets_have_one_spelling(given: str, spelled: str) -> None:
    plan = parse_plan(f"dp1 lora=8 adapters={given}")
    assert plan.adapters == spelled
    assert parse_plan(str(plan)) == plan


def test_adapters_beside_some_maps_train_as_many_weights() -> None:
    """Queries and values together train what each trains alone; an output besides adds its own."""
    (dense, _, _) = parts("dense")
    found = {
        where: float(trained_and_frozen(with_adapters(dense, 8, where), 8)[0])
        for where in ("up", "down", "mlp", "o", "q+o", "q", "mlp")
    }
    assert found["up"] + found["down"] == found["mlp"]
    assert found["q"] + found["o"] == found["q+o"]


def test_table_and_head_can_be_trained_whole() -> None:
    _, table, head = parts("dense")
    plan = Plan(lora=8, adapters="all+ends")
    assert all(is_trained(op, plan) for part in (table, head) for op in part.ops)
    assert not any(is_trained(op, Plan(lora=8)) for op in table.ops if op.parameters)


def test_a_stored_base_keeps_the_inputs_of_its_maps() -> None:
    (dense, _, _) = parts("dense")
    plain, stored = (with_adapters(dense, 8, "qv", stored=s) for s in (False, True))
    assert kept_bytes(stored, 1.0).whole > kept_bytes(plain, 1.0).whole


def test_bytes_of_a_stored_weight() -> None:
    """4 bits, and 32 for 64 weights; 8 for 64 with double quantisation, and 32 for 256 of those."""
    assert QUANTISED["nf4"] == pytest.approx(4.5 / 8)
    assert QUANTISED["nf4-dq"] == pytest.approx(4.127 / 8, rel=1e-3)


def test_dora_measures_every_matrix_with_an_adapter() -> None:
    (dense, _, _) = parts("dense")
    plain, measured = (with_adapters(dense, 8, "all", method=m) for m in ("lora", "dora"))
    assert len(measured.ops) - len(plain.ops) == 4
