"""Frozen records that are quick to define: dataclasses for which fewer functions are made.

An estimate defines some 250 records before it computes anything, and up to Python 3.12 the standard
library compiles six functions for each, a fifth of the whole time. Here `__init__` alone is compiled, when
it is first asked for; what compares, hashes, prints and forbids is written once for all. To a type checker,
to `dataclasses.fields`, `replace` and `asdict`, and to `pickle`, a record is what the standard library's
decorator makes.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

_Record = TypeVar("_Record")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool) -> Any:
        """The standard library's, for records alone: frozen and keyword-only.

        Without slots a record may be made of several others, as questions are. `field(kw_only=False)` gives a
        field without a default a place of its own.
        """
        if not (frozen and kw_only):
            raise TypeError("a record is frozen and keyword-only: else use dataclasses")
        return _record if slots else _slotless


def as_json(
    *names: str, more: tuple[str, ...] = (), without: tuple[str, ...] = ()
) -> Callable[[Any], dict[str, Any]]:
    """A `to_dict` from the fields of a record: `names`, else all but those `without`, and `more` after them.

    Names are of fields or of properties. Records within have their own `to_dict`, or their fields.
    """

    def to_dict(self: Any) -> dict[str, Any]:
        """The same as JSON."""
        of_fields = (field.name for field in dataclasses.fields(self) if field.name not in without)
        return {name: plain(getattr(self, name)) for name in (*(names or of_fields), *more)}

    return to_dict


def plain(value: Any) -> Any:
    """A value as JSON has it: records and mappings as tables, tuples as lists, keys as texts."""
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    return value


class Later:
    """A field's value that is made when it is asked for, once."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __call__(self) -> Any:
        """The value."""
        return self._make()


def later(make: Callable[[], Any]) -> Any:
    """A `Later`, where a field's own type is expected."""
    return Later(make)


def made_when_asked(*names: str) -> Callable[[type[_Record]], type[_Record]]:
    """Fields of a record that may be given as `Later`: whoever reads one finds its value."""

    def with_slots(made: type[_Record]) -> type[_Record]:
        for name in names:
            setattr(made, name, _LateField(getattr(made, name)))
        return made

    return with_slots


class _LateField:
    """A slot that makes its value where it holds a `Later`."""

    __slots__ = ("slot",)

    def __init__(self, slot: Any) -> None:
        self.slot = slot

    def __get__(self, record: object, owner: type | None = None) -> Any:
        if record is None:
            return self
        value = self.slot.__get__(record, owner)
        if type(value) is Later:
            value = value()
            self.slot.__set__(record, value)
        return value

    def __set__(self, record: object, value: object) -> None:
        self.slot.__set__(record, value)


def values_as_held(record: Any) -> dict[str, Any]:
    """Field -> value of a record; what is made when it is asked for is not asked for."""
    kind = type(record)
    found = {}
    for name in record.__dataclass_fields__:
        held = getattr(kind, name, None)
        late = held.slot if isinstance(held, _LateField) else None
        found[name] = getattr(record, name) if late is None else late.__get__(record, kind)
    return found


def with_values(record: _Record, **changes: Any) -> _Record:
    """The record with some fields replaced; what is made when it is asked for stays so.

    `dataclasses.replace` reads every field, and so makes it.
    """
    return type(record)(**{**values_as_held(record), **changes})


class Keyed:
    """Arguments of a function whose answers are kept, known by a key: what the answer depends on."""

    __slots__ = ("key", "values")

    def __init__(self, key: tuple[Any, ...], *values: Any) -> None:
        self.key, self.values = key, values

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self.key == other.key


class JsonRecord:
    """A record whose JSON (`to_dict`) has names beside its fields: each of them is an attribute as well.

    Such an attribute is what the JSON has there, made anew each time: for many of them take `to_dict()` once.
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """What the JSON has under a name that is no field; AttributeError where it has none."""
        # A field that is not yet set, as while a record is read from a pickle, is no name of the JSON.
        if not name.startswith("_") and name not in type(self).__slots__:
            told = self.to_dict()
            if name in told:
                return told[name]
        raise AttributeError(f"{type(self).__name__} has no {name}", name=name, obj=self)


class Answer:
    """What a verb gives back: its JSON (`to_dict`), a short text (`print`), a view for notebooks
    (`_repr_html_`) and a data frame (`to_frame`).

    What shows answers is above this room; the package root knows where (`foretell.answer_views`).
    """

    __slots__ = ()
    verb: ClassVar[str] = ""
    """The verb whose answer it is, as the command line spells it."""

    def __init_subclass__(cls) -> None:
        """An answer is printed in a line wherever it is shown as a value."""
        cls.__repr__ = Answer._line  # type: ignore[assignment]

    def _line(self) -> str:
        """Its kind and its first line: the fields of all its records would be thousands of lines."""
        return f"{type(self).__name__}({str(self).partition(chr(10))[0]})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        raise NotImplementedError

    def to_frame(self, library: str = "polars", *, every: bool = False) -> Any:
        """The answer as a data frame of polars or pandas: one row per plan, system, option or part, a dozen
        columns; `every` adds all others."""
        return _views().answer_frame(self.verb, self.to_dict(), library, every=every)

    def __str__(self) -> str:
        """The main numbers in a few lines."""
        return str(_views().answer_text(self.verb, self.to_dict()))

    def _repr_html_(self) -> str:
        """The main numbers with their intervals, a table and a breakdown bar, for notebooks."""
        return str(_views().answer_html(self.verb, self.to_dict()))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The short text, in IPython's console."""
        printer.text("..." if cycle else str(self))


def _views() -> Any:
    """The module that shows answers, loaded when the first one is shown."""
    return sys.modules[__name__.partition(".")[0]].answer_views()


def _slotless(plain: type) -> type:
    return _record(plain, slots=False)


def _record(plain: type, *, slots: bool = True) -> type:
    if slots and hasattr(plain, "__dataclass_fields__"):  # it inherits from a record, as few do
        return dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(plain)
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=True)(
        plain
    )
    # The standard library would not make a record of frozen ones without six more functions.
    made.__dataclass_params__.frozen = made.__dataclass_params__.eq = slots
    fields = dataclasses.fields(made)
    made.__init__ = _InitLater(made, fields)
    methods = {**_SHARED, **_comparison([field.name for field in fields if field.compare])}
    for name, method in methods.items():
        if name not in plain.__dict__:  # what a record says itself stays
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


def _comparison(names: list[str]) -> dict[str, Any]:
    """`__eq__` and `__hash__` over these fields."""
    # Of a single name the getter would give the value itself, and not a tuple: it is asked for twice.
    get: Any = attrgetter(*(names if len(names) > 1 else names * 2)) if names else _nothing

    def equal(self: Any, other: Any) -> Any:
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(get(self))

    return {"__eq__": equal, "__hash__": hashed}


class _InitLater:
    """The `__init__` of a class, compiled when it is first asked for: most classes never are."""

    __slots__ = ("fields", "made")

    def __init__(self, made: type, fields: tuple[dataclasses.Field[Any], ...]) -> None:
        self.made, self.fields = made, fields

    def __get__(self, record: object, owner: type | None = None) -> Any:
        made: Any = self.made
        if made.__dict__["__init__"] is self:
            made.__init__ = _init_of(made, self.fields)
        init = made.__dict__["__init__"]
        return init if record is None else init.__get__(record, owner)


def _init_of(made: type, fields: tuple[dataclasses.Field[Any], ...]) -> FunctionType:
    """`__init__`, compiled: arguments by place, keywords, and one assignment for each field."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_absent": dataclasses.MISSING}
    placed = [field.name for field in fields if not field.kw_only]
    keywords = [field.name for field in fields if field.kw_only]
    defaults: dict[str, Any] = {}
    body = []
    for field in fields:
        name = value = field.name
        if field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = field.default_factory
            defaults[name] = dataclasses.MISSING
            value = f"_make_{name}() if {name} is _absent else {name}"
        elif field.default is not dataclasses.MISSING:
            defaults[name] = field.default
        body.append(f" _set(self, {name!r}, {value})\n")
    if hasattr(made, "__post_init__"):
        body.append(" self.__post_init__()\n")
    head = ", ".join(["self", *placed, *(["*"] if keywords else []), *keywords])
    module = compile(f"def __init__({head}):\n{''.join(body) or ' pass'}", made.__module__, "exec")
    code = next(part for part in module.co_consts if isinstance(part, CodeType))
    init = FunctionType(code, known, "__init__")
    init.__kwdefaults__ = defaults
    init.__qualname__, init.__module__ = f"{made.__qualname__}.__init__", made.__module__
    init.__annotations__ = {**{field.name: field.type for field in fields}, "return": None}
    return init


def _nothing(record: object) -> tuple[()]:
    """What is compared of a record without fields."""
    del record
    return ()


def _repr(self: Any) -> str:
    shown = (f.name for f in dataclasses.fields(self) if f.repr)
    said = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({said})"


def _no_change(self: object, name: str, value: object = None) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_SHARED = {
    "__repr__": _repr,
    "__setattr__": _no_change,
    "__delattr__": _no_change,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
