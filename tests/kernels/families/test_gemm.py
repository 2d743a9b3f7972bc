"""Matrix products: bounds and orders that hold for every chip, format and size."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.files import ROOT
from foretell.kernels.families import gemm
from foretell.kernels.families.base import DTYPES, Engine, engine_of
from foretell.kernels.families.gemm import FAMILY, GemmCoefficients, seconds

CHIPS = sorted(path.stem for path in (ROOT / "chips").glob("*.toml"))
FORMATS = sorted(DTYPES)
SIZE = st.integers(1, 40_000).map(float)
CHIP, FORMAT = st.sampled_from(CHIPS), st.sampled_from(FORMATS)


@st.composite
def coefficients(draw: st.DrawFn) -> GemmCoefficients:
    """Any coefficients that a fit may end with."""
    share = {name: draw(st.floats(0.0, 1.0)) for name in FAMILY.bounds}
    bounds = FAMILY.bounds.items()
    return GemmCoefficients(**{n: low * (high / low) ** share[n] for n, (low, high) in bounds})


def one(
    engine: Engine, record: GemmCoefficients, m: float, n: float, k: float, batch: float = 1.0
) -> float:
    sizes = {"m": m, "n": n, "k": k, "batch": batch}
    return float(seconds({name: np.asarray(v) for name, v in sizes.items()}, record, engine))


def test_bounds_name_every_coefficient_and_hold_the_defaults() -> None:
    default = GemmCoefficients()
    assert set(FAMILY.bounds) == {field.name for field in fields(GemmCoefficients)}
    for name, (low, high) in FAMILY.bounds.items():
        assert low <= getattr(default, name) <= high


@given(chip=CHIP, dtype=FORMAT, record=coefficients(), m=SIZE, n=SIZE, k=SIZE)
def test_never_faster_than_light(
    chip: str, dtype: str, record: GemmCoefficients, m: float, n: float, k: float
) -> None:
    engine = engine_of(catalogue_chip(chip), dtype)
    form = engine.dtype
    taken = one(engine, record, m, n, k)
    crossed = n * k * form.weight_bytes + m * k * form.activation_bytes + 2.0 * m * n
    assert np.isfinite(taken)
    assert taken > 0.0
    assert taken * engine.bytes_per_s >= crossed * (1 - 1e-9)
    assert taken * engine.flop_per_s >= 2.0 * m * n * k * (1 - 1e-9)


@given(chip=CHIP, dtype=FORMAT, m=SIZE, n=SIZE, k=SIZE, more=st.integers(1, 5000))
def test_longer_sums_take_longer(
    chip: str, dtype: str, m: float, n: float, k: float, more: int
) -> None:
    engine = engine_of(catalogue_chip(chip), dtype)
    assert one(engine, GemmCoefficients(), m, n, k + more) >= one(
        engine, GemmCoefficients(), m, n, k
    ) * (1 - 1e-9)


@given(chip=CHIP, dtype=FORMAT, m=SIZE, n=SIZE, k=SIZE, wide=st.booleans())
def test_twice_the_result_is_never_faster(
    chip: str, dtype: str, m: float, n: float, k: float, wide: bool
) -> None:
    # One more row or column can be, by the sums of one split less; the double of either cannot.
    engine = engine_of(catalogue_chip(chip), dtype)
    larger = (
        one(engine, GemmCoefficients(), m, 2 * n, k)
        if wide
        else one(engine, GemmCoefficients(), 2 * m, n, k)
    )
    assert larger >= one(engine, GemmCoefficients(), m, n, k) * (1 - 1e-9)


@given(chip=CHIP, dtype=FORMAT, m=SIZE, n=SIZE, k=SIZE, batch=st.integers(2, 64))
def test_a_batch_takes_at_least_as_long_as_one_product(
    chip: str, dtype: str, m: float, n: float, k: float, batch: int
) -> None:
    engine = engine_of(catalogue_chip(chip), dtype)
    assert one(engine, GemmCoefficients(), m, n, k, batch) >= one(
        engine, GemmCoefficients(), m, n, k
    ) * (1 - 1e-9)


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "nvfp4"])
def test_arrays_are_the_same_as_one_by_one(dtype: str) -> None:
    rng = np.random.default_rng(1)
    m, n, k = (np.ceil(10 ** rng.uniform(0, 4.5, shape)) for shape in ((7, 1), (1, 5), (7, 5)))
    engine, record = engine_of(catalogue_chip("b200-sxm"), dtype), GemmCoefficients()
    whole = seconds({"m": m, "n": n, "k": k}, record, engine)
    single = [
        one(engine, record, *(float(np.broadcast_to(v, (7, 5))[i, j]) for v in (m, n, k)))
        for i in range(7)
        for j in range(5)
    ]
    assert whole.shape == (7, 5)
    np.testing.assert_allclose(whole.ravel(), single, rtol=1e-12)


def test_coefficients_and_engines_may_be_arrays() -> None:
    engine = engine_of(catalogue_chip("h200-sxm"), "bf16")
    slow = GemmCoefficients(compute=np.array([[0.8], [0.4]]), tail=np.array([[0.7], [0.1]]))
    sizes = {"m": np.array([1.0, 4096.0]), "n": np.asarray(8192.0), "k": np.asarray(4096.0)}
    both = seconds(sizes, slow, engine)
    assert both.shape == (2, 2)
    expected = one(engine, GemmCoefficients(compute=0.4, tail=0.1), 4096.0, 8192.0, 4096.0)
    assert both[1, 1] == pytest.approx(expected, rel=1e-12)


def test_a_wave_more_costs_more_than_its_share() -> None:
    # 132 cores hold 132 tiles: one tile more starts a second wave where nothing fills tails.
    engine, whole = (
        engine_of(catalogue_chip("h200-sxm"), "bf16"),
        GemmCoefficients(tail=0.01, tile=0.5),
    )
    wide = 256.0 * 132
    before, after = (one(engine, whole, 128.0, n, 8192.0) for n in (wide, wide + 256.0))
    assert after / before > 1.15
    smooth = replace(whole, tail=1.0)
    before, after = (one(engine, smooth, 128.0, n, 8192.0) for n in (wide, wide + 256.0))
    assert after / before < 1.02


def test_a_lone_tile_is_split_over_the_cores() -> None:
    engine, record = engine_of(catalogue_chip("h200-sxm"), "bf16"), GemmCoefficients()
    never = replace(record, split_s=1.0)
    assert one(engine, record, 16.0, 64.0, 16384.0) < 0.5 * one(engine, never, 16.0, 64.0, 16384.0)
    assert one(engine, record, 16.0, 64.0, 256.0) == one(engine, never, 16.0, 64.0, 256.0)


@pytest.mark.parametrize("chip", CHIPS)
def test_defaults_are_sane_on_every_chip(chip: str) -> None:
    # Also where the catalogue does not know the cores (1) or the cache (0).
    engine = engine_of(catalogue_chip(chip), "bf16")
    square = one(engine, GemmCoefficients(), 8192.0, 8192.0, 8192.0)
    ideal = max(2 * 8192.0**3 / engine.flop_per_s, 3 * 2 * 8192.0**2 / engine.bytes_per_s)
    assert 1.0 <= square / ideal < 2.5 or chip == "wse3"
    thin = one(engine, GemmCoefficients(), 1.0, 16384.0, 16384.0)
    read_s = 2 * 16384.0**2 / engine.bytes_per_s
    assert 1.0 <= thin / read_s < 3.0 or thin < 5e-5


@given(chip=CHIP, dtype=FORMAT, record=coefficients(), sizes=st.lists(SIZE, min_size=3, max_size=9))
def test_many_products_are_each_what_they_are_alone(
    chip: str, dtype: str, record: GemmCoefficients, sizes: list[float]
) -> None:
    """Tiles are tried one after the other where products are many, and all at once where they are few."""
    engine = engine_of(catalogue_chip(chip), dtype)
    many = {"m": np.array(sizes), "n": np.array(sizes[::-1]), "k": np.full(len(sizes), sizes[0])}
    few = seconds(many, record, engine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gemm, "MANY_PRODUCTS", 1)
        assert np.array_equal(seconds(many, record, engine), few)
    alone = [one(engine, record, *triple) for triple in zip(*many.values(), strict=True)]
    assert np.allclose(few, alone, rtol=1e-12, atol=0.0)
