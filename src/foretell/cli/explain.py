"""`foretell explain` and `foretell compare-plans`."""

from typing import Annotated

from cyclopts import Parameter

from foretell.cli.exchange import Import, MaybeModel, asked
from foretell.cli.flags import Json, ModelName, Place, Plot, Question
from foretell.cli.output import no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot

NOTHING_SET, NOWHERE_SET = Question(), Place()


def explain(
    model: MaybeModel = None,
    *,
    question: Question = NOTHING_SET,
    plot: Plot = None,
    import_: Import = None,
    json: Json = False,
) -> int:
    """Where time and memory go, largest first, what bounds each share, and what would move it."""
    from foretell.api import training as api
    from foretell.report.explain import explain_picture, explain_text

    file = plot_file(plot, drawn=True)
    with no_as_json(json):
        named, given = asked(model, question.arguments(), import_)
        found = api.explain(named, **given)
    write_plot(file, "explain", found.to_dict, lambda: explain_picture(found))
    if json:
        write_json(found.to_dict())
    else:
        from foretell.report.console import show

        show(explain_text(found))
    return 0


def compare_plans(
    a: Annotated[str, Parameter(help='Plan A, such as "tp8 pp4 zero1".')],
    b: Annotated[str, Parameter(help='Plan B, such as "tp4 pp8 zero1".')],
    /,
    model: ModelName,
    *,
    question: Place = NOWHERE_SET,
    plot: Plot = None,
    json: Json = False,
) -> int:
    """Why one plan beats another, leaf by leaf, and whether that is certain."""
    from foretell.api import training as api

    file = plot_file(plot)
    with no_as_json(json):
        found = api.compare_plans(a, b, model, **question.arguments())
    write_plot(file, "compare-plans", found.to_dict)
    if json:
        write_json(found.to_dict())
    else:
        from foretell.report.console import show
        from foretell.report.differences import comparison_text

        show(comparison_text(found))
    return 1 if found.better == "neither" else 0
