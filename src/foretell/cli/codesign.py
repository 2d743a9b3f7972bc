"""`foretell codesign`, and the front of a sweep: performance and cost together."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foretell.cli.flags import Json, Plot, Workers, number
from foretell.cli.output import write_json
from foretell.cli.plots import plot_file
from foretell.cli.sweep import Folder, Runner, Study, Yes, watched

if TYPE_CHECKING:
    from foretell.studies.sweep.codesign import Codesign

Kept = Annotated[
    str | None,
    Parameter(metavar="DIR", help="Keep every point there: a study that was ended goes on."),
]


def codesign(
    study: Study,
    *,
    out: Kept = None,
    plot: Plot = None,
    workers: Workers = "1",
    executor: Runner = "process",
    yes: Yes = False,
    json: Json = False,
) -> int:
    """The points of a study that no other beats: architecture, performance and cost together."""
    from foretell.studies.sweep.codesign import codesign as run

    check_plot(plot)
    with ExitStack() as stack:
        progress = stack.enter_context(watched("codesign"))
        found = run(
            study, out=out, workers=number(workers), executor=executor, yes=yes, progress=progress
        )
    return told(found, Path(study).stem, plot, json)


def front(folder: Folder, *, plot: Plot = None, json: Json = False) -> int:
    """The points of a sweep that no other beats in the study's objectives, within its limits."""
    from foretell.studies.sweep.codesign import designs

    check_plot(plot)
    return told(designs(folder, wanted=True), Path(folder).name, plot, json)


def check_plot(plot: str | None) -> None:
    """Say what is wrong with a picture's file before anything is computed."""
    plot_file(plot, drawn=True)


def told(found: "Codesign", title: str, plot: str | None, json: bool | None) -> int:
    """A front as text or JSON (none: neither), and as a picture; 1 where nothing will do."""
    empty = not found.chosen.front.any()
    if json:
        write_json(found.to_dict())
    elif not empty and json is not None:
        from foretell.report.codesign import codesign_text
        from foretell.report.console import show

        show(codesign_text(found))
    if empty:
        for line in found.why_not():
            print(f"error: {line}", file=sys.stderr)
        return 1
    if (file := plot_file(plot, drawn=True)) is not None:
        from foretell.report.codesign import codesign_figure, codesign_picture
        from foretell.report.figures.files import write_figure

        write_figure(codesign_figure(found, title), file, codesign_picture(found, title))
    return 0
