"""`--set path=value`: any field of any record, set by hand.

The path begins with model, chip, system, network, host, software, plan, job or prices and goes on with field
names; a tier is named by its name (`network.node.latency_s`), an element of another list by its number, and a
field of a list's elements without a number means all elements that have it
(`model.stack.layers.ffn.width`). A value may carry a unit, which is converted to the field's.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from foretell import units
from foretell.catalog.values import DTYPES
from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.specs._base import Positive
from foretell.specs.check import check_value, field_types

T = TypeVar("T")

ROOTS = ("model", "chip", "system", "network", "host", "software", "plan", "job", "prices")
"""What a path may begin with."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One path=value as it was given."""

    path: str
    """Where."""
    text: str
    """What, as text."""
    numbers: Any = None
    """An array of values over a batch, in the field's unit, in the place of a text; None: the text."""

    @property
    def root(self) -> str:
        """The record that the path begins with."""
        return self.path.split(".", 1)[0]

    @property
    def steps(self) -> tuple[str, ...]:
        """The rest of the path."""
        return tuple(self.path.split(".")[1:])


def parse_settings(texts: Sequence[str], roots: Sequence[str] = ROOTS) -> tuple[Setting, ...]:
    """Settings from `path=value` texts; every malformed one is an error."""
    settings: list[Setting] = []
    problems: list[Problem] = []
    for text in texts:
        path, equals, value = text.partition("=")
        path = path.strip()
        root = path.split(".", 1)[0]
        if not equals or "." not in path:
            problems.append(
                wrong(
                    "--set",
                    text,
                    "not of the form path=value",
                    "such as network.node.latency_s=2us",
                )
            )
        elif root not in roots:
            problems.append(
                wrong(
                    f"--set {path}",
                    root,
                    "unknown record",
                    ", ".join(roots),
                    nearest_name(root, roots),
                )
            )
        else:
            settings.append(Setting(path=path, text=value.strip()))
    doubled = {s.path for s in settings if sum(s.path == t.path for t in settings) > 1}
    problems += [wrong(f"--set {p}", None, "set twice") for p in sorted(doubled)]
    if problems:
        raise BadInput(problems)
    return tuple(settings)


def apply_settings(
    record: T, settings: Sequence[Setting], root: str, seen: dict[str, object] | None = None
) -> T:
    """The record with the settings of `root` applied; what was set is put into `seen`."""
    problems: list[Problem] = []
    for setting in settings:
        if setting.root != root:
            continue
        try:
            record = _set(record, setting.steps, setting)
            if seen is not None:
                seen[setting.path] = setting.text
        except BadInput as error:
            problems += error.problems
    if problems:
        raise BadInput(problems)
    return record


def apply_to_table(
    table: Mapping[str, Any],
    settings: Sequence[Setting],
    others: Sequence[str],
    seen: dict[str, object],
) -> dict[str, Any]:
    """A copy of a file's table with keys replaced: `model.num_hidden_layers=40`.

    `others` are the record's own fields, which the error for an unknown key names too.
    """
    changed = {**table}
    problems: list[Problem] = []
    for setting in settings:
        try:
            changed = _set_key(changed, setting.steps, setting, others)
            seen[setting.path] = setting.text
        except BadInput as error:
            problems += error.problems
    if problems:
        raise BadInput(problems)
    return changed


def _set_key(
    table: Mapping[str, Any], steps: tuple[str, ...], setting: Setting, others: Sequence[str]
) -> dict[str, Any]:
    step, rest = steps[0], steps[1:]
    inner = table.get(step)
    if step not in table or (rest and not isinstance(inner, Mapping)):
        plain = [k for k, v in table.items() if not isinstance(v, list)]
        raise _no_field(setting, step, [*plain, *others])
    value = (
        _set_key(inner, rest, setting, []) if rest and inner is not None else _like(inner, setting)
    )
    return {**table, step: value}


def _like(old: Any, setting: Setting) -> Any:
    """The text as a value of the kind that stood there; whatever it looks like where nothing stood."""
    text, path = setting.text, setting.path
    if text.lower() in ("none", "null"):
        return None
    if isinstance(old, bool) or (old is None and text.lower() in ("true", "false")):
        return _value(setting, bool, path)
    if isinstance(old, int):
        return _value(setting, int, "")
    if isinstance(old, float):
        return _value(setting, float, "")
    if isinstance(old, Mapping | list):
        raise bad_input(path, text, "a list or table cannot be set")
    if old is None and text.lstrip("+-").replace(".", "", 1).isdecimal():
        return _value(setting, float if "." in text else int, "")
    return text


def _set(record: Any, steps: tuple[str, ...], setting: Setting) -> Any:
    """A copy of the record with the field at `steps` replaced."""
    step, rest = steps[0], steps[1:]
    if isinstance(record, tuple):
        return _set_in_list(record, steps, setting)
    if isinstance(record, Mapping):
        if rest or step not in DTYPES:
            raise _no_field(setting, step, DTYPES)
        # The unit stands in the name of the mapping: matrix_flop_per_s.bf16.
        return {**record, step: _value(setting, Positive, setting.path.split(".")[-2])}
    if not dataclasses.is_dataclass(record) or isinstance(record, type):
        raise _no_field(setting, step, [])
    kinds = field_types(type(record))
    if step not in kinds and "tiers" in kinds:
        step, changed = "tiers", _set(getattr(record, "tiers"), steps, setting)  # noqa: B009
    elif step not in kinds:
        raise _no_field(setting, step, list(kinds))
    elif rest:
        changed = _set(getattr(record, step), rest, setting)
    elif isinstance(inner := getattr(record, step), Mapping):
        raise _whole_record(setting, inner)
    elif dataclasses.is_dataclass(inner):
        raise _whole_record(setting, [field.name for field in dataclasses.fields(inner)])
    else:
        changed = _value(setting, kinds[step], step)
    return dataclasses.replace(record, **{step: changed})


def _set_in_list(items: tuple[Any, ...], steps: tuple[str, ...], setting: Setting) -> Any:
    """One element by number or by name, or all elements that have the field."""
    step, rest = steps[0], steps[1:]
    names = [str(getattr(item, "name", "")) for item in items]
    numbers = [str(place) for place in range(len(items))]
    if step in names or step in numbers:
        index = (names if step in names else numbers).index(step)
        if not rest:
            raise bad_input(
                setting.path, setting.text, "a whole element cannot be set", "one of its fields"
            )
        return (*items[:index], _set(items[index], rest, setting), *items[index + 1 :])
    changed, done = [], False
    for item in items:
        try:
            changed.append(_set(item, steps, setting))
            done = True
        except _NoField:
            changed.append(item)
    if not done:
        raise _no_field(setting, step, [n for n in names if n])
    return tuple(changed)


def _whole_record(setting: Setting, inside: Iterable[str]) -> BadInput:
    """A field that holds others is set by one of these."""
    message, names = "holds more than one value", [f"{setting.path}.{name}" for name in inside]
    return bad_input(setting.path, setting.text, message, ", ".join(names) or None)


class _NoField(BadInput):
    """The path names nothing here."""


def _no_field(setting: Setting, step: str, names: Sequence[str]) -> _NoField:
    return _NoField(
        [
            wrong(
                f"--set {setting.path}",
                step,
                "no such field",
                ", ".join(names) or None,
                nearest_name(step, names),
            )
        ]
    )


def _value(setting: Setting, hint: Any, name: str) -> Any:
    """The text as a value of the field's type, in the field's unit."""
    kinds = _plain_types(hint)
    text, path = setting.text, setting.path
    if NoneType in kinds and text.lower() in ("none", "null", ""):
        return None
    if setting.numbers is not None:
        return _numbers(setting, hint)
    value: Any = text
    if bool in kinds:
        if text.lower() not in ("true", "false"):
            raise bad_input(path, text, "not a switch", "true, false")
        value = text.lower() == "true"
    elif float in kinds or int in kinds:
        number = units.parse(text, units.field_unit(name), path)
        if float not in kinds and number != int(number):
            raise bad_input(path, text, "not a whole number")
        value = number if float in kinds else int(number)
    elif any(get_origin(kind) is tuple for kind in kinds):
        value = _list(setting, kinds[0], name)
    elif str not in kinds:
        raise bad_input(path, text, "this field cannot be set from a text")
    problems = check_value(value, hint, path)
    if problems:
        raise BadInput(problems)
    return value


def _numbers(setting: Setting, hint: Any) -> Any:
    """Values over a batch: what holds at both of their ends holds between."""
    values = setting.numbers
    ends = float(values.min()), float(values.max())
    problems = [p for end in ends for p in check_value(end, hint, setting.path)]
    if problems:
        raise BadInput(problems)
    return values


def _list(setting: Setting, hint: Any, name: str) -> tuple[Any, ...]:
    """Values with commas between them, for a field that holds several of one plain type."""
    kind = get_args(hint)[0]
    if kind not in (int, float, str):
        raise bad_input(setting.path, setting.text, "this field cannot be set from a text")
    parts = [part.strip() for part in setting.text.split(",")] if setting.text else []
    return tuple(_value(dataclasses.replace(setting, text=part), kind, name) for part in parts)


def _plain_types(hint: Any) -> tuple[Any, ...]:
    """The types that a value may have, without ranges and unions; a choice is a text or a number."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _plain_types(get_args(hint)[0])
    if origin in (Union, UnionType):
        return tuple(t for option in get_args(hint) for t in _plain_types(option))
    if origin is Literal:
        return tuple({type(choice) for choice in get_args(hint)})
    return (hint,)
