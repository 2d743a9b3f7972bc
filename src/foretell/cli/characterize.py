"""`foretell characterize run`: real training beside its prediction."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter

from foretell.cli.flags import Json, System
from foretell.cli.output import write_json


def run(
    config: Annotated[
        str, Parameter(metavar="CONFIG.toml", help="The matrix of points (docs/characterize.md).")
    ],
    *,
    out: Annotated[
        str, Parameter(metavar="DIR", help="Where results go, a file for each point.")
    ] = "characterization",
    dry_run: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Print the matrix as predicted; run nothing."
        ),
    ] = False,
    resume: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Go on in a folder; finished points are kept."
        ),
    ] = False,
    timeout: Annotated[
        float | None,
        Parameter(
            metavar="S",
            help="Seconds without a sign of life after which a point is given up (default: the file's).",
        ),
    ] = None,
    system: System = None,
    node: Annotated[int, Parameter(metavar="I", help="Of several nodes, which this is.")] = 0,
    master: Annotated[
        str, Parameter(metavar="HOST:PORT", help="Of several nodes, where the first listens.")
    ] = "",
    json: Json = False,
) -> int:
    """Train real models under torchrun, point by point, and lay predictions beside."""
    from foretell.lab.characterize.launch import NodePlace
    from foretell.lab.characterize.run import characterize
    from foretell.report.characterize import characterized_text

    with _watched() as tell:
        found = characterize(
            config,
            out=out,
            dry_run=dry_run,
            resume=resume,
            timeout=timeout,
            system=system,
            place=NodePlace(node=node, master=master),
            tell=tell,
        )
    if json:
        write_json(found.to_dict())
    else:
        print(characterized_text(found))
    return int(any(row.status == "failed" for row in found.rows))


@contextmanager
def _watched() -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal, else a line on standard error for each point."""
    if not sys.stderr.isatty():

        def line(done: int, many: int, text: str) -> None:
            if text:
                print(f"{done + 1} of {many}: {text}", file=sys.stderr, flush=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda done, many, text: bar.update(
            task, completed=done, total=many, description=text[:80]
        )
