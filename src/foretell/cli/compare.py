"""`foretell compare`: systems ranked by cost, then speed."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import no_as_json, show_answer, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.specs.questions.compare import CompareQuestion


@command(CompareQuestion)
def compare(given: Given, edges: Edges) -> int:
    """Rank systems by cost and speed for a job: USD per million tokens, run and request, and total cost."""
    from foretell.studies.procurement.compare import compare as run

    file = plot_file(edges.plot)
    with no_as_json(edges.json):
        found = run(**{"systems": (), **given})
    write_plot(file, "compare", found.to_dict, quiet=edges.json)
    if edges.json:
        write_json(found.to_dict())
    else:
        show_answer("compare", {**found.to_dict(), "with_reasons": edges.why})
    return 0
