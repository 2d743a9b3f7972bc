"""`foretell validate collectives`: measured tables beside our predictions."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from foretell.cli.flags import Json
from foretell.cli.output import write_json

Table = Annotated[str, Parameter(metavar="FILE", help="A CSV table, or the same gzipped.")]


def collectives(
    file: Table,
    *,
    chip: Annotated[
        str, Parameter(metavar="ID", help="The chip, else as the file's name says.")
    ] = "",
    software: Annotated[
        str, Parameter(metavar="NAME", help="The library, else as the file's name says.")
    ] = "",
    leave_one_out: Annotated[
        Literal["system"] | None, Parameter(help="Score each system by a fit to all the others.")
    ] = None,
    json: Json = False,
) -> int:
    """Score a table of NCCL tests, or of a single-node NCCL or custom all-reduce."""
    from foretell.validate.collectives import score_collectives

    scores = score_collectives(
        Path(file), chip=chip, software=software, leave_one_out=leave_one_out
    )
    if json:
        write_json(scores.to_dict())
    else:
        from foretell.report import console
        from foretell.report.scores import scores_text

        console.show(scores_text(scores.to_dict()))
    return 0
