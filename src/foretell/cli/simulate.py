"""`foretell simulate`."""

from typing import Annotated

from cyclopts import Parameter

from foretell.cli.exchange import Import, MaybeModel, asked
from foretell.cli.flags import Json, Question, decimal, number
from foretell.cli.output import no_as_json, write_json

NOTHING_SET = Question()

Trace = Annotated[
    str | None,
    Parameter(metavar="PATH", help="Write a Chrome trace for ui.perfetto.dev; .gz is gzipped."),
]
Detail = Annotated[
    str,
    Parameter(metavar="WORD", help="What the trace shows: tasks, layers, ops; auto: a fair size."),
]
Jitter = Annotated[
    str, Parameter(metavar="X", help="Standard deviation of a task's time, as a share: 0.02.")
]
Stragglers = Annotated[
    str, Parameter(metavar="P", help="Probability that a chip is slow for the whole step.")
]
Slowdown = Annotated[str, Parameter(metavar="X", help="How much longer a slow chip takes.")]
Repeats = Annotated[str, Parameter(metavar="N", help="Steps played where chance is asked for.")]
Seed = Annotated[str, Parameter(metavar="N", help="Seed of the draws.")]


def simulate(
    model: MaybeModel = "",
    *,
    question: Question = NOTHING_SET,
    trace: Trace = None,
    detail: Detail = "auto",
    jitter: Jitter = "0",
    stragglers: Stragglers = "0",
    slowdown: Slowdown = "1.3",
    repeats: Repeats = "20",
    seed: Seed = "0",
    import_: Import = None,
    json: Json = False,
) -> int:
    """One training step played event by event, beside the closed form."""
    from foretell import api

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
    if json:
        write_json({**result.to_dict(), "trace": trace})
    else:
        from foretell.report.console import show
        from foretell.report.simulation import simulation_text

        show(simulation_text(result, trace))
    return 0
