"""Lines that programs print: what marks a line, what its numbers measure, and the lines of one run.

A new program is one entry of `steps` in log_formats.toml (lines of training steps), or some figures of
`service` (benchmarks and engines), `devices` (power and memory of chips) or `stated` (what a log says of its
job). Tables of chips over time are `nvidia-smi --query-gpu ... --format=csv`, `nvidia-smi dmon` and `dcgmi
dmon`. Sources: the log statements of each program's own repository, named in comments.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from foretell.interop.package_tables import packaged_table
from foretell.interop.step_series import line_timers
from foretell.records import dataclass

NUMBER = r"([0-9][0-9,]{0,24}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?(?:[KMBGT](?![A-Za-z]))?)"
"""1234.5, 1,234.5, 1.2e3 and 1.52K; bounded, so that no line takes long."""
GIB, MIB = 2.0**30, 2.0**20
Take = Literal["median", "largest", "first", "last"]
"""Which of a figure's values over a log counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFigure:
    """Numbers of a line."""

    pattern: re.Pattern[str]
    """One group for each number."""
    names: tuple[str, ...]
    """What each group measures; of a line that states a job a name of it (gpus, model ...), or a word of a
    plan with {} for the value."""
    factors: tuple[float, ...] = ()
    """From the printed unit to that of the name."""
    take: Take = "median"
    """Which value counts, where several lines have one."""
    needs: str = ""
    """A text that every such line has: looked for first, since most lines of a log have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFormat:
    """Lines of one program, each of a training step."""

    name: str
    """The program."""
    needs: str
    """A text that every such line has."""
    mark: re.Pattern[str]
    """What such a line has, beside."""
    number: re.Pattern[str]
    """The number of its step, and in a second group of all steps where it is printed."""
    figures: tuple[LineFigure, ...]
    """What it prints of the step."""


def literal(pattern: str) -> str:
    """The longest text that every match of a pattern has."""
    plain = re.sub(r"\\([^a-zA-Z0-9])", lambda m: chr(0xE000 + ord(m[1])), pattern)
    plain = re.sub(r"\\[a-zA-Z]", "*", plain)
    while (fewer := re.sub(r"\([^()]*\)|\[[^]]*\]|<[N:]>", "*", plain)) != plain:
        plain = fewer
    parts = re.split(r".?[*?+]+|[.^$|{}]", plain)
    longest = max(parts, key=len)
    return "".join(chr(ord(c) - 0xE000) if ord(c) >= 0xE000 else c for c in longest)


Form = TypeVar("Form", LineFigure, StepFormat)


def present(table: Sequence[Form], text: str) -> tuple[Form, ...]:
    """Those entries of a table that some line of a text can have."""
    return tuple(one for one in table if one.needs in text)


_TABLE = packaged_table(Path(__file__).with_name("log_formats.toml"))


def _figure(told: Mapping[str, Any]) -> LineFigure:
    """A figure of the table: a number behind words and a colon or an equals sign, or numbers by a pattern, in
    which <N> is a number and <:> what is between words and it."""
    line = told.get("line") or f"(?:{told['behind']})" + r"\s*[:=]?\s*<N>"
    units = {"GiB": GIB, "MiB": MIB}
    return LineFigure(
        pattern=re.compile(line.replace("<N>", NUMBER).replace("<:>", r"[ \t:|*=]+")),
        names=tuple(told["reads"]),
        factors=tuple(units.get(unit, unit) for unit in told["reads"].values()),
        take=told.get("take", "median"),
        needs=literal(line) if "line" in told else "",
    )


def _figures(name: str) -> tuple[LineFigure, ...]:
    return tuple(map(_figure, _TABLE["figures"][name]))


STEPS = tuple(
    StepFormat(
        name=one["name"],
        needs=one["needs"],
        mark=re.compile(one["mark"]),
        number=re.compile(one["number"]),
        figures=tuple(map(_figure, one["figures"])),
    )
    for one in _TABLE["steps"]
)
"""Lines of steps; a line is read by the first that it fits."""
DATED = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[,.]([0-9]{1,6}))?"
)
"""When a line was written."""
ELAPSED = re.compile(
    r'"elapsed_time": "(?:([0-9]{1,5}) days?, )?([0-9]{1,9}):([0-9]{2}):([0-9]{2})"'
)
"""Time since the start of LLaMA-Factory's lines."""
MEMORY = _figures("memory")
"""Memory that training programs print on lines of their own."""
SERVICE = _figures("service")
"""Lines of benchmarks and engines."""
DEVICES = _figures("devices")
"""Power, memory and occupancy of chips."""
COLUMNS = {
    head: (name, float({"MiB": MIB}.get(unit, unit)))
    for head, told in _TABLE["columns"].items()
    for name, unit in told.items()
}
"""Heads of columns of `nvidia-smi --query-gpu ... --format=csv`, `nvidia-smi dmon` and `dcgmi dmon`."""
BUSY = 0.1
"""Share of the time that a chip is busy from which its power is that of the work."""
PAGE = 16
"""Tokens of a block of vLLM's cache where the log does not state them: its default."""


STATED = tuple(
    LineFigure(needs=one["needs"], pattern=re.compile(one["line"]), names=tuple(one["says"]))
    for one in _TABLE["stated"]["lines"]
)
"""What logs say of their jobs."""
ENGINES = tuple((text, str(engine)) for text, engine in _TABLE["engines"].items())
"""Texts by which an engine's own log is known."""
BEGINS = re.compile(
    r"Serving Benchmark Result|-{5,} arguments -{5,}|^= PYTORCH BACKEND|API server version|server_args="
    r"|^[\s+$#]*(?:[A-Z_]+=\S+ +)*"
    r"(?:torchrun|deepspeed|accelerate launch|python3? (?:-m )?\S+|vllm (?:serve|bench)) .*-"
)
"""Lines with which another run begins: its command, its arguments, the head of a benchmark."""
COMMAND = re.compile(
    r"^[\s+$#]*((?:[A-Z_]+=\S+ +)*"
    r"(?:torchrun|deepspeed|accelerate launch|vllm serve|python3? (?:-m )?\S+) .*)"
)
"""A command that launches it."""


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


CELL = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)(?:\s*(?:W|%|MiB))?\s*$")
"""A number with its unit."""


def is_device_head(line: str) -> bool:
    """Whether a line is the head of such a table."""
    return any(column in COLUMNS for column in _head(line))


def device_rows(lines: Sequence[str]) -> list[dict[str, float]]:
    """Every row by the names of COLUMNS; empty where no line is a head."""
    head: list[str] = []
    found = []
    for line in lines:
        if ("," in line or line.lstrip().startswith("#")) and is_device_head(line):
            head = _head(line)
        elif head and (row := _row(head, line)):
            found.append(row)
    return found


def _head(line: str) -> list[str]:
    if "," in line:
        return [re.sub(r"\s*\[.*", "", cell).strip() for cell in line[:2000].split(",")]
    return line.lstrip("# ")[:2000].split()


def _row(head: Sequence[str], line: str) -> dict[str, float]:
    cells = line[:2000].split(",") if "," in line else line[:2000].split()
    if len(cells) == len(head) + 1 and cells[0] == "GPU":  # "GPU 0" is one cell of dcgmi's
        cells = cells[1:]
    if len(cells) != len(head):
        return {}
    found = {}
    for name, cell in zip(head, cells, strict=True):
        match = CELL.match(cell)
        if name in COLUMNS and match and len(match[1]) < 16:
            ours, factor = COLUMNS[name]
            found[ours] = float(match[1]) * factor
    return found
