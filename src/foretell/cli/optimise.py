"""`foretell optimise`: a study's fields searched for its objectives within its limits."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foretell.cli.codesign import check_plot, told
from foretell.cli.flags import Json, Plot, number
from foretell.cli.output import write_json
from foretell.cli.sweep import Study, watched

INTERRUPTED = 130
"""Exit code after an interrupt, as a shell has it; what was found so far is shown."""

Number = Annotated[str, Parameter(metavar="N", help="Trials in all, those of a storage included.")]
Storage = Annotated[
    str | None,
    Parameter(
        metavar="FILE",
        help="Keep every trial there: a journal, or SQLite where it ends in .db; --resume goes on.",
    ),
]
Folder = Annotated[
    str | None, Parameter(metavar="DIR", help="Write front.json and trials.csv there.")
]
Resume = Annotated[
    bool, Parameter(negative="", show_default=False, help="Go on with the trials of the storage.")
]


def optimise(
    study: Study,
    *,
    trials: Number = "100",
    storage: Storage = None,
    out: Folder = None,
    resume: Resume = False,
    plot: Plot = None,
    json: Json = False,
) -> int:
    """Search a study's fields, anything between two ends among them, for its objectives within its limits."""
    from foretell.studies.sweep.optimise import optimise as run

    check_plot(plot)
    with watched("optimise") as progress:
        found = run(
            study, trials=number(trials), storage=storage, out=out, resume=resume, progress=progress
        )
    if found.interrupted:
        where = f"; go on: --storage {storage} --resume" if storage else ""
        print(f"ended after {found.trials} of {found.asked} trials{where}", file=sys.stderr)
    if not found.trials:
        return INTERRUPTED
    if json:
        write_json(found.to_dict())
    code = told(found.found, Path(study).stem, plot, None if json else False)
    return INTERRUPTED if found.interrupted else code
