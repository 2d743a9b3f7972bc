"""Numbers of a chip: wrong units are refused, unusual ones are said, and the catalogue has neither."""

import pytest

import foretell
from foretell.catalog.chips import catalogue_chip
from foretell.catalog.files import ROOT
from foretell.errors import BadInput
from foretell.specs.chip import chip_problems, unusual_numbers


def said(changes: dict[str, str]) -> list[str]:
    found = foretell.estimate(
        "llama-3.2-1b", system="hgx-h100", gpus=8, plan="zero1", global_batch=8, set=changes
    )
    return [text for text in found.assumptions if text.startswith("unusual")]


@pytest.mark.parametrize(
    "change",
    [
        "chip.tdp_watts=1e9",
        "chip.memory_bandwidth_bytes_per_s=1",
        "chip.memory_bytes=1e20",
        "chip.scale_up_bytes_per_s=9e20",
        "chip.matrix_flop_per_s.bf16=1",
    ],
)
def test_wrong_units_are_refused_with_the_usual_range(change: str) -> None:
    path, _, value = change.partition("=")
    with pytest.raises(BadInput, match="usual") as error:
        said({path: value})
    assert error.value.problems[0].path == path


@pytest.mark.parametrize(
    "change",
    ["chip.tdp_watts=50 kW", "chip.scale_up_bytes_per_s=1.8 TB/s", "chip.memory_bytes=20 TB"],
)
def test_unusual_numbers_are_said(change: str) -> None:
    path, _, value = change.partition("=")
    assert len(said({path: value})) == 1


def test_usual_numbers_say_nothing() -> None:
    assert said({}) == said({"chip.tdp_watts": "600"}) == []


CHIPS = sorted(path.stem for path in (ROOT / "chips").glob("*.toml"))


@pytest.mark.parametrize("chip", CHIPS)
def test_chips_of_the_catalogue_are_usual(chip: str) -> None:
    found = catalogue_chip(chip)
    assert chip_problems(found) == unusual_numbers(found) == []
