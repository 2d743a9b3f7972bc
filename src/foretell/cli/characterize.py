"""`foretell characterize run`: real training beside its prediction."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from foretell.cli.flags import Json, System, arg, switch
from foretell.cli.output import write_json


def run(
    config: Annotated[str, arg("The matrix of points (docs/characterize.md).", "CONFIG.toml")],
    *,
    out: Annotated[
        str, arg("Where results go, a file for each point.", "DIR")
    ] = "characterization",
    dry_run: Annotated[bool, switch("Print the matrix as predicted; run nothing.")] = False,
    resume: Annotated[bool, switch("Go on in a folder; finished points are kept.")] = False,
    timeout: Annotated[
        float | None,
        arg(
            "Seconds without a sign of life after which a point is given up (default: the file's).",
            "S",
        ),
    ] = None,
    system: System = None,
    node: Annotated[int, arg("Of several nodes, which this is.", "I")] = 0,
    master: Annotated[str, arg("Of several nodes, where the first listens.", "HOST:PORT")] = "",
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
