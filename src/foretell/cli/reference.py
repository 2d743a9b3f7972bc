"""`foretell reference search`, `study` and `sensitivity`."""

from typing import Annotated

from cyclopts import Parameter

from foretell.cli.flags import Json, Top, Workers, number
from foretell.cli.output import no_as_dict, write_json
from foretell.cli.progress import late_bar
from foretell.cli.run import complain
from foretell.errors import Problem


def search(
    *,
    model: Annotated[str, Parameter(metavar="NAME", help="gpt3-1t, vit-era5 or gpt3.")],
    strategy: Annotated[str, Parameter(metavar="NAME", help="1d, 2d or seqp.")],
    chip: Annotated[str, Parameter(metavar="NAME", help="a100, h200 or b200.")],
    fast_domain: Annotated[str, Parameter(metavar="N", help="GPUs joined by the fast links.")],
    gpus: Annotated[str, Parameter(metavar="N", help="GPUs in all.")],
    global_batch: Annotated[str, Parameter(metavar="N", help="Samples per iteration.")] = "4096",
    top: Top = "10",
    json: Json = False,
) -> int:
    """The fastest plans of one published search."""
    from foretell import reference

    found = reference.search(
        model=model,
        strategy=strategy,
        chip=chip,
        fast_domain=number(fast_domain),
        gpus=number(gpus),
        global_batch=number(global_batch),
        top=number(top),
    )
    problems = []
    if not found.plans:
        message = f"none of {found.candidates} plans fits in memory"
        problems.append(Problem(path="plan", value=None, message=message))
    if json:
        write_json(found.to_dict() | (no_as_dict(problems) if problems else {}))
    elif found.plans:
        print(reference.render(found))
    complain(problems)
    return 1 if problems else 0


def study(
    *,
    out: Annotated[
        str, Parameter(metavar="DIR", help="Folder for best_plans.csv and candidate_counts.csv.")
    ],
    workers: Workers = "2",
    json: Json = False,
) -> int:
    """All 54 published searches, each over 13 GPU counts, into two tables."""
    from foretell import reference

    with late_bar("searches") as progress:
        result = reference.study(out, workers=number(workers), progress=progress)
    if json:
        write_json(result.to_dict())
    else:
        print(reference.render_study(result))
    return 0


def sensitivity(
    *,
    out: Annotated[str, Parameter(metavar="DIR", help="Folder for the table and the figures.")],
    gpus: Annotated[
        str, Parameter(metavar="N,N", help="Numbers of GPUs.")
    ] = "512,1024,2048,4096,8192,16384",
    maps: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="Draw the maps over capacity and bandwidth too, or leave them out.",
        ),
    ] = True,
    json: Json = False,
) -> int:
    """The study's sensitivities by the published model and by ours: some minutes on one core."""
    from foretell.report.reference_sensitivity import checked, table_text, write_all
    from foretell.validate.reference_sensitivity import sensitivity_cells

    folder, counts = checked(out, gpus)
    with late_bar("parts") as progress:
        cells = sensitivity_cells(counts, grid=maps, progress=progress)
    rows = [cell.to_dict() for cell in cells]
    files = write_all(folder, rows, maps=maps)
    if json:
        write_json({"cells": rows, "files": [str(file) for file in files]})
    else:
        print(table_text(rows))
        print("\n".join(f"written: {file}" for file in files))
    return 0
