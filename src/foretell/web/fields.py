"""From questions to typed request bodies: names, types, help, defaults and limits are the records'.

A question's fields say what they are (specs/questions/flags.py); here is what each kind is in JSON, and what
is wrong with a request in the words of every other error: path, value, message, allowed, nearest.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from foretell import units
from foretell.errors import Problem, nearest_name, wrong
from foretell.report.refusal import problem_as_dict
from foretell.specs.questions import flags as asked

TEXT_LENGTH, LIST_LENGTH, MOST_NAMED = 2000, 64, 16
"""Longest text, most entries of a list, and most models or systems of one question."""
DOCUMENT_LENGTH = 64_000
"""Longest text of a whole file."""
PASTE_LENGTH = 50_000
"""Longest text of measured runs."""

Text = Annotated[str, Field(max_length=TEXT_LENGTH)]
Document = Annotated[str, Field(max_length=DOCUMENT_LENGTH)]
Name = Annotated[str, Field(max_length=80)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
Amount = Whole | Finite | Text
Object = dict[str, Any]
Settings = (
    Annotated[list[Text], Field(max_length=LIST_LENGTH)]
    | Annotated[dict[Text, Amount], Field(max_length=LIST_LENGTH)]
)
Texts = Annotated[list[Text], Field(max_length=LIST_LENGTH)]
Rows = Annotated[
    list[Annotated[str, Field(max_length=PASTE_LENGTH)] | Object], Field(max_length=LIST_LENGTH)
]
Named = Annotated[list[Text | Object], Field(max_length=MOST_NAMED)]


KINDS: Mapping[asked.Kind, Any] = {
    "text": Text,
    "document": Document,
    "words": Text,
    "whole": Whole,
    "count": Amount,
    "decimal": Finite,
    "amount": Amount,
    "price": Amount,
    "switch": bool,
    "settings": Settings,
    "texts": Texts,
    "named": Text | Object,
    "names": Named,
    "table": Object,
    "rows": Rows,
}
"""What a kind of value is in JSON."""


class StrictBody(BaseModel):
    """A body in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=False, title=None)


class PastedText(StrictBody):
    """A text that was dropped on the page or pasted there."""

    text: Document = Field(
        description="A system's TOML, a config.json, measured runs, or a launch of another tool."
    )


def body_model(verb: str, record: Any, more: Mapping[str, Any] | None = None) -> type[StrictBody]:
    """The request body of a verb's question; `more` are fields that no other surface has."""
    fields = {field.called: _field(field) for field in asked.offered(record, "web")}
    title = "".join(word.title() for word in verb.replace("-", " ").split()) + "Question"
    made: type[StrictBody] = create_model(title, __base__=StrictBody, **fields, **(more or {}))
    return made


def _field(field: asked.QuestionField) -> Any:
    """Type and default of a field in JSON."""
    kind, said = KINDS[field.flag.kind], _said(field)
    if field.needed:
        return kind, Field(description=said)
    return kind | None, Field(default=None, description=said)


def _said(field: asked.QuestionField) -> str:
    """The help of a field, and what is taken without it."""
    said = field.flag.inline or field.flag.help
    usual = field.default is False or field.default == ""
    if isinstance(field.default, str | int | float) and not usual:
        said += f" Default: {field.default}."
    return said


def figure_model(verb: str, question: type[BaseModel], most: int) -> type[StrictBody]:
    """The request body of a figure of several questions."""
    title = "".join(word.title() for word in verb.replace("-", " ").split())
    many: Any = list[question]  # type: ignore[valid-type]
    fields: dict[str, Any] = {
        "questions": (
            Annotated[many, Field(min_length=1, max_length=most)],
            Field(description="Flags of each, side by side."),
        ),
        "names": (Annotated[list[Name], Field(max_length=most)] | None, None),
        "theme": (Literal["light", "dark"] | None, None),
    }
    made: type[StrictBody] = create_model(title, __base__=StrictBody, **fields)
    return made


def flags_of(body: BaseModel) -> dict[str, Any]:
    """The flags that a body has, less those that are null."""
    held = body.model_dump(exclude_unset=True)
    if "questions" in held:
        held["questions"] = [_known(question) for question in held["questions"]]
    return _known(held)


def _known(held: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in held.items() if value is not None}


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
    return wrong(path, _short(value), message, allowed, near)


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
