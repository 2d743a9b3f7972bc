"""The lines of one run of a log, each read by the tables of log_formats.py."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from foretell.interop.device_tables import device_rows
from foretell.interop.log_formats import (
    DATED,
    DEVICES,
    ELAPSED,
    MEMORY,
    SERVICE,
    STEPS,
    LineFigure,
    StepFormat,
    present,
)
from foretell.interop.timers import line_timers

LONGEST = 4000
"""Characters of a line that are read."""


class PrintedStep(NamedTuple):
    """What one line prints of a step."""

    number: int | None
    """Its number."""
    clock_s: float | None
    """Seconds on a clock, at its end."""
    values: dict[str, float]
    """By the names of the format's figures."""
    place: int
    """The line, counted from 1."""


class RunLines(NamedTuple):
    """Everything that the lines of one run print."""

    steps: dict[StepFormat, list[PrintedStep]]
    """By their format."""
    figures: dict[str, list[float]]
    """Of services, memory and chips, in order."""
    chips: list[dict[str, float]]
    """Rows of tables of chips."""
    timers: list[dict[str, float]]
    """Timers of each line that has any."""
    unread: list[tuple[int, str]]
    """Lines of steps without a number that is read."""

    @property
    def any(self) -> bool:
        """Whether a measurement is among them."""
        return bool(self.steps or self.figures or self.chips)


def measured_lines(lines: Sequence[str]) -> Iterator[str | None]:
    """Of each line the steps of its whole run, where it says them, an empty text where it only has a step, a
    progress bar, a summary or a figure of a service, and None of others."""
    text = "\n".join(lines)
    steps, figures = present(STEPS, text), present(SERVICE, text)
    for line in (line[:LONGEST] for line in lines):
        step = next((one for one in steps if one.needs in line and one.mark.search(line)), None)
        if step is not None:
            match = step.number.search(line)
            yield (match[2] or "") if match and step.number.groups > 1 else ""
        elif any(word in line for word in ("train_runtime", "s/it", "it/s")):
            yield ""
        else:
            has = any(one.needs in line and one.pattern.search(line) for one in figures)
            yield "" if has else None


def run_lines(lines: Sequence[str]) -> RunLines:
    """Every line by the tables."""
    table, text = device_rows(lines), "\n".join(lines)
    steps, figures = present(STEPS, text), present((*SERVICE, *MEMORY), text)
    devices = () if table else present(DEVICES, text)
    found = RunLines(defaultdict(list), defaultdict(list), list(table), [], [])
    for place, line in enumerate((line[:LONGEST] for line in lines), start=1):
        _read_step(line, place, steps, found)
        if timers := line_timers(line):
            found.timers.append(timers)
        for figure in figures:
            for name, value in _numbers(figure, line).items():
                found.figures[name].append(value)
        row: dict[str, float] = {}
        for figure in devices:
            row |= _numbers(figure, line)
        if row:
            found.chips.append(row)
    return found


def _read_step(line: str, place: int, formats: Sequence[StepFormat], found: RunLines) -> None:
    """A line of a step, put to those of its format."""
    for one in formats:
        if one.needs not in line or one.mark.search(line) is None:
            continue
        values: dict[str, float] = {}
        for figure in one.figures:
            values = _numbers(figure, line) | values
        match = one.number.search(line)
        clock = values.pop("clock_s", None) if one.figures else _clock(line)
        if values or clock is not None:
            number = int(match[1]) if match and len(match[1]) < 16 else None
            found.steps[one].append(PrintedStep(number, clock, values, place))
        else:
            found.unread.append((place, line.strip()[:80]))
        return


def _clock(line: str) -> float | None:
    """When a line was written, or the time since the start that it prints; seconds."""
    if match := ELAPSED.search(line):
        days, hours, minutes, seconds = (int(text or 0) for text in match.groups())
        return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds
    match = DATED.search(line)
    if match is None:
        return None
    *date, part = match.groups()
    try:
        return datetime(*map(int, date)).timestamp() + float(f"0.{part or 0}")  # type: ignore[arg-type]
    except (ValueError, OverflowError, OSError):
        return None


def _numbers(figure: LineFigure, line: str) -> dict[str, float]:
    """The numbers of a figure in a line; empty where it has none."""
    match = figure.pattern.search(line) if figure.needs in line else None
    if match is None:
        return {}
    read = [scaled(text) for text in match.groups()]
    if not all(math.isfinite(value) and value < 1e18 for value in read):
        return {}
    return {n: v * f for n, v, f in zip(figure.names, read, figure.factors, strict=True)}


def scaled(text: str) -> float:
    """A number such as 1,234.5 or 1.52K."""
    text = text.replace(",", "")
    factor = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}.get(text[-1:].upper(), 1.0)
    try:
        return float(text[:-1] if factor != 1.0 else text) * factor
    except ValueError:
        return math.inf
