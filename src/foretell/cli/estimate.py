"""`foretell estimate`."""

from typing import TYPE_CHECKING

from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import append, check_tool, imported, lines_file, print_launch
from foretell.cli.output import no_as_json, no_as_text, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.specs.questions.training import TrainingQuestion

if TYPE_CHECKING:
    from foretell.api.answers import Estimate


@command(TrainingQuestion)
def estimate(given: Given, edges: Edges) -> int:
    """Time, rate and memory of one training step; the best plan where none is given."""
    from foretell.api import training as api
    from foretell.interop.launch import TRAINING

    check_tool(edges.export, TRAINING)
    lines, file = lines_file(edges.jsonl), plot_file(edges.plot)
    with no_as_json(edges.json), no_as_text(not (edges.json or edges.export), show_estimate):
        result = api.estimate(**imported(given, edges.import_))
    write_plot(file, "estimate", result.to_dict)
    written = result.export(edges.export) if edges.export else None
    if lines is not None:
        append(lines, result.to_json_line())
    if edges.json:
        told = written.to_dict() if written else {}
        write_json({**result.to_dict(), **told})
    elif written is not None:
        print_launch(written)
    else:
        show_estimate(result)
    return 0


def show_estimate(result: "Estimate") -> None:
    """An estimate on one screen."""
    from foretell.report.console import show
    from foretell.report.estimate import estimate_text

    show(estimate_text(result))
