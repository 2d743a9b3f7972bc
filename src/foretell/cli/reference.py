"""`foretell reference search` and `study`."""

from collections.abc import Mapping
from typing import Annotated, Any

from foretell.cli.dispatch import complain
from foretell.cli.flags import Json, Processes, Top, arg, number
from foretell.cli.output import no_as_dict, write_json
from foretell.cli.progress import late_bar
from foretell.errors import BadInput, wrong

STAND_IN: Mapping[str, Any] = {
    "model": "gpt3-1t", "strategy": "1d", "chip": "b200", "fast_domain": 1, "gpus": 1,
}  # fmt: skip
"""What is right in the place of a missing flag beside any others, so that these can be checked."""


def search(
    *,
    model: Annotated[
        str | None,
        arg("gpt3-1t, vit-era5, gpt3, any model of the catalogue, or a file; needed.", "NAME"),
    ] = None,
    strategy: Annotated[str | None, arg("1d, 2d, seqp or 2d-seqp; needed.", "NAME")] = None,
    chip: Annotated[
        str | None, arg("a100, h200, b200, any chip or system, or a file; needed.", "NAME")
    ] = None,
    fast_domain: Annotated[str | None, arg("GPUs joined by the fast links; needed.", "N")] = None,
    gpus: Annotated[str | None, arg("GPUs in all; needed.", "N")] = None,
    global_batch: Annotated[str, arg("Samples per iteration.", "N")] = "4096",
    seq_len: Annotated[
        str | None, arg("Tokens of a sample (default: the model's own).", "N")
    ] = None,
    top: Top = "10",
    json: Json = False,
) -> int:
    """The fastest plans of one published search."""
    from foretell.lab import reference

    asked = {
        "model": model,
        "strategy": strategy,
        "chip": chip,
        "fast_domain": number(fast_domain),
        "gpus": number(gpus),
        "global_batch": number(global_batch),
        "top": number(top),
    }
    _complete(asked)
    asked |= {} if seq_len is None else {"seq_len": number(seq_len)}
    found = reference.search(**asked)
    problems = []
    if not found.candidates:
        problems.append(reference.why_none(**asked))
    elif not found.plans:
        problems.append(wrong("plan", None, f"none of {found.candidates} plans fits in memory"))
    if json:
        write_json(found.to_dict() | (no_as_dict(problems) if problems else {}))
    elif found.plans:
        print(reference.render(found))
    complain(problems)
    return 1 if problems else 0


def _complete(asked: Mapping[str, Any]) -> None:
    """BadInput with every flag that is missing, and what is wrong with the others at the same time."""
    from foretell.lab.reference.check import check_search

    missing = [
        wrong(f"--{name.replace('_', '-')}", None, "missing")
        for name, value in asked.items()
        if value is None
    ]
    if not missing:
        return
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        check_search(**{**STAND_IN, **given})
    except BadInput as error:
        missing += error.problems
    raise BadInput(missing)


def study(
    *,
    out: Annotated[str, arg("Folder for best_plans.csv and candidate_counts.csv.", "DIR")],
    workers: Processes = "2",
    plot: Annotated[
        str | None, arg("Draw days against GPUs: .svg, .html, .json or .png.", "FILE")
    ] = None,
    json: Json = False,
) -> int:
    """All 54 published searches, each over 13 GPU counts, into two tables."""
    from foretell.cli.output import plot_file
    from foretell.lab import reference

    file = plot_file(plot)

    with late_bar("searches") as progress:
        result = reference.study(out, workers=number(workers), progress=progress)
    if file is not None:
        from foretell.report.figures.files import write_figure
        from foretell.report.figures.reference_days import days_figure

        write_figure(days_figure(result.plans), file)
    if json:
        write_json(result.to_dict() | ({} if file is None else {"plot": str(file)}))
    else:
        print(reference.render_study(result))
        if file is not None:
            print(f"wrote {file}")
    return 0
