"""Pairs of a forward and a backward pass: what they save, and what two copies of the weights cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.schedules import schedule_named
from foretell.schedules.base import Pipe
from foretell.training.micro_batch import TAKEN_CORES, pair_savings

DUALPIPE = schedule_named("dualpipe")


def saved_s(micro_batches: int, pp: int, exchanged_s: float, stage_s: float, cores: float) -> float:
    pipe = Pipe(
        micro_batches=np.array([float(micro_batches)]), pp=np.array([float(pp)]), vpp=np.ones(1)
    )
    found = pair_savings(
        DUALPIPE, pipe, np.full((1, 1), exchanged_s), np.full((1, 1), stage_s), cores
    )
    return float(found[0, 0])


@given(
    micro_batches=st.integers(1, 64).map(lambda n: 2 * n),
    pp=st.sampled_from([1, 2, 4, 8, 16]),
    exchanged_s=st.floats(0.0, 10.0),
    rest_s=st.floats(0.0, 10.0),
    cores=st.sampled_from([0.0, 1.0, 20.0, 132.0, 1e6]),
)
def test_each_pair_saves_the_shorter_of_exchanges_and_products(
    micro_batches: int, pp: int, exchanged_s: float, rest_s: float, cores: float
) -> None:
    """Less the share of the cores that communication takes: none where they are unknown, at most all."""
    got = saved_s(micro_batches, pp, exchanged_s, exchanged_s + rest_s, cores)
    share = min(TAKEN_CORES / cores, 1.0) if cores else 0.0
    pipe = Pipe(
        micro_batches=np.array([float(micro_batches)]), pp=np.array([float(pp)]), vpp=np.ones(1)
    )
    many = max(float(DUALPIPE.pairs(pipe)[0]), 0.0) if pp > 1 else 0.0
    each = min(exchanged_s, rest_s) * (1.0 - share)
    assert got == pytest.approx(many * each, rel=1e-9, abs=1e-9)
    assert many <= micro_batches


def test_without_a_pipeline_or_products_nothing_is_saved() -> None:
    assert saved_s(32, 8, 1.0, 3.0, 132.0) > 0.0
    assert saved_s(32, 1, 1.0, 3.0, 132.0) == 0.0
    assert saved_s(32, 8, 3.0, 3.0, 132.0) == 0.0
    assert saved_s(32, 8, 4.0, 3.0, 132.0) == 0.0
