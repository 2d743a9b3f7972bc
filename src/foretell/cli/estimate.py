"""`foretell estimate`."""

from foretell.cli.flags import Conditions, Json, ModelName, Question
from foretell.cli.output import no_as_json, write_json

NOTHING_SET, NO_RUN = Question(), Conditions()


def estimate(
    model: ModelName,
    *,
    question: Question = NOTHING_SET,
    run: Conditions = NO_RUN,
    json: Json = False,
) -> int:
    """Time, rate and memory of one training step; the best plan where none is given."""
    from foretell import api

    with no_as_json(json):
        result = api.estimate(model, **question.arguments(), **run.arguments())
    if json:
        write_json(result.to_dict())
    else:
        from foretell.report.console import show
        from foretell.report.estimate import estimate_text

        show(estimate_text(result))
    return 0
