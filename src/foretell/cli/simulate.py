"""`foretell simulate`."""

from typing import TYPE_CHECKING, Any

from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import imported, show_read_back
from foretell.cli.output import no_as_json, show_answer, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.specs.questions.training import SimulateQuestion

if TYPE_CHECKING:
    from foretell.simulation.answer import Simulation


@command(SimulateQuestion)
def simulate(given: Given, edges: Edges) -> int:
    """One training step simulated event by event, beside the closed form."""
    from foretell.api import training as api

    file, trace = plot_file(edges.plot), given.get("trace")
    with no_as_json(edges.json):
        asked = imported(given, edges)
        result = api.simulate(**asked)
    write_plot(file, "simulate", lambda: _with_events(result), quiet=edges.json)
    if edges.json:
        write_json({**result.to_dict(), **asked.told, "trace": trace})
    else:
        show_read_back(asked)
        show_answer("simulate", {**result.to_dict(), "trace": trace})
    return 0


def _with_events(result: "Simulation") -> dict[str, Any]:
    """The answer, and what ran when."""
    from foretell.simulation.trace import trace_events

    return {
        **result.to_dict(),
        "traceEvents": list(trace_events(result.laid, result.played, "tasks")),
    }
