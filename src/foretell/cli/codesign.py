"""`foretell codesign`, and the front of a sweep: performance and cost together."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.cli.command import Edges, Given, command
from foretell.cli.flags import Json, Plot
from foretell.cli.output import write_json
from foretell.cli.plots import draw_figure, plot_file
from foretell.cli.sweep import Folder, watch_progress
from foretell.specs.questions.sweep import CodesignQuestion

if TYPE_CHECKING:
    from foretell.studies.sweep.codesign import Codesign


@command(CodesignQuestion)
def codesign(given: Given, edges: Edges) -> int:
    """The points of a study that no other beats: architecture, performance and cost together."""
    from foretell.studies.sweep.codesign import codesign as run

    check_plot(edges.plot)
    with watch_progress("codesign") as progress:
        found = run(**given, progress=progress)
    return show_front(found, Path(given["study"]).stem, edges.plot, edges.json)


def front(folder: Folder, *, plot: Plot = None, json: Json = False) -> int:
    """The points of a sweep that no other beats in the study's objectives, within its limits."""
    from foretell.studies.sweep.codesign import designs

    check_plot(plot)
    return show_front(designs(folder, wanted=True), Path(folder).name, plot, json)


def check_plot(plot: str | None) -> None:
    """Say what is wrong with a picture's file before anything is computed."""
    plot_file(plot)


def show_front(found: "Codesign", title: str, plot: str | None, json: bool | None) -> int:
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
    if (file := plot_file(plot)) is not None:
        from foretell.report.codesign import codesign_figure

        draw_figure(codesign_figure(found, title), file, quiet=json is not False)
    return 0
