"""The plan of the house: few rooms, each listed once, and few of them on the way of one estimate."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "foretell"
MOST_ENTRIES, MOST_ROOMS = 31, 18


def entries() -> set[str]:
    return {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}


def layers() -> list[str]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [c for c in table["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    return list(contract["layers"])


def test_top_of_the_package_has_few_entries() -> None:
    assert len(entries()) <= MOST_ENTRIES


def test_contract_names_every_room_once() -> None:
    rooms = {name.removesuffix(".py") for name in entries()} - {"__init__", "py.typed"}
    assert sorted(layers()) == sorted(rooms)


def test_page_has_a_line_for_every_room() -> None:
    page = (ROOT / "docs" / "code.md").read_text(encoding="utf-8")
    for room in set(layers()) - {"__main__"}:
        name = f"{room}/" if (PACKAGE / room).is_dir() else f"{room}.py"
        assert len(re.findall(rf"^\|[^|]*`{re.escape(name)}`[^|]*\|", page, re.MULTILINE)) == 1, (
            room
        )


def test_one_estimate_enters_few_rooms() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rooms"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout.splitlines()[-1].split()[0]) <= MOST_ROOMS, done.stdout


@pytest.mark.parametrize(
    "room", ["calibrate", "characterize", "validate", "reference", "reproduce", "translate"]
)
def test_a_room_of_the_lab_begins_with_its_table_of_contents(room: str) -> None:
    """Each module of the room once, under the name of its file."""
    folder = PACKAGE / "lab" / room
    told = (folder / "__init__.py").read_text(encoding="utf-8")
    names = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    assert {name for name in names if not re.search(rf"\b{name}\b", told)} == set()
