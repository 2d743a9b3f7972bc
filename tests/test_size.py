"""`tools/size.py` counts what is there and what a change adds, and never fails."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "size.py"


def printed(tool: Path, *arguments: str) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, str(tool), *arguments], capture_output=True, text=True, check=True
    )
    return [line.split() for line in done.stdout.splitlines()]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small repository of two rooms with a change: one file grew, one was removed, one is new."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    package = tmp_path / "src" / "foretell"
    for name, lines in (("a/one.py", 3), ("a/two.py", 2), ("b/one.py", 5), ("top.py", 1)):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("x = 1\n" * lines)
    (tmp_path / "tools").mkdir()
    shutil.copy(TOOL, tmp_path / "tools")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    (package / "a/one.py").write_text("x = 1\n" * 7)
    (package / "a/two.py").unlink()
    (package / "b/new.py").write_text("x = 1\n" * 4)
    (package / "b/data.toml").write_text("x = 1\n" * 9)  # not code
    return tmp_path


def test_a_change_is_counted_by_room(repository: Path) -> None:
    rows = {line[0]: line[1:] for line in printed(repository / "tools" / "size.py")}
    assert rows["a"] == ["7", "4", "2"]
    assert rows["b"] == ["9", "4"]
    assert rows["top.py"] == ["1"]
    assert rows["src"] == ["17", "8", "2"]


def test_it_never_fails(repository: Path) -> None:
    tool = repository / "tools" / "size.py"
    assert printed(tool, "no-such-revision")[-1][:3] == ["no", "base", "revision:"]
    shutil.rmtree(repository / ".git")
    assert printed(tool)[-1][:3] == ["no", "base", "revision:"]


def test_the_sum_is_that_of_the_rooms(root: Path) -> None:
    sizes = runpy.run_path(str(TOOL))["sizes"]()
    files = (root / "src" / "foretell").rglob("*.py")
    assert sum(sizes.values()) == sum(len(path.read_bytes().splitlines()) for path in files)


def test_the_checks_show_it_and_go_on(root: Path) -> None:
    assert "tools/size.py || true" in (root / "test").read_text()
