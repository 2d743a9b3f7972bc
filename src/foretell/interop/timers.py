"""Timers of Megatron-LM and DeepSpeed: seconds of the parts of a training step, by one name for all programs.

time (ms) | forward-compute: 320.1 | backward-compute: 871.3 | optimizer: 12.3
(min, max) time across ranks (ms):
    forward-compute ...............: (318.2, 321.0)
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

from foretell.interop.package_tables import packaged_table
from foretell.records import dataclass

PAIR = re.compile(r"\|\s*([A-Za-z][\w/-]*):\s*([0-9.]+)")
"""A timer of a line `time (ms) | ...`."""
ROW = re.compile(r"^\s*([a-z][\w/-]*) \.{2,}:\s*\(?([0-9.]+)(?:,\s*([0-9.]+)\))?\s*$")
"""A timer on a line of its own; of two numbers the larger, over ranks, counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPart:
    """A part of a training step that programs time."""

    name: str
    """Ours."""
    timers: tuple[tuple[str, ...], ...]
    """Timers whose sum it is, program by program: the first that a log has any of counts."""
    leaves: tuple[str, ...]
    """Parts of a predicted step whose sum it is beside."""
    check: str
    """What to look at where it takes longer than predicted."""
    less: tuple[str, ...] = ()
    """Timers inside of them that are another part's."""


_TABLE = packaged_table(Path(__file__).with_name("timers.toml"))
PARTS = tuple(
    TimedPart(
        name=one["name"],
        timers=tuple(tuple(own.split()) for own in one["timers"]),
        leaves=tuple(one["leaves"].split()),
        check=one["check"],
        less=tuple(one.get("less", "").split()),
    )
    for one in _TABLE["parts"]
)
"""Parts that do not overlap each other."""
WHOLE = TimedPart(
    name="forward_backward",
    timers=(("forward-backward",),),
    leaves=(*PARTS[0].leaves, *PARTS[1].leaves),
    check=PARTS[0].check,
)
"""Passes and waits together, where a program times no finer."""
NESTED = frozenset(_TABLE["beside"]["nested"].split())
"""Timers inside of others, or beside steps."""
OLDER: Mapping[str, str] = _TABLE["older"]
"""Timers of older releases of DeepSpeed -> as they are called now."""


def line_timers(line: str) -> dict[str, float]:
    """Timers of one line, in seconds."""
    if "time (ms)" in line:
        return {name: float(ms) * 1e-3 for name, ms in PAIR.findall(line) if _is_number(ms)}
    match = ROW.match(line) if " .." in line else None
    if match is None or not all(_is_number(text) for text in match.groups()[1:] if text):
        return {}
    return {match[1]: float(match[3] or match[2]) * 1e-3}


def _is_number(text: str) -> bool:
    return text.count(".") <= 1 and text.strip(".") != ""


def timed_parts(lines: Iterable[Mapping[str, float]]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Median seconds of each part over the lines of a log, the first left out, and timers not known."""
    series: dict[str, list[float]] = {}
    for line in lines:
        for name, seconds in line.items():
            series.setdefault(name, []).append(seconds)
    middle = {OLDER.get(name, name): median(t[1:] or t) for name, t in series.items()}
    if "bwd" in middle and "bwd_inner" not in middle:
        middle["bwd_inner"] = max(middle["bwd"] - middle.get("bwd_allreduce", 0.0), 0.0)
    found = {part.name: _of(part, middle) for part in PARTS}
    if not found["passes"]:
        found = {WHOLE.name: _of(WHOLE, middle), **found, "pipeline_waits": 0.0}
    known = {timer for part in (*PARTS, WHOLE) for own in part.timers for timer in own}
    known |= NESTED
    other = sorted(
        name for name in middle if name not in known and not name.startswith("optimizer-")
    )
    return {name: seconds for name, seconds in found.items() if seconds > 0.0}, tuple(other)


def _of(part: TimedPart, middle: Mapping[str, float]) -> float:
    sums = (sum(middle.get(timer, 0.0) for timer in own) for own in part.timers)
    inside = sum(middle.get(timer, 0.0) for timer in part.less)
    return max(next((one for one in sums if one > 0.0), 0.0) - inside, 0.0)
