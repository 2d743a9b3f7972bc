"""`foretell estimate`."""

from typing import TYPE_CHECKING

from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import (
    append,
    bundle_of,
    check_tool,
    imported,
    lines_file,
    print_files,
    print_launch,
    show_read_back,
)
from foretell.cli.output import no_as_json, no_as_text, show_answer, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.specs.questions.training import TrainingQuestion

if TYPE_CHECKING:
    from foretell.api.answers import Estimate


@command(TrainingQuestion)
def estimate(given: Given, edges: Edges) -> int:
    """Time, rate and memory of one training step; the best plan where none is given."""
    from foretell.api import training as api

    check_tool(edges.export, serving=False)
    folder = bundle_of(edges.export)
    lines, file = lines_file(edges.jsonl), plot_file(edges.plot)
    with no_as_json(edges.json), no_as_text(not (edges.json or edges.export), show_estimate):
        asked = imported(given, edges)
        result = api.estimate(**asked)
    write_plot(file, "estimate", result.to_dict, quiet=edges.json)
    written = None
    if edges.export and folder is None:
        written = result.export(edges.export, edges.launcher)
    files: tuple[str, ...] = ()
    if folder is not None:
        from foretell.api.bundles import training_bundle

        files = training_bundle(result, folder)
    if lines is not None:
        append(lines, result.to_json_line())
    if edges.json:
        told = written.to_dict() if written else {}
        write_json({**result.to_dict(), **asked.told, **told})
    elif written is not None:
        print_launch(written)
    elif files:
        print_files(files)
    else:
        show_read_back(asked)
        show_estimate(result)
    return 0


def show_estimate(result: "Estimate") -> None:
    """An estimate on one screen."""
    show_answer("estimate", result.to_dict())
