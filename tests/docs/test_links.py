"""Every relative link of every page leads somewhere, anchors included; every page can be reached."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md")],
)
LINK = re.compile(r"(?<!\!)\[[^\]\n]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
FILE = re.compile(r"`([\w./-]+\.py|[\w.-]+/[\w./-]+\.(?:toml|csv|json))(::(\w+))?`")
"""A file that a text names, and perhaps a test in it; names without a folder may be the reader's own."""
PLACEHOLDER = re.compile(r"\b(ID|ORG--NAME)\.")
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("src", "tests", "tools", "examples", "docs")
    for path in (ROOT / folder).rglob("*.*")
)


def text_of(page: Path) -> str:
    """A page without its code."""
    text = re.sub(
        r"^(`{3,})[^\n]*\n.*?^\1\s*$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S
    )
    return re.sub(r"`[^`\n]*`", lambda found: found[0] if "](" not in found[0] else "", text)


def links(page: Path) -> list[str]:
    """Where its links lead, within the repository."""
    found = [a or b for a, b in LINK.findall(text_of(page))]
    return [link for link in found if not re.match(r"[a-z][a-z+.-]*:", link)]


def anchors(page: Path) -> set[str]:
    """What its headings are linked by: lower case, blanks as hyphens, punctuation left out."""
    titles = re.findall(r"^#{1,6} +(.+?) *#*$", text_of(page), re.MULTILINE)
    found: set[str] = set()
    for title in titles:
        plain = re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = sum(1 for one in found if re.fullmatch(re.escape(slug) + r"(-\d+)?", one))
        found.add(f"{slug}-{count}" if count else slug)
    return found


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link} does not exist"
        assert target.is_relative_to(ROOT), f"{page.name}: {link} leaves the repository"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}: no such heading"


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_files_and_tests_that_are_named_exist(page: Path) -> None:
    if page.name in ("decisions.md", "CHANGELOG.md"):  # what was then
        return
    for name, _, inside in FILE.findall(text_of(page)):
        if PLACEHOLDER.search(name):
            continue
        found = [path for path in FILES if path == name or path.endswith(f"/{name}")]
        assert found, f"{page.name}: there is no {name}"
        if inside:
            text = (ROOT / found[0]).read_text(encoding="utf-8")
            assert f"def {inside}(" in text, f"{page.name}: {name} has no {inside}"


def test_every_page_of_docs_is_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    for page in ROOT.glob("docs/**/*.md"):
        assert page == index or page in listed, f"{page.relative_to(ROOT)} is not in docs/index.md"


def test_what_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# One `two`, three\n[b](b.md#x) ![c](c.png) [web](https://example.org)\n```text\n[no](no)\n```\n"
        "## One\n## One\n"
    )
    assert links(page) == ["b.md#x", "c.png"]
    assert anchors(page) == {"one-two-three", "one", "one-1"}
