"""`foretell memory`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foretell.cli.exchange import Import, MaybeModel, asked
from foretell.cli.flags import Json, Question
from foretell.cli.output import write_json
from foretell.cli.plots import plot_file, write_plot

if TYPE_CHECKING:
    from foretell.simulation.memory_answer import MemoryAnswer

NOTHING_SET = Question()


def memory(
    model: MaybeModel = None,
    *,
    question: Question = NOTHING_SET,
    out: Annotated[
        str,
        Parameter(
            name=("--plot", "--out"),
            metavar="FILE",
            show_default=False,
            help="Write a figure (.svg, .html, .png), or everything as .json.",
        ),
    ] = "",
    import_: Import = None,
    json: Json = False,
) -> int:
    """Memory of every pipeline stage over one step: what it holds, its peak, and when."""
    from foretell.api import training as api

    file = plot_file(out, "out", drawn=True)
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

    if file.suffix.lower() == ".json":
        file.write_text(dumps(found.to_dict(), allow_nan=False) + "\n")
    else:
        write_plot(file, "memory", found.to_dict, lambda: memory_picture(found))
