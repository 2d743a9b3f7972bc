"""A study: one question asked many times, with some of its flags and fields varied."""

from collections.abc import Mapping
from typing import Any, Literal

from foretell.records import dataclass

StudyKind = Literal["training", "serving", "cost"]
"""Which of the questions is asked."""
Verb = Literal[
    "estimate", "serve", "size",
    "cost chip", "cost package", "cost system", "cost run", "cost token",
]  # fmt: skip
"""The verb whose flags a study gives."""
Mode = Literal["product", "list", "sample"]
"""Every combination of the values; the first values, then the second ones, ...; or points by chance."""
Direction = Literal["min", "max"]
"""Which way an objective is better."""
BEST = "best"
"""The plan of a study that has the best plan found for each point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One flag or field that varies: listed values, or (with none listed) anything between two ends."""

    path: str
    """A flag such as `gpus`, or a `--set` path."""
    values: tuple[Any, ...] = ()
    """What it takes, in the field's own unit."""
    low: float = 0.0
    """Low end of what is drawn where no values are listed."""
    high: float = 0.0
    """High end of it."""
    log: bool = False
    """Whether it is drawn evenly in its logarithm."""
    whole: bool = False
    """Whether it is a whole number."""

    @property
    def is_flag(self) -> bool:
        """Whether it is a flag, and no path of a record's field."""
        return "." not in self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One of a mix of questions that every point is asked."""

    name: str
    """What it is called in the results."""
    weight: float
    """Its share of the mix."""
    base: Mapping[str, Any]
    """Flags that are its own, on top of the study's."""
    kind: str = ""
    """Training or serving where it is reported; else as the study's."""
    verb: Verb = "estimate"
    """The question that its kind and flags come to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is asked, what varies, and what is wanted of it."""

    kind: StudyKind
    """Training, serving or cost."""
    verb: Verb
    """The question that `kind` and the flags come to."""
    plan: str = BEST
    """The plan's words, or `best`."""
    mode: Mode = "product"
    """How the values of several axes go together."""
    samples: int = 0
    """Points that are drawn in mode sample."""
    seed: int = 0
    """What the draws begin with."""
    base: Mapping[str, Any]
    """Flags that every point shares."""
    settings: tuple[str, ...] = ()
    """`path=value` texts that every point shares."""
    axes: tuple[Axis, ...] = ()
    """What varies, in the order of the file."""
    objectives: Mapping[str, Direction]
    """Columns that are to be small or large."""
    limits: Mapping[str, float]
    """Columns and the largest value that will do."""
    workloads: tuple[Workload, ...] = ()
    """The mix; none: the base alone."""
    table: Mapping[str, Any]
    """The study as its file has it, files that it names with their full paths."""

    def verb_of(self, workload: Workload | None) -> Verb:
        """The question that one of the mix asks, or the base alone."""
        return self.verb if workload is None else workload.verb

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """Every question that is asked of a point."""
        return tuple(dict.fromkeys(self.verb_of(w) for w in self.workloads or (None,)))
