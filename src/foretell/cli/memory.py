"""`foretell memory`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foretell.cli.exchange import Import, MaybeModel, asked
from foretell.cli.flags import Json, Question
from foretell.cli.output import write_json

if TYPE_CHECKING:
    from foretell.memory_answer import MemoryAnswer

NOTHING_SET = Question()


def memory(
    model: MaybeModel = "",
    *,
    question: Question = NOTHING_SET,
    out: Annotated[
        str,
        Parameter(metavar="FILE", help="A picture (.svg, .html, .png), or everything as .json."),
    ] = "",
    import_: Import = None,
    json: Json = False,
) -> int:
    """Memory of every pipeline stage over one step: what it holds, its peak, and when."""
    from foretell import api
    from foretell.report.picture_files import picture_file

    file = picture_file("out", out, also=(".json",)) if out else None
    named, given = asked(model, question.arguments(), import_)
    found = api.memory(named, **given)
    if file is not None:
        _write(file, found)
    if json:
        write_json({**found.to_dict(), "out": out or None})
    else:
        from foretell.report.console import show
        from foretell.report.memory import memory_text

        show(memory_text(found))
        if out:
            print(f"\nwritten: {out}")
    return 1 if found.estimate.fits == "no" else 0


def _write(file: Path, found: "MemoryAnswer") -> None:
    """The file by its ending."""
    from json import dumps

    from foretell.report.memory_picture import memory_picture
    from foretell.report.picture_files import write

    if file.suffix.lower() == ".json":
        file.write_text(dumps(found.to_dict(), allow_nan=False) + "\n")
    else:
        write(file, memory_picture(found))
