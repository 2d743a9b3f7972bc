"""What a field of a question is on every surface: a Python argument, a flag, a web field, a study's key.

A question is a record (specs/questions/*.py) whose fields are annotated with a `Flag`. The command line
(cli/command.py), the web (web/fields.py), studies (studies/axes.py) and the Python functions (`asks`) are
made from it; nothing else names a flag.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from typing import Any, Literal, ParamSpec, TypeVar

from foretell.errors import BadInput, nearest_name, wrong
from foretell.records import dataclass

P = ParamSpec("P")
Q = TypeVar("Q")
R = TypeVar("R")

Kind = Literal[
    "text", "document", "words", "whole", "count", "decimal", "amount", "price", "switch", "settings",
    "texts", "named",
    "names", "table", "function", "rows",
]  # fmt: skip
"""How a value is read:

text      a text                                   words     words of a plan
document  a text of a whole file, or its name
whole     a whole number                           count     a whole number, or a text such as 512xH100
decimal   a number                                 price     a number, or a text with a unit
amount    a number or a text with a unit, which the function reads itself
switch    on or off                                settings  texts PATH=VALUE, or a mapping
texts     several texts                            named     a name of the catalogue, a file, or an object
names     several of these                         table     a study's tables, or the file that has them
function  a function of the caller: of Python alone
rows      several texts, files or objects; by their place where the question's field has one
"""
Surface = Literal["python", "command", "web", "study"]
"""Where a question is asked."""
NamesFile = Literal["no", "maybe", "always"]
"""Whether a value may name a file of the user: never, beside a name or a word, or nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One field of a question, for every surface."""

    help: str = ""
    """One line about it."""
    kind: Kind = "text"
    """How its value is read."""
    metavar: str | None = None
    """What stands for a value in the help; None: the field's name."""
    names_file: NamesFile = "no"
    """Whether it may name a file, to read or to write. The web refuses such files wherever they are named."""
    most: float | None = None
    """Largest number that a server answers for; the command line and Python have no such limit."""
    sets: str = ""
    """The `--set` path that it is a short name of, of a model, a system or a job; empty: none."""
    names: tuple[str, ...] = ()
    """What it is called outside of Python, where that is not the field's name; the first one counts."""
    without: Mapping[Surface, str] = dataclasses.field(default_factory=dict)
    """Surfaces that do not offer it, each with the reason."""
    lists: str = ""
    """Which ids a shell offers for it: models or systems."""
    placed: bool = False
    """Whether its place is enough on the command line, as of what has a place in Python too."""
    word: str = ""
    """The word of a plan that it is, without its value, as in `tp` or `precision=`; empty: none."""
    inline: str = ""
    """What the web says of it, where an object replaces a file."""


def flag(about: str, metavar: str | None = None, kind: Kind = "text", **more: Any) -> Flag:
    """A flag: one line about it, what stands for its value and how it is read; `more` are further fields."""
    return Flag(help=about, kind=kind, metavar=metavar, **more)


def whole(about: str, metavar: str | None = "N", **more: Any) -> Flag:
    """A flag that takes a whole number."""
    return flag(about, metavar, "whole", **more)


def decimal(about: str, metavar: str | None = "N", **more: Any) -> Flag:
    """A flag that takes a number."""
    return flag(about, metavar, "decimal", **more)


def file_flag(about: str, metavar: str | None = "FILE", **more: Any) -> Flag:
    """A flag that names a file of the user, to read or to write."""
    return flag(about, metavar, names_file="always", **more)


def switch(about: str, **more: Any) -> Flag:
    """A flag that is on or off."""
    return flag(about, None, "switch", **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionField:
    """A flag with its name and default."""

    name: str
    """The Python argument."""
    flag: Flag
    """What it is."""
    default: Any
    """What is taken where it is not given; `dataclasses.MISSING` where it must be."""
    positional: bool
    """Whether its place is enough."""

    @property
    def called(self) -> str:
        """Its name on the command line, the web and in studies, in snake case."""
        return self.flag.names[0] if self.flag.names else self.name

    @property
    def required(self) -> bool:
        """Whether a question must have it."""
        return self.default is dataclasses.MISSING

    @property
    def several(self) -> bool:
        """Whether the command line takes any number of them by their place."""
        return self.flag.kind == "names" or (self.flag.kind == "rows" and self.positional)

    @property
    def needed(self) -> bool:
        """Whether the command line and the web insist on it; of several, the function does."""
        return self.required and not self.several

    def on(self, surface: Surface) -> bool:
        """Whether a surface offers it; the web offers nothing that is a file alone."""
        if surface in self.flag.without:
            return False
        return surface == "python" or (
            self.flag.kind != "function"
            and not (
                surface != "command" and self.flag.names_file == "always" and not self.flag.inline
            )
        )


EVERYDAY = (
    "model algorithm a b system gpus plan budget deadline global_batch seq_len tokens rate isl osl "
    "concurrency ttft tpot prompts samples max_osl framework tp pp engine rent price workload "
    "import export plot "
    "measured set out json"
).split()
"""Fields that are shown first where not all are, the more wanted before."""


def most_wanted(fields: Iterable[QuestionField], most: int) -> list[QuestionField]:
    """So many fields: what must be given, then what is wanted most."""
    place = {name: at for at, name in enumerate(EVERYDAY)}
    return sorted(
        fields, key=lambda field: (not field.needed, place.get(field.called, len(place)))
    )[:most]


def fields_of(record: Any) -> tuple[QuestionField, ...]:
    """The fields of a question, in its order."""
    return _fields(record)


@lru_cache(maxsize=64)
def _fields(record: type) -> tuple[QuestionField, ...]:
    return tuple(
        QuestionField(
            name=field.name,
            flag=flag_of(field.type),
            default=field.default,
            positional=not field.kw_only or flag_of(field.type).placed,
        )
        for field in dataclasses.fields(record)
    )


def flag_of(hint: Any) -> Flag:
    """The flag of an annotation."""
    return next(mark for mark in hint.__metadata__ if isinstance(mark, Flag))


def edges_of(record: Any) -> tuple[QuestionField, ...]:
    """What the command line and the web offer beside a question: where the answer goes, and in which form."""
    return tuple(
        QuestionField(
            name=flag.names[0], flag=flag, default=_NOTHING.get(flag.kind), positional=False
        )
        for flag in getattr(record, "edges", ())
    )


_NOTHING: Mapping[str, Any] = {"switch": False, "texts": (), "rows": ()}


def offered(record: Any, surface: Surface) -> tuple[QuestionField, ...]:
    """Everything that a surface offers for a question."""
    return tuple(field for field in (*fields_of(record), *edges_of(record)) if field.on(surface))


def asks(record: Callable[P, Q]) -> Callable[[Callable[[Q], R]], Callable[P, R]]:
    """Make a function of a question's fields from a function of the question.

    A type checker sees the record's own signature, and so does `inspect.signature`.
    """

    def of_fields(answer: Callable[[Q], R]) -> Callable[P, R]:
        @wraps(answer)
        def ask(*given: P.args, **named: P.kwargs) -> R:
            _check_names(answer.__name__, record, named)
            question = record(*given, **named)
            check_sizes(question)
            return answer(question)

        made: Any = ask
        made.question = record
        made.__signature__ = _signature(record, answer.__annotations__.get("return"))
        return ask

    return of_fields


CALLED_ELSEWHERE = {"overrides": "set", "sequence_length": "seq_len", "batch_size": "global_batch"}
"""Names that answers and other tools have for arguments."""


def _check_names(function: str, record: Any, named: Mapping[str, Any]) -> None:
    """TypeError with the nearest argument where one is named that a question does not have."""
    known = [field.name for field in fields_of(record)]
    for name in named:
        if name not in known:
            near = CALLED_ELSEWHERE.get(name)
            near = near if near in known else nearest_name(name, known)
            more = f"; did you mean {near}?" if near else f"; it has {', '.join(known)}"
            raise TypeError(f"{function}() has no argument {name!r}{more}")


NUMBERS = ("whole", "count", "decimal", "amount", "price")
"""Kinds of fields that are numbers."""
SMALLEST, LARGEST = 1e-30, 1e30
"""Beyond these no number is of anything, and products of a few have no value."""


def check_sizes(question: object) -> None:
    """BadInput with every number of a question that is of nothing in this world."""
    problems = []
    for field in fields_of(type(question)):
        value = getattr(question, field.name) if field.flag.kind in NUMBERS else None
        try:
            size = abs(float(value or 0.0))
        except (
            TypeError,
            ValueError,
            OverflowError,
        ):  # text with a unit, or wrong: who reads it says so
            continue
        if math.isfinite(size) and size and not SMALLEST <= size <= LARGEST:
            message, allowed = "not a usable number", f"0, or {SMALLEST:g} to {LARGEST:g}"
            problems.append(wrong(field.name, value, message, allowed))
    if problems:
        raise BadInput(problems)


def _signature(record: Any, back: Any) -> inspect.Signature:
    """The record's own, its types without what other surfaces say of a field."""
    found = inspect.signature(record)
    plain = [one.replace(annotation=_type_of(one.annotation)) for one in found.parameters.values()]
    return inspect.Signature(plain, return_annotation=back)


def _type_of(hint: Any) -> Any:
    """The type that a flag annotates."""
    return getattr(hint.__origin__, "__forward_arg__", hint.__origin__)


def part(record: type[Q], question: object, **changes: Any) -> Q:
    """A question of another kind from the fields that both have."""
    held = values_of(question)
    shared = {field.name: held[field.name] for field in fields_of(record) if field.name in held}
    return record(**{**shared, **changes})


def values_of(question: object) -> dict[str, Any]:
    """What a question has, by field: the keywords of a function that `asks` it."""
    return {field.name: getattr(question, field.name) for field in fields_of(type(question))}


def given_of(question: object) -> dict[str, Any]:
    """What a question has beyond its defaults, by field."""
    return {
        field.name: getattr(question, field.name)
        for field in fields_of(type(question))
        if field.required or getattr(question, field.name) != field.default
    }
