"""What several keys of a tool decide together: lists of rows in its table, the first that holds counts.

    [rules]
    precision = [
        { when = "eight fp8_recipe=mxfp8", words = "precision=mxfp8" },
        { when = "bf16", words = "precision=bf16" },
        { words = "precision=fp32", note = "no 16-bit format is named: 32-bit training" },
    ]

All conditions of `when` have to hold. They are on fields of the launch (tool_fields.py), on degrees and on
`is` of lists above by the list's name; `plan.X` is a word decided so far, `option.X` the table's:

    name       a switch that is on       name?      a value is stated or the tool's default
    name=a|b   a value of these          name~RE    a value with a part of this pattern (`match`: its group)
    name>1     a number above            @name      the launch states it, not the tool's default
    !...       the condition does not hold

A row says `words` of a plan, or that words are `without` value; `note`, `doubt` and `ask` are sentences of
the launch. `{name}` in words and sentences is a value.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import EMPTY_WORDS, Keys
from foretell.specs.plan_words import read_words

Rules = Mapping[str, tuple[Mapping[str, str], ...]]
"""Lists of rows by what they decide."""
_TERM = re.compile(r"(?P<no>!?)(?P<at>@?)(?P<name>[\w.]+)(?:(?P<sign>[?=~>])(?P<wanted>.*))?")


class Condition(NamedTuple):
    """One condition of a row."""

    no: bool
    """Whether it is not to hold."""
    at: bool
    """Whether the launch itself has to state it."""
    name: str
    """The field, degree or list."""
    sign: str
    """How it is compared."""
    wanted: str
    """With what."""


class LaunchFacts:
    """Fields of a launch, and over them what is known of it by now."""

    def __init__(self, keys: Keys, known: Mapping[str, object]) -> None:
        self.keys, self.known = keys, dict(known)

    def __getitem__(self, name: str) -> str:
        """What is known, else the field's own value, as a sentence has it."""
        return str(self.known[name] if name in self.known else self.keys.raw(name))[:60]

    def text(self, name: str) -> str:
        """A value in lower case; empty where there is none."""
        value = self.known.get(name, self.keys.raw(name))
        if value is None:
            return ""
        words = value if isinstance(value, list | tuple) else [value]
        return " ".join(str(one).strip().strip("\"'") for one in words).lower()

    def holds(self, one: Condition) -> bool:
        """Whether a condition holds."""
        text = self.text(one.name)
        if "$" in text and one.sign == "=" and one.name not in self.known:
            self.keys.ask_for(one.name, str(self.keys.raw(one.name)))
        if one.at:
            found = one.name in self.keys.pairs and one.name not in self.keys.defaults
        elif one.sign == "?":
            found = text not in EMPTY_WORDS and one.name not in self.keys.unset
        elif one.sign == "=":
            found = text in one.wanted.split("|")
        elif one.sign == "~":
            match = re.search(one.wanted, text)
            found = match is not None
            if match is not None and match.groups():
                self.known["match"] = match[1]
        elif one.sign == ">":
            found = re.fullmatch(r"-?[\d.]+", text) is not None and float(text) > float(one.wanted)
        elif one.name in self.known:
            found = text not in ("", "false", "none", "0")
        else:
            found = self.keys.flag(one.name) is True
        return found is not one.no


class Decided(NamedTuple):
    """What a tool's lists decide."""

    words: dict[str, object]
    """Words of a plan; None where one has no value."""
    known: Mapping[str, object]
    """Everything that is known then."""
    sources: dict[str, tuple[str, ...]]
    """Word -> fields that it is from: those of the row that holds, else those that rows ask for alone."""


def decide(keys: Keys, rules: Rules, known: Mapping[str, object]) -> Decided:
    """Words of a plan that a tool's lists decide."""
    facts, words = LaunchFacts(keys, known), dict[str, object]()
    said, sources = dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]]()

    def fields(row: Mapping[str, str]) -> tuple[str, ...]:
        terms = [term for term in conditions(row.get("when", "")) if not term.no]
        inside = re.findall(r"\{([\w.]+)\}", row.get("words", "") + row.get("is", ""))
        names = (
            one for name in (*inside, *(t.name for t in terms)) for one in said.get(name, (name,))
        )
        return tuple(dict.fromkeys(n for n in names if n not in known and keys.said_as(n)))

    def alone(rows: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
        names = [{term.name for term in conditions(row.get("when", ""))} for row in rows]
        return tuple(n for one in names if len(one) == 1 for n in one if n not in {**said, **known})

    for name, rows in rules.items():
        row = next(
            (one for one in rows if all(map(facts.holds, conditions(one.get("when", ""))))), None
        )
        if row is None:
            continue
        said[name] = fields(row) or alone(rows)
        found: dict[str, object] = dict.fromkeys(row.get("without", "").split())
        found |= read_words(row.get("words", "").format_map(facts))[0] if "words" in row else {}
        words |= found
        facts.known |= {f"plan.{key}": value for key, value in found.items()}
        for key in found:
            sources[key] = said[f"plan.{key}"] = said[name]
        if "is" in row:
            facts.known[name] = row["is"].format_map(facts)
        for sentence, kind in ((keys.note, "note"), (keys.doubt, "doubt"), (keys.ask, "ask")):
            if kind in row:
                sentence(row[kind].format_map(facts))
    return Decided(words=words, known=facts.known, sources=sources)


def rows_that_hold(
    rows: Iterable[Mapping[str, Any]], values: Mapping[str, object]
) -> list[Mapping[str, Any]]:
    """Rows whose conditions hold of values; one without conditions always does."""
    facts = LaunchFacts(Keys(ArgumentTable(words=(), pairs=(), variables={}), tool=""), values)
    return [row for row in rows if all(map(facts.holds, conditions(row.get("when", ""))))]


@cache
def conditions(when: str) -> tuple[Condition, ...]:
    found = []
    for term in when.split():
        match = _TERM.fullmatch(term)
        if match is None:
            raise ValueError(f"{term} is no condition")
        one: Mapping[str, Any] = match.groupdict()
        found.append(
            Condition(
                no=bool(one["no"]),
                at=bool(one["at"]),
                name=one["name"],
                sign=one["sign"] or "",
                wanted=one["wanted"] or "",
            )
        )
    return tuple(found)
