"""The folder of a run: one file for each finished or failed point, and what processes are given.

points/KEY.json     a finished point: every rank, every step
failed/KEY.json     a point that failed, and why
traces/             profiler traces, where asked for
results.parquet     measured beside predicted, made from points/
log.txt             what processes printed
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.interop.user_files import write_whole
from foretell.lab.characterize.config import RunnerSettings
from foretell.records import dataclass

POINTS, FAILED = "points", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTask:
    """What the processes of one launch are given."""

    out: str
    """The folder."""
    events: str
    """The file of lines for the supervisor."""
    settings: RunnerSettings
    """How."""
    points: tuple[Mapping[str, Any], ...]
    """`key` and `point` of each."""

    def write(self, path: Path) -> None:
        """To a file."""
        table = {
            "out": self.out,
            "events": self.events,
            "settings": self.settings.to_dict(),
            "points": list(self.points),
        }
        write_whole(path, json.dumps(table))

    @staticmethod
    def read(path: Path) -> "LaunchTask":
        """Back from `write`."""
        table = json.loads(path.read_text())
        return LaunchTask(
            out=table["out"],
            events=table["events"],
            settings=RunnerSettings(**table["settings"]),
            points=tuple(table["points"]),
        )


def read_finished(folder: Path, key: str) -> dict[str, Any] | None:
    """A finished point, or None; a torn file is none."""
    return _table(folder / POINTS / f"{key}.json")


def read_failure(folder: Path, key: str) -> dict[str, Any] | None:
    """Why a point failed, or None."""
    return _table(folder / FAILED / f"{key}.json")


def _table(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
