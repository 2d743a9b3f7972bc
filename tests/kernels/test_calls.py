"""Operations as kernels: nothing is lost, and passes over memory are as frameworks make them."""

import numpy as np
import pytest

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.call_records import FrameworkForm
from foretell.kernels.calls import call_stacks, calls_of
from foretell.kernels.fusion import FUSED, PLAIN, kind_of, passes
from foretell.kernels.op_times import op_times
from foretell.specs.plan import Plan
from foretell.workload.build import build
from foretell.workload.ops import AttentionCore, Op
from foretell.workload.roles import OpRole
from tests.builders import GENERIC, STACKS, make_chip, make_model


def ops_of(name: str, flash: bool = True) -> list[Op]:
    graph = build(make_model(name), batch=2.0, seq_len=512.0, flash=flash)
    return [op for part in (*graph.kinds, graph.embedding, graph.head) for op in part.ops]


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("name", sorted(STACKS))
def test_kernels_do_the_work_of_their_operation(name: str, flash: bool) -> None:
    for op in ops_of(name, flash):
        for backward in (False, True):
            work = op.backward() if backward else op.forward()
            calls = calls_of(op, 0, backward=backward)
            products = sum(float(c.work.matrix_flop) for c in calls)
            assert products == pytest.approx(float(work.matrix_flop), rel=1e-12)
            assert sum(float(c.work.activation_elements) for c in calls) > 0 or not products


@pytest.mark.parametrize("name", sorted(STACKS))
def test_every_operation_has_its_row_in_both_passes(name: str) -> None:
    ops = ops_of(name)
    stacks = call_stacks(ops, 1)
    rows = set(np.concatenate([stack.rows for stack in stacks]).tolist())
    assert rows == set(range(2 * len(ops)))


@pytest.mark.parametrize("name", sorted(STACKS))
def test_times_are_never_faster_than_light(name: str) -> None:
    chip, ops = make_chip(), ops_of(name)
    times = op_times(call_stacks(ops, 1), len(ops), chip, Plan(), GENERIC)
    for i, op in enumerate(ops):
        for row, work in ((i, op.forward()), (i + len(ops), op.backward())):
            least = float(work.matrix_flop) / chip.matrix_flop_per_s["bf16"]
            assert times.seconds[row, 0] >= least
            assert 0.0 <= times.clocked_s[row, 0] <= times.seconds[row, 0] * (1 + 1e-12)
    assert (times.core_joules >= 0.0).all()
    assert np.isfinite(times.seconds).all()


def test_plain_kernels_move_more_than_fused_ones() -> None:
    assert FUSED.keys() == PLAIN.keys()
    for kind, fused in FUSED.items():
        plain = passes(kind, fused=False)
        assert plain.forward >= fused.forward
        assert plain.backward >= fused.backward
        assert plain.kernels >= fused.kernels
    chip, ops = make_chip(), ops_of("dense")
    fast, slow = (
        op_times(call_stacks(ops, 1), len(ops), chip, Plan(fused=f), GENERIC) for f in (True, False)
    )
    assert (slow.seconds >= fast.seconds * (1 - 1e-12)).all()
    assert slow.seconds.sum() > fast.seconds.sum()
    assert {kind_of(op) for op in ops} >= {"norm", "residual", "act", "rotate", "loss", "embedding"}


def test_a_slower_attention_library_is_slower() -> None:
    chip, ops = make_chip(), ops_of("dense")
    old, new = (
        op_times(call_stacks(ops, 1), len(ops), chip, Plan(attention=a), GENERIC)
        for a in ("fa2", "cudnn")
    )
    rows = [i for i, op in enumerate(ops) if op.family == "attention"]
    assert (old.seconds[rows] > new.seconds[rows]).all()


@pytest.mark.parametrize("backward", [False, True])
def test_stored_scores_are_products_and_passes_over_the_square(backward: bool) -> None:
    """Each product reads two of its matrices and writes the third, for each head; by hand."""
    b, h, q, k, d, v = 2.0, 8.0, 96.0, 160.0, 64.0, 32.0
    op = AttentionCore(
        name="core", batch=b, heads=h, kv_heads=h, q_len=q, kv_len=k, pairs=q * k / 2, qk_dim=d,
        v_dim=v, flash=False,
    )  # fmt: skip
    *products, softmax = calls_of(op, 0, backward=backward)
    queries, keys, values, scores, out = q * d, k * d, k * v, q * k, q * v
    moved = (
        [out + values + scores, scores + out + values, scores + keys + queries, scores + queries + keys]
        if backward
        else [queries + keys + scores, scores + values + out]
    )  # fmt: skip
    widths = [v, v, d, d] if backward else [d, v]
    assert [c.work.activation_elements for c in products] == [b * h * each for each in moved]
    assert [c.work.matrix_flop for c in products] == [2.0 * b * h * q * k * w for w in widths]
    assert {c.sizes["batch"] for c in products} == {b * h}
    assert softmax.work.activation_elements == (4.0 if backward else 3.0) * b * h * scores


def test_experts_in_turn_do_the_same_work_by_more_kernels() -> None:
    ops = ops_of("moe")
    looped = FrameworkForm(in_turn=True)
    for op in ops:
        for backward in (False, True):
            joined = calls_of(op, 0, backward=backward)
            turns = calls_of(op, 0, backward=backward, written=looped)
            assert sum(float(c.work.matrix_flop) for c in turns) == pytest.approx(
                sum(float(c.work.matrix_flop) for c in joined), rel=1e-12
            )
            assert sum(float(c.launches) for c in turns) >= sum(float(c.launches) for c in joined)
            if op.role in (OpRole.PERMUTE, OpRole.UNPERMUTE) or op.family == "grouped-gemm":
                assert all(c.family != "grouped" and c.launches == 16.0 for c in turns)


def test_cudnn_before_9_1_goes_back_as_flashattention_2_does() -> None:
    chip = catalogue_chip("h100-sxm")
    times = {
        library: op_times(
            call_stacks(ops_of("dense"), 1), len(ops_of("dense")), chip,
            Plan(attention=library), GENERIC,
        )
        for library in ("fa2", "cudnn", "cudnn8")
    }  # fmt: skip
    cores = [i for i, op in enumerate(ops_of("dense")) if isinstance(op, AttentionCore)]
    many = len(ops_of("dense"))
    for i in cores:
        assert times["cudnn8"].seconds[i, 0] == times["cudnn"].seconds[i, 0]
        assert times["cudnn8"].seconds[i + many, 0] == times["fa2"].seconds[i + many, 0]
