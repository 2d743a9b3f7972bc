"""Any text of arguments as keys and values: a command or script, JSON, TOML, YAML, Python, `key=value` words.

Keys are spelled one way: no dashes before them, `_` for `-`, nested tables joined by dots. What a key
means is the business of the tool's own module. Scripts, containers, manifests and tasks are opened by forms/.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from foretell.errors import BadInput, bad_input
from foretell.interop.documents import DEEPEST, read_documents
from foretell.interop.forms import LaunchContents, gpu_count, read_form
from foretell.interop.python_configs import program_pairs
from foretell.records import dataclass

LARGEST_TEXT = 1 << 18
"""Characters of a text of arguments; a longer one is none."""
MOST_KEYS = 20_000
"""Keys of one."""
LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
"""Launchers whose own flags are read with the program's."""
NAMED_LISTS = frozenset({"lora_modules", "lora_paths"})
"""Flags whose values are many of `name=path`."""
_SECTION = re.compile(r"^[ \t]*\[{1,2}[\w.\-\"' ]{1,200}\]{1,2}[ \t]*(?:#.*)?$", re.MULTILINE)
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
    """Keys and values of a text that is there; of several processes the one with most words."""
    found = read_form(text)
    pairs = [(spell_key(key), value) for key, value in program_pairs(text)]
    if found.python and not pairs:
        pairs = assigned_pairs(found.python)
    if pairs:
        return ArgumentTable(words=(), pairs=tuple(pairs), variables={})
    if not found.processes:
        return ArgumentTable(words=(), pairs=_configured(text, found), variables={})
    process = max(found.processes, key=lambda one: len(one.argv))
    launcher = [word for layer in process.layers if layer.name in LAUNCHERS for word in layer.argv]
    told = command_pairs([(word.text, word.line) for word in (*launcher, *process.argv)])
    pairs = list(told.pairs)
    for content in found.files.values():
        try:
            pairs += written_pairs(content)
        except BadInput:
            continue  # a script may write files that are no options
    count = gpu_count(process.facts)
    chips = {"nnodes": count.nodes, "gpus_per_node": count.per_node}
    known = {name: word.text for name, word in process.env.items() if word.known}
    image = (f"IMAGE={process.image}",) if process.image else ()
    return ArgumentTable(
        words=(*image, *told.words),
        pairs=tuple(pairs),
        variables=known | {name: str(many) for name, many in chips.items() if many is not None},
        accelerator=count.accelerator,
        places=told.places,
    )


def _configured(text: str, found: LaunchContents) -> tuple[tuple[str, Any], ...]:
    """Keys of a configuration, lists whole; or words `key=value` without a program."""
    if found.form == "toml":
        return flat(_toml(text))
    if found.form == "json":
        return flat(_json(text))
    if found.form in ("shell", "slurm"):
        return tuple((spell_key(name), word.text) for name, word in found.env.items())
    documents = [one for one in read_documents(text) if isinstance(one, Mapping)]
    return tuple(pair for one in documents for pair in flat(one))


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


def _override(word: str) -> re.Match[str] | None:
    """`key=value`; a name in capitals is a shell's variable."""
    match = _OVERRIDE.fullmatch(word)
    return None if match is None or match[1].isupper() else match


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
    return bad_input("import", value, message, allowed)
