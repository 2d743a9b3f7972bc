"""Works by name, and the figures of one: what `foretell reproduce` runs."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.lab.reproduce.records import PaperFigure, PublishedWork
from foretell.specs.questions.flags import asks
from foretell.specs.questions.reproduce import ReproduceQuestion

WORKS: Mapping[str, str] = MappingProxyType(
    {
        "nersc-2024": "nersc_2024.NERSC_2024",
        "scaling-2024": "scaling_2024.SCALING_2024",
        "imec-2025": "imec_2025.IMEC_2025",
        "anthe-2023": "anthe_2023.ANTHE_2023",
    }
)
"""Names of works and where each is defined: one alone is loaded."""
MOST_WORKERS = 1024
"""Most processes."""


def work_named(name: object) -> PublishedWork:
    """The work of that name; BadInput where there is none."""
    if not isinstance(name, str) or name not in WORKS:
        near = nearest_name(name, list(WORKS)) if isinstance(name, str) else None
        raise bad_input(
            "work", name, "is not a work that can be reproduced", ", ".join(WORKS), near
        )
    module, _, attribute = WORKS[name].partition(".")
    found = getattr(import_module(f"{__package__}.{module}"), attribute)
    assert isinstance(found, PublishedWork)
    return found


@asks(ReproduceQuestion)
def reproduce(question: ReproduceQuestion) -> list[PaperFigure]:
    """The figures of a work as tables and findings, by the published model and by ours."""
    work = work_named(question.work)
    asked = (question.figure,) if isinstance(question.figure, str) else tuple(question.figure)
    problems = [
        Problem(
            path="figure",
            value=name,
            message=f"is no figure of {work.name}",
            allowed=", ".join(work.figures),
            nearest=nearest_name(str(name), list(work.figures)),
        )
        for name in asked
        if name not in work.figures
    ]
    if not 1 <= question.workers <= MOST_WORKERS:
        problems.append(
            wrong("workers", question.workers, "is not a usable count", f"1 to {MOST_WORKERS}")
        )
    if problems:
        raise BadInput(problems)
    return work.run(asked or tuple(work.figures), question.workers, question.progress)
