"""The slowest of many chips."""

import numpy as np
import pytest

from foretell.kernels.power import BESIDE_OTHERS, SPREAD, slowest
from tests.builders import make_chip


def test_one_chip_is_the_mean_and_more_are_slower() -> None:
    chip = make_chip()
    paces = [slowest(n, chip) for n in (1, 2, 8, 64, 512, 16384)]
    assert paces[0] == 1.0
    assert paces == sorted(paces)
    assert paces[1] > 1.0 + BESIDE_OTHERS
    assert paces[-1] < 1.0 + BESIDE_OTHERS + 5.0 * SPREAD


@pytest.mark.parametrize("gpus", [2, 8, 128])
def test_it_is_the_mean_largest_of_normal_numbers(gpus: int) -> None:
    drawn = np.random.default_rng(0).normal(size=(20000, gpus)).max(axis=1).mean()
    alone = slowest(gpus, make_chip()) - BESIDE_OTHERS
    assert alone == pytest.approx(1.0 + SPREAD * drawn, abs=0.02 * SPREAD)


def test_fixed_clocks_do_not_vary() -> None:
    assert slowest(4096, make_chip(architecture="tpu-v5p")) == 1.0
