"""`foretell search`."""

from foretell.cli.flags import Json, ModelName, Over, Plot, Question, Top, Workers, number
from foretell.cli.output import no_as_dict, no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.cli.progress import late_bar
from foretell.cli.run import complain

NOTHING_SET = Question()


def search(
    model: ModelName,
    *,
    question: Question = NOTHING_SET,
    top: Top = "10",
    over: Over = "",
    workers: Workers = "1",
    plot: Plot = None,
    json: Json = False,
) -> int:
    """Every plan ranked, best first; --plan fixes what it names."""
    from foretell import api

    file = plot_file(plot)
    with no_as_json(json), late_bar("plans") as progress:
        found = api.search(
            model,
            **question.arguments(),
            top=number(top),
            workers=number(workers),
            over=over,
            progress=progress,
        )
    write_plot(file, "search", found.to_dict)
    problems = []
    if not found.plans:
        from foretell.report.no import nothing_found

        problems = [nothing_found(found)]
    if json:
        write_json(found.to_dict() | (no_as_dict(problems) if problems else {}))
    elif found.plans:
        from foretell.report.console import show
        from foretell.report.search import search_text

        show(search_text(found))
    complain(problems)
    return 1 if problems else 0
