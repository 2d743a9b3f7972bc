"""`foretell diagnose`."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import no_as_json, show_answer, write_json
from foretell.specs.questions.diagnose import DiagnoseQuestion


@command(DiagnoseQuestion)
def diagnose(given: Given, edges: Edges) -> int:
    """Measured runs beside their predictions: likely causes of a gap, and what to measure next."""
    from foretell.api.diagnose import diagnose as ask

    with no_as_json(edges.json):
        found = ask(**given)
    if edges.json:
        write_json(found.to_dict())
    else:
        show_answer("diagnose", found.to_dict())
    return 0
