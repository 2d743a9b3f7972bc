"""`foretell characterize trace`."""

from typing import Annotated

from cyclopts import Parameter

from foretell.cli.flags import Json, Question
from foretell.cli.output import write_json

NOTHING_SET = Question()

Files = Annotated[
    str,
    Parameter(
        metavar="FILE...",
        help="Traces of the PyTorch profiler, one a rank, or of foretell simulate; .gz too.",
    ),
]
Model = Annotated[
    str | None,
    Parameter(metavar="ID|PATH", help="The model that was trained: lays its prediction beside."),
]
OneStep = Annotated[
    str | None,
    Parameter(metavar="N", help="One of the profiler's steps; else all, and their mean."),
]
Drawn = Annotated[
    str | None,
    Parameter(
        metavar="FILE", help="Write both timelines: .svg, .html, or .png where a browser is."
    ),
]


def trace(
    *files: Files,
    model: Model = None,
    question: Question = NOTHING_SET,
    step: OneStep = None,
    picture: Drawn = None,
    json: Json = False,
) -> int:
    """Where the time of each step and rank went, and the prediction of the same job beside it."""
    from foretell.lab.characterize.traces.run import characterize_trace
    from foretell.report.picture_files import picture_file, write

    file = picture_file("picture", picture) if picture else None
    found = characterize_trace(files, model=model, step=step, **question.arguments())
    if file is not None:
        from foretell.report.trace_timeline import traced_picture

        write(file, traced_picture(found))
    if json:
        write_json(found.to_dict())
    else:
        from foretell.report.console import show
        from foretell.report.trace_breakdown import traced_text

        show(traced_text(found))
    return 0
