"""Texts with units: read exactly, and refused where two people would read them in two ways."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell import units
from foretell.errors import BadInput
from foretell.units import as_number

MEANINGS = [
    ("3.35 TB/s", "bytes_per_s", 3.35e12),
    ("400 Gbit/s", "bytes_per_s", 50e9),
    ("400 Gbps", "bytes_per_s", 50e9),
    ("400 GBps", "bytes_per_s", 400e9),
    ("50 GB/s", "bytes_per_s", 50e9),
    ("80 GiB", "bytes", 80 * 2**30),
    ("80 GB", "bytes", 80 * 10**9),
    ("64MiB", "bytes", 64 * 2**20),
    ("1 bit", "bytes", 0.125),
    ("7 bytes", "bytes", 7),
    ("256 KiB", "bytes_per_core", 256 * 1024),
    ("256 KiB/core", "bytes_per_core", 256 * 1024),
    ("15T", "tokens", 15e12),
    ("15T tokens", "tokens", 15e12),
    ("15e12 tokens", "tokens", 15e12),
    ("70B", "", 70e9),
    ("12k", "", 12e3),
    ("50%", "", 0.5),
    ("2.5 us", "s", 2.5e-6),
    ("2.5 \u00b5s", "s", 2.5e-6),
    ("2.5 \u03bcs", "s", 2.5e-6),
    ("3 ms", "s", 3e-3),
    ("3 ms", "ms", 3),
    ("0.25 s", "ms", 250),
    ("2 h", "s", 7200),
    ("2 days", "s", 172800),
    ("1 min", "s", 60),
    ("700 W", "watts", 700),
    ("1.2 MW", "watts", 1.2e6),
    ("5 mW", "watts", 5e-3),
    ("989.4 TFLOP/s", "flop_per_s", 989.4e12),
    ("989.4 TFLOPS", "flop_per_s", 989.4e12),
    ("1979 TOPS", "flop_per_s", 1979e12),
    ("6 EFLOP", "flop", 6e18),
    ("6 TFLOPs", "flop", 6e12),
    ("989 TFLOP/s", "tflops_per_gpu", 989),
    ("1.83 GHz", "hz", 1.83e9),
    ("26 mm2", "mm2", 26),
    ("26 mm\u00b2", "mm2", 26),
    ("8.14 cm^2", "mm2", 814),
    ("2.10 USD/h", "usd_per_hour", 2.1),
    ("$2.10/h", "usd_per_hour", 2.1),
    ("$2.10 per hour", "usd_per_hour", 2.1),
    ("2.10 $/GPU-hour", "usd_per_chip_hour", 2.1),
    ("2.10 USD/GPU/h", "usd_per_chip_hour", 2.1),
    ("2.10 USD/h", "usd_per_chip_hour", 2.1),
    ("48 USD/d", "usd_per_hour", 2),
    ("$10M", "usd", 10e6),
    ("10M", "usd", 10e6),
    ("10M USD", "usd", 10e6),
    ("0.5 kUSD", "usd", 500),
    ("3 USD/Mtoken", "usd_per_million_output_tokens", 3),
    ("3 USD/M tokens", "usd_per_million_output_tokens", 3),
    ("0.08 USD/kWh", "usd_per_kwh", 0.08),
    ("4 pJ/bit", "joules_per_byte", 32e-12),
    ("1 kWh", "joules", 3.6e6),
    ("1.5 kJ", "joules", 1500),
    ("12k tokens/s", "tokens_per_s", 12e3),
    ("12k/s", "tokens_per_s", 12e3),
    ("50 /s", "requests_per_s", 50),
    ("7 nm", "nm", 7),
    ("  1e3  ", "bytes", 1000),
    ("-4", "", -4),
    (".5", "", 0.5),
    ("3.", "s", 3),
    (3, "s", 3),
    (0.1, "bytes_per_s", 0.1),
]

REFUSED = [
    ("80 GB/s", "bytes", "measures something else"),
    ("80 GB", "bytes_per_s", "measures something else"),
    ("3 s", "bytes", "measures something else"),
    ("400 Gbit/s", "", "measures something else"),
    ("2 USD/node/h", "usd_per_chip_hour", "measures something else"),
    ("900 GB/s/node", "bytes_per_s", "measures something else"),
    ("989 TFLOPs", "flop_per_s", "an amount of work is FLOP, a rate FLOP/s"),
    ("500 TMAC/s", "flop_per_s", "one MAC is two FLOP"),
    ("50%", "tokens", "measures something else"),
    ("80 Gb", "bytes", "bits or bytes"),
    ("400 Gb/s", "bytes_per_s", "bits or bytes"),
    ("80 gb", "bytes", "bits or bytes"),
    ("64 KB", "bytes", "1000 or 1024"),
    ("80 gib", "bytes", "no unit 'gib'"),
    ("80 furlong", "bytes", "no unit 'furlong'"),
    ("80G", "bytes", "no unit 'G'"),
    ("1 Ms", "s", "no unit 'Ms'"),
    ("1,000", "", "separators"),
    ("1_000 GB", "bytes", "separators"),
    ("1 000 GB", "bytes", "separators"),
    ("1'000 GB", "bytes", "separators"),
    ("1.000.000", "", "separators"),
    ("3,35 TB/s", "bytes_per_s", "separators"),
    ("", "s", "does not begin with a number"),
    ("   ", "s", "does not begin with a number"),
    ("fast", "s", "does not begin with a number"),
    ("GB", "bytes", "does not begin with a number"),
    ("-", "s", "does not begin with a number"),
    (".", "s", "does not begin with a number"),
    ("nan", "s", "not finite"),
    ("-inf", "s", "not finite"),
    ("Infinity s", "s", "not finite"),
    (math.nan, "s", "not finite"),
    (math.inf, "s", "not finite"),
    ("1e309", "s", "too large"),
    ("1e300 PFLOP", "flop", "too large"),
    ("1e99999999999999999999", "s", "too large"),
    (10**400, "s", "too large"),
    ("1e-400", "s", "too small"),
    ("1e-99999999999999999999", "s", "too small"),
    ("1" * 101, "s", "longer than"),
    ("1 GB/", "bytes", "no unit"),
    ("1 /s", "bytes_per_s", "no unit"),
    (True, "s", "not a number"),
    (None, "s", "not a number"),
    ([1], "s", "not a number"),
]

UNITS = [
    "",
    *"s ms bytes bytes_per_s bytes_per_core flop flop_per_s watts joules joules_per_byte".split(),
    *"usd usd_per_hour usd_per_chip_hour usd_per_kwh usd_per_million_output_tokens mm2".split(),
    *"hz tokens tokens_per_s tokens_per_s_per_gpu tflops_per_gpu requests_per_s gib".split(),
]


@pytest.mark.parametrize(("text", "unit", "value"), MEANINGS)
def test_means(text: str | float, unit: str, value: float) -> None:
    assert units.parse(text, unit) == value  # not approximately: parsing rounds once


@pytest.mark.parametrize(("text", "unit", "message"), REFUSED)
def test_refuses_with_the_path_and_what_is_allowed(text: str, unit: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        units.parse(text, unit, path="chip.field")
    (problem,) = caught.value.problems
    assert message in problem.message
    assert problem.path == "chip.field"
    assert problem.value is text
    assert problem.allowed
    assert "\n" not in str(problem)


def test_the_nearest_spelling_is_offered() -> None:
    with pytest.raises(BadInput, match=r"did you mean GiB\?"):
        units.parse("80 gib", "bytes")


def test_gb_is_not_gib_and_bits_are_not_bytes() -> None:
    assert units.parse("1 GiB", "bytes") - units.parse("1 GB", "bytes") == 2**30 - 10**9
    assert units.parse("8 Gbit/s", "bytes_per_s") == units.parse("1 GB/s", "bytes_per_s")


@given(st.text(max_size=30), st.sampled_from(UNITS))
def test_any_text_is_a_finite_number_or_bad_input(text: str, unit: str) -> None:
    try:
        assert math.isfinite(units.parse(text, unit))
    except BadInput as error:
        assert len(error.problems) == 1


@given(
    st.from_regex(r"\A[+-]?[0-9]{0,5}\.?[0-9]{0,5}(e[+-]?[0-9]{1,4})? ?", fullmatch=True),
    st.text(alphabet="kKMGTPiBbitsFLOPSWhJHzUD$/-um2% 15.eMAC", max_size=12),
    st.sampled_from(UNITS),
)
def test_almost_right_text_is_a_finite_number_or_bad_input(
    number: str, rest: str, unit: str
) -> None:
    try:
        assert math.isfinite(units.parse(number + rest, unit))
    except BadInput as error:
        assert len(error.problems) == 1


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(finite, st.sampled_from(UNITS))
def test_exact_form_reads_back_to_the_same_number(value: float, unit: str) -> None:
    assert units.parse(units.exact(value, unit), unit) == value


@given(
    st.floats(min_value=1e-30, max_value=1e30) | st.floats(min_value=-1e30, max_value=-1e-30),
    st.sampled_from(UNITS),
    st.integers(min_value=2, max_value=12),
)
def test_printed_form_reads_back_to_its_digits(value: float, unit: str, digits: int) -> None:
    back = units.parse(units.format(value, unit, digits), unit)
    assert back == pytest.approx(value, rel=0.5000001 * 10.0 ** (1 - digits))


@pytest.mark.parametrize("unit", UNITS)
def test_zero_is_printed_and_read(unit: str) -> None:
    assert units.parse(units.format(0.0, unit), unit) == 0.0


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.35e12, "bytes_per_s", "3.35 TB/s"),
        (80 * 2**30, "bytes", "80 GiB"),
        (1023 * 2**20, "bytes", "1023 MiB"),
        (999.96e9, "bytes_per_s", "1 TB/s"),
        (2.5e-6, "s", "2.5 us"),
        (5400, "s", "1.5 h"),
        (989.4e12, "flop_per_s", "989.4 TFLOP/s"),
        (2.1, "usd_per_chip_hour", "2.1 USD/chip/h"),
        (12.5e6, "usd", "12.5M USD"),
        (15e12, "tokens", "15T tokens"),
        (7.2e9, "joules", "2 MWh"),
        (0.4321, "", "0.4321"),
        (12.0, "ms", "12 ms"),
        (0.0, "s", "0 s"),
        (math.inf, "s", "inf s"),
    ],
)
def test_prints(value: float, unit: str, text: str) -> None:
    assert units.format(value, unit) == text


@pytest.mark.parametrize(
    ("field", "unit"),
    [
        ("latency_s", "s"),
        ("bandwidth_bytes_per_s", "bytes_per_s"),
        ("memory_bytes", "bytes"),
        ("sram_bytes_per_core", "bytes_per_core"),
        ("matrix_flop_per_s", "flop_per_s"),
        ("usd_per_chip_hour", "usd_per_chip_hour"),
        ("usd_per_kwh", "usd_per_kwh"),
        ("die_area_mm2", "mm2"),
        ("clock_hz", "hz"),
        ("tdp_watts", "watts"),
        ("price_usd_low", "usd"),
        ("usd_per_million_output_tokens", "usd_per_million_output_tokens"),
        ("tokens_per_s_per_gpu", "tokens_per_s_per_gpu"),
        ("tflops_per_gpu", "tflops_per_gpu"),
        ("tpot_with_first_ms", "ms"),
        ("tokens", "tokens"),
        ("s", "s"),
        ("heads", ""),
        ("cores", ""),
        ("compute_dies", ""),
        ("kv_heads", ""),
        ("gpus", ""),
        ("efficiency", ""),
        ("", ""),
    ],
)
def test_the_name_of_a_field_says_its_unit(field: str, unit: str) -> None:
    assert units.field_unit(field) == unit


def test_an_unknown_unit_is_a_mistake_in_the_program() -> None:
    with pytest.raises(ValueError, match="not a unit"):
        units.parse("3", "parsecs")


@pytest.mark.parametrize(
    ("value", "found"),
    [("1.5", 1.5), (2, 2.0), ("", None), ("x", None), (None, None), (True, None), ("nan", None),
     ("1e400", None), ("-1", None), ("9", None)],
)  # fmt: skip
def test_a_number_of_a_cell_is_between_its_ends(value: object, found: float | None) -> None:
    assert as_number(value, 0.0, 8.0) == found
