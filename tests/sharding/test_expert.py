"""Expert parallelism: without it nothing changes, with it work and weights are shared and conserved."""

import numpy as np
import pytest

from foretell.sharding.expert import distinct_share
from foretell.specs.plan import Plan
from foretell.training.shapes import Shape, Shapes, shapes_of
from foretell.workload.ops import Gemm, Op
from tests.builders import GENERIC, make_model

LENGTHS = (2048, None)
USUAL = Plan(routing="even")


def shapes(plan: Plan = USUAL, **degrees: float) -> Shapes:
    shape = Shape(**({"micro_batch": 2.0, "tp": 1.0, "sp": 1.0} | degrees))
    return shapes_of(make_model("moe"), LENGTHS, plan, GENERIC, shape)


def routed(found: Shapes) -> list[Gemm]:
    return [op for op in found.ops[1] if isinstance(op, Gemm) and op.name in ("moe.up", "moe.down")]


def flop(ops: list[Gemm] | tuple[Op, ...]) -> float:
    return float(sum(op.forward().matrix_flop for op in ops))


@pytest.mark.parametrize(
    ("tp", "cp", "ep", "etp"),
    [(1, 1, 4, 1), (1, 2, 8, 1), (4, 1, 4, 1), (4, 2, 8, 1), (4, 1, 4, 4), (2, 2, 16, 2)],
)
def test_work_of_the_routed_experts_is_conserved(tp: int, cp: int, ep: int, etp: int) -> None:
    """All ranks that share a micro-batch together do what one rank would do of it."""
    one, spread = shapes(), shapes(tp=float(tp), cp=float(cp), ep=float(ep), etp=float(etp))
    assert tp * cp * flop(routed(spread)) == pytest.approx(flop(routed(one)), rel=1e-12)
    up = routed(spread)[0]
    assert up.groups == 16 / ep
    # Each expert has the rows of ep x etp ranks: 2 x 2048 tokens x 2 experts over tp x cp ranks, of 16.
    assert up.m == pytest.approx(2 * 2048 * 2 / (tp * cp) * ep * etp / 16)
    assert up.n == pytest.approx(2 * 512 / etp)


@pytest.mark.parametrize(("ep", "etp"), [(4, 1), (16, 1), (4, 2)])
def test_weights_of_the_routed_experts_are_conserved(ep: int, etp: int) -> None:
    one = sum(op.parameters for op in routed(shapes()))
    found = shapes(tp=4.0, ep=float(ep), etp=float(etp))
    assert ep * etp * sum(op.parameters for op in routed(found)) == one
    assert found.routed.sum() == sum(op.parameters for op in routed(found))
    assert shapes(tp=4.0).routed.sum() == 0.0


def test_shared_experts_stay_with_tensor_parallelism() -> None:
    names = ("moe.shared.up", "moe.shared.down")
    for name in names:
        spread, cut = (
            next(op for op in found.ops[1] if op.name == name)
            for found in (shapes(tp=4.0, ep=4.0), shapes(tp=4.0))
        )
        assert spread == cut


def test_an_array_with_and_without_holds_both() -> None:
    """Rows without expert parallelism are bit for bit what they are alone."""
    three = np.ones(3)
    many = Shape(
        micro_batch=three, tp=4.0 * three, sp=three, ep=np.array([1.0, 4.0, 16.0]), etp=three
    )
    batch = shapes_of(make_model("moe"), LENGTHS, USUAL, GENERIC, many)
    alone = shapes(micro_batch=1.0, tp=4.0)
    for ours, theirs in zip(batch.ops[1], alone.ops[1], strict=True):
        for a, b in ((ours.forward(), theirs.forward()), (ours.backward(), theirs.backward())):
            assert np.ravel(a.matrix_flop)[0] == b.matrix_flop
            assert np.ravel(a.activation_elements)[0] == b.activation_elements
    for a, b in zip(batch.kept, alone.kept, strict=True):
        assert np.ravel(a.whole)[0] == b.whole


def test_dispatch_sends_every_token_to_each_of_its_experts() -> None:
    """2 x 2048 tokens over tp x cp ranks, two experts each, 1024 wide."""
    found = shapes(tp=2.0, cp=2.0, ep=4.0).experts
    assert [t.layers for t in found] == [0.0, 1.0, 0.0, 0.0]
    assert found[1].elements == 2 * 2048 / 4 * 2 * 1024
    assert found[1].copies == 2.0
    busy = shapes(Plan(imbalance=1.5, routing="even"), tp=2.0, cp=2.0, ep=4.0).experts
    assert busy[1].elements == 1.5 * found[1].elements


def test_capacity_is_what_every_expert_has() -> None:
    full = routed(shapes(ep=4.0))[0].m
    assert routed(shapes(Plan(capacity=1.25, imbalance=3.0), ep=4.0))[0].m == 1.25 * full
    assert routed(shapes(Plan(imbalance=3.0), ep=4.0))[0].m == 3.0 * full
    whole = routed(shapes())[0].m
    assert routed(shapes(Plan(capacity=1.25)))[0].m == 1.25 * whole
    assert routed(shapes(Plan(imbalance=3.0)))[0].m == whole


@pytest.mark.parametrize("copies", [1.0, 2.0, 8.0])
def test_a_token_goes_to_no_more_places_than_it_has_copies(copies: float) -> None:
    places = np.array([1.0, 2.0, 8.0, 1e6])
    share = np.asarray(distinct_share(places, copies))
    assert (share <= 1.0 + 1e-9).all()
    assert (np.diff(share) >= -1e-12).all()
    assert share[0] == pytest.approx(1.0 / copies)
    assert share[-1] == pytest.approx(1.0, rel=1e-4)
