"""Pages say what there is: every verb, every word of a plan; pages of the model have one form."""

import re
from pathlib import Path

import pytest

from foretell.cli.app import VERBS
from foretell.specs.deployment_text import DEGREES as SERVED_DEGREES
from foretell.specs.deployment_text import FORMS as SERVED_FORMS
from foretell.specs.deployment_text import SHARES, WHOLE
from foretell.specs.plan_forms import FORM_WORDS, NUMBERS
from foretell.specs.plan_words import CHOICES, DEGREES, FACTORS, SWITCHES
from tests.docs.test_links import ROOT, links

DOCS = ROOT / "docs"
FORM = ("Notation", "The scheme", "Forward and backward", "When is it bound?", "Takeaway")
"""Headings of a page of the model, in this order."""


def pages_of_the_model() -> list[Path]:
    """Those that the index lists part by part, and all of docs/model."""
    index = DOCS / "index.md"
    text = index.read_text(encoding="utf-8")
    part = text.partition("## The model, part by part")[2].partition("\n## ")[0]
    listed = {(DOCS / name).resolve() for name in re.findall(r"\]\(([^)#]+)\)", part)}
    return sorted(listed | set(DOCS.glob("model/*.md")))


@pytest.mark.parametrize("page", [pytest.param(p, id=p.stem) for p in pages_of_the_model()])
def test_pages_of_the_model_have_one_form(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(headings) == FORM


def test_the_index_lists_every_page_of_the_model() -> None:
    listed = {(DOCS / link).resolve() for link in links(DOCS / "index.md")}
    assert set(DOCS.glob("model/*.md")) <= listed


def test_every_verb_has_a_row() -> None:
    page = (DOCS / "command-line.md").read_text(encoding="utf-8")
    table = page.partition("## ")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {word for cell in first for word in re.findall(r"`([a-z-]+)`", cell)}
    assert named == set(VERBS)


def test_every_module_has_a_page() -> None:
    package = ROOT / "src" / "foretell"
    there = {f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").is_file()}
    there |= {path.name for path in package.glob("*.py")} - {"__init__.py"}
    named: list[str] = []
    for line in (DOCS / "code.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            module, _, page = (cell.strip() for cell in line.strip("|").split("|"))
            named += re.findall(r"`([a-z_0-9./]+)`", module)
            assert re.search(r"\]\([^)]+\.md\)", page), line
    assert sorted(named) == sorted(there)


def _rows(text: str) -> dict[str, str]:
    """Words of the tables of a text by their name without a number, and the whole row."""
    rows = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            for word in re.findall(r"`([^`]+)`", line.split("|")[1]):
                for one in word.split():
                    rows[re.sub(r"(=.*|\d+)$", "", one)] = line
    return rows


def test_every_word_of_a_training_plan_is_explained() -> None:
    rows = _rows((DOCS / "plan.md").read_text(encoding="utf-8"))
    words = {*DEGREES, *SWITCHES, *CHOICES, *NUMBERS, *FORM_WORDS, *FACTORS, "order"}
    assert words - {"framework"} <= set(rows)
    for key, values in {**CHOICES, **FORM_WORDS}.items():
        if key != "framework":
            assert all(value in rows[key] for value in values), key


def test_every_word_of_a_serving_plan_is_explained() -> None:
    page = (DOCS / "serving.md").read_text(encoding="utf-8")
    rows = _rows(page)
    words = {*SERVED_DEGREES, *SERVED_FORMS, *WHOLE, *SHARES, "no-graph"}
    assert words <= set(rows)
