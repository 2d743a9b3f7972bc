"""Data parallelism: stages, groups, gathers, reductions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.sharding.data import (
    Sharing,
    data_parallel,
    sharing_group,
    sharing_holds,
    sharing_of,
    split_counts,
    wire_bytes,
)
from foretell.specs.plan import Plan, parse_plan

ZERO = np.array([0.0, 1.0, 2.0, 3.0])
DP, MU = np.full(4, 64.0), np.full(4, 6.0)
SHARINGS = st.builds(
    Sharing,
    shard=st.sampled_from([0.0, 1.0, 2.0, 8.0, 16.0]),
    secondary=st.sampled_from([0.0, 2.0, 8.0]),
    reshard=st.booleans(),
    reduce=st.sampled_from(["auto", "step", "micro-batch"]),
)


def test_the_stages_as_published() -> None:
    found = data_parallel(DP, ZERO, MU)
    assert found.all_reduces.tolist() == [1, 0, 0, 0]
    assert found.scatters.tolist() == [0, 1, 6, 6]
    assert found.gathers_forward.tolist() == [0, 1, 1, 6]
    assert found.gathers_backward.tolist() == [0, 0, 0, 6]
    assert found.weight_parts.tolist() == [1, 1, 1, 64]
    assert found.gradient_parts.tolist() == [1, 1, 64, 64]
    assert found.state_parts.tolist() == [1, 64, 64, 64]
    assert found.group.tolist() == found.backward_group.tolist() == [64] * 4
    assert not found.replica_reduces.any()


def test_hybrid_sharing() -> None:
    found = data_parallel(DP, ZERO, MU, Sharing(shard=8.0))
    assert found.state_parts.tolist() == [1, 8, 8, 8]
    assert found.weight_parts.tolist() == [1, 1, 1, 8]
    assert found.replicas.tolist() == [8] * 4
    assert found.replica_reduces.tolist() == [0, 1, 6, 6]
    assert found.all_reduces.tolist() == [1, 0, 0, 0]


def test_weights_that_stay() -> None:
    found = data_parallel(DP, ZERO, MU, Sharing(reshard=False))
    assert not found.gathers_backward.any()
    assert found.gathers_forward.tolist() == [0, 1, 1, 6]
    assert found.weight_parts.tolist() == [1] * 4
    assert found.state_parts.tolist() == [1, 64, 64, 64]


def test_a_second_copy_near_by() -> None:
    """ZeRO++: 1/64 and 1/8 of the weights; backward gathers over 8 ranks."""
    found = data_parallel(DP, ZERO, MU, Sharing(secondary=8.0))
    assert found.backward_group.tolist() == [64, 64, 64, 8]
    assert 1.0 / found.weight_parts[3] == pytest.approx(1 / 64 + 1 / 8)
    assert found.gathers_backward[3] == 6
    whole = data_parallel(DP, ZERO, MU, Sharing(secondary=1.0))  # the copy is whole on every rank
    assert 1.0 / whole.weight_parts[3] == pytest.approx(1 / 64 + 1)


def test_how_often() -> None:
    step = data_parallel(DP, ZERO, MU, Sharing(reduce="step"))
    assert step.scatters.tolist() == [0, 1, 1, 1]
    assert step.gradient_parts.tolist() == [1] * 4
    each = data_parallel(DP, ZERO, MU, Sharing(reduce="micro-batch"))
    assert each.all_reduces.tolist() == [6, 0, 0, 0]
    assert each.scatters.tolist() == [0, 6, 6, 6]
    assert each.gradient_parts.tolist() == [1, 1, 64, 64]


@given(SHARINGS)
def test_one_rank_shares_nothing(sharing: Sharing) -> None:
    found = data_parallel(np.ones(4), ZERO, MU, sharing)
    for parts in (found.weight_parts, found.gradient_parts, found.state_parts, found.group):
        assert parts.tolist() == [1] * 4
    assert not found.replica_reduces.any()


@given(SHARINGS, st.sampled_from([16.0, 64.0, 512.0]))
def test_a_later_stage_holds_less_and_groups_hold_all(sharing: Sharing, dp: float) -> None:
    found = data_parallel(np.full(4, dp), ZERO, MU, sharing)
    for parts in (found.weight_parts, found.gradient_parts, found.state_parts):
        assert (np.diff(parts) >= 0).all()
        assert (parts <= dp).all()
        assert (parts >= 1).all()
    assert (found.group * found.replicas == dp).all()
    assert (found.backward_group <= found.group).all()


@given(SHARINGS, st.lists(st.tuples(st.sampled_from([1, 4, 64]), st.integers(0, 3)), min_size=1))
def test_a_batch_is_its_plans(sharing: Sharing, rows: list[tuple[int, int]]) -> None:
    dp, zero = np.array(rows, float).T
    mu = np.full(len(rows), 3.0)
    batch = data_parallel(dp, zero, mu, sharing)
    for i in range(len(rows)):
        one = data_parallel(dp[i : i + 1], zero[i : i + 1], mu[:1], sharing)
        for name in batch.__slots__:
            assert getattr(batch, name)[i] == getattr(one, name)[0]


def test_groups_must_divide() -> None:
    dp = np.array([8.0, 12.0, 4.0, 64.0])
    assert sharing_holds(dp).all()
    assert sharing_holds(dp, Sharing(shard=8.0)).tolist() == [True, False, False, True]
    assert sharing_holds(dp, Sharing(secondary=8.0)).tolist() == [True, False, False, True]
    assert sharing_group(dp, Sharing(shard=np.array([0.0, 3.0, 2.0, 64.0]))).tolist() == [
        8,
        3,
        2,
        64,
    ]


def test_words_of_a_plan() -> None:
    plan = parse_plan("dp64 zero3 shard=8 secondary=4 no-reshard reduce=step wire=bf16 gather=fp8")
    assert sharing_of(plan) == Sharing(shard=8.0, secondary=4.0, reshard=False, reduce="step")
    assert wire_bytes(plan) == (2.0, 1.0)
    assert wire_bytes(Plan()) == (4.0, 2.0)
    assert sharing_of(Plan()) == Sharing()


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0, 8.0]), min_size=1, max_size=3), st.data())
def test_a_group_fills_the_inner_tiers(tiers: list[float], data: st.DataObject) -> None:
    counts = np.array(tiers)[:, None]
    dp = float(counts.prod())
    group = data.draw(st.sampled_from([g for g in range(1, int(dp) + 1) if dp % g == 0]))
    inner, outer = split_counts(counts, float(group))
    assert inner.prod() == pytest.approx(group)
    assert inner * outer == pytest.approx(counts)
    assert (outer >= 1).all()
    # A tier outside a unit that the group does not fill is not touched.
    filled = np.cumprod(counts[:, 0])
    assert all(inner[i + 1, 0] == 1.0 for i in range(len(tiers) - 1) if group <= filled[i])


def test_groups_of_a_node() -> None:
    inner, outer = split_counts(np.array([[8.0, 4.0], [8.0, 16.0]]), 8.0)
    assert inner.T.tolist() == [[8, 1], [4, 2]]
    assert outer.T.tolist() == [[1, 8], [1, 8]]


def test_below_a_pipeline_gradients_are_sent_once_a_step() -> None:
    found = data_parallel(DP, ZERO, MU, pp=np.full(4, 8.0))
    once = data_parallel(DP, ZERO, MU, Sharing(reduce="step"))
    each = data_parallel(DP, ZERO, MU, Sharing(reduce="micro-batch"), pp=8.0)
    for name in ("all_reduces", "scatters", "gradient_parts", "gathers_backward"):
        assert getattr(found, name).tolist() == getattr(once, name).tolist()
    assert (
        each.scatters.tolist()
        == data_parallel(DP, ZERO, MU, Sharing(reduce="micro-batch")).scatters.tolist()
    )
