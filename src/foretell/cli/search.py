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
    note,
)
from foretell.cli.flags import Json, Over, Question, Top, Workers, number
from foretell.cli.output import no_as_dict, no_as_json, write_json
from foretell.cli.progress import late_bar
from foretell.cli.run import complain
from foretell.errors import Problem
from foretell.search.search import Search

NOTHING_SET = Question()


def search(
    model: MaybeModel = "",
    *,
    question: Question = NOTHING_SET,
    top: Top = "10",
    over: Over = "",
    workers: Workers = "1",
    import_: Import = None,
    export: Export = None,
    jsonl: Lines = None,
    json: Json = False,
) -> int:
    """Every plan ranked, best first; --plan fixes what it names."""
    from foretell import api
    from foretell.interop.launch import TRAINING

    check_tool(export, TRAINING)
    file = lines_file(jsonl)
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
    problems = [] if found.plans else [nothing(found)]
    written = found.best.export(export) if export and found.plans else None
    append(file, "".join(plan.to_json_line() for plan in found.plans))
    if json:
        told = {"export": written.text, "export_notes": list(written.notes)} if written else {}
        write_json(found.to_dict() | told | (no_as_dict(problems) if problems else {}))
    elif written is not None:
        print(written.text)
        note(written.notes)
    elif found.plans:
        from foretell.report.console import show
        from foretell.report.search import search_text

        show(search_text(found))
    complain(problems)
    return 1 if problems else 0


def nothing(found: Search) -> Problem:
    """Why no plan came back."""
    if found.plans_evaluated:
        message = f"none of {found.plans_evaluated} plans fits in memory"
        allowed = "more chips, or chips with more memory"
    else:
        reasons = ", ".join(f"{rule} ({count})" for rule, count in found.rejected.items())
        message, allowed = f"no plan satisfies the rules: {reasons}", "other chips or batch"
    return Problem(path="plan", value=None, message=message, allowed=allowed)
