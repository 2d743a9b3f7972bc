"""The question about two versions: which predictions moved."""

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import JSON
from foretell.specs.questions.flags import Flag

HERE = "it reads files of this machine"
SAVE = Flag(
    help="Write what this version predicts: for the files' questions, else for a standard set.",
    metavar="FILE",
    names=("save",),
    names_file="always",
)
"""Writes a snapshot instead."""


@dataclass(frozen=True, slots=False, kw_only=True)
class VersionsQuestion:
    """Which predictions moved between two versions: `foretell changed`."""

    files: Annotated[
        "str | Path | Sequence[str | Path]",
        Flag(
            help="Snapshots (--save), or answers of estimate, search or serve saved with --json.",
            kind="names",
            metavar="OLD.json...",
            names_file="always",
        ),
    ] = field(kw_only=False)
    over: Annotated[
        float,
        Flag(help="Smallest relative change that counts.", kind="decimal", metavar="SHARE"),
    ] = 0.001
    edges: ClassVar[tuple[Flag, ...]] = (SAVE, JSON)
