"""The answer no, and what is wrong with a question, as JSON: one shape for the command line and the web."""

import math
from collections.abc import Sequence
from typing import Any

from foretell.api.answers import Estimate
from foretell.errors import Problem, has_late_hint
from foretell.records import Later, values_as_held


def no_as_dict(
    problems: Sequence[Problem],
    answer: object = None,
    *,
    hints: bool = True,
    read_back: Sequence[Any] = (),
) -> dict[str, Any]:
    """The answer no: `fits` and why, on top of what was computed all the same.

    Without `hints`, what would take long to find (the nearest plan that works) is null, and
    `hint_on_request` says that it can be asked for.
    """
    known = answer.to_dict() if isinstance(answer, Estimate) else {}
    late = not hints and any(has_late_hint(problem) for problem in problems)
    told = {
        "fits": "no",
        "problems": [problem_as_dict(problem, hints=hints) for problem in problems],
    }
    rows = {"read_back": [row.to_dict() for row in read_back]} if read_back else {}
    return {**known, **told, **({"hint_on_request": True} if late else {}), **rows}


def problem_as_dict(problem: Problem, *, hints: bool = True) -> dict[str, Any]:
    """A problem as JSON; a value that JSON lacks is given as its text."""
    keys = ("path", "value", "message", "allowed", "nearest")
    held = values_as_held(problem)
    late = () if hints else [key for key in keys if isinstance(held[key], Later)]
    told = {key: None if key in late else getattr(problem, key) for key in keys}
    value = problem.value
    plain = value is None or isinstance(value, str | int)
    if not plain and not (isinstance(value, float) and math.isfinite(value)):
        told["value"] = str(value)
    return told
