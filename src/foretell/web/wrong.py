"""What is wrong with a request, in the words of every other error: path, value, message, allowed, nearest."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from foretell import units
from foretell.errors import Problem, nearest_name
from foretell.report.refusal import problem_as_dict

SHOWN = 200
"""Longest text of a value that is sent back."""


class Wrong(BaseModel):
    """One thing that is wrong with one field."""

    path: str = Field(description="Field names joined with dots; empty when it concerns the whole.")
    value: Any = Field(default=None, description="What was given.")
    message: str = Field(description="What is wrong.")
    allowed: str | None = Field(default=None, description="What would have been accepted.")
    nearest: str | None = Field(default=None, description="The closest valid name, value or plan.")


class Errors(BaseModel):
    """Everything that is wrong."""

    errors: list[Wrong]


NOT_A_NUMBER = {
    "int_parsing": "not a whole number", "int_type": "not a whole number",
    "int_from_float": "not a whole number", "float_parsing": "not a number",
    "float_type": "not a number",
}  # fmt: skip
"""Kinds of error that a number can have -> our words."""


def problems_of(
    found: Sequence[Mapping[str, Any]], route: str, bodies: Mapping[str, type[BaseModel]]
) -> list[Problem]:
    """Problems from what pydantic says of a request to a route; of a field that may be several things, one.

    A body that may be several things by a word of it has that word before the field: it stands for the
    route below, as in /api/cost/run.
    """
    problems: dict[str, Problem] = {}
    for error in found:
        where = [part for part in error["loc"] if part not in ("body", "path", "query")]
        body = bodies.get(route)
        if body is None and where and f"{route}/{where[0]}" in bodies:
            body, where = bodies[f"{route}/{where[0]}"], where[1:]
        nested = len(where) > 2 and where[0] == "questions"
        path = ".".join(map(str, where[: 3 if nested else 1]))
        if error["type"] == "json_invalid":
            path = ""
        if error["type"].startswith("union_tag"):
            path = str(error["ctx"]["discriminator"]).strip("'")
        if path not in problems:
            problems[path] = _problem(path, error, {} if body is None else body.model_fields)
    return list(problems.values())


def _problem(path: str, error: Mapping[str, Any], known: Mapping[str, Any]) -> Problem:
    """One problem, with the fields that are known."""
    message, allowed, near, value = str(error["msg"]), None, None, error.get("input")
    if error["type"] == "extra_forbidden":
        message, allowed, near = "unknown field", ", ".join(known), nearest_name(path, known)
    elif error["type"] == "missing":
        message, value = "missing", None
    elif error["type"] in NOT_A_NUMBER:
        message, near = NOT_A_NUMBER[error["type"]], units.plain_number(value)
    elif path in known:
        allowed = known[path].description
    return Problem(path=path, value=_short(value), message=message, allowed=allowed, nearest=near)


def errors_of(problems: Sequence[Problem]) -> dict[str, Any]:
    """Problems as the answer of a request."""
    return {"errors": [problem_as_dict(problem) for problem in problems]}


def _short(value: object) -> object:
    """A value that may be sent back: what is not a short text or a number is known by its kind."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= SHOWN else f"{value[:SHOWN]}..."
    return f"<{type(value).__name__}>"
