"""`foretell sweep`, `codesign`, `optimise`, `scaling` and `sensitivity`: many points and their results."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App

from foretell.cli.answering import VerbAnswer, respond
from foretell.cli.app import help_text
from foretell.cli.command import (
    Edges,
    Given,
    Json,
    Plot,
    Processes,
    arg,
    command,
    number,
    parameter,
)
from foretell.cli.output import draw_figure, plot_file, print_answer, show_answer, write_json
from foretell.errors import bad_input
from foretell.report.presentation.study_cards import time_left
from foretell.specs.questions.flags import flag_of
from foretell.specs.questions.studies import ScalingQuestion, SensitivityQuestion
from foretell.specs.questions.sweep import CodesignQuestion, OptimiseQuestion, Runner, SweepQuestion

if TYPE_CHECKING:
    from foretell.studies.sweep.codesign import Codesign

INTERRUPTED = 130
"""Exit code after an interrupt, as a shell has it; what was found so far is shown."""
Folder = Annotated[str, arg("The folder that `sweep --out` wrote.", "DIR")]
OutFile = Annotated[str, arg("File to write: .csv or .parquet.", "FILE")]
Sql = Annotated[str | None, arg('SQL over the table "sweep" (default: all of it).', "QUERY")]
Executor = Annotated[str, parameter(flag_of(Runner), default="process")]
EVERY_S = 10.0
"""Between two lines of progress where nobody watches."""


@command(SweepQuestion)
def sweep(given: Given, edges: Edges) -> int:
    """Ask every point of a study; killed, it goes on where it was."""
    from foretell.studies.sweep.run import sweep as run

    with watch_progress() as progress:
        found = run(**given, progress=progress)
    return print_answer("sweep", found.to_dict(), json=edges.json)


def resume(
    folder: Folder,
    *,
    workers: Processes = "1",
    executor: Executor = "process",
    json: Json = False,
) -> int:
    """Go on with a sweep from its folder; what is whole is kept, what is corrupt is done again."""
    from foretell.studies.sweep.run import resume as run

    with watch_progress() as progress:
        found = run(folder, workers=number(workers), executor=executor, progress=progress)
    return print_answer("sweep", found.to_dict(), json=json)


def status(folder: Folder, *, json: Json = False) -> int:
    """How far a sweep is, how fast, and whether its shards are whole."""
    from foretell.studies.sweep.run import status as look

    return print_answer("sweep", look(folder).to_dict(), json=json)


def export(folder: Folder, *, out: OutFile, sql: Sql = None, json: Json = False) -> int:
    """The results as one file, sorted by point, or what an SQL query makes of them."""
    from foretell.studies.sweep.export import export as write

    found = write(folder, out=out, sql=sql)
    if not found.complete:
        missing = f"{found.points_done:,} of {found.points:,} points are there"
        print(f"warning: the sweep is not complete: {missing}", file=sys.stderr)
    if json:
        write_json(found.to_dict())
    else:
        print(f"{found.out}: {found.rows:,} rows, {len(found.columns)} columns")
    return 0


def plot(
    folder: Folder,
    *,
    out: Annotated[str, arg("File to write: .html, .json, .svg or .png.", "FILE")],
    x: Annotated[
        str | None, arg("Column of the horizontal axis (default: what varies).", "COLUMN")
    ] = None,
    y: Annotated[
        str | None, arg("Column of the vertical axis (default: the objective).", "COLUMN")
    ] = None,
    value: Annotated[
        str | None, arg("Column that colours a heat map over the two.", "COLUMN")
    ] = None,
    json: Json = False,
) -> int:
    """Results as a figure: lines over a varied field, a heat map over two, a front of two results."""
    from foretell.report.figures.files import write_figure
    from foretell.report.figures.sweep import study_figure

    file = plot_file(out, "out")
    figure, told = study_figure(folder, {"x": x, "y": y, "value": value})
    if file is not None:
        write_figure(figure, file)
    if json:
        write_json({**told, "out": out})
    else:
        words = " over ".join(name for name in (told["value"], told["y"], told["x"]) if name)
        print(f"{out}: {words}, {told['rows']:,} rows")
    return 0


@contextmanager
def watch_progress(verb: str = "sweep") -> Iterator[Callable[[int, int], None]]:
    """A bar with rate and time left on a terminal, else now and then a line on standard error."""
    start = time.monotonic()
    state: dict[str, float] = {"first": -1.0, "last": start}

    def line(done: int, total: int) -> str:
        if state["first"] < 0:
            state["first"] = done
        spent = time.monotonic() - start
        rate = (done - state["first"]) / spent if spent > 0.0 else 0.0
        left = time_left((total - done) / rate if rate else None)
        return f"{done:,} of {total:,} points, {rate:,.3g} points/s, {left} left"

    def report(done: int, total: int) -> None:
        said, now = line(done, total), time.monotonic()
        if bar is None and now - state["last"] >= EVERY_S:
            state["last"] = now
            print(f"{verb}: {said}", file=sys.stderr, flush=True)
        elif bar is not None:
            bar.update(f"{verb}: {said}")

    if not sys.stderr.isatty():
        bar = None
        yield report
        return
    from rich.console import Console

    bar = Console(stderr=True).status(verb)
    with bar:
        yield report


@command(CodesignQuestion)
def codesign(given: Given, edges: Edges) -> int:
    """The points of a study that no other beats: architecture, performance and cost together."""
    from foretell.studies.sweep.codesign import codesign as run

    file = plot_file(edges.plot)
    with watch_progress("codesign") as progress:
        found = run(**given, progress=progress)
    if edges.json:
        write_json(found.to_dict())
    return _show_front(found, Path(given["study"]).stem, file, edges.json)


def front(folder: Folder, *, plot: Plot = None, json: Json = False) -> int:
    """The points of a sweep that no other beats in the study's objectives, within its limits."""
    from foretell.studies.sweep.codesign import designs

    file = plot_file(plot)
    found = designs(folder, wanted=True)
    if json:
        write_json(found.to_dict())
    return _show_front(found, Path(folder).name, file, json)


def _show_front(found: "Codesign", title: str, file: Path | None, written: bool) -> int:
    """A front as text, where its JSON was not written, and as a picture; 1 where nothing will do."""
    if not found.chosen.front.any():
        for line in found.why_not():
            print(f"error: {line}", file=sys.stderr)
        return 1
    if not written:
        show_answer("codesign", found.to_dict())
    if file is not None:
        from foretell.report.figures.pareto import codesign_figure

        draw_figure(codesign_figure(found, title), file, quiet=written)
    return 0


@command(OptimiseQuestion)
def optimise(given: Given, edges: Edges) -> int:
    """Search a study's fields, anything between two ends among them, for its objectives within its limits."""
    from foretell.studies.sweep.optimise import optimise as run

    file = plot_file(edges.plot)
    storage = given.get("storage")
    with watch_progress("optimise") as progress:
        found = run(**given, progress=progress)
    if found.interrupted:
        where = f"; go on: --storage {storage} --resume" if storage else ""
        print(f"ended after {found.trials} of {found.asked} trials{where}", file=sys.stderr)
    if not found.trials:
        return INTERRUPTED
    if edges.json:
        write_json(found.to_dict())
    code = _show_front(found.found, Path(given["study"]).stem, file, edges.json)
    return INTERRUPTED if found.interrupted else code


@command(ScalingQuestion)
def scaling(given: Given, edges: Edges) -> int:
    """Throughput of strategies over numbers of GPUs, what it is made of, and where it stops."""
    from foretell.report.figures.scaling import scaling_figure, study_figure

    file = plot_file(edges.plot, "picture")
    if edges.study:
        from foretell.studies.scaling.study import study as run_study

        if given.get("models") or "system" in given:
            raise bad_input("study", True, "has models and systems of its own")
        whole = run_study()
        drawn, told, fits = study_figure(whole), whole.to_dict(), True
    else:
        from foretell.studies.scaling.run import scaling as run

        found = run(*given.pop("models", ()), **given)
        drawn, told = scaling_figure(found), found.to_dict()
        fits = any(curve.fits_from is not None for curve in found.curves)
    if file is not None:
        draw_figure(drawn, file, quiet=edges.json)
    print_answer("scaling", told, json=edges.json)
    return 0 if fits else 1


@command(SensitivityQuestion)
def sensitivity(given: Given, edges: Edges) -> int:
    """How time, cost and energy answer to every number of hardware, software and price."""
    from foretell.studies.sensitivity import sensitivities

    counted = "searches" if given.get("replan") else "numbers"
    return respond("sensitivity", VerbAnswer(ask=sensitivities, counted=counted), given, edges)


def _verbs() -> App:
    """`sweep STUDY`, and what is asked of a folder with results."""
    made = App(name="sweep")
    made.default(sweep)
    made.command("foretell.cli.studies:status", help="How far a sweep is; checks its shards.")
    made.command("foretell.cli.studies:resume", help="Go on with a sweep that was ended.")
    made.command("foretell.cli.studies:front", help="The points that no other beats.")
    made.command(
        "foretell.cli.studies:export",
        help=help_text("sweep export", "The results as one file, or by SQL."),
    )
    made.command(
        "foretell.cli.studies:plot", help=help_text("sweep plot", "The results as a figure.")
    )
    return made


verbs = _verbs()
