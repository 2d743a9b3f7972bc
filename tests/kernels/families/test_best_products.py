"""Chips without tables of their own reach the best product that was measured on them."""

import numpy as np
import pytest

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families.base import (
    MOST_SHARE,
    USUAL_SHARE,
    attainable,
    best_share,
    engine_of,
)
from foretell.kernels.families.choose import choose

SIZE = {name: np.array(8192.0) for name in ("m", "n", "k")}


def rate(name: str) -> float:
    """FLOP/s of a large square product in bf16."""
    chip = catalogue_chip(name)
    chosen = choose(chip, "gemm", "bf16")
    engine = engine_of(chip, "bf16")
    engine = attainable(engine, chip, chosen.kin) if chosen.foreign else engine
    return float(2.0 * 8192.0**3 / chosen.family.seconds(SIZE, chosen.record, engine))


@pytest.mark.parametrize("name", ["h20-sxm", "rtx4090", "gh200-96gb", "a100-pcie-80gb"])
def test_chips_of_a_line_reach_their_best_measured_product(name: str) -> None:
    chip = catalogue_chip(name)
    assert rate(name) == pytest.approx(float(chip.measured_matmul_flop_per_s), rel=0.05)
    assert rate(name) < float(chip.matrix_flop_per_s["bf16"])


def test_a_best_product_below_the_usual_share_still_takes_peaks_down() -> None:
    """MI300X by its own table, and MI250X, which no chip of a table is like."""
    for name in ("mi300x", "mi250x-gcd"):
        chip = catalogue_chip(name)
        assert choose(chip, "gemm", "bf16").kin == ()
        assert rate(name) < float(chip.measured_matmul_flop_per_s)


def test_chips_with_tables_and_those_of_other_makers_are_never_taken_up() -> None:
    for name in ("a100-sxm-80gb", "h100-sxm", "b200-sxm", "gaudi2", "mi355x", "tpu-v5p"):
        chip = catalogue_chip(name)
        for family in ("gemm", "prefill", "prefill-backward"):
            chosen = choose(chip, family, "bf16")
            engine = engine_of(chip, "bf16")
            assert chosen.kin == () or name.startswith("tpu")
            assert attainable(engine, chip, chosen.kin).flop_per_s <= engine.flop_per_s


def test_the_best_share_of_kin() -> None:
    assert best_share(("a100-sxm-80gb",)) == pytest.approx(0.87, abs=0.01)
    assert best_share(()) == best_share(("a chip of mine",)) == USUAL_SHARE
    assert USUAL_SHARE < best_share(("a100-sxm-80gb", "h100-sxm")) < MOST_SHARE
