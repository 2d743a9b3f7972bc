"""Ticks of pictures, and what every verb says of a file that cannot be."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.report.svg import ticks
from tests.surfaces.command import foretell

VALUES = st.floats(1e-6, 1e9)


@given(low=VALUES, ratio=st.floats(1.01, 1e6))
def test_ticks_span_the_values_and_are_few(low: float, ratio: float) -> None:
    high = low * ratio
    for found in (ticks(low, high), ticks(0.0, high)):
        assert found == sorted(set(found))
        assert found[0] <= low * (1.0 + 1e-6)
        assert found[-1] >= high * (1.0 - 1e-6)
    assert len(ticks(low, high)) <= 8


@pytest.mark.parametrize("name", ["a.pdf", "a", "no/a.svg"])
@pytest.mark.parametrize(
    "words",
    [
        ("cost", "package", "h100-sxm", "--plot"),
        ("explain", "llama-3.1-8b", "--gpus", "8xh100-sxm", "--plot"),
        ("memory", "llama-3.1-8b", "--gpus", "8xh100-sxm", "--out"),
        ("size", "llama-3.1-8b", "--system", "h100-sxm", "--rate", "1", "--plot"),
    ],
)
def test_a_file_that_cannot_be_is_said_first(
    words: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    told = foretell(*words, str(tmp_path / name))
    assert (told.code, told.out) == (2, "")
    assert f"{words[-1][2:]}: " in told.err
    assert ("no file can be written" in told.err) == ("/" in name)


def test_costs_on_a_page(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    assert foretell("cost", "package", "h100-sxm", "--plot", str(page)).code == 0
    assert page.read_text().startswith("<!doctype html>")
