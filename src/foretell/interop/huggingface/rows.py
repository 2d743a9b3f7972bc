"""Rows of families.toml, and what their rules say of a config.

A rule is a value, or the keys of a config that hold it, with the default of the family's class:

- `128`, `true`, `"silu"`: the same for every model of the family;
- `["n_embd", "hidden_size"]`: under one of these keys, which must be there;
- `["num_key_value_heads", 8]`: the last is the value of an absent key, and the model's assumptions say so;
- `{ keys, default, quiet, why, low, in }`: the same at length. `quiet`: the assumptions are silent, since the
  key's absence is the family's way to say it; `in`: the keys are those of a table within the config;
- `{ of, times, over, keys }`: a number of the row, a multiple or a part, where none of the keys is there;
- `{ if, then, else }`, `{ any }`, `{ given }`, `{ is, keys, default }`: by a flag (a rule, or the name of one
  in the row), by whether one of several holds, one of some keys is there, a word is this one;
- `{ same }`, `{ sum }`, `{ length }`: what another rule of the row says, several rules together, how many
  entries a list has.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretell.interop.huggingface.config import LARGEST, Config
from foretell.interop.package_tables import packaged_table


class Row:
    """A config beside the rules of its family."""

    __slots__ = ("config", "known", "rules", "why")

    def __init__(self, config: Config, rules: Mapping[str, Any], why: str | None = None) -> None:
        self.config = config
        self.rules = rules
        self.why = why or rules.get("why") or f"{rules['class']}'s defaults"
        self.known: dict[str, int] = {}  # what the whole model shares: hidden, depth

    def within(self, rules: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> "Row":
        """The same config under the rules of a table, and those of the row (or `base`) beside it."""
        row = Row(self.config, {**(self.rules if base is None else base), **rules}, self.why)
        row.known = self.known
        return row

    # ---- what rules say ------------------------------------------------------------------------

    def whole(self, name: str, low: int = 1) -> int:
        """A whole number of the row."""
        known = self.known.get(name)
        return int(self.value(self.rules[name], low)) if known is None else known

    def optional(self, name: str) -> int | None:
        """A whole number of the row; None where the row has no such rule, or it finds none."""
        found = self.value(self.rules.get(name))
        return None if found is None else int(found)

    def flag(self, name: str) -> bool:
        """Whether a flag of the row is on."""
        return bool(self.value(self.rules.get(name, False)))

    def word(self, name: str) -> Any:
        """A word of the row."""
        return self.value(self.rules[name])

    def holds(self, rule: Any) -> bool:
        """Whether a condition holds: a rule, or the name of one in the row."""
        return bool(self.value(self.rules[rule] if isinstance(rule, str) else rule, 0))

    def value(self, rule: Any, low: int = 1) -> Any:
        """What a rule says."""
        if isinstance(rule, list):
            rule = at_length(rule)
        if not isinstance(rule, dict):
            return rule
        if "if" in rule:
            return self.value(rule["then" if self.holds(rule["if"]) else "else"], low)
        if "length" in rule:
            least = rule.get("default", 0)
            if least and isinstance(self.config.raw(rule["length"]), int):
                return least
            return max(len(self.config.wholes(rule["length"], low=-LARGEST) or ()), least)
        if "sum" in rule:
            return sum(self.value(one, 0) for one in rule["sum"])
        if "any" in rule:
            return any(self.holds(one) for one in rule["any"])
        if "given" in rule:
            return self.config.has(*rule["given"])
        if "same" in rule:
            return self.value(self.rules[rule["same"]], low)
        if "is" in rule:
            given = self.config.raw(rule["keys"][0])
            if isinstance(given, bool):  # a word of several, or one flag for all of them
                return given == rule["is"]
            return bool(self._read(rule, rule["default"], low) == rule["is"])
        default = rule.get("default")
        if "of" in rule:
            times, over = self.value(rule.get("times", 1), 0), self.value(rule.get("over", 1))
            default = round(self.whole(rule["of"]) * times / over)
            if "keys" not in rule:
                return default
        return self._read(rule, default, rule.get("low", low))

    def keys(self, name: str) -> str:
        """The key of a rule, as messages name it."""
        return key_of(self.rules.get(name)) or name

    def heads_or(self, name: str, own: int | None) -> int | None:
        """A number that is `own` where its key is null, or absent without a default of the family."""
        rule = self.rules[name]
        if not isinstance(rule, list):
            return self.optional(name)
        if not rule:
            return own
        first, *others = (key for key in rule if isinstance(key, str))
        default: int | None = at_length(rule).get("default")
        if default is None or self.config.given(first):
            return self.config.get(first, own, None, *others, low=1)
        return self.config.get(first, default, self.why, *others, low=1)

    def _read(self, rule: Mapping[str, Any], default: Any, low: int) -> Any:
        """The value under the keys of a rule, by the type of its default."""
        config, keys = self.config, rule["keys"]
        quiet = rule.get("quiet") or "of" in rule
        why = rule.get("why", None if quiet else self.why)
        if "in" in rule:
            if default is not None and not config.has(rule["in"]):
                return default
            config = config.sub(rule["in"])
        if isinstance(default, bool | float | str):
            key = next((key for key in keys if config.has(key)), keys[-1])
            if isinstance(default, bool):
                return config.flag(key, default=default, why=why)
            if isinstance(default, str):
                return config.text(key, default, why)
            return config.number(key, default, why, low=rule.get("low", 0.0))
        if default is None and not quiet:
            return config.need(*keys, low=low)
        return config.get(keys[0], default, why, *keys[1:], low=low)


def key_of(rule: Any) -> str:
    """The first key of a rule, or of those that it is made of."""
    if isinstance(rule, list):
        return str(rule[0]) if rule else ""
    if not isinstance(rule, dict):
        return ""
    if "keys" in rule:
        return f"{rule['in']}.{rule['keys'][0]}" if "in" in rule else str(rule["keys"][0])
    return key_of(rule.get("then", rule.get("times")))


def at_length(rule: list[Any]) -> dict[str, Any]:
    """A list of keys, and perhaps a default, as a table."""
    if isinstance(rule[-1], str):
        return {"keys": rule}
    return {"keys": rule[:-1], "default": rule[-1]}


@lru_cache(maxsize=1)
def table() -> dict[str, dict[str, Any]]:
    """All rows, by `model_type`."""
    return packaged_table(Path(__file__).with_name("families.toml"))


def rules_of(family: str) -> dict[str, Any]:
    """The rules of a family: its own, those of the family that it is like, the defaults."""
    row = table()[family]
    base = rules_of(row["like"]) if "like" in row else table()["defaults"]
    left = {"experts", "prediction"} if "like" not in row else set()
    if "class" in row or "why" in row:
        left |= {"class", "why"}
    return {**{name: rule for name, rule in base.items() if name not in left}, **row}
