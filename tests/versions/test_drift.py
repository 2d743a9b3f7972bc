"""Predictions that moved since the last release are in the changelog."""

import json

from tests.versions import kept
from tests.versions.kept import moved, unexplained, unreleased

LOG = """# Changelog

## Unreleased

- Faster copies: estimate a on 8 x b (step_s -3 %).

## 0.11.0 (2026-11-18)

- estimate c on 8 x b: step_s.
"""


def test_no_prediction_moves_without_a_line() -> None:
    stored = json.loads(kept.FILE.read_text())
    found = moved(stored, kept.predicted())
    assert unexplained(found, (kept.ROOT / "CHANGELOG.md").read_text()) == {}


def test_what_moved_is_found() -> None:
    before = {"estimate a on 8 x b": {"step_s": 1.0, "energy_joules": 5.0}, "c": {"ttft_ms": 1.0}}
    after = {"estimate a on 8 x b": {"step_s": 0.97, "energy_joules": 5.05}, "c": {}}
    found = moved(before, after)
    assert found == {"estimate a on 8 x b: step_s": "-3.0%", "c: ttft_ms": "no answer"}
    assert unexplained(found, LOG) == {"c: ttft_ms": "no answer"}


def test_lines_of_older_versions_explain_nothing() -> None:
    assert "0.11.0" not in unreleased(LOG)
    assert unexplained({"estimate c on 8 x b: step_s": "+9.0%"}, LOG)


def test_every_standard_question_is_kept() -> None:
    stored = json.loads(kept.FILE.read_text())
    assert len(stored) == len(kept.STANDARD)
    assert all(len(metrics) == 3 for metrics in stored.values())
