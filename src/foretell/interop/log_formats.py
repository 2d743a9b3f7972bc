"""Lines that programs print, one record for each form: what marks a line, and what its numbers measure.

A new program is one entry of `steps` in log_formats.toml (lines of training steps), or some figures of
`service` (benchmarks and engines), `devices` (power and memory of chips) or `stated` (what a log says of its
job). `log_reader.py` reads by these tables alone. Sources: the log statements of each program's own
repository, named in comments.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from foretell.interop.package_tables import packaged_table
from foretell.records import dataclass

NUMBER = r"([0-9][0-9,]{0,24}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?(?:[KMBGT](?![A-Za-z]))?)"
"""1234.5, 1,234.5, 1.2e3 and 1.52K; bounded, so that no line takes long."""
GIB, MIB = 2.0**30, 2.0**20
Take = Literal["median", "largest", "first", "last"]
"""Which of a figure's values over a log counts."""


class Needs(Protocol):
    """An entry of a table that is looked for by a text."""

    @property
    def needs(self) -> str:
        """The text."""


Needing = TypeVar("Needing", bound=Needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFigure:
    """Numbers of a line."""

    pattern: re.Pattern[str]
    """One group for each number."""
    names: tuple[str, ...]
    """What each group measures."""
    factors: tuple[float, ...]
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


def after(words: str, name: str, factor: float = 1.0, take: Take = "median") -> LineFigure:
    """A number behind some words and a colon or an equals sign."""
    pattern = re.compile(f"(?:{words})" + r"\s*[:=]?\s*" + NUMBER)
    return LineFigure(pattern=pattern, names=(name,), factors=(factor,), take=take)


def whole(pattern: str, *reads: tuple[str, float], take: Take = "median") -> LineFigure:
    """Numbers by a pattern of their own; <N> in it is a number, <:> what is between words and it."""
    made = re.compile(pattern.replace("<N>", NUMBER).replace("<:>", r"[ \t:|*=]+"))
    names, factors = tuple(name for name, _ in reads), tuple(factor for _, factor in reads)
    return LineFigure(pattern=made, names=names, factors=factors, take=take, needs=literal(pattern))


def literal(pattern: str) -> str:
    """The longest text that every match of a pattern has."""
    plain = re.sub(r"\\([^a-zA-Z0-9])", lambda m: chr(0xE000 + ord(m[1])), pattern)
    plain = re.sub(r"\\[a-zA-Z]", "*", plain)
    while (fewer := re.sub(r"\([^()]*\)|\[[^]]*\]|<[N:]>", "*", plain)) != plain:
        plain = fewer
    parts = re.split(r".?[*?+]+|[.^$|{}]", plain)
    longest = max(parts, key=len)
    return "".join(chr(ord(c) - 0xE000) if ord(c) >= 0xE000 else c for c in longest)


def present(table: Sequence[Needing], text: str) -> tuple[Needing, ...]:
    """Those entries of a table that some line of a text can have."""
    return tuple(one for one in table if one.needs in text)


_TABLE = packaged_table(Path(__file__).with_name("log_formats.toml"))


def _figure(told: Mapping[str, Any]) -> LineFigure:
    """A figure of the table: numbers behind words, or by a pattern of their own."""
    reads = {name: {"GiB": GIB, "MiB": MIB}.get(unit, unit) for name, unit in told["reads"].items()}
    take = told.get("take", "median")
    if "behind" in told:
        ((name, factor),) = reads.items()
        return after(told["behind"], name, factor, take)
    return whole(told["line"], *reads.items(), take=take)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedValue:
    """What a line says of the job or the plan."""

    needs: str
    """A text that every such line has."""
    pattern: re.Pattern[str]
    """One group for each value."""
    names: tuple[str, ...]
    """A name of a job (gpus, global_batch, model ...), or a word of a plan with {} for the value."""


STATED = tuple(
    StatedValue(needs=one["needs"], pattern=re.compile(one["line"]), names=tuple(one["says"]))
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
