"""Files are written whole or not at all, by one writer."""

import ast
import os
from pathlib import Path

import pytest

from foretell.interop.user_files import whole_file, write_whole


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o640)
    assert write_whole(path, "new\n") == path
    assert path.read_bytes() == b"new\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def half() -> None:
        with whole_file(path) as beside:
            beside.write_text("ne")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        half()
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "new"


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(path, "through")
    assert os.read(end, 99) == b"through"
    os.close(end)
    assert path.is_fifo()


def test_nothing_else_replaces_files(root: Path) -> None:
    """One writer: no other module renames a file into its place (the store of tables imports nothing)."""
    source = root / "src" / "foretell"
    allowed = {"interop/user_files.py", "interop/package_tables.py"}
    found = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr == "fsync")
        or (isinstance(node, ast.Constant) and node.value == ".part")
    }  # fmt: skip
    assert found <= allowed
