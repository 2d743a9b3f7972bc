"""A Hugging Face config as the readers see it: typed access that collects every problem.

A reader never stops at the first fault. A key that is missing or wrong is recorded and a stand-in
is returned, so that reading goes on; `raise_problems` then says all of them at once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from foretell.errors import BadInput, Problem, nearest_name, wrong

LARGEST = 10**9
"""No width, count or table of a real model is above this."""
LAYERS_MOST = 10_000
"""No stack is deeper than this: a larger number is a slip, and would not fit in memory."""

Value = object
"""Anything that JSON can hold."""


@dataclass(slots=True)
class Notes:
    """What one reading has found so far; shared by a config and its sub-configs."""

    problems: list[Problem] = field(default_factory=list)
    """Everything that is wrong."""
    faulty: set[str] = field(default_factory=set)
    """Paths that already have a problem: rules over them are not checked again."""
    defaults: dict[str, dict[str, object]] = field(default_factory=dict)
    """Absent keys by the reason for the value taken: reason -> key -> value."""
    sentences: list[str] = field(default_factory=list)
    """Assumptions in the reader's own words."""


class Config:
    """One level of a config: `need`, `get` and their kin read keys, `check` states a rule."""

    __slots__ = ("_data", "_notes", "_prefix", "family", "id")

    id: str
    """The id that the model will carry."""
    family: str
    """The family it is read as: `model_type` where that is known."""

    def __init__(
        self,
        data: Mapping[str, Value],
        *,
        id: str = "config.json",
        prefix: str = "config.json: ",
        notes: Notes | None = None,
    ) -> None:
        self._data = data
        self._prefix = prefix
        self._notes = Notes() if notes is None else notes
        self.id = id
        self.family = self.model_type

    # ---- whole ---------------------------------------------------------------------------------

    @property
    def model_type(self) -> str:
        """`model_type`, or the empty string."""
        value = self._data.get("model_type")
        return value if isinstance(value, str) else ""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong so far."""
        return tuple(self._notes.problems)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """A sentence for each default or guess made so far."""
        grouped = tuple(
            f"absent keys taken at {why}: "
            + ", ".join(f"{key}={_json(value)}" for key, value in keys.items())
            for why, keys in self._notes.defaults.items()
        )
        return (*self._notes.sentences, *grouped)

    def raise_problems(self) -> None:
        """Raise `BadInput` with all problems, if there are any."""
        if self._notes.problems:
            raise BadInput(self._notes.problems)

    def has(self, *keys: str) -> bool:
        """Whether any of the keys is there and not null."""
        return any(self._data.get(key) is not None for key in keys)

    def given(self, key: str) -> bool:
        """Whether the key is there at all, null included (null can mean "none" where absent means a
        default)."""
        return key in self._data

    def raw(self, key: str) -> Value:
        """The value as it is, None where absent; the caller checks it."""
        return self._data.get(key)

    def sub(self, key: str, inherit: Sequence[str] = ()) -> "Config":
        """The config under `key`; a problem, and an empty one, where it is absent or no table.

        Of the keys in `inherit`, those that are at this level hold there too.
        """
        value = self._data.get(key)
        if not isinstance(value, Mapping):
            self.problem(
                key, "is missing" if value is None else "is not a table", value, allowed="a table"
            )
            value = {}
        value = {**value, **{name: self._data[name] for name in inherit if self.has(name)}}
        return Config(value, id=self.id, prefix=f"{self._prefix}{key}.", notes=self._notes)

    def over(self, values: Mapping[str, Value], key: str) -> "Config":
        """The same config with some values in the place of its own, which `key` names in messages."""
        data = {**self._data, **values}
        made = Config(data, id=self.id, prefix=f"{self._prefix}{key}.", notes=self._notes)
        made.family = self.family
        return made

    def tables(self, key: str, length: int | None = None) -> "tuple[Config, ...]":
        """The configs in the list under `key`; a problem, and none, where it is no such list."""
        value = self._data.get(key)
        if not isinstance(value, list | tuple) or not all(isinstance(v, Mapping) for v in value):
            self.problem(
                key, "is missing" if value is None else "is not a list of tables", allowed="tables"
            )
            return ()
        if not self._length_fits(key, value, length):
            return ()
        return tuple(
            Config(v, id=self.id, prefix=f"{self._prefix}{key}[{i}].", notes=self._notes)
            for i, v in enumerate(value)
        )

    # ---- saying --------------------------------------------------------------------------------

    def problem(
        self,
        key: str,
        message: str,
        value: Value = None,
        *,
        allowed: str | None = None,
        nearest: str | None = None,
    ) -> None:
        """Record that `key` is wrong, once."""
        path = self._prefix + key
        found = wrong(path, value, message, allowed, nearest)
        if path not in self._notes.faulty or found not in self._notes.problems:
            self._notes.problems.append(found)
        self._notes.faulty.add(path)

    def assume(self, sentence: str) -> None:
        """Record an assumption in the reader's own words, once."""
        if sentence not in self._notes.sentences:
            self._notes.sentences.append(sentence)

    def check(self, holds: bool, keys: Sequence[str], message: str) -> None:
        """A rule over several keys; silent where one of them is wrong already."""
        if holds or any(self._prefix + key in self._notes.faulty for key in keys):
            return
        values = {key: self._data[key] for key in keys if key in self._data}
        path = self._prefix + ", ".join(keys)
        self._notes.faulty.add(path)
        self._notes.problems.append(wrong(path, values or None, message))

    # ---- reading -------------------------------------------------------------------------------

    def need(self, key: str, *alternatives: str, low: int = 1, high: int = LARGEST) -> int:
        """A whole number that must be there, under `key` or one of its other names."""
        found = self._find(key, alternatives)
        if found is None:
            self.problem(key, "is missing", allowed=_range(low, high), nearest=self._near(key))
            return max(low, 1)
        return self._whole(found, low, high)

    @overload
    def get(
        self, key: str, default: int, why: str | None = None, *others: str, low: int = 0
    ) -> int: ...
    @overload
    def get(
        self, key: str, default: None, why: str | None = None, *others: str, low: int = 0
    ) -> int | None: ...
    def get(
        self, key: str, default: int | None, why: str | None = None, *others: str, low: int = 0
    ) -> int | None:
        """A whole number that may be absent; `why` is stated with the default, None where it needs no
        saying (the key's absence is itself the family's way to say it)."""
        found = self._find(key, others)
        if found is None:
            self._take(key, default, why)
            return default
        return self._whole(found, low, LARGEST)

    def flag(self, key: str, *, default: bool | None = None, why: str | None = None) -> bool:
        """true or false; a problem where absent without a default."""
        value = self._data.get(key)
        if value is None:
            if default is None:
                self.problem(key, "is missing", allowed="true or false", nearest=self._near(key))
                return False
            self._take(key, default, why)
            return default
        if not isinstance(value, bool):
            self.problem(key, "is neither true nor false", value, allowed="true or false")
            return False
        return value

    def number(
        self, key: str, default: float, why: str | None = None, *, low: float = 0.0
    ) -> float:
        """A finite number not below `low`."""
        value = self._data.get(key)
        if value is None:
            self._take(key, default, why)
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.problem(key, "is not a number", value, allowed=f"a number from {low:g}")
            return default
        if not (low <= value <= 1e30):  # false for NaN too
            self.problem(key, "is out of range", value, allowed=f"a number from {low:g}")
            return default
        return float(value)

    def text(self, key: str, default: str, why: str | None = None) -> str:
        """A string."""
        value = self._data.get(key)
        if value is None:
            self._take(key, default, why)
            return default
        if not isinstance(value, str):
            self.problem(key, "is not a string", value)
            return default
        return value

    def choice(self, key: str, allowed: Sequence[str], default: str, why: str | None = None) -> str:
        """One of some names."""
        value = self.text(key, default, why)
        if value not in allowed:
            self.problem(
                key,
                "is none of the names known here",
                value,
                allowed=", ".join(allowed),
                nearest=nearest_name(value, allowed),
            )
            return default
        return value

    def texts(self, key: str, length: int | None = None) -> tuple[str, ...] | None:
        """A list of strings, of the given length; None where absent."""
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            self.problem(key, "is not a list of names", value)
            return None
        return tuple(value) if self._length_fits(key, value, length) else None

    def wholes(
        self, key: str, length: int | None = None, *, low: int = 0
    ) -> tuple[int, ...] | None:
        """A list of whole numbers, of the given length; None where absent."""
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            self.problem(key, "is not a list of whole numbers", value)
            return None
        if not self._length_fits(key, value, length):
            return None
        return tuple(
            self._whole((f"{key}[{i}]", item), low, LARGEST) for i, item in enumerate(value)
        )

    # ---- shapes that most families share -------------------------------------------------------

    def layers(self, *alternatives: str, key: str = "num_hidden_layers") -> int:
        """The number of layers."""
        return self.need(key, *alternatives, high=LAYERS_MOST)

    def divides(self, total: int, parts: int, keys: Sequence[str]) -> int:
        """total / parts, where it must be whole."""
        self.check(
            total % parts == 0, keys, f"{total} is not a multiple of {parts} ({' / '.join(keys)})"
        )
        return max(total // parts, 1)

    def layer_types(
        self, layers: int, known: Sequence[str], key: str = "layer_types"
    ) -> tuple[str, ...] | None:
        """A list with one known name per layer; None where absent."""
        names = self.texts(key, layers)
        for name in dict.fromkeys(names or ()):
            if name not in known:
                self.problem(
                    key,
                    "has a kind of layer that is not known here",
                    name,
                    allowed=", ".join(known),
                    nearest=nearest_name(name, known),
                )
                return None
        return names

    # ---- inside --------------------------------------------------------------------------------

    def _find(self, key: str, others: Sequence[str]) -> tuple[str, Value] | None:
        """The first of the names that is there, with its value; two that disagree are a problem."""
        found = [(name, self._data[name]) for name in (key, *others) if self.has(name)]
        if not found:
            return None
        for name, value in found[1:]:
            self.check(
                value == found[0][1], (found[0][0], name), "are two names of one thing and disagree"
            )
        return found[0]

    def _take(self, key: str, default: object, why: str | None) -> None:
        if why is not None:
            path = (self._prefix + key).partition(": ")[2]
            self._notes.defaults.setdefault(why, {})[path] = default

    def _whole(self, found: tuple[str, Value], low: int, high: int) -> int:
        """The value as a whole number in range, or a problem and a stand-in."""
        key, value = found
        stand_in = max(low, 1)
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(key, "is not a whole number", value, allowed=_range(low, high))
            return stand_in
        if not low <= value <= high:
            self.problem(key, "is out of range", value, allowed=_range(low, high))
            return stand_in
        return value

    def _length_fits(self, key: str, value: Sequence[Value], length: int | None) -> bool:
        if length is None or len(value) == length:
            return True
        self.problem(key, f"has {len(value)} entries for {length} layers", value)
        return False

    def _near(self, key: str) -> str | None:
        return nearest_name(key, [name for name in self._data if name != key])  # key may be null


def _range(low: int, high: int) -> str:
    return f"a whole number from {low} to {high}"


def _json(value: object) -> str:
    import json  # every caller of a reader has it loaded already

    return json.dumps(value)
