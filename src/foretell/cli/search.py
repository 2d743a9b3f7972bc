"""`foretell search`."""

from foretell.cli.flags import Json, ModelName, Over, Plot, Question, Top, Workers, number
from foretell.cli.output import no_as_dict, no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.cli.progress import late_bar
from foretell.cli.run import complain
from foretell.errors import Problem
from foretell.search.search import Search

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
    problems = [] if found.plans else [nothing(found)]
    write_plot(file, "search", found.to_dict)
    if json:
        write_json(found.to_dict() | (no_as_dict(problems) if problems else {}))
    elif found.plans:
        from foretell.report.console import show
        from foretell.report.search import search_text

        show(search_text(found))
    complain(problems)
    return 1 if problems else 0


def nothing(found: Search) -> Problem:
    """Why no plan came back."""
    if found.plans_evaluated:
        message = f"none of {found.plans_evaluated} plans fits in memory"
        allowed = "more chips, or chips with more memory"
    else:
        reasons = ", ".join(f"{rule} ({count})" for rule, count in found.rejected.items())
        message, allowed = f"no plan satisfies the rules: {reasons}", "other chips or batch"
    return Problem(path="plan", value=None, message=message, allowed=allowed)
