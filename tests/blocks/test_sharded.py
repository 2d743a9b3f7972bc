"""Blocks under plans: what is whole on every rank, what is shared, and that one rank is identity."""

import pytest

import foretell
from foretell.catalog.models import model
from foretell.sharding.context import context_parallel
from foretell.sharding.tensor import tensor_parallel
from foretell.workload.build import build
from foretell.workload.roles import OpRole

GRAPH = build(model("anthe"), batch=4.0, seq_len=16.0, target_len=16.0)


def flop(ops: object) -> float:
    return sum(float(op.forward().matrix_flop) for op in ops)


@pytest.mark.parametrize("kind", GRAPH.kinds, ids=lambda kind: kind.name)
def test_parts_of_the_tokens_leave_built_weights_whole(kind: object) -> None:
    part = context_parallel(kind, 2.0, "allgather")
    built = [flop([op]) for op in kind.ops if op.role is OpRole.BUILD]
    assert sum(built) > 0.0
    assert [flop([op]) for op in part.ops if op.role is OpRole.BUILD] == built
    rest = [op for op in kind.ops if op.role is not OpRole.BUILD]
    assert 2.0 * flop(op for op in part.ops if op.role is not OpRole.BUILD) == flop(rest)


@pytest.mark.parametrize("kind", GRAPH.kinds, ids=lambda kind: kind.name)
def test_tensor_parallelism_of_one_is_identity_and_of_more_holds_no_less(kind: object) -> None:
    assert flop(tensor_parallel(kind, 1.0, 1.0).ops) == flop(kind.ops)
    weights = sum(float(op.parameters) for op in kind.ops)
    for tp in (2.0, 4.0):
        part = tensor_parallel(kind, tp, 0.0)
        held = sum(float(op.parameters) for op in part.ops)
        assert weights / tp <= held <= weights
        assert flop(kind.ops) / tp <= flop(part.ops) <= flop(kind.ops)


@pytest.mark.parametrize(
    "plan", ["tp2 no-sp", "tp4 sp", "pp2", "pp3 dp2", "dp4 zero3", "cp2", "tp2 pp2 sp"]
)
def test_plans_of_all_kinds_are_answered(plan: str) -> None:
    many = {"tp2 no-sp": 2, "tp4 sp": 4, "pp2": 2, "pp3 dp2": 6, "dp4 zero3": 4, "cp2": 2}
    found = foretell.estimate(
        "anthe", system="h200-sxm", gpus=many.get(plan, 4), plan=f"{plan} mbs8", global_batch=32,
        seq_len=64, target_len=64,
    )  # fmt: skip
    assert found.step_s > 0.0
    assert found.fits == "yes"


def test_heads_must_divide() -> None:
    with pytest.raises(foretell.Infeasible, match="heads"):
        foretell.estimate(
            "anthe", system="h200-sxm", gpus=3, plan="tp3 no-sp mbs8", global_batch=8, seq_len=64,
            target_len=64,
        )  # fmt: skip
