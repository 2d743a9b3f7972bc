"""`foretell network`: one collective on a system."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.specs.questions.network import NetworkQuestion


@command(NetworkQuestion)
def network(given: Given, edges: Edges) -> int:
    """Time, bandwidths, the algorithm taken and why, and a table over sizes."""
    from foretell.api.network import collective as ask

    file = plot_file(edges.plot)
    found = ask(**given)
    write_plot(file, "network", found.to_dict, quiet=edges.json)
    if edges.json:
        write_json(found.to_dict())
    else:
        from foretell.report import console
        from foretell.report.network import collective_text

        console.show(collective_text(found))
    return 0
