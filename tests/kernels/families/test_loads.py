"""Products whose rows are no multiple of 16 bytes: narrow loads limit them, on chips that are known to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretell
from foretell.catalog.chips import catalogue_chip
from foretell.catalog.files import ROOT, read_table
from foretell.kernels.calls import load_elements
from foretell.kernels.families.base import engine_of
from foretell.kernels.families.gemm import GemmCoefficients, seconds

SIZE = st.integers(1, 20_000).map(float)
MEASURED = (
    # m, n, k; microseconds forward, data gradient, weight gradient
    (8192, 2049, 2048, 852.1, 480.2, 543.6),
    (8192, 2048, 2049, 549.8, 587.9, 544.0),
    (8192, 50257, 768, 6615.3, 4501.0, 4271.6),
    (8192, 50258, 768, 2587.4, 2427.3, 2357.2),
    (8192, 50260, 768, 2585.7, 2419.8, 2354.0),
    (8192, 4096, 14337, 7641.5, 6971.0, 6143.4),
    (8192, 4096, 14340, 3717.6, 3456.4, 3419.1),
    (8192, 14338, 4096, 3395.3, 3565.7, 3374.7),
    (25600, 1365, 512, 441.4, 352.9, 259.4),
    (25600, 512, 1366, 224.4, 209.6, 148.2),
    (256, 4096, 14337, 260.6, 244.8, 232.6),
    (256, 4096, 14340, 134.5, 130.4, 162.7),
)
"""bf16 on one H200 SXM, PyTorch 2.11.0, CUDA 13.0, 2026-11-15; rows of 8 bytes run as those of 4."""


def h200_record() -> GemmCoefficients:
    surfaces = read_table(ROOT / "kernels" / "h200-sxm-torch.toml")["surface"]
    found = next(s for s in surfaces if (s["family"], s["dtype"]) == ("gemm", "bf16"))
    return GemmCoefficients(**found["coefficients"])


def timed(chip: str, m: float, n: float, k: float, load: float) -> float:
    dims = {"m": m, "n": n, "k": k, "load": load}
    sizes = {name: np.asarray(value) for name, value in dims.items()}
    return float(seconds(sizes, GemmCoefficients(), engine_of(catalogue_chip(chip), "bf16")))


@given(m=SIZE, n=SIZE, k=SIZE, chip=st.sampled_from(["h100-sxm", "a100-sxm-80gb", "b200-sxm"]))
def test_narrower_loads_are_never_faster(m: float, n: float, k: float, chip: str) -> None:
    times = [timed(chip, m, n, k, load) for load in (8.0, 2.0, 1.0)]
    assert times == sorted(times)


@given(m=SIZE, n=SIZE, k=SIZE, chip=st.sampled_from(["mi300x", "tpu-v5p", "xeon-8480"]))
def test_other_chips_are_left_as_they_are(m: float, n: float, k: float, chip: str) -> None:
    assert timed(chip, m, n, k, 1.0) == timed(chip, m, n, k, 8.0)


@pytest.mark.parametrize(
    ("rows", "load"), [((4096.0, 512.0), 8), ((1365.0, 512.0), 1), ((1364.0, 8.0), 2), ((6.0,), 2)]
)
def test_the_shorter_of_both_rows_decides(rows: tuple[float, ...], load: int) -> None:
    assert load_elements(*rows) == load


def test_loads_are_told_row_by_row() -> None:
    assert load_elements(np.array([8.0, 7.0]), 16.0).tolist() == [8.0, 1.0]


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: "x".join(map(str, row[:3])))
def test_products_measured_on_one_h200(row: tuple[float, ...]) -> None:
    m, n, k, *times = row
    engine, record, load = (
        engine_of(catalogue_chip("h200-sxm"), "bf16"),
        h200_record(),
        load_elements(n, k),
    )
    passes = ((m, n, k), (m, k, n), (k, n, m))
    for (a, b, c), measured_us in zip(passes, times, strict=True):
        dims = {"m": np.asarray(a), "n": np.asarray(b), "k": np.asarray(c)}
        whole, narrow = (
            1e6 * float(seconds({**dims, "load": np.asarray(step)}, record, engine))
            for step in (8.0, load)
        )
        assert 0.65 < narrow / measured_us < 1.35
        assert abs(narrow - measured_us) < abs(whole - measured_us)


def test_an_odd_width_slows_a_model_and_an_odd_vocabulary_does_not() -> None:
    def step_s(**config: int) -> float:
        settings = [f"model.{key}={value}" for key, value in config.items()]
        question = {"system": "h100-sxm", "gpus": 8, "plan": "dp8 zero1", "seq_len": 2048}
        return foretell.estimate("llama-2-7b", **question, set=settings).step_s

    plain = step_s(intermediate_size=11008)
    assert step_s(intermediate_size=11009) > 1.3 * plain
    assert step_s(vocab_size=32001) == pytest.approx(plain, rel=0.01)
