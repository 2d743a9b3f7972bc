"""`foretell sweep`: a study's points, how far they are, and what came of them."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from cyclopts import App

from foretell.cli.app import help_text
from foretell.cli.command import Edges, Given, command, number, parameter
from foretell.cli.flags import Json, Processes, arg
from foretell.cli.output import write_json
from foretell.specs.questions.flags import flag_of
from foretell.specs.questions.sweep import Runner, SweepQuestion

if TYPE_CHECKING:
    from foretell.studies.sweep.run import SweepStatus

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
    return _told(found, edges.json)


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
    return _told(found, json)


def status(folder: Folder, *, json: Json = False) -> int:
    """How far a sweep is, how fast, and whether its shards are whole."""
    from foretell.studies.sweep.run import status as look

    return _told(look(folder), json)


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
    from foretell.cli.plots import plot_file
    from foretell.report.figures.files import write_figure
    from foretell.report.figures.sweep_rows import study_figure

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


def _told(found: "SweepStatus", json: bool) -> int:
    """How far a sweep is, as text or JSON."""
    if json:
        write_json(found.to_dict())
        return 0
    state = "complete" if found.complete else "running" if found.running else "not complete"
    shards = f"{found.shards_done:,} of {found.shards:,} shards"
    print(f"{found.folder}: {state}, {found.points_done:,} of {found.points:,} points, {shards}")
    if found.points_per_s is not None and not found.complete:
        print(f"{found.points_per_s:,.3g} points/s, {_time(found.seconds_left)} left")
    if found.complete and found.objectives:
        print(f"wanted: {', '.join(f'{way} {name}' for name, way in found.objectives.items())}")
        print(f"the front: foretell sweep front {found.folder}")
    for name in found.corrupt:
        print(f"corrupt, to be done again: {name}")
    if not found.complete and not found.running:
        print(f"go on: foretell sweep resume {found.folder}")
    return 0


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown time"
    return f"{seconds:,.0f} s" if seconds < 600 else f"{seconds / 3600:,.1f} h"


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
        left = _time((total - done) / rate if rate else None)
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


def _verbs() -> App:
    """`sweep STUDY`, and what is asked of a folder with results."""
    made = App(name="sweep")
    made.default(sweep)
    made.command("foretell.cli.sweep:status", help="How far a sweep is; checks its shards.")
    made.command("foretell.cli.sweep:resume", help="Go on with a sweep that was ended.")
    made.command("foretell.cli.codesign:front", help="The points that no other beats.")
    made.command(
        "foretell.cli.sweep:export",
        help=help_text("sweep export", "The results as one file, or by SQL."),
    )
    made.command(
        "foretell.cli.sweep:plot", help=help_text("sweep plot", "The results as a figure.")
    )
    return made


verbs = _verbs()
