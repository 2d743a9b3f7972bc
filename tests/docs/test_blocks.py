"""Every command and Python block of the README and the documentation does what the page says."""

from pathlib import Path

import pytest

from foretell import __version__
from tests.docs.blocks import ROOT, blocks, commands, matches, plain_words, run_page, workspace

PAGES = sorted([*ROOT.glob("README.md"), *ROOT.glob("CONTRIBUTING.md"), *ROOT.glob("docs/**/*.md")])


def _pages(*, full: bool) -> list[pytest.param]:
    """Pages that have something to run, in the short form or only in the long one."""
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for page in PAGES
        if any(
            block.language in ("console", "python") and block.full == full
            for block in blocks(page.read_text(encoding="utf-8"))
        )
    ]


@pytest.mark.parametrize("page", _pages(full=False))
def test_page(page: Path, tmp_path: Path) -> None:
    workspace(tmp_path)
    assert run_page(page.read_text(encoding="utf-8"), tmp_path) > 0


@pytest.mark.full
@pytest.mark.parametrize("page", _pages(full=True))
def test_page_with_its_long_blocks(page: Path, tmp_path: Path) -> None:
    workspace(tmp_path)
    assert run_page(page.read_text(encoding="utf-8"), tmp_path, full=True) > 0


def test_the_readme_is_short(root: Path) -> None:
    readme = root / "README.md"
    if not readme.exists():
        pytest.skip("there is no README.md yet")
    assert len(readme.read_text(encoding="utf-8").splitlines()) < 120


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (("one", "two"), "one\ntwo\n"),
        (("one", "two"), "one  \ntwo\n\n"),
        (("one", "..."), "one\ntwo\nthree\n"),
        (("one", "..."), "one\n"),
        (("...", "three"), "one\ntwo\nthree\n"),
        (("took ... s",), "took 0.31 s\n"),
        (("a.b*",), "a.b*"),
    ],
)
def test_output_matches(expected: tuple[str, ...], printed: str) -> None:
    assert matches(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (("one",), "two\n"),
        (("one",), "one\ntwo\n"),
        (("one", "two"), "one\n"),
        (("took ... s",), "took 0.31\n s"),
        (("a.b",), "acb"),
        (("one",), ""),
    ],
)
def test_output_does_not_match(expected: tuple[str, ...], printed: str) -> None:
    assert not matches(expected, printed)


def test_commands_of_a_block() -> None:
    page = "```console\n$ ls a \\\n    b   # exit 2\nno such file\n\n$ ls\n```\n"
    first, second = commands(blocks(page)[0])
    assert first.text == "ls a b   # exit 2"
    assert (first.exit_code, first.output) == (2, ("no such file",))
    assert (second.exit_code, second.output) == (0, ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("./foretell catalog chips", ["./foretell", "catalog", "chips"]),
        ('./foretell memory x --plan "a b"  # exit 1', ["./foretell", "memory", "x", "--plan", "a b"]),
        ("./foretell catalog chips | head", []),
        ("./foretell catalog chips > file", []),
        ("./foretell search x --workers 2", []),
        ('./foretell estimate "$HOME"', []),
    ],
)  # fmt: skip
def test_what_a_shell_would_only_split(text: str, words: list[str]) -> None:
    assert plain_words(text) == words


def test_a_page_runs_in_order_and_in_one_namespace(tmp_path: Path) -> None:
    page = (
        "```python\nx = 2\nopen('made', 'w').close()\n```\n"
        "```python\nprint(x + 1)\n```\n\n```output\n3\n```\n"
        "```console\n$ ls\nmade\n```\n```text\n$ not run\n```\n```python full\n1 / 0\n```\n"
    )
    assert run_page(page, tmp_path) == 3
    with pytest.raises(ZeroDivisionError):
        run_page(page, tmp_path, full=True)


@pytest.mark.parametrize(
    "page",
    [
        "```python\nprint(1)\n```\n```output\n2\n```\n",
        "```console\n$ ls\nsomething else\n```\n",
        "```console\n$ ls /no/such/folder\n```\n",
        "```console\n$ ls # exit 1\n```\n",
        "```console\n$ rm -r .\n```\n",
        "```console\nno command\n```\n",
        "```python\nnever closed\n",
    ],
)
def test_a_page_that_is_wrong_fails(page: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_page(page, tmp_path)


def test_the_program_starts_from_a_page(tmp_path: Path) -> None:
    workspace(tmp_path)
    page = (
        f"```console\n$ ./foretell --version\n...{__version__}...\n$ ./test\nusage: ...\n...\n```\n"
    )
    assert run_page(page, tmp_path) == 1
