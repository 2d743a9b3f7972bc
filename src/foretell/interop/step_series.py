"""Steps of a log in their order: which of them are steady, what they show over time, and their timed parts.

Timers of Megatron-LM and DeepSpeed are seconds of the parts of a step, by one name for all programs:

    time (ms) | forward-compute: 320.1 | backward-compute: 871.3 | optimizer: 12.3
    (min, max) time across ranks (ms):
        forward-compute ...............: (318.2, 321.0)
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from foretell.interop.package_tables import packaged_table
from foretell.records import dataclass

OUTLIER = 5.0
"""Steps so many robust deviations above the median are distinguished."""
LEAST_SPREAD = 0.002
"""No log is steadier than this share of its step."""
WARM = 1.1
"""A leading step that differs from the median by this factor belongs to the warm-up: compilation makes it
long, and a program that does not wait for its device short."""
FEW = 3
"""Up to so many steps the last one stands for all."""
MOST_WARM = 0.3
"""At most this share of a longer log is warm-up, and two steps of any."""
REGULAR = 0.1
"""Outliers whose distances differ by less than this share come at an interval."""
DRIFT = 0.01
"""Change of the step over the log from which it is stated."""
UNEVEN = 0.05
"""Robust spread of steady steps from which they are uneven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadySteps:
    """The steps of a log without its warm-up and outliers."""

    median_s: float
    """Median of the steady steps."""
    noise: float
    """Relative standard deviation of that median."""
    warm: int
    """Steps of the warm-up."""
    slow: tuple[int, ...]
    """Outliers, by their place in the log."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, as sentences."""
        said = []
        if self.warm:
            many = "step" if self.warm == 1 else f"{self.warm} steps"
            said.append(f"warm-up skipped: the first {many}")
        if self.slow:
            many = "1 step" if len(self.slow) == 1 else f"{len(self.slow)} steps"
            said.append(f"outliers skipped: {many} far from the median")
        return tuple(said)


def steady_steps(times: list[float]) -> SteadySteps:
    """Warm-up and outliers of a series of step times, and the median of the rest."""
    if not times:
        return SteadySteps(median_s=0.0, noise=0.0, warm=0, slow=())
    series = np.array(times)
    many = len(series)
    middle = float(np.median(series[many // 3 :])) if many > FEW else float(series[-1])
    warm, most = 0, max(int(MOST_WARM * many), min(FEW, many) - 1)
    while warm < most and not middle / WARM <= series[warm] <= WARM * middle:
        warm += 1
    rest = series[warm:]
    median = float(np.median(rest))
    spread = max(1.4826 * float(np.median(np.abs(rest - median))), LEAST_SPREAD * median)
    out = np.abs(rest - median) > OUTLIER * spread
    kept = rest[~out] if (~out).any() else rest
    noise = 1.253 * float(kept.std()) / (median * np.sqrt(len(kept)))
    return SteadySteps(
        median_s=float(np.median(kept)),
        noise=noise if len(kept) > 1 else 0.02,
        warm=warm,
        slow=tuple((np.flatnonzero(out) + warm).tolist()),
    )


def series_findings(times: Sequence[float]) -> dict[str, Any]:
    """Warm-up, slow steps and what they cost, their interval, drift and spread; sentences under `said`."""
    steady = steady_steps(list(times))
    series = np.array(times)
    kept = np.delete(series, [*range(steady.warm), *steady.slow])
    lost = float((series[list(steady.slow)] - steady.median_s).sum()) if steady.slow else 0.0
    gaps = np.diff(steady.slow)
    regular = (
        len(gaps) >= 2
        and float(np.std(gaps)) <= REGULAR * float(np.mean(gaps))
        and np.mean(gaps) > 1
    )
    third = max(len(kept) // 3, 1)
    drift = float(np.median(kept[-third:]) / np.median(kept[:third]) - 1.0) if len(kept) else 0.0
    spread = 1.4826 * float(np.median(np.abs(kept - np.median(kept)))) / steady.median_s
    said = list(steady.notes)
    share = lost / float(series.sum())
    if steady.slow:
        each = lost / len(steady.slow)
        said.append(
            f"slow steps: {len(steady.slow)}, {each:.3g} s more each, {share:.1%} of the time"
        )
    if regular:
        said.append(
            f"they come every {np.mean(gaps):.0f} steps: checkpoints, evaluation or logging; write "
            "checkpoints asynchronously"
        )
    if abs(drift) >= DRIFT:
        way, why = (
            ("grows", "heat, fragmentation, or longer samples")
            if drift > 0
            else ("shrinks", "a long warm-up, or shorter samples")
        )
        said.append(f"the step {way} by {abs(drift):.1%} from the first to the last third: {why}")
    if spread >= UNEVEN:
        said.append(
            f"steps are uneven ({spread:.1%}): stragglers, other jobs on the links, or data loading"
        )
    return {
        "steps": len(series),
        "median_s": steady.median_s,
        "warm_up_steps": steady.warm,
        "slow_steps": len(steady.slow),
        "slow_share": share,
        "slow_every_steps": float(np.mean(gaps)) if regular else None,
        "drift": drift,
        "spread": spread,
        "said": said,
    }


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
