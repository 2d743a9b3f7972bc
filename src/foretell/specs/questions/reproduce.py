"""The question of `foretell reproduce`."""

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import JSON, OF_PROCESS, Progressing
from foretell.specs.questions.flags import Flag


@dataclass(frozen=True, slots=False, kw_only=True)
class ReproduceQuestion:
    """The figures and tables of a published work, by its model and by ours: `foretell reproduce`."""

    work: Annotated[
        str,
        Flag(help="nersc-2024, scaling-2024, imec-2025 or anthe-2023.", metavar="WORK"),
    ] = field(kw_only=False)
    figure: Annotated[
        str | Sequence[str],
        Flag(
            help="One figure alone; may be repeated (default: all of them).",
            kind="texts",
            metavar="NAME",
        ),
    ] = ()
    workers: Annotated[
        int, Flag(help="Processes.", kind="whole", metavar="N", without={"web": OF_PROCESS})
    ] = 2
    progress: Progressing = None
    edges: ClassVar[tuple[Flag, ...]] = (
        Flag(
            help="Folder for each figure as .svg, .html and .csv, and the page WORK.md.",
            metavar="DIR",
            names=("out",),
            names_file="always",
        ),
        JSON,
    )
