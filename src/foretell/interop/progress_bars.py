"""Hugging Face Trainer and others that show a progress bar, `10%|#  | 10/100 [00:20<03:00, 2.00s/it]`, and
the dict that ends a run: `{'train_runtime': 200.0, 'train_samples_per_second': 16.0, ...}`."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from foretell.records import dataclass

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
