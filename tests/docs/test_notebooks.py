"""The notebooks of examples/: every cell runs, and what is stored is what it prints, numbers aside."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _tool() -> Any:
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


TOOL = _tool()


def words(text: str) -> set[str]:
    """Words of an output that do not follow from predictions: column names and labels, no numbers."""
    return set(re.findall(r"[A-Za-z]{4,}", text))


def test_there_are_three_tasks() -> None:
    assert [path.stem for path in TOOL.notebooks()] == [
        "choose_a_plan", "design_a_chip", "size_a_service",
    ]  # fmt: skip


@pytest.mark.parametrize("path", TOOL.notebooks(), ids=lambda path: path.stem)
def test_every_cell_runs_and_its_output_is_stored(path: Path) -> None:
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert (stored["nbformat"], stored["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in stored["cells"]}) == len(stored["cells"])
    again = TOOL.executed(json.loads(path.read_text(encoding="utf-8")), ROOT / "examples")
    codes = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    fresh = [cell for cell in again["cells"] if cell["cell_type"] == "code"]
    assert len(codes) >= 5
    for old, new in zip(codes, fresh, strict=True):
        assert old["execution_count"] == new["execution_count"]
        kinds = [one["output_type"] for one in old["outputs"]]
        assert kinds == [one["output_type"] for one in new["outputs"]], (
            "run python tools/notebooks.py"
        )
        for one, other in zip(old["outputs"], new["outputs"], strict=True):
            mine, theirs = ("".join(o.get("text") or o["data"]["text/plain"]) for o in (one, other))
            shared = words(mine) & words(theirs)
            assert len(shared) >= 0.6 * len(words(theirs)), "run python tools/notebooks.py"
            assert ("text/html" in one.get("data", {})) == ("text/html" in other.get("data", {}))
