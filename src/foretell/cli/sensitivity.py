"""`foretell sensitivity`."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import no_as_json, show_answer, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.cli.progress import late_bar
from foretell.specs.questions.studies import SensitivityQuestion


@command(SensitivityQuestion)
def sensitivity(given: Given, edges: Edges) -> int:
    """How time, cost and energy answer to every number of hardware, software and price."""
    from foretell.studies.sensitivity import sensitivities

    file = plot_file(edges.plot)
    counted = "searches" if given.get("replan") else "numbers"
    with no_as_json(edges.json), late_bar(counted) as progress:
        found = sensitivities(**given, progress=progress)
    write_plot(file, "sensitivity", found.to_dict, quiet=edges.json)
    if edges.json:
        write_json(found.to_dict())
    else:
        show_answer("sensitivity", found.to_dict())
    return 0
