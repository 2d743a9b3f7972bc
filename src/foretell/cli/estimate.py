"""`foretell estimate`."""

from foretell.cli.exchange import (
    Export,
    Import,
    Lines,
    MaybeModel,
    append,
    asked,
    check_tool,
    lines_file,
    print_launch,
)
from foretell.cli.flags import Conditions, Json, Plot, Question
from foretell.cli.output import no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot

NOTHING_SET, NO_RUN = Question(), Conditions()


def estimate(
    model: MaybeModel = None,
    *,
    question: Question = NOTHING_SET,
    run: Conditions = NO_RUN,
    plot: Plot = None,
    import_: Import = None,
    export: Export = None,
    jsonl: Lines = None,
    json: Json = False,
) -> int:
    """Time, rate and memory of one training step; the best plan where none is given."""
    from foretell.api import training as api
    from foretell.interop.launch import TRAINING

    check_tool(export, TRAINING)
    lines, file = lines_file(jsonl), plot_file(plot)
    with no_as_json(json):
        named, given = asked(model, question.arguments(), import_)
        result = api.estimate(named, **given, **run.arguments())
    write_plot(file, "estimate", result.to_dict)
    written = result.export(export) if export else None
    if lines is not None:
        append(lines, result.to_json_line())
    if json:
        told = written.to_dict() if written else {}
        write_json({**result.to_dict(), **told})
    elif written is not None:
        print_launch(written)
    else:
        from foretell.report.console import show
        from foretell.report.estimate import estimate_text

        show(estimate_text(result))
    return 0
