"""Questions about a study's points: `foretell sweep`, `codesign` and `optimise`."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import JSON, OF_PROCESS, PLOT, Progressing, Workers
from foretell.specs.questions.flags import Flag, file_flag, flag, switch, whole

if TYPE_CHECKING:
    from concurrent.futures import Executor


@dataclass(frozen=True, slots=False, kw_only=True)
class StudyQuestion:
    """A study, from its file or as tables."""

    study: Annotated[
        str | Path | Mapping[str, Any],
        flag(
            "The study's file (docs/sweep.md).",
            "STUDY.toml",
            "table",
            names_file="always",
            inline="A study as an object: study, base, vary, objectives, limits, workload (docs/sweep.md).",
        ),
    ] = field(kw_only=False)


Runner = Annotated[
    "str | Executor",
    flag(
        "process; dask: workers of our own; dask://host:port: a cluster that runs.",
        "NAME",
        without={"web": OF_PROCESS},
    ),
]
Sure = Annotated[
    bool,
    switch(
        "Go on though there are more than 100,000 points.",
        without={"web": "a server has limits of its own"},
    ),
]


@dataclass(frozen=True, slots=False, kw_only=True)
class SweepQuestion(StudyQuestion):
    """Every point of a study: `foretell sweep`."""

    out: Annotated[
        str | Path, file_flag("Folder for the results; one that was begun goes on.", "DIR")
    ]
    workers: Workers = 1
    executor: Runner = "process"
    yes: Sure = False
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (JSON,)


@dataclass(frozen=True, slots=False, kw_only=True)
class CodesignQuestion(StudyQuestion):
    """The points of a study that no other beats: `foretell codesign`."""

    out: Annotated[
        str | Path | None,
        file_flag("Keep every point there: a study that was ended goes on.", "DIR"),
    ] = None
    workers: Workers = 1
    executor: Runner = "process"
    yes: Sure = False
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (PLOT, JSON)


@dataclass(frozen=True, slots=False, kw_only=True)
class OptimiseQuestion(StudyQuestion):
    """A study searched by trial: `foretell optimise`."""

    trials: Annotated[int, whole("Trials in all, those of a storage included.", most=200)] = 100
    storage: Annotated[
        str | Path | None,
        file_flag(
            "Keep every trial there: a journal, or SQLite where it ends in .db; --resume goes on."
        ),
    ] = None
    out: Annotated[
        str | Path | None, file_flag("Write front.json and trials.csv there.", "DIR")
    ] = None
    resume: Annotated[
        bool, switch("Go on with the trials of the storage.", without={"web": OF_PROCESS})
    ] = False
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (PLOT, JSON)
