"""`foretell estimate`."""

from foretell.cli.flags import Conditions, Json, ModelName, Plot, Question
from foretell.cli.output import no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot

NOTHING_SET, NO_RUN = Question(), Conditions()


def estimate(
    model: ModelName,
    *,
    question: Question = NOTHING_SET,
    run: Conditions = NO_RUN,
    plot: Plot = None,
    json: Json = False,
) -> int:
    """Time, rate and memory of one training step; the best plan where none is given."""
    from foretell import api

    file = plot_file(plot)
    with no_as_json(json):
        result = api.estimate(model, **question.arguments(), **run.arguments())
    write_plot(file, "estimate", result.to_dict)
    if json:
        write_json(result.to_dict())
    else:
        from foretell.report.console import show
        from foretell.report.estimate import estimate_text

        show(estimate_text(result))
    return 0
