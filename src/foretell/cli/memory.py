"""`foretell memory`."""

from pathlib import Path
from typing import TYPE_CHECKING

from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import imported, show_read_back
from foretell.cli.output import show_answer, write_json
from foretell.cli.plots import plot_file, say_written, write_plot
from foretell.specs.questions.training import MemoryQuestion

if TYPE_CHECKING:
    from foretell.simulation.answer import MemoryAnswer


@command(MemoryQuestion)
def memory(given: Given, edges: Edges) -> int:
    """Memory of every pipeline stage over one step: what it holds, its peak, and when."""
    from foretell.api import training as api

    file = plot_file(edges.plot, "out")
    asked = imported(given, edges)
    found = api.memory(**asked)
    if file is not None:
        _write(file, found, quiet=edges.json)
    if edges.json:
        write_json({**found.to_dict(), **asked.told, "out": edges.plot or None})
    else:
        show_read_back(asked)
        show_answer("memory", found.to_dict())
    return 1 if found.estimate.fits == "no" else 0


def _write(file: Path, found: "MemoryAnswer", *, quiet: bool) -> None:
    """The file by its ending."""
    from json import dumps

    from foretell.interop.user_files import write_whole

    if file.suffix.lower() == ".json":
        write_whole(file, dumps(found.to_dict(), allow_nan=False) + "\n")
        say_written(file, quiet=quiet)
    else:
        write_plot(file, "memory", found.to_dict, quiet=quiet)
