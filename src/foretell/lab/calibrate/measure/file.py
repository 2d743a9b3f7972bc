"""Points to measure, and the file of measurements: JSON lines, the environment first, then a line a point.

Lines are only ever appended, each in one write, so that a killed run leaves at most one torn line; that
line is skipped when read, and its point measured again.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from foretell.errors import bad_input
from foretell.interop.package_tables import packaged_table
from foretell.interop.user_files import check_regular
from foretell.records import dataclass

Pass = Literal["forward", "dgrad", "wgrad", "backward"]
"""Which part of training or serving: dgrad and wgrad are the two products of a linear map's backward."""
Mode = Literal["burst", "sustained"]
"""burst: short, with pauses, on a card that stays cool; sustained: without pause until power settles."""
Launch = Literal["eager", "graph"]
"""How kernels reach the device: one by one, or as a replayed graph."""
IDENTITY = ("family", "variant", "dims", "dtype", "pass", "mode", "launch")
"""Keys of a line that tell points apart."""
HALF, FULL = 2.0, 4.0
"""Bytes of a number in 16 and in 32 bits."""


def planned(group: str) -> Mapping[str, Any]:
    """Sizes of a group's points (points.toml)."""
    found: Mapping[str, Any] = packaged_table(Path(__file__).with_name("points.toml"))[group]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMachine:
    """What the plan must know of the machine."""

    device: Literal["cuda", "cpu"]
    """Where kernels run; ROCm is cuda too."""
    chip: str
    """The device's name as its driver tells it."""
    software: str
    """torch and its version."""
    memory_bytes: float
    """Memory of the device."""
    l2_bytes: float
    """Last-level cache that buffers rotate out of."""
    half: str
    """The 16-bit format to measure in; empty where only 32 bits are quick."""
    fp8: bool
    """Whether the chip multiplies in fp8."""
    world: int = 1
    """Processes started together by torchrun."""
    short: bool = False
    """A handful of small points of each group, to see that it runs."""

    @property
    def main(self) -> str:
        """The format most points are in."""
        return self.half or "fp32"

    @property
    def bare(self) -> Launch:
        """How kernels are launched where the host's part is not to show."""
        return "graph" if self.device == "cuda" else "eager"

    @property
    def item_bytes(self) -> float:
        """Bytes of a number in that format."""
        return HALF if self.half else FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePoint:
    """One thing to measure."""

    group: str
    """Points of one group share an amount of time: gemm, attention, pointwise, ..."""
    family: str
    """What is measured: gemm, batched_gemm, prefill, decode, rms_norm, ..."""
    dims: Mapping[str, int]
    """Sizes by name."""
    dtype: str
    """Number format."""
    passed: Pass = "forward"
    """Which pass."""
    mode: Mode = "burst"
    """Short or until power settles."""
    launch: Launch = "eager"
    """How kernels are launched."""
    variant: str = ""
    """Library, backend or form, where there are several."""
    level: int = 0
    """Coarse points come first: 0, then 1, 2, ..."""
    memory_bytes: float = 0.0
    """Memory it needs, roughly and rather too much."""
    cost_s: float = 0.3
    """Seconds it is likely to take, building and warming up included."""

    def identity(self) -> dict[str, Any]:
        """What tells it apart, by the keys of its line."""
        return {
            "family": self.family,
            "variant": self.variant,
            "dims": dict(self.dims),
            "dtype": self.dtype,
            "pass": self.passed,
            "mode": self.mode,
            "launch": self.launch,
        }

    @property
    def key(self) -> str:
        """The identity as text."""
        return key_of(self.identity())

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.dims.items())
        words = (self.family, self.variant, self.dtype, self.passed, self.mode, self.launch, sizes)
        return " ".join(word for word in words if word)


def key_of(line: Mapping[str, Any]) -> str:
    """The identity of a point, from the point or from its line in a file."""
    return json.dumps({name: line[name] for name in IDENTITY}, sort_keys=True)


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
