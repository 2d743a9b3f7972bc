"""Predictions of the last release, kept beside the tests: `python -m tests.versions.kept` prints what moved.

A prediction that leaves its kept value by more than 2 % needs a line under Unreleased in CHANGELOG.md with
its name and its metric, as this command prints them. `--write` keeps the predictions of today, at a release.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from foretell.lab.versions.changes import METRICS, STANDARD, take_snapshot

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("kept.json")
MOST = 0.02
"""Share by which a prediction may move in silence."""

Kept = Mapping[str, Mapping[str, float]]
"""Question -> metric -> number."""


def predicted() -> Kept:
    """What this version says to the standard questions, to five digits."""
    return {
        one.name: {
            metric: float(f"{number_of(one.answer[metric]):.5g}")
            for metric in METRICS[one.verb]
            if metric in one.answer
        }
        for one in take_snapshot(STANDARD).predictions
    }


def number_of(value: float | Mapping[str, float]) -> float:
    """A number, or the mean of a spread."""
    return value["mean"] if isinstance(value, Mapping) else value


def moved(kept: Kept, now: Kept) -> dict[str, str]:
    """Question and metric -> by how much, of what moved by more than may be."""
    found = {}
    for name, metrics in kept.items():
        for metric, before in metrics.items():
            after = now.get(name, {}).get(metric)
            change = after / before - 1.0 if after is not None else None
            if change is None or abs(change) > MOST:
                found[f"{name}: {metric}"] = "no answer" if change is None else f"{change:+.1%}"
    return found


def unreleased(changelog: str) -> str:
    """The part of a changelog that is not released yet."""
    return changelog.partition("\n## Unreleased")[2].partition("\n## ")[0]


def unexplained(found: Mapping[str, str], changelog: str) -> dict[str, str]:
    """What moved and is not named where it must be."""
    lines = unreleased(changelog).splitlines()
    return {
        name: change
        for name, change in found.items()
        if not any(all(word in line for word in name.split(": ")) for line in lines)
    }


if __name__ == "__main__":
    told = predicted()
    if FILE.exists():
        for name, change in moved(json.loads(FILE.read_text()), told).items():
            print(f"- {name} {change}")
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(told, indent=1) + "\n")
