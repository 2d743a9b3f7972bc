"""`foretell explain` and `foretell compare-plans`."""

from typing import TYPE_CHECKING

from foretell.catalog.model_names import find_model
from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import imported, show_read_back
from foretell.cli.output import no_as_json, no_as_text, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.specs.plan_words import is_plan_text
from foretell.specs.questions.training import PlansQuestion, StepQuestion

if TYPE_CHECKING:
    from foretell.search.explain import Explanation


@command(StepQuestion)
def explain(given: Given, edges: Edges) -> int:
    """Where time and memory go, largest first, what bounds each share, and what would move it."""
    from foretell.api import training as api

    file = plot_file(edges.plot)
    with no_as_json(edges.json), no_as_text(not edges.json, lambda no: show_text(no.explain())):
        asked = imported(given, edges)
        found = api.explain(**asked)
    write_plot(file, "explain", found.to_dict, quiet=edges.json)
    if edges.json:
        write_json({**found.to_dict(), **asked.told})
    else:
        show_read_back(asked)
        show_text(found)
    return 0


def show_text(found: "Explanation") -> None:
    """An explanation as text."""
    from foretell.report.console import show
    from foretell.report.explain import explain_text

    show(explain_text(found))


@command(PlansQuestion)
def compare_plans(given: Given, edges: Edges) -> int:
    """Why one plan beats another, leaf by leaf, and whether that is certain."""
    if is_plan_text(given["model"]) or find_model(str(given["b"])):  # the order of older versions
        given = {**given, "model": given["b"], "a": given["model"], "b": given["a"]}
    from foretell.api import training as api

    file = plot_file(edges.plot)
    with no_as_json(edges.json):
        found = api.compare_plans(**given)
    write_plot(file, "compare-plans", found.to_dict, quiet=edges.json)
    if edges.json:
        write_json(found.to_dict())
    else:
        from foretell.report.console import show
        from foretell.report.differences import comparison_text

        show(comparison_text(found))
    return 1 if found.better == "neither" else 0
