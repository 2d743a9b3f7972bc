"""Collectives that the replicas of plans send, by their ZeRO stages and how software sums gradients."""

from dataclasses import replace

import numpy as np
import pytest

import foretell
from foretell.catalog.software import software
from foretell.specs.software import Software
from foretell.training.rank_links import data_kinds

SHARED = ("reduce-scatter", "all-gather")
EVERY = (*SHARED, "all-reduce")


def summing(how: str) -> Software:
    return replace(software("pytorch"), zero_sums=how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "stages", "kinds"),
    [
        ("scatter", (0,), ("all-reduce",)),
        ("scatter", (1,), SHARED),
        ("scatter", (3, 1), SHARED),
        ("scatter", (0, 2), EVERY),
        ("reduce", (1,), SHARED),
        ("all-reduce", (1,), EVERY),
        ("all-reduce", (3,), SHARED),
    ],
)
def test_what_a_stage_sends(how: str, stages: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    assert data_kinds(np.array(stages, float), summing(how)) == kinds


def step_s(zero: int, how: str, gpus: int = 256) -> float:
    answer = foretell.estimate(
        model="llama-3.2-1b",
        gpus=f"{gpus}xa100",
        plan=f"zero{zero} mbs1 framework=pytorch no-fused",
        global_batch=gpus,
        seq_len=512,
        set={"software.zero_sums": how},
    )
    assert answer.step_s is not None
    return answer.step_s


def test_whole_sums_send_more_than_a_scatter() -> None:
    for zero in (1, 2):
        assert step_s(zero, "all-reduce") > step_s(zero, "scatter")
    for how in ("reduce", "all-reduce"):
        assert step_s(3, how) == step_s(3, "scatter")


def test_a_reduce_for_each_rank_costs_more_the_more_ranks_there_are() -> None:
    few, many = (step_s(2, "reduce", n) / step_s(2, "scatter", n) for n in (8, 1024))
    assert many > few >= 1.0
