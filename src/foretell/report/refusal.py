"""The answer no, and what is wrong with a question, as JSON: one shape for the command line and the web."""

import math
from collections.abc import Sequence
from typing import Any

from foretell.api.answers import Estimate
from foretell.errors import Problem


def no_as_dict(problems: Sequence[Problem], answer: object = None) -> dict[str, Any]:
    """The answer no: `fits` and why, on top of what was computed all the same."""
    known = answer.to_dict() if isinstance(answer, Estimate) else {}
    return {**known, "fits": "no", "problems": [problem_as_dict(problem) for problem in problems]}


def problem_as_dict(problem: Problem) -> dict[str, Any]:
    """A problem as JSON; a value that JSON lacks is given as its text."""
    keys = ("path", "value", "message", "allowed", "nearest")
    told = {key: getattr(problem, key) for key in keys}
    value = problem.value
    plain = value is None or isinstance(value, str | int)
    if not plain and not (isinstance(value, float) and math.isfinite(value)):
        told["value"] = str(value)
    return told
