"""`foretell size`."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import (
    append,
    bundle_of,
    check_tool,
    lines_file,
    print_files,
    print_launch,
)
from foretell.cli.output import no_as_json, show_answer, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.specs.questions.sizing import SizeQuestion


@command(SizeQuestion)
def size(given: Given, edges: Edges) -> int:
    """How many GPUs a service needs, in which layout, at what cost; --pareto adds the front."""
    from foretell.api.size import size as answer

    check_tool(edges.export, serving=True)
    folder = bundle_of(edges.export)
    lines, file = lines_file(edges.jsonl), plot_file(edges.plot)
    with no_as_json(edges.json):
        found = answer(**given)
    write_plot(file, "size", found.to_dict, quiet=edges.json)
    written, files = None, tuple[str, ...]()
    if folder is not None:
        from foretell.api.bundles import sizing_bundle

        files = sizing_bundle(found, folder)
    elif edges.export:
        written = found.export(edges.export, edges.launcher)
    if lines is not None:
        append(lines, found.to_json_line())
    if edges.json:
        told = written.to_dict() if written else {}
        write_json(found.to_dict() | told)
    elif written is not None:
        print_launch(written)
    elif files:
        print_files(files)
    else:
        show_answer("size", {**found.to_dict(), "with_front": edges.pareto})
    return 0 if found.best.meets else 1
