"""Optimizers: states, traffic and Muon's products."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.hosts import optimizers
from foretell.kernels.memory import weight_bytes
from foretell.kernels.optimizer import (
    MEMORY_SHARE,
    STEPS,
    Matrices,
    accumulate_bytes,
    accumulate_s,
    held_bytes,
    is_matrix,
    matrices_of,
    optimizer_s,
    products_s,
    shared_products_s,
    state_bytes,
    update_bytes,
)
from foretell.specs.plan import Plan
from foretell.workload.build import build
from foretell.workload.ops import Gemm, Lookup, Op, Pointwise
from tests.builders import make_chip, make_model

CHIP = make_chip()
SIDE = st.integers(1, 20_000)


def matrix(k: float, n: float, groups: float = 1.0, name: str = "ffn.up") -> Gemm:
    return Gemm(name=name, m=64.0, n=n, k=k, groups=groups)


@pytest.mark.parametrize(
    ("optimizer", "moved", "flop"), [("adam", 30.0, 100.0), ("sgd", 22.0, 30.0)]
)
def test_plain_optimizers_are_what_they_were(optimizer: str, moved: float, flop: float) -> None:
    plan = Plan(optimizer=optimizer)  # type: ignore[arg-type]
    assert update_bytes(plan) == moved
    weight_s = moved / (MEMORY_SHARE * CHIP.memory_bandwidth_bytes_per_s)
    weight_s = weight_s + flop / CHIP.vector_flop_per_s
    some = np.array([1.0, 3.7e9])
    assert (optimizer_s(some, CHIP, plan) == weight_s * some).all()
    assert held_bytes(plan) == weight_bytes(plan)[2]
    parts = np.array([[1.0], [7.0]])
    assert (state_bytes(plan, some, parts) == some * (weight_bytes(plan)[2] / parts)).all()


def test_adamw_on_one_h200() -> None:
    """5.1 ps a weight with 14 bytes (16-bit weights and gradients, no copy), 7.9 ps with 28."""
    chip = catalogue_chip("h200-sxm")
    narrow = Plan(weights="bf16", gradients="bf16", master="none", states="bf16")
    wide = Plan(weights="fp32", gradients="fp32", master="none", states="fp32")
    assert float(optimizer_s(1.0, chip, narrow)) == pytest.approx(5.1e-12, rel=0.1)
    assert float(optimizer_s(1.0, chip, wide)) == pytest.approx(7.9e-12, rel=0.1)


def test_states_by_hand() -> None:
    """A 1000 x 4000 matrix and 500 others: master of 4 bytes, states of 4."""
    ops: list[Op] = [matrix(1000.0, 4000.0), Pointwise(name="norm", elements=1.0, weights=500.0)]
    want = {
        "adam": 12 * 4_000_500,
        "adam8bit": 4_000_500 * (4 + 2 * (1 + 4 / 256)),
        "adafactor": 4 * 4_000_500 + 4 * 5_000 + 4 * 500,
        "muon": 8 * 4_000_000 + 12 * 500,
        "sgd": 8 * 4_000_500,
        "sgd-plain": 4 * 4_000_500,
        "adam-foreach": 12 * 4_000_500,
        "adam-mini": 8 * 4_000_500 + 2 * 5_000,
        "lion": 8 * 4_000_500,
        "shampoo": 28 * 4_000_000 + 12 * 500,
    }
    for name, held in want.items():
        plan = Plan(optimizer=name)  # type: ignore[arg-type]
        table = matrices_of(ops, 1, plan)
        sums = Matrices(
            weights=table.weights.sum(axis=0),
            edges=table.edges.sum(axis=0),
            counts=table.counts.sum(axis=0),
        )
        assert float(state_bytes(plan, np.array([4_000_500.0]), 1.0, sums)[0]) == pytest.approx(
            held, rel=1e-12
        )
    assert set(want) == set(optimizers())


@given(st.sampled_from(sorted(optimizers())), SIDE, SIDE, st.integers(1, 512))
def test_sharing_loses_nothing_and_never_holds_more(name: str, k: int, n: int, parts: int) -> None:
    plan = Plan(optimizer=name)  # type: ignore[arg-type]
    table = matrices_of([matrix(float(k), float(n))], 1, plan)
    whole = state_bytes(plan, float(k * n), 1.0, table)
    shared = state_bytes(plan, float(k * n), float(parts), table)
    assert shared * parts == pytest.approx(whole)
    assert (state_bytes(plan, float(k * n), 1.0, table) <= 28.0 * k * n + 4.0 * (k + n)).all()


def test_what_is_a_matrix() -> None:
    graph = build(make_model("moe"), batch=1.0, seq_len=64.0)
    ops = [op for part in (*graph.kinds, graph.embedding, graph.head) for op in part.ops]
    muon = {op.name for op in ops if is_matrix(op, "muon")}
    factored = {op.name for op in ops if is_matrix(op, "adafactor")}
    assert factored - muon == {"embedding.tokens", "head.scores"}
    assert muon == {op.name for op in ops if isinstance(op, Gemm)} - {"head.scores"}
    assert not any(is_matrix(op, "adam") for op in ops)
    experts = next(op for op in ops if op.name == "moe.up")
    table = matrices_of([experts], 1, Plan(optimizer="muon"))
    assert table.counts[0, 0] == 16.0
    assert table.weights[0, 0] == experts.parameters


@given(SIDE, SIDE, st.integers(1, 64))
def test_products_keep_their_bound_and_do_not_mind_the_transpose(k: int, n: int, g: int) -> None:
    plan = Plan(optimizer="muon")
    short, long = min(k, n), max(k, n)
    flop = STEPS * g * (4.0 * short**2 * long + 2.0 * short**3)
    one = products_s([matrix(float(k), float(n), float(g))], 1, CHIP, plan)
    other = products_s([matrix(float(n), float(k), float(g))], 1, CHIP, plan)
    assert one[0, 0] >= flop / CHIP.matrix_flop_per_s["bf16"]
    assert one[0, 0] == other[0, 0]


def test_a_batch_of_shapes_is_each_of_them() -> None:
    plan, tp = Plan(optimizer="muon"), np.array([1.0, 2.0, 8.0])
    op = replace(matrix(4096.0, 14336.0), split="col")
    both = products_s([op.cut(tp)], 3, CHIP, plan)[0]
    assert both.tolist() == [products_s([op.cut(t)], 1, CHIP, plan)[0, 0] for t in tp]
    assert (np.diff(both) < 0).all()


def test_other_optimizers_have_no_products() -> None:
    ops: list[Op] = [
        matrix(512.0, 512.0),
        Lookup(name="embedding.tokens", tokens=8.0, rows=9.0, width=8.0),
    ]
    assert not products_s(ops, 1, CHIP, Plan(optimizer="adam")).any()
    muon = products_s(ops, 1, CHIP, Plan(optimizer="muon"))[:, 0]
    assert muon[0] > 0.0
    assert muon[1] == 0.0
    free = optimizer_s(1e9, CHIP, Plan(), products_s=1.0)
    assert float(free) == float(optimizer_s(1e9, CHIP, Plan()))


def test_muon_rate_of_a_large_matrix() -> None:
    """Products of 8192 x 8192 run at the rate of large products: at least 60 % of the peak."""
    seconds = products_s([matrix(8192.0, 8192.0)], 1, CHIP, Plan(optimizer="muon"))[0, 0]
    share = STEPS * 6.0 * 8192.0**3 / seconds / CHIP.matrix_flop_per_s["bf16"]
    assert 0.6 < share < 1.0


@given(st.integers(1, 400), st.integers(1, 4096))
def test_shared_products(count: int, parts: int) -> None:
    mine = float(shared_products_s(1.0, float(count), float(parts)))
    assert 1.0 / parts <= mine * (1 + 1e-12)
    assert mine >= 1.0 / count * (1 - 1e-12)
    if count % parts == 0:
        assert mine == pytest.approx(1.0 / parts)


def test_muon_is_one_adam_of_the_rest() -> None:
    plan = Plan(optimizer="muon")
    rest = optimizer_s(1e9, CHIP, plan, 0.0, 0.0)
    assert float(rest) == float(optimizer_s(1e9, CHIP, Plan()))
    assert float(optimizer_s(1e9, CHIP, plan, 1e9, 2.0)) > 2.0


def test_narrow_states_move_less() -> None:
    assert update_bytes(Plan(optimizer="adam8bit")) == 4 + 8 + 4 * (1 + 4 / 256) + 2
    assert update_bytes(Plan(optimizer="adafactor")) < update_bytes(Plan())


def test_accumulation() -> None:
    """The 10 bytes of a pass by itself; 6 more than the narrow write where the product adds."""
    assert accumulate_bytes(Plan(), fused=False) == 10.0
    assert accumulate_bytes(Plan(), fused=True) == 6.0
    some = accumulate_s(np.array([0.0, 1e9]), np.array([4.0, 4.0]), CHIP, Plan(), fused=False)
    assert some[0] == 0.0
    assert some[1] == pytest.approx(4 * 10e9 / (0.88 * 3.35e12))


def test_factors_of_blocks_are_products() -> None:
    """Two sums and two applications of every block of 1,024."""
    plan = Plan(optimizer="shampoo")
    seconds = products_s([matrix(8192.0, 8192.0)], 1, CHIP, plan)[0, 0]
    assert seconds >= 64 * 4 * 2.0 * 1024.0**3 / CHIP.matrix_flop_per_s["bf16"]


def test_foreach_kernels_pass_again() -> None:
    one, many = (
        float(optimizer_s(1e9, CHIP, Plan(optimizer=name)))  # type: ignore[arg-type]
        for name in ("adam", "adam-foreach")
    )
    assert many == pytest.approx(2.3 * one)
