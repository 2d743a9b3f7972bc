"""Messages of a step, listed: the volumes of the ZeRO paper, and those of cut layers."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.inputs.question import ask
from foretell.lab.characterize.models import DecoderSizes, spec_of
from foretell.simulation.programs.collectives import Collective, step_collectives
from foretell.specs.plan import parse_plan
from foretell.workload.parameters import count as parameter_count

SIZES = DecoderSizes(hidden=64, layers=4, heads=4, kv_heads=2, ffn=128, vocab=256)
TOKENS = 2 * 32


def listed(text: str, gpus: int, micro_batches: int = 2, sizes: DecoderSizes = SIZES) -> Any:
    plan = parse_plan(f"mbs2 {text}", gpus)
    scenario = ask(
        model=spec_of(sizes, "m"),
        system="h100-sxm",
        gpus=gpus,
        global_batch=2 * micro_batches * plan.dp,
        seq_len=32,
    )
    return step_collectives(scenario, plan)


def volume(messages: tuple[Collective, ...], axis: str) -> float:
    return sum(m.bytes for m in messages if m.axis == axis)


def test_one_chip_sends_nothing() -> None:
    assert listed("", 1) == ((),)


@given(st.integers(1, 5), st.sampled_from((2, 4, 8)), st.integers(0, 3), st.integers(1, 4))
def test_volumes_of_the_zero_paper(layers: int, dp: int, zero: int, micro_batches: int) -> None:
    """One micro-batch in one dtype: an all-reduce counts twice; 2 Psi for stages 0 to 2, 3 Psi for 3."""
    sizes = replace(SIZES, layers=layers)
    weights = float(parameter_count(spec_of(sizes, "m")).total)
    (here,) = listed(f"zero{zero} gradients=bf16", dp, micro_batches, sizes)
    twice = {"all-reduce": 2.0}
    sent = sum(m.bytes * twice.get(m.kind, 1.0) for m in here) / (2.0 * weights)
    many = float(micro_batches)
    assert sent == pytest.approx({0: 2.0, 1: 2.0, 2: many + 1.0, 3: 3.0 * many}[zero], rel=1e-12)
    pieces = layers if zero == 3 else 1
    counts = {0: 1, 1: 2, 2: many + 1, 3: 3 * many * pieces}
    assert sum(m.count for m in here) == counts[zero]
    assert all(m.group == dp for m in here)


def test_gradients_travel_in_whole_buckets() -> None:
    """Forty million weights in each, rounded up; their bytes stay the same."""
    sizes = DecoderSizes(hidden=1024, layers=8, heads=8, kv_heads=8, ffn=4096, vocab=1000)
    weights = parameter_count(spec_of(sizes, "m")).total
    ((message,),) = listed("zero0", 2, 1, sizes)
    assert message.count == -(-weights // 40_000_000) > 1
    assert message.bytes == 4.0 * weights


def test_groups_of_ranks_reduce_their_shares_among_each_other() -> None:
    (here,) = listed("zero1 shard=2", 8, 1)
    found = {m.what: m for m in here}
    assert found["gradients"].group == found["weights"].group == 2
    assert found["gradients of shares"].group == 4
    assert found["gradients of shares"].bytes == found["gradients"].bytes / 2


@pytest.mark.parametrize("again", ["none", "full"])
def test_ends_of_cut_regions(again: str) -> None:
    """Two regions a layer, the table's end and the head's start; full recomputation enters them again."""
    one, many, layers = TOKENS * 64 * 2.0, 3, 4
    (here,) = listed(f"tp2 no-sp recompute={again}", 2, many)
    found = {(m.what, m.kind): m for m in here}
    forward, back = found["activations", "all-reduce"], found["activations back", "all-reduce"]
    runs = 2 if again == "full" else 1
    assert forward.count == many * (runs * 2 * layers + 1)
    assert back.count == many * (2 * layers + 1)
    assert all(m.bytes == m.count * one for m in here)
    (cut,) = listed(f"tp2 sp recompute={again}", 2, many)
    assert sum(m.count for m in cut) == 2 * (forward.count + back.count) + back.count
    assert all(m.bytes == m.count * one for m in cut)


def test_stages_send_to_their_neighbours() -> None:
    first, middle, last = listed("pp3", 3, 5, replace(SIZES, layers=6))
    assert [m.count for m in first] == [m.count for m in last] == [5]
    assert [m.count for m in middle] == [5, 5]
    assert volume(middle, "pipeline") == 2 * volume(first, "pipeline")
    pieces = listed("tp2 pp2 no-sp", 4, 5)[0]
    sends = {(m.what, m.kind): m.bytes for m in pieces if m.axis == "pipeline"}
    assert sends["activations back", "all-gather"] == 2 * sends["activations", "send"]
