"""The command of a verb, made from its question: flags, help and defaults are the record's.

Numbers are taken as texts: what is wrong with them is then stated together with everything else that is
wrong, in the words of the Python functions, rather than one by one by the parser.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from cyclopts import Parameter

from foretell.cli import names
from foretell.specs.questions.common import IMPORT, JSON, PLOT, SystemName, Workers
from foretell.specs.questions.flags import (
    Flag,
    QuestionField,
    edges_of,
    fields_of,
    flag_of,
    most_wanted,
)
from foretell.specs.questions.plan_flags import with_plan_words

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_BY_IMPORT = " not needed where --import names it."

Given = dict[str, Any]
"""What was given of a question, by the names of its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """What was given beside a question: where the answer goes, and in which form."""

    plot: str | None = None
    """File of a figure."""
    import_: str | None = None
    """Another tool's arguments."""
    accept_unknown: bool = False
    """Whether what is not understood of them is let pass."""
    hub: bool = False
    """Whether a model that the catalogue does not know is fetched."""
    export: str | None = None
    """Another tool that the answer is written for."""
    launcher: str | None = None
    """How that is started."""
    jsonl: str | None = None
    """File that a line of JSON goes to."""
    sweep: tuple[str, ...] = ()
    """Fields with several values."""
    study: bool = False
    """Whether the study of the documentation is asked."""
    picture: str | None = None
    """File of a drawing."""
    out: str | None = None
    """Folder that files go to."""
    why: bool = False
    """Whether the uncertainties behind an order are shown."""
    pareto: bool = False
    """Whether the Pareto front is shown."""
    save: str | None = None
    """File that a snapshot goes to."""
    report: str | None = None
    """File of a printable page."""
    json: bool = False
    """Whether the answer is printed as JSON."""


Answer = Callable[[Given, Edges], int]
"""The rest of a verb: what was given -> exit code."""


SHOWN = 15
"""Flags of a verb that its help shows; `--help-all` shows every one."""
MADE: list[tuple[Any, Any]] = []
"""Commands that were made, with their questions."""
ALL_SHOWN = [False]
"""Whether help shows every flag."""


def show_flags(*, every: bool) -> None:
    """Whether help shows every flag of the commands, those included that are yet to be made."""
    if ALL_SHOWN[0] != every:
        ALL_SHOWN[0] = every
        for made, record in MADE:
            made.__signature__ = inspect.Signature(_parameters(record))


def command(record: Any) -> Callable[[Answer], Callable[..., int]]:
    """Make a command of the function that answers a question."""

    def of_flags(answer: Answer) -> Callable[..., int]:
        signature = inspect.Signature(_parameters(record))
        fields = {field.name: field for field in fields_of(record)}
        typed = getattr(record, "typed", False)

        def run(*words: Any, **flags: Any) -> int:
            found = signature.bind(*words, **flags).arguments
            given = {n: v for n, v in found.items() if n in fields and v is not None}
            beside = {n: v for n, v in found.items() if n not in fields}
            if not typed:
                given = {name: read(fields[name], value) for name, value in given.items()}
            given = with_plan_words(record, given)
            given = {name: value for name, value in given.items() if value is not None}
            return answer(given, Edges(**beside))

        made: Any = run
        made.__name__, made.__doc__, made.__module__ = (
            answer.__name__, answer.__doc__, answer.__module__,
        )  # fmt: skip
        made.__signature__ = signature
        MADE.append((made, record))
        return run

    return of_flags


def read(field: QuestionField, value: Any) -> Any:
    """The value of a flag as the Python function takes it."""
    match field.flag.kind:
        case "whole" | "count":
            return number(value)
        case "decimal" | "price":
            return decimal(value)
        case "names":
            return tuple(map(names.own_path, value)) if field.flag.lists == "models" else value
        case _:
            return value


def number(text: str | None) -> Any:
    """A whole number where the text is one, else the text itself for the function to complain of."""
    return int(text) if text is not None and _WHOLE.fullmatch(text) else text


def decimal(text: str | None) -> Any:
    """A number where the text is one, else the text itself for the function to complain of."""
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return text


def _parameters(record: Any) -> list[inspect.Parameter]:
    """The flags of a question and of what goes beside it, as the parser takes them."""
    fields = _in_order([field for field in fields_of(record) if field.on("command")])
    imported = ("model", "algorithm") if IMPORT in getattr(record, "edges", ()) else ()
    edges = edges_of(record)
    shown = _shown_flags([*fields, *edges])
    made = [_parameter(field, optional=field.name in imported, shown=shown) for field in fields]
    return [*made, *(_parameter(edge, optional=False, shown=shown) for edge in edges)]


def _shown_flags(fields: list[QuestionField]) -> set[str]:
    """Names of the flags that help shows."""
    return {field.name for field in (fields if ALL_SHOWN[0] else most_wanted(fields, SHOWN))}


def _in_order(fields: list[QuestionField]) -> list[QuestionField]:
    """What has a place first, the model before all, and flags for words of a plan behind the plan."""
    plan = next((at for at, field in enumerate(fields) if field.name == "plan"), 0)
    place = {id(field): plan + 0.5 if field.flag.word else at for at, field in enumerate(fields)}
    return sorted(
        fields,
        key=lambda field: (not field.positional, field.name != "model", place[id(field)]),
    )


def _parameter(field: QuestionField, *, optional: bool, shown: set[str]) -> inspect.Parameter:
    """One flag; `optional`: something else may say what it would; `shown`: what help shows."""
    flag = field.flag
    kind: Any = inspect.Parameter.KEYWORD_ONLY
    if field.several:
        kind = inspect.Parameter.VAR_POSITIONAL
    elif field.positional:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    default: Any = inspect.Parameter.empty
    if not field.several and not (field.needed and not optional):
        default = None if optional else _shown(field.default)
    name = f"{field.name}_" if field.name == "import" else field.name
    typed: Any = Annotated
    about = _about(field, optional=optional, show=field.name in shown)
    hint = typed[str if field.several else _hint(flag.kind, default), about]
    return inspect.Parameter(name, kind, default=default, annotation=hint)


def _about(field: QuestionField, *, optional: bool, show: bool = True) -> Parameter:
    """What the parser knows of a flag."""
    flag = field.flag
    told: dict[str, Any] = {"help": flag.help} | ({} if show else {"show": False})
    if optional:
        told["help"] = flag.help.rstrip(".") + ";" + _BY_IMPORT
    if flag.metavar is not None:
        told["metavar"] = flag.metavar
    if flag.names:
        told["name"] = tuple(f"--{name.replace('_', '-')}" for name in flag.names)
    if flag.lists:
        told["completer"] = getattr(names, flag.lists)
    if flag.kind == "named" and flag.lists == "models":
        told["converter"] = names.model_name
    if flag.kind in ("settings", "texts", "rows") or field.default is False:
        told["negative"] = ""
    if not _is_number(field.default) and not (field.default and isinstance(field.default, str)):
        told["show_default"] = False
    return Parameter(**told)


def parameter(flag: Flag, default: Any = None) -> Parameter:
    """The parser's description of a flag by itself."""
    return _about(
        QuestionField(name="", flag=replace(flag, names=()), default=default, positional=False),
        optional=False,
    )


def _hint(kind: str, default: Any) -> Any:
    """The type of what is typed."""
    if kind == "switch":
        return bool
    if kind in ("settings", "texts", "rows"):
        return tuple[str, ...]
    return str | None if default is None else str


def _shown(default: Any) -> Any:
    """A default as it would be typed."""
    return f"{default:.15g}" if _is_number(default) else default


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def arg(about: str, metavar: str | None = None, **more: Any) -> Parameter:
    """An argument or a flag: one line about it, and the placeholder of its value."""
    return Parameter(help=about, metavar=metavar, **more)


def switch(about: str) -> Parameter:
    """A flag that is on or off."""
    return Parameter(help=about, negative="", show_default=False)


Json = Annotated[bool, parameter(JSON, default=False)]
Plot = Annotated[str | None, parameter(PLOT)]
System = Annotated[str | None, parameter(flag_of(SystemName))]
Processes = Annotated[str, parameter(flag_of(Workers), default="1")]
Top = Annotated[str, parameter(Flag(help="How many plans to keep.", metavar="N"), default="10")]
