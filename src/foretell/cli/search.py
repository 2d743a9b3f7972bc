"""`foretell search`."""

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
from foretell.cli.flags import Json, Over, Plot, Question, Top, Workers, number
from foretell.cli.output import no_as_dict, no_as_json, write_json
from foretell.cli.plots import plot_file, write_plot
from foretell.cli.progress import late_bar
from foretell.cli.run import complain

NOTHING_SET = Question()


def search(
    model: MaybeModel = None,
    *,
    question: Question = NOTHING_SET,
    top: Top = "10",
    over: Over = "",
    workers: Workers = "1",
    plot: Plot = None,
    import_: Import = None,
    export: Export = None,
    jsonl: Lines = None,
    json: Json = False,
) -> int:
    """Every plan ranked, best first; --plan fixes what it names."""
    from foretell.api import training as api
    from foretell.interop.launch import TRAINING

    check_tool(export, TRAINING)
    lines, file = lines_file(jsonl), plot_file(plot)
    with no_as_json(json), late_bar("plans") as progress:
        named, given = asked(model, question.arguments(), import_)
        found = api.search(
            named,
            **given,
            top=number(top),
            workers=number(workers),
            over=over,
            progress=progress,
        )
    write_plot(file, "search", found.to_dict)
    problems = []
    if not found.plans:
        problems = [found.why_none]
    written = found.best.export(export) if export and found.plans else None
    if lines is not None:
        append(lines, "".join(plan.to_json_line() for plan in found.plans))
    if json:
        told = written.to_dict() if written else {}
        write_json(found.to_dict() | told | (no_as_dict(problems) if problems else {}))
    elif written is not None:
        print_launch(written)
    elif found.plans:
        from foretell.report.console import show
        from foretell.report.search import search_text

        show(search_text(found))
    complain(problems)
    return 1 if problems else 0
