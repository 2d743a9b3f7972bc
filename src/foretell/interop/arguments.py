"""Any text of arguments as keys and values: a command or script, JSON, TOML, YAML, Python, `key=value` words.

Keys are spelled one way: no dashes before them, `_` for `-`, nested tables joined by dots. What a key
means is the business of the tool's own module. A SkyPilot task or a Kubernetes object (wrappers.py) is
opened: the command inside it is read, with the nodes and GPUs that it is given.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from foretell.errors import BadInput, Problem
from foretell.interop.containers import without_containers
from foretell.interop.documents import DEEPEST, read_documents
from foretell.interop.nemo_recipes import read_recipe
from foretell.interop.python_calls import read_calls
from foretell.interop.python_trainers import read_trainer_script
from foretell.interop.shell_words import Script, read_script
from foretell.interop.wrappers import accelerator_of, opened, unit_command
from foretell.records import dataclass

LARGEST_TEXT = 1 << 18
"""Characters of a text of arguments; a longer one is none."""
MOST_KEYS = 20_000
"""Keys of one."""
NAMED_LISTS = frozenset({"lora_modules", "lora_paths"})
"""Flags whose values are many of `name=path`."""
_SECTION = re.compile(r"^[ \t]*\[{1,2}[\w.\-\"' ]{1,200}\]{1,2}[ \t]*(?:#.*)?$", re.MULTILINE)
_YAML_LINE = re.compile(r"---.*|(?:- )?[\w.\"'/-]{1,200}[ \t]*:(?:\s.*)?")
_ASSIGNED = re.compile(
    r"^[ \t]*(?:self\.)?(?:cfg|config|recipe|job_config)\.([\w.]{1,200})[ \t]*=[ \t]*([^\n#]*)",
    re.MULTILINE,
)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w.\-]*)=(.*)", re.DOTALL)
_NEGATIVE = re.compile(r"-\.?\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentTable:
    """Arguments as they were given."""

    words: tuple[str, ...]
    """Words that belong to no flag, in order: the program, its verb, a model."""
    pairs: tuple[tuple[str, Any], ...]
    """Keys and values in order; a flag without a value has True, with several a list."""
    variables: Mapping[str, str]
    """Variables that a script sets, and the flags of its batch lines."""
    accelerator: str | None = None
    """The GPU that a batch system or cloud is asked for, as it spells it."""
    text: str = ""
    """The text itself, by which lines are found."""
    wrapped: bool = False
    """Whether a task or an object of a cluster starts it, on as many nodes as its variables say."""
    spelt: Mapping[str, str] = field(default_factory=dict)
    """Where pairs are named by our fields, the tool's own key of each."""
    places: Mapping[str, int] = field(default_factory=dict)
    """Line of each of the tool's keys, where the walk over the text found it."""
    asks: tuple[str, ...] = ()
    """Values that the form does not have, a sentence each."""
    role: str = ""
    """The half of a split service that a process is: prefill or decode."""
    copies: int = 1
    """How often the process is started."""
    tool: str = ""
    """The tool, where the form says it."""
    named: str = ""
    """The model, where the form names it."""
    bare: bool = False
    """Whether it is a list of flags without the program that takes them."""
    started: bool = False
    """Whether it is a process that a file starts, rather than a configuration."""


def parse_arguments(text: str) -> ArgumentTable:
    """Keys and values of a text; BadInput where it is none of the forms, or longer than any."""
    if not isinstance(text, str):
        raise _bad("is not a text", type(text).__name__)
    if len(text) > LARGEST_TEXT:
        raise _bad(f"is longer than {LARGEST_TEXT} characters")
    text = text.replace("\r\n", "\n").replace("\0", " ").lstrip("\ufeff")
    if not text.strip():
        raise _bad("is empty")
    return replace(_parsed(text), text=text)


def _parsed(text: str) -> ArgumentTable:
    """Keys and values of a text that is there."""
    if unit := unit_command(text):
        return _of_script(unit)
    start = text.lstrip()[0]
    if start == "{":
        return _of_table(_json(text), text)
    sections = _SECTION.search(text) and "<<" not in text
    if start == "[" or (sections and not re.search(r"^[ \t]*--\w", text, re.MULTILINE)):
        return ArgumentTable(words=(), pairs=flat(_toml(text)), variables={})
    if like_yaml(text):
        documents = [one for one in read_documents(text) if isinstance(one, Mapping)]
        wrapped = opened(documents)
        if wrapped is None:
            pairs = [pair for one in documents for pair in flat(one)]
            return ArgumentTable(words=(), pairs=tuple(pairs), variables={})
        inner = _of_script(wrapped.script)
        told = dict(inner.variables) | dict(wrapped.variables)
        accelerator = wrapped.accelerator or inner.accelerator
        return replace(inner, variables=told, accelerator=accelerator, wrapped=True)
    return _of_script(text)


def _of_table(table: Any, text: str) -> ArgumentTable:
    """A JSON table: one object of Kubernetes, or keys and values."""
    wrapped = opened([table]) if isinstance(table, Mapping) else None
    if wrapped is None:
        return ArgumentTable(words=(), pairs=flat(table), variables={})
    inner = _of_script(wrapped.script)
    return replace(
        inner,
        variables=dict(inner.variables) | dict(wrapped.variables),
        accelerator=wrapped.accelerator or inner.accelerator,
        wrapped=True,
    )


def _of_script(text: str) -> ArgumentTable:
    """A command, a script, or lines of Python that set or call."""
    calls = read_calls(text) or read_trainer_script(text) or read_recipe(text)
    if calls:
        return ArgumentTable(
            words=(), pairs=tuple((spell_key(k), v) for k, v in calls), variables={}
        )
    assigned = [(key, _python(value)) for key, value in _ASSIGNED.findall(text)]
    script = without_containers(read_script(_ASSIGNED.sub("", text)))
    return _command(script, assigned)


def like_yaml(text: str) -> bool:
    """Whether the first line that says anything is a key of YAML, or the beginning of a document."""
    lines = (line for line in text.splitlines() if line.strip())
    first = next((line for line in lines if not line.lstrip().startswith("#")), "")
    return bool(_YAML_LINE.fullmatch(first.strip()))


def _command(script: Script, assigned: list[tuple[str, Any]]) -> ArgumentTable:
    """Flags and their values, overrides, and the words between them."""
    words: list[str] = []
    pairs: list[tuple[str, Any]] = []
    flag, values = "", list[str]()

    def close() -> None:
        if flag:
            value: Any = True if not values else values[0] if len(values) == 1 else list(values)
            pairs.append((spell_key(flag), value))

    for word in script.words:
        if word == "--":
            close()
            flag, values = "", []
        elif word.startswith("-") and len(word) > 1 and not _NEGATIVE.match(word):
            close()
            flag, equals, value = word.partition("=")
            values = [value] if equals else []
            if equals:
                close()
                flag, values = "", []
        elif flag and (
            spell_key(flag) in NAMED_LISTS or not (values and _override(word, script.used))
        ):
            values.append(word)
        elif match := _override(word, script.used):
            close()
            flag, values = "", []
            pairs.append((spell_key(match[1]), match[2].rstrip(",")))
        else:
            words.append(word)
    close()
    for content in script.files:
        try:
            pairs += written_pairs(content)
        except BadInput:
            continue  # a script may write files that are no options
    known = dict(script.variables) | dict(script.batch)
    spelt = [(spell_key(key), value) for key, value in assigned]
    chip = accelerator_of(script.batch)
    return ArgumentTable(
        words=tuple(words), pairs=(*pairs, *spelt), variables=known, accelerator=chip
    )


def written_pairs(content: str) -> tuple[tuple[str, Any], ...]:
    """Keys and values of a file that a script writes or names: JSON, Python that sets them, TOML or YAML."""
    if content.lstrip()[:1] == "{":
        return flat(_json(content))
    assigned = _ASSIGNED.findall(content)
    if assigned:
        return tuple((spell_key(key), _python(value)) for key, value in assigned)
    if _SECTION.search(content):
        return flat(_toml(content))
    return tuple(
        pair for one in read_documents(content) if isinstance(one, Mapping) for pair in flat(one)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWords:
    """A command taken apart."""

    words: tuple[str, ...]
    """Words that belong to no flag."""
    pairs: tuple[tuple[str, Any], ...]
    """Flags and overrides with their values."""
    places: Mapping[str, int]
    """Their lines."""


def command_pairs(argv: Sequence[tuple[str, int]]) -> CommandWords:
    """Flags and their values, overrides, and the words between them, of words with their lines."""
    words: list[str] = []
    pairs: list[tuple[str, Any]] = []
    places: dict[str, int] = {}
    flag, at, values = "", 0, list[str]()

    def close() -> None:
        if flag:
            value: Any = True if not values else values[0] if len(values) == 1 else list(values)
            pairs.append((spell_key(flag), value))
            places[spell_key(flag)] = at

    for word, line in argv:
        if word == "--":
            close()
            flag, values = "", []
        elif word.startswith("-") and len(word) > 1 and not _NEGATIVE.match(word):
            close()
            flag, equals, value = word.partition("=")
            at, values = line, [value] if equals else []
            if equals:
                close()
                flag, values = "", []
        elif flag and (spell_key(flag) in NAMED_LISTS or not (values and _override(word))):
            values.append(word)
        elif match := _override(word):
            close()
            flag, values = "", []
            pairs.append((spell_key(match[1]), match[2].rstrip(",")))
            places[spell_key(match[1])] = line
        elif word.strip():
            words.append(word)
    close()
    return CommandWords(words=tuple(words), pairs=tuple(pairs), places=places)


def assigned_pairs(text: str) -> list[tuple[str, Any]]:
    """Fields of a configuration that lines of Python set: `cfg.model.seq_length = 4096`."""
    return [(spell_key(key), _python(value)) for key, value in _ASSIGNED.findall(text)]


def _override(word: str, used: frozenset[str] = frozenset()) -> re.Match[str] | None:
    """`key=value`; a name in capitals, or one that the script refers to, is a shell's variable."""
    match = _OVERRIDE.fullmatch(word)
    return None if match is None or match[1].isupper() or match[1] in used else match


def spell_key(key: str) -> str:
    """A key in the one spelling: no dashes before it, `_` for `-`."""
    return key.strip().lstrip("-").replace("-", "_")


def flat(table: Any, prefix: str = "", depth: int = 0) -> tuple[tuple[str, Any], ...]:
    """Nested tables as dotted keys; lists stay whole."""
    if depth > DEEPEST:
        raise _bad("is nested too deeply")
    if not isinstance(table, Mapping):
        raise _bad("is not a table of keys and values", type(table).__name__)
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        name = prefix + spell_key(str(key))
        if isinstance(value, Mapping) and value:
            pairs += flat(value, f"{name}.", depth + 1)
        else:
            pairs.append((name, {} if isinstance(value, Mapping) else value))
        if len(pairs) > MOST_KEYS:
            raise _bad(f"has more than {MOST_KEYS} keys")
    return tuple(pairs)


def _python(text: str) -> Any:
    """The right side of an assignment, as far as it is a plain value."""
    text = text.strip().rstrip(",")
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise _bad("is nested too deeply") from None
    except ValueError as error:
        raise _bad(f"is not JSON: {error}") from None


def _toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise _bad("is nested too deeply") from None
    except ValueError as error:
        raise _bad(f"is not TOML: {error}") from None


def _bad(message: str, value: object = None) -> BadInput:
    allowed = "a command or script, JSON, TOML, YAML or key=value words"
    return BadInput([Problem(path="import", value=value, message=message, allowed=allowed)])
