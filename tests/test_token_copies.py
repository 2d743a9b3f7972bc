"""What DTensor adds to tensor-parallel exchanges: copies, 8-bit gathers, ends that stay whole."""

from dataclasses import replace

import numpy as np
import pytest

from foretell.catalog.software import software
from foretell.inputs.software import with_software
from foretell.network.placement import group_counts
from foretell.specs.plan import Plan, batch_of, parse_plan
from foretell.training.exchanges import tensor_seconds
from foretell.training.overlap import Exchange
from foretell.training.tables import tables_of
from foretell.training.tensor_exchanges import (
    COPY_SHARE,
    EndTimes,
    by_tensor,
    gathered_share,
    left_copies,
    whole_ends,
)
from tests.builders import GENERIC, make_scenario

TITAN = "tp4 dp2 sp mbs2 framework=torchtitan"
OTHER = "tp4 dp2 sp mbs2 framework=fsdp-compiled"


def exchange(text: str) -> Exchange:
    """Tensor-parallel exchanges of a small dense model on eight chips."""
    plan = parse_plan(text, 8)
    scenario = with_software(make_scenario("dense", gpus=8, batch=16), plan)
    plans = batch_of([plan])
    tables = tables_of(scenario, plans)
    where = group_counts(plans, scenario.system.network, 8)["tp"]
    found = tensor_seconds(
        tables.parts, tables.shape, where, scenario.system, plan, scenario.software
    )
    return found[0]


def test_all_tokens_are_read_and_written_once_at_each_end() -> None:
    """Two entries and two ends of a layer each way: four copies of tokens x width in 16 bits."""
    scenario = make_scenario("dense", gpus=8, batch=16)
    copied, plain = exchange(TITAN), exchange(OTHER)
    job, chip = scenario.job, scenario.system.chip
    tokens = 2.0 * job.seq_len * scenario.model.stack.hidden * 2.0
    each_s = 2.0 * tokens / (COPY_SHARE * float(chip.memory_bandwidth_bytes_per_s))
    for name in ("forward_s", "backward_s"):
        more = getattr(copied, name)[0, 0] - getattr(plain, name)[0, 0]
        assert more == pytest.approx(4.0 * each_s, rel=1e-9)


def test_without_cut_tokens_nothing_is_copied() -> None:
    for words in ("tp1 dp8", "tp4 dp2 no-sp"):
        told = [exchange(f"{words} framework={name}") for name in ("torchtitan", "fsdp-compiled")]
        np.testing.assert_array_equal(told[0].forward_s, told[1].forward_s)
        np.testing.assert_array_equal(told[0].backward_s, told[1].backward_s)


@pytest.mark.parametrize(("words", "ends"), [
    ("framework=megatron-core", ()),
    ("framework=torchtitan", ("enter_scatter",)),
    ("framework=torchtitan precision=fp8", ("enter_scatter",)),
    ("framework=torchtitan precision=fp8 scaling=row", ("enter_scatter", "enter_gather", "leave_gather")),
    ("framework=torchtitan precision=mxfp8", ("enter_scatter", "enter_gather", "leave_gather")),
])  # fmt: skip
def test_ends_that_pytorch_does_not_cut(words: str, ends: tuple[str, ...]) -> None:
    plan = parse_plan(words)
    assert whole_ends(plan, software(plan.framework)) == ends


@pytest.mark.parametrize(
    "words", ["", "precision=fp8", "precision=fp8 scaling=row", "precision=mxfp8"]
)
def test_pieces_never_take_longer_and_whole_ends_show(words: str) -> None:
    whole, pieces = (exchange(f"{TITAN} {words} tp_overlap={way}") for way in ("off", "on"))
    # Copies move from the forward to the backward pass, where the gradients of weights need them.
    both = [one.forward_s + one.backward_s for one in (whole, pieces)]
    assert (both[1] <= both[0] * (1 + 1e-12)).all()
    assert (pieces.forward_s <= whole.forward_s * (1 + 1e-12)).all()
    by_row = exchange(f"{TITAN} precision=fp8 scaling=row tp_overlap=on")
    by_tensor_s = exchange(f"{TITAN} precision=fp8 tp_overlap=on")
    assert (by_row.forward_s[0, 0] > by_tensor_s.forward_s[0, 0]).all()


def test_gathers_travel_in_8_bits_where_scaled_by_tensor() -> None:
    titan = software("torchtitan")
    scenario = replace(make_scenario("dense", gpus=8, batch=16), software=titan)
    for words, share in (("precision=fp8", 0.5), ("precision=fp8 scaling=row", 1.0), ("", 1.0)):
        plan = parse_plan(f"{TITAN} {words}", 8)
        parts = tables_of(scenario, batch_of([plan])).parts
        told = gathered_share(parts, plan, titan)
        assert told[0] == told[len(parts.names)] == share
        assert (told[parts.kinds : len(parts.names)] == 1.0).all()  # table and head stay in 16
        assert by_tensor(plan) == (share == 0.5)
    assert (gathered_share(parts, Plan(precision="fp8"), GENERIC) == 1.0).all()


def test_copies_beside_pieces() -> None:
    one = np.ones((1, 1))
    all_of = EndTimes(enter_gather=one, leave_scatter=one, enter_scatter=one, leave_gather=one)
    # Forward: a sum is read once more. Backward: the entry's sum whole, and what was gathered at both ends.
    left = left_copies(all_of, ("enter_scatter",))
    assert (left.enter_gather, left.leave_scatter) == (0, 0.5)
    assert (left.enter_scatter, left.leave_gather) == (2, 1)
    left = left_copies(all_of, ("enter_scatter", "enter_gather", "leave_gather"))
    assert (left.enter_gather, left.leave_scatter) == (1, 0.5)
    assert (left.enter_scatter, left.leave_gather) == (1, 1)
