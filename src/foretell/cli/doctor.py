"""`foretell doctor`."""

from pathlib import Path
from typing import Annotated

from foretell.cli.flags import Json, arg
from foretell.cli.output import write_json


def doctor(
    *,
    folder: Annotated[str, arg("Where to look for chip files of your own.", "DIR")] = ".",
    results: Annotated[
        str, arg("Where sweeps and measured runs leave results.", "DIR")
    ] = "results",
    json: Json = False,
) -> int:
    """What is installed, calibrated and reachable here, what for, and how to get the rest."""
    from foretell.report.doctor import diagnose

    found = diagnose(Path(folder), Path(results))
    if json:
        write_json(found.to_dict())
    else:
        from foretell.report.console import show
        from foretell.report.doctor import doctor_text

        show(doctor_text(found))
    return 0
