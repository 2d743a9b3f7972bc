"""`foretell explain` and `foretell compare-plans`."""

from typing import TYPE_CHECKING

from foretell.catalog.model_names import find_model
from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import imported, show_read_back
from foretell.cli.output import no_as_json, no_as_text, show_answer, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.specs.plan_words import is_plan_text
from foretell.specs.questions.training import PlansQuestion, StepQuestion

if TYPE_CHECKING:
    from foretell.api.answers import Estimate


@command(StepQuestion)
def explain(given: Given, edges: Edges) -> int:
    """Where time and memory go, largest first, what bounds each share, and what would move it."""
    from foretell.api import training as api

    file = plot_file(edges.plot)
    with no_as_json(edges.json), no_as_text(not edges.json, _show_no):
        asked = imported(given, edges)
        found = api.explain(**asked)
    write_plot(file, "explain", found.to_dict, quiet=edges.json)
    if edges.json:
        write_json({**found.to_dict(), **asked.told})
    else:
        show_read_back(asked)
        show_answer("explain", found.to_dict())
    return 0


def _show_no(no: "Estimate") -> None:
    """Where the time and memory of a step that does not fit go."""
    show_answer("explain", no.explain().to_dict())


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
        show_answer("compare-plans", found.to_dict())
    return 1 if found.better == "neither" else 0
