"""`foretell simulate`."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foretell.cli.exchange import Import, MaybeModel, asked
from foretell.cli.flags import Json, Plot, Question, decimal, number
from foretell.cli.output import no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot

if TYPE_CHECKING:
    from foretell.simulation.answer import Simulation

NOTHING_SET = Question()

Trace = Annotated[
    str | None,
    Parameter(metavar="PATH", help="Write a Chrome trace for ui.perfetto.dev; .gz is gzipped."),
]
Detail = Annotated[
    str,
    Parameter(
        metavar="WORD",
        help="What the trace shows: tasks, layers or ops; auto: the most that opens well.",
    ),
]
Jitter = Annotated[
    str,
    Parameter(metavar="X", help="Chance: standard deviation of a task's time, as a share: 0.02."),
]
Stragglers = Annotated[
    str, Parameter(metavar="P", help="Chance: probability that a chip is slow for the whole step.")
]
Slowdown = Annotated[
    str, Parameter(metavar="X", help="Chance: how many times longer a slow chip takes.")
]
Repeats = Annotated[str, Parameter(metavar="N", help="Chance: steps played.")]
Seed = Annotated[str, Parameter(metavar="N", help="Chance: seed.")]


def simulate(
    model: MaybeModel = None,
    *,
    question: Question = NOTHING_SET,
    trace: Trace = None,
    detail: Detail = "auto",
    jitter: Jitter = "0",
    stragglers: Stragglers = "0",
    slowdown: Slowdown = "1.3",
    repeats: Repeats = "20",
    seed: Seed = "0",
    plot: Plot = None,
    import_: Import = None,
    json: Json = False,
) -> int:
    """One training step played event by event, beside the closed form."""
    from foretell.api import training as api

    file = plot_file(plot)
    with no_as_json(json):
        named, given = asked(model, question.arguments(), import_)
        result = api.simulate(
            named,
            **given,
            jitter=decimal(jitter),
            stragglers=decimal(stragglers),
            slowdown=decimal(slowdown),
            repeats=number(repeats),
            seed=number(seed),
            trace=trace,
            detail=detail,
        )
    write_plot(file, "simulate", lambda: _with_events(result))
    if json:
        write_json({**result.to_dict(), "trace": trace})
    else:
        from foretell.report.console import show
        from foretell.report.simulation import simulation_text

        show(simulation_text(result, trace))
    return 0


def _with_events(result: "Simulation") -> dict[str, Any]:
    """The answer, and what ran when."""
    from foretell.simulation.trace import trace_events

    return {
        **result.to_dict(),
        "traceEvents": list(trace_events(result.laid, result.played, "tasks")),
    }
