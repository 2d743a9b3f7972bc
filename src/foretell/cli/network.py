"""`foretell network`: one collective on a system."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import show_answer, write_json
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
        show_answer("network", found.to_dict())
    return 0
