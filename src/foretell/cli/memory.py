"""`foretell memory`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foretell.cli.flags import Json, ModelName, Question
from foretell.cli.output import write_json
from foretell.errors import BadInput, Problem

NOTHING_SET = Question()
KINDS = (".svg", ".html", ".json")
"""Files that can be written."""


def memory(
    model: ModelName,
    *,
    question: Question = NOTHING_SET,
    out: Annotated[
        str,
        Parameter(metavar="FILE", help="A picture (.svg, .html), or everything as .json."),
    ] = "",
    json: Json = False,
) -> int:
    """Memory of every pipeline stage over one step: what it holds, its peak, and when."""
    from foretell import api

    _check(out)
    found = api.memory(model, **question.arguments())
    if out:
        _write(Path(out), found)
    if json:
        write_json({**found.to_dict(), "out": out or None})
    else:
        from foretell.report.console import show
        from foretell.report.memory import memory_text

        show(memory_text(found))
        if out:
            print(f"\nwritten: {out}")
    return 1 if found.estimate.fits == "no" else 0


def _write(path: Path, found: object) -> None:
    """The file by its ending."""
    import json

    from foretell.memory_answer import MemoryAnswer
    from foretell.report import memory_picture

    assert isinstance(found, MemoryAnswer)
    kind = path.suffix.lower()
    if kind == ".json":
        path.write_text(json.dumps(found.to_dict(), allow_nan=False) + "\n")
    else:
        path.write_text(memory_picture.svg(found) if kind == ".svg" else memory_picture.html(found))


def _check(out: str) -> None:
    """Whether a file can be written there, of a kind that is known."""
    path = Path(out)
    if not out:
        return
    if path.suffix.lower() not in KINDS:
        message, allowed = (
            "is no kind of file that is known",
            "a name that ends in .svg, .html or .json",
        )
        raise BadInput([Problem(path="out", value=out, message=message, allowed=allowed)])
    if path.is_dir() or not path.absolute().parent.is_dir():
        message, allowed = "no file can be written there", "a file in a folder there is"
        raise BadInput([Problem(path="out", value=out, message=message, allowed=allowed)])
