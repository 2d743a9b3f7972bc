"""`foretell fleet`."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import no_as_json, show_answer, write_json
from foretell.specs.questions.sizing import FleetQuestion


@command(FleetQuestion)
def fleet(given: Given, edges: Edges) -> int:
    """How many GPUs several models take: each on its own, and where sharing chips saves some."""
    from foretell.api.fleet import fleet as answer

    with no_as_json(edges.json):
        found = answer(**given)
    if edges.json:
        write_json(found.to_dict())
    else:
        show_answer("fleet", found.to_dict())
    return 0 if found.fits else 1
