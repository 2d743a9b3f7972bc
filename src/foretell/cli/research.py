"""`foretell reference`, `reproduce` and `changed`: published models, published works, and two versions."""

from collections.abc import Mapping
from typing import Annotated, Any

from foretell.cli.command import Edges, Given, Json, Processes, Top, arg, command, number
from foretell.cli.dispatch import complain
from foretell.cli.output import no_as_dict, print_answer, write_json
from foretell.cli.progress import late_bar
from foretell.errors import BadInput, wrong
from foretell.specs.questions.reproduce import ReproduceQuestion
from foretell.specs.questions.versions import VersionsQuestion

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


@command(ReproduceQuestion)
def reproduce(given: Given, edges: Edges) -> int:
    """The figures and tables of a published work, by its model and by ours."""
    from foretell.interop.user_files import made_folder
    from foretell.lab.reproduce.records import reproduce as run
    from foretell.lab.reproduce.records import work_named
    from foretell.report.reproduce.files import write_work

    work = work_named(given.get("work"))
    folder = made_folder(edges.out)
    with late_bar("figures") as progress:
        figures = run(**given, progress=progress)
    files = write_work(folder, work, figures)
    if edges.json:
        findings = [
            {"figure": figure.name, **one.to_dict()}
            for figure in figures
            for one in figure.findings
        ]
        write_json(
            {
                "work": work.name,
                "figures": [figure.name for figure in figures],
                "findings": findings,
                "files": [str(file) for file in files],
            }
        )
        return 0
    for figure in figures:
        for one in figure.findings:
            print(f"{figure.name}: {one.statement}")
            print(f"  published: {one.published}")
            print(f"  ours:      {one.ours}")
            print(f"  {one.verdict}" + (f": {one.why}" if one.why else ""))
            for rung in one.ladder.rungs if one.ladder else ():
                print(f"    x{rung.factor:.3f} {rung.value:12.4g}  {rung.mechanism}")
    print("\n".join(f"written: {file}" for file in files))
    return 0


@command(VersionsQuestion)
def version_changes(given: Given, edges: Edges) -> int:
    """Ask the questions of OLD.json again: which predictions moved, by how much, and by which change."""
    if edges.save:
        return _save(given, edges)
    from foretell.lab.versions.changes import version_changes as ask

    found = ask(**{"files": (), **given})
    return print_answer("changed", found.to_dict(), json=edges.json)


def _save(given: Given, edges: Edges) -> int:
    """Write a snapshot of this version."""
    import json

    from foretell.interop.user_files import write_whole
    from foretell.lab.versions.changes import STANDARD, read_snapshot, take_snapshot

    read = [read_snapshot(path) for path in given.get("files", ())]
    questions = [(one.verb, one.question) for old in read for one in old.predictions]
    made = take_snapshot(questions or STANDARD)
    text = json.dumps(made.to_dict(), allow_nan=False)
    write_whole(str(edges.save), f"{text}\n")
    if edges.json:
        write_json(
            {"foretell": made.version, "predictions": len(made.predictions), "file": edges.save}
        )
    else:
        print(f"{len(made.predictions)} predictions of {made.version} saved in {edges.save}")
    return 0
