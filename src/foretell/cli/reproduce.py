"""`foretell reproduce`."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import write_json
from foretell.cli.progress import late_bar
from foretell.specs.questions.reproduce import ReproduceQuestion


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
