"""The question about two versions: which predictions moved."""

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar

from foretell.records import dataclass
from foretell.specs.questions.common import JSON
from foretell.specs.questions.flags import Flag, decimal, file_flag, flag

HERE = "it reads files of this machine"
SAVE = file_flag(
    "Write what this version predicts: for the files' questions, else for a standard set.",
    names=("save",),
)
"""Writes a snapshot instead."""


@dataclass(frozen=True, slots=False, kw_only=True)
class VersionsQuestion:
    """Which predictions moved between two versions: `foretell changed`."""

    files: Annotated[
        "str | Path | Sequence[str | Path]",
        flag(
            "Snapshots (--save), or answers of estimate, search or serve saved with --json.",
            "OLD.json...",
            "names",
            names_file="always",
        ),
    ] = field(kw_only=False)
    over: Annotated[float, decimal("Smallest relative change that counts.", "SHARE")] = 0.001
    edges: ClassVar[tuple[Flag, ...]] = (SAVE, JSON)
