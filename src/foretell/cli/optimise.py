"""`foretell optimise`: a study's fields searched for its objectives within its limits."""

import sys
from pathlib import Path

from foretell.cli.codesign import check_plot, show_front
from foretell.cli.command import Edges, Given, command
from foretell.cli.output import write_json
from foretell.cli.sweep import watch_progress
from foretell.specs.questions.sweep import OptimiseQuestion

INTERRUPTED = 130
"""Exit code after an interrupt, as a shell has it; what was found so far is shown."""


@command(OptimiseQuestion)
def optimise(given: Given, edges: Edges) -> int:
    """Search a study's fields, anything between two ends among them, for its objectives within its limits."""
    from foretell.studies.sweep.optimise import optimise as run

    check_plot(edges.plot)
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
    title = Path(given["study"]).stem
    code = show_front(found.found, title, edges.plot, None if edges.json else False)
    return INTERRUPTED if found.interrupted else code
