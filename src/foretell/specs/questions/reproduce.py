"""The question of `foretell reproduce`."""

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import JSON, OF_PROCESS, Progressing
from foretell.specs.questions.flags import Flag, file_flag, flag, whole


@dataclass(frozen=True, slots=False, kw_only=True)
class ReproduceQuestion:
    """The figures and tables of a published work, by its model and by ours: `foretell reproduce`."""

    work: Annotated[str, flag("nersc-2024, scaling-2024, imec-2025 or anthe-2023.", "WORK")] = (
        field(kw_only=False)
    )
    figure: Annotated[
        str | Sequence[str],
        flag("One figure alone; may be repeated (default: all of them).", "NAME", "texts"),
    ] = ()
    workers: Annotated[int, whole("Processes.", without={"web": OF_PROCESS})] = 2
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (
        file_flag(
            "Folder for each figure as .svg, .html and .csv, and the page WORK.md.",
            "DIR",
            names=("out",),
        ),
        JSON,
    )
