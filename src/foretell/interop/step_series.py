"""Steps of a log in their order: which are steady, what they show over time, their timed parts, and bars.

Timers of Megatron-LM and DeepSpeed are seconds of the parts of a step, by one name for all programs:

    time (ms) | forward-compute: 320.1 | backward-compute: 871.3 | optimizer: 12.3
    (min, max) time across ranks (ms):
        forward-compute ...............: (318.2, 321.0)

Hugging Face's Trainer and others show a progress bar, `10%|#  | 10/100 [00:20<03:00, 2.00s/it]`, and end a
run with a dict: `{'train_runtime': 200.0, 'train_samples_per_second': 16.0, ...}`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


BAR = re.compile(
    r"%\|[^|]{0,250}\|\s*([0-9]{1,12})/([0-9]{1,12}) \[(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{2})<"
    r"[^,\]]{0,20},\s*([0-9.]{1,15})\s*(s/it|it/s)"
)
"""Steps done and all, time since the start, and the time of a step or steps a second."""
TRAINS = re.compile(r"(?i)train|epoch|step|iter|loss|^\W*$")
"""What a bar of training is called; a trainer's own has no name."""
SUMMARY = re.compile(
    r"train_(runtime|samples_per_second|steps_per_second)['\"]?\s*[:=]\s*['\"]?"
    r"((?:(?:[0-9]+:)?[0-9]+:)?[0-9]+(?:\.[0-9]+)?)"
)
"""Numbers that end a run: of a dict, of JSON, or `train_runtime = 0:15:19.02` on a line each."""
LONGEST = 200_000
"""Characters of a line that are read: one may have every state of a bar."""
ABOUT = 0.05
"""Share by which the time of a bar and of a summary may differ."""
ROUND = 0.01
"""Share by which samples of a step may be off a whole number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One state of a progress bar."""

    done: int
    """Steps done."""
    total: int
    """All steps."""
    elapsed_s: float
    """Since the start."""
    step_s: float
    """Printed time of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Steps of a run by its bar and its last dict."""

    steps_s: tuple[float, ...]
    """In their order; one where only the end of the run is there, none where only samples are counted."""
    values: dict[str, float]
    """What is measured beside them."""
    global_batch: int | None
    """Samples of a step, where they come out whole."""
    notes: tuple[str, ...]
    """What is to be reported."""


def progress_of(lines: Sequence[str]) -> Progress | None:
    """The steps of a run; None where it shows no bar of training and no summary."""
    bars = [bar for line in lines if "%|" in line for bar in _bars(line[:LONGEST])]
    ends = list(_summaries(lines))
    chosen = _training_bars(bars, ends[-1]["runtime"] if ends else None)
    if not chosen and not ends:
        return None
    steps = {bar.done: bar.step_s for bar in reversed(chosen) if bar.done and bar.step_s > 0.0}
    times = [steps[done] for done in sorted(steps)]
    values: dict[str, float] = {}
    notes = (
        ["the time of a step is the progress bar's, smoothed over steps"] if len(times) > 1 else []
    )
    if ends:
        end = ends[-1]
        total = (
            chosen[-1].total if chosen else round(end["runtime"] * end.get("steps_per_second", 0.0))
        )
        if total and len(times) < 2:
            times = [end["runtime"] / total]
            notes.append(
                "the time of a step is that of the whole run over its steps, warm-up included"
            )
        if end.get("samples_per_second", 0.0) > 0.0:
            values["samples_per_s"] = end["samples_per_second"]
    batch = _batch(times, values.get("samples_per_s"))
    if batch:
        notes.append(f"global batch {batch}: samples a second times the seconds of a step")
    return Progress(steps_s=tuple(times), values=values, global_batch=batch, notes=tuple(notes))


def _bars(line: str) -> Iterator[Bar]:
    """The states of bars in a line."""
    begin = 0
    for match in BAR.finditer(line):
        name = re.sub(r"[0-9]+$", "", line[begin : match.start()].rpartition("]")[2])[-80:]
        begin = match.end()
        if TRAINS.search(name.strip()) is None or match[6].count(".") > 1 or match[6] == ".":
            continue
        hours, minutes, seconds = (int(text or 0) for text in match.groups()[2:5])
        rate = float(match[6])
        step = rate if match[7] == "s/it" else 1.0 / rate if rate > 0.0 else 0.0
        elapsed = 3600.0 * hours + 60.0 * minutes + seconds
        yield Bar(done=int(match[1]), total=int(match[2]), elapsed_s=elapsed, step_s=step)


def _training_bars(bars: Sequence[Bar], runtime: float | None) -> list[Bar]:
    """The bar of training among those of evaluation: it took as long as the run, or the longest."""
    by_total: dict[int, list[Bar]] = defaultdict(list)
    for bar in bars:
        by_total[bar.total].append(bar)
    if not by_total:
        return []
    took = {total: max(bar.elapsed_s for bar in some) for total, some in by_total.items()}
    if runtime is not None:
        near = min(took, key=lambda total: abs(took[total] - runtime))
        return by_total[near] if abs(took[near] - runtime) <= ABOUT * runtime + 2.0 else []
    return by_total[max(took, key=lambda total: took[total])]


def _summaries(lines: Sequence[str]) -> Iterator[dict[str, float]]:
    """What ends each run: numbers up to the next time, on one line or several."""
    end: dict[str, float] = {}
    for line in lines:
        for name, value in SUMMARY.findall(line[-LONGEST:]) if "train_" in line else ():
            if name == "runtime" and end:
                if end.get("runtime"):
                    yield end
                end = {}
            if (name == "runtime" or end) and len(value) < 20:
                end[name] = _seconds(value)
    if end.get("runtime"):
        yield end


def _seconds(text: str) -> float:
    """Seconds of 919.02 or 0:15:19.02."""
    total = 0.0
    for part in text.split(":"):
        total = 60.0 * total + float(part)
    return total


def _batch(times: Sequence[float], rate: float | None) -> int | None:
    """Sequences of a step, where samples a second and the step make a whole number as batches are."""
    if not times or not rate:
        return None
    many = rate * sorted(times)[len(times) // 2]
    whole = round(many)
    usual = whole in (1, 2, 4) or (whole and whole % 8 == 0)
    return whole if usual and abs(many - whole) <= ROUND * many else None
