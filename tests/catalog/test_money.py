"""Figures of money: every one with its source, its status and a range that holds it."""

import pytest

from foretell.catalog.files import ROOT, read_table
from foretell.catalog.money import FILES, NAMED, SINGLE, sheet, sheet_from_tables
from foretell.catalog.technology import technology
from foretell.catalog.values import field_plan
from foretell.errors import BadInput
from foretell.specs.cost import Figure

FIGURES = sheet().figures


@pytest.mark.parametrize("path", FIGURES)
def test_every_figure_has_source_status_and_range(path: str) -> None:
    figure = FIGURES[path]
    assert figure.source, path
    assert figure.status in ("datasheet", "measured", "published", "inferred", "recalled")
    assert figure.low <= figure.value <= figure.high
    if figure.status == "recalled":
        assert "ecalled" in figure.source or "textbook" in figure.source


def test_every_source_is_used_and_said_once() -> None:
    for name in FILES:
        table = read_table(ROOT / name)
        named = {
            fact["source"]
            for section in table.values()
            for entry in (section, *section.values())
            if isinstance(entry, dict)
            for fact in entry.values()
            if isinstance(fact, dict) and "source" in fact
        }
        assert named == set(table["sources"]), name


def test_records_are_complete() -> None:
    """Every field without a default has a figure; every node that has areas has a price."""
    held = {*FIGURES, *sheet().plain}
    for section, record in SINGLE.items():
        for name, field in field_plan(record).items():
            assert not field.required or f"{section}.{name}" in held
    for section, record in NAMED.items():
        for entry in sheet().names(section):
            for name, field in field_plan(record).items():
                assert not field.required or f"{section}.{entry}.{name}" in held
    for node in technology().nodes:
        assert sheet().resolve("processes", node, "node") == node
    for memory in technology().memories:
        assert sheet().resolve("memories", memory, "memory") == memory
    links = technology().links
    for kind in sheet().names("packages"):
        assert sheet().plain[f"packages.{kind}.link"] in links


def test_newer_nodes_cost_more() -> None:
    order = ("N55", "N40", "N28", "N20", "N16", "N10", "N7", "N5", "N3", "N2", "A16")
    for key in ("wafer_usd", "nre_usd", "mask_set_usd"):
        values = [FIGURES[f"processes.{node}.{key}"].value for node in order]
        assert values == sorted(values), key


@pytest.mark.parametrize(
    ("section", "spelling", "means"),
    [
        ("processes", "TSMC 4N", "N4"),
        ("processes", "n5", "N5"),
        ("packages", "cowos-l", "bridge"),
        ("packages", "Monolithic", "organic"),
        ("memories", "HBM3E", "HBM3e"),
    ],
)
def test_spellings(section: str, spelling: str, means: str) -> None:
    assert sheet().resolve(section, spelling, "x") == means


def test_names_that_are_not_known() -> None:
    with pytest.raises(BadInput) as error:
        sheet().resolve("packages", "interposers", "package")
    assert error.value.problems[0].nearest == "interposer"


def test_bad_tables_say_everything() -> None:
    table = {
        "processes": {"N9": {"wafer_usd": {"value": -1}, "defects": 2}},
        "packages": {"box": {"carrier": "wood"}},
    }
    with pytest.raises(BadInput) as error:
        sheet_from_tables([table])
    paths = {problem.path for problem in error.value.problems}
    assert paths == {"processes.N9.wafer_usd", "processes.N9.defects", "packages.box.carrier"}


def test_a_figure_in_another_place() -> None:
    path = "processes.N5.wafer_usd"
    changed = sheet().with_figure(Figure(path=path, value=1.0, low=1.0, high=1.0))
    assert changed.figures[path].value == 1.0
    assert sheet().figures[path].value == 16494.0
