"""docs/reference.md says what the code finds."""

import re
from pathlib import Path

import pytest

from foretell.lab.reference import Quirks
from tests.docs.reference import (
    SECTION,
    all_sections,
    best_of,
    figure,
    markdown,
    quick_sections,
    update,
)


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "reference.md").read_text()


def test_the_quick_sections_of_the_page_are_current(page: str) -> None:
    sections = quick_sections(best_of(workers=1))
    assert update(page, sections) == page
    assert set(sections) <= {match["name"] for match in SECTION.finditer(page)}


@pytest.mark.full
def test_every_section_of_the_page_is_current(page: str) -> None:
    sections = all_sections()
    assert update(page, sections) == page
    assert set(sections) == {match["name"] for match in SECTION.finditer(page)}


def test_every_quirk_is_explained(page: str) -> None:
    assert [name for name in Quirks.names() if f"`{name}`" not in page] == []


def test_markers_pair_up(page: str) -> None:
    assert len(re.findall("<!-- generated: ", page)) == len(re.findall("<!-- end -->", page))
    assert len(SECTION.findall(page)) == len(re.findall("<!-- generated: ", page))


def test_update_touches_nothing_else() -> None:
    first = "a\n<!-- generated: x -->\nold\n<!-- end -->\n"
    page = f"{first}b\n<!-- generated: y -->\nkept\n<!-- end -->\n"
    assert update(page, {"x": lambda: "new"}) == page.replace("old", "new")


def test_small_helpers() -> None:
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert [figure(v) for v in (None, 18.0, 2047.04, 0.8351)] == ["–", "18.00", "2047", "0.8351"]
