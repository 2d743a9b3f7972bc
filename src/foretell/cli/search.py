"""`foretell search`."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.dispatch import complain
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
from foretell.cli.output import no_as_dict, no_as_json, show_answer, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.cli.progress import late_bar
from foretell.specs.questions.training import SearchQuestion


@command(SearchQuestion)
def search(given: Given, edges: Edges) -> int:
    """Every plan ranked, best first; --plan fixes what it names."""
    from foretell.api import training as api

    check_tool(edges.export, serving=False)
    folder = bundle_of(edges.export)
    lines, file = lines_file(edges.jsonl), plot_file(edges.plot)
    with no_as_json(edges.json), late_bar("plans") as progress:
        from foretell.api.launches import FREED

        asked = imported(given, edges, free=FREED)
        found = api.search(**asked, progress=progress)
    write_plot(file, "search", found.to_dict, quiet=edges.json)
    problems = []
    if not found.plans:
        problems = [found.why_none]
    written = None
    files: tuple[str, ...] = ()
    if edges.export and found.plans and folder is None:
        written = found.best.export(edges.export, edges.launcher)
    elif folder is not None and found.plans:
        from foretell.api.bundles import training_bundle

        files = training_bundle(found.best, folder)
    if lines is not None:
        append(lines, "".join(plan.to_json_line() for plan in found.plans))
    if edges.json:
        told = written.to_dict() if written else {}
        write_json(found.to_dict() | asked.told | told | (no_as_dict(problems) if problems else {}))
    elif written is not None:
        print_launch(written)
    elif files:
        print_files(files)
    elif found.plans:
        show_read_back(asked)
        show_answer("search", found.to_dict())
    complain(problems)
    return 1 if problems else 0
