"""The parsed tables give what its TOML files say, or nothing."""

import tomllib
from pathlib import Path

import pytest

from foretell.catalog import files
from foretell.interop import package_tables as parsed


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh store of all tables in the place of the package's."""
    path = tmp_path / "parsed.jsonl"
    parsed.write(path)
    monkeypatch.setattr(parsed, "STORE", path)
    parsed._lines.cache_clear()
    yield path
    parsed._lines.cache_clear()


def test_it_holds_what_the_files_say(store: Path) -> None:
    paths = sorted(parsed.FOLDER.rglob("*.toml"))
    assert len(paths) > 200
    for path in paths:
        content = path.read_bytes()
        assert parsed.stored_table(content) == tomllib.loads(content.decode()), path
        assert repr(parsed.stored_table(content)) == repr(tomllib.loads(content.decode())), path


def test_it_is_read_in_the_place_of_toml(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tomllib, "loads", None)
    table = files.read_table(files.catalogue_file("chip", "h100-sxm"))
    assert table["id"] == "h100-sxm"
    table["id"] = "changed by its reader"
    assert files.read_table(files.catalogue_file("chip", "h100-sxm"))["id"] == "h100-sxm"


def test_a_changed_file_is_read_as_toml(store: Path, tmp_path: Path) -> None:
    content = files.catalogue_file("chip", "h100-sxm").read_bytes()
    assert parsed.stored_table(content + b"\n") is None
    store.unlink()
    parsed._lines.cache_clear()
    assert parsed.stored_table(content) is None
    assert files.read_table(files.catalogue_file("chip", "h100-sxm"))["id"] == "h100-sxm"


def test_a_file_of_the_user_is_never_looked_up(store: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_bytes(b"a = 1\n")
    store.write_bytes(parsed.key_of(b"a = 1\n") + b' {"a": 2}\n')
    parsed._lines.cache_clear()
    assert files.read_table(own) == {"a": 1}


def test_what_json_lacks_gets_no_line(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("when = 2026-11-15\n")
    (tmp_path / "b.toml").write_text("x = nan\n")
    (tmp_path / "c.toml").write_text("x = 1.0\ny = 1\n")
    (line,) = parsed.build(tmp_path).splitlines()
    assert line.endswith(b'{"x":1.0,"y":1}')
