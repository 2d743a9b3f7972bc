"""The file of measurements: JSON lines, the environment first, then a line for every finished point.

Lines are only ever appended, each in one write, so that a killed run leaves at most one torn line; that
line is skipped when read, and its point measured again.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.errors import bad_input
from foretell.interop.user_files import check_regular
from foretell.lab.calibrate.measure.point import IDENTITY, MeasurePoint, key_of

FORMAT = 1
"""Version of the lines; it changes when a key changes its meaning."""


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line; numbers that are not finite become null."""
    text = json.dumps(_plain(line), allow_nan=False) + "\n"
    torn = path.exists() and path.stat().st_size > 0 and not _ends_whole(path)
    with path.open("a") as file:
        file.write(("\n" if torn else "") + text)


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole line of a file, in order; BadInput where it cannot be read."""
    check_regular(path)
    try:
        with path.open(errors="replace") as file:
            for text in file:
                try:
                    line = json.loads(text)
                except (ValueError, RecursionError):
                    continue
                if isinstance(line, dict):
                    yield line
    except OSError as error:
        raise bad_input(str(path), None, f"cannot be read: {error.strerror or error}") from None


def points(path: Path) -> list[dict[str, Any]]:
    """Lines of points that were measured."""
    return [line for line in lines(path) if is_point(line) and line.get("status") == "done"]


def is_point(line: Mapping[str, Any]) -> bool:
    """Whether a line tells of a point, measured or failed."""
    return line.get("kind") == "point" and all(name in line for name in IDENTITY)


def finished_keys(path: Path, chip: str, software: str, retry_failed: bool) -> set[str]:
    """Keys of the points that this chip and software need not measure again."""
    if not path.exists():
        return set()
    return {
        key_of(line)
        for line in lines(path)
        if is_point(line)
        and line.get("chip") == chip
        and line.get("software") == software
        and (line.get("status") == "done" or not retry_failed)
    }


def uncaptured_sorts(path: Path) -> set[tuple[str, ...]]:
    """Sorts of points that could not be captured as a graph: each is tried once."""
    if not path.exists():
        return set()
    return {sort_of(line) for line in lines(path) if is_point(line) and "capture_failed" in line}


def fatal(path: Path) -> set[tuple[str, ...]]:
    """Sorts of points that ended their worker: an instruction that the chip lacks, say."""
    if not path.exists():
        return set()
    return {sort_of(line) for line in lines(path) if is_point(line) and line.get("fatal")}


def sort_of(line: Mapping[str, Any]) -> tuple[str, ...]:
    """Points that differ in their sizes alone are of one sort."""
    return tuple(str(line[name]) for name in IDENTITY if name != "dims")


def done_line(
    point: MeasurePoint, where: Mapping[str, Any], found: Mapping[str, Any]
) -> dict[str, Any]:
    """The line of a measured point."""
    head = {"kind": "point", "status": "done", "group": point.group}
    return {**head, **point.identity(), **where, **found}


def failed_line(point: Mapping[str, Any], where: Mapping[str, Any], why: str) -> dict[str, Any]:
    """The line of a point that could not be measured; `point` is its group and identity."""
    reason = " ".join(why.split())[:300]
    return {"kind": "point", "status": "failed", **point, **where, "reason": reason}


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Points by group and status."""
    counts: dict[str, dict[str, int]] = {}
    for line in found:
        if is_point(line):
            group = counts.setdefault(str(line.get("group")), {"done": 0, "failed": 0})
            group[str(line["status"])] += 1
    return counts
