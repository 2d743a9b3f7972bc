"""`foretell buy`."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import no_as_json, show_answer, write_json
from foretell.specs.questions.buy import BuyQuestion


@command(BuyQuestion)
def buy(given: Given, edges: Edges) -> int:
    """What to get for a budget and a deadline, what it costs, when it is done and how sure."""
    from foretell.report.purchase import report_file, write_report
    from foretell.studies.procurement.buy import buy as answer

    file = report_file(edges.report)
    with no_as_json(edges.json):
        found = answer(**given)
    if file is not None:
        write_report(found.to_dict(), file)
    if edges.json:
        write_json(found.to_dict())
    else:
        show_answer("buy", found.to_dict())
    best = found.options[0]
    return 0 if best.within and (best.sure is None or best.sure >= 0.5) else 1
