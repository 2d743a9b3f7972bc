"""The arguments of a launch by the names of our own fields: the one walk over a tool's table.

`translate` turns a tool's keys into fields with the key and line that each is from; what is left is named as
of no
bearing, as not modelled, or as unknown. References of a configuration (`${a.b}`) are followed first.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from foretell.interop.arguments import ArgumentTable
from foretell.interop.keys import (
    LAUNCHER_FLAGS,
    Keys,
    LeftArguments,
    is_truth,
    plan_words,
    read_back,
)
from foretell.interop.launch import Launch
from foretell.interop.tool_tables import CHIP_KEYS, ToolTable, own_configurations
from foretell.interop.whole_numbers import whole_number
from foretell.records import dataclass
from foretell.specs.plan_words import read_words
from foretell.units import as_number

_REFERENCE = re.compile(r"\$\{([^${}]+)\}")
_RESOLVER = re.compile(r"(?:oc\.)?(\w+):(.*)", re.DOTALL)
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "mul": lambda a, b: a * b, "multiply": lambda a, b: a * b, "sub": lambda a, b: a - b,
    "subtract": lambda a, b: a - b, "add": lambda a, b: a + b, "sum": lambda a, b: a + b,
    "div": lambda a, b: a // b, "int_div": lambda a, b: a // b, "max": max, "min": min,
}  # fmt: skip
"""Functions that configurations compute with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A launch in our own fields."""

    keys: Keys
    """The fields."""
    plan: Mapping[str, object]
    """Words of a plan that single keys stand for."""
    sources: Mapping[str, tuple[str, ...]]
    """Word of the plan -> keys that say it."""
    left: LeftArguments
    """Keys that set nothing."""
    warned: tuple[str, ...]
    """Values that matter and are not modelled."""
    backend: str
    """The trainer behind the tool, where it has several."""


def translate(given: ArgumentTable, table: ToolTable) -> Translated:
    """The fields that a launch sets, those that its tool's defaults set, and what is left over."""
    given, own_keys = _completed(given, table)
    given = replace(given, pairs=tuple(resolved(dict(given.pairs)).items()))
    words, pairs = _alone(given, table)
    backend = _backend(pairs, table)
    fields = {**table.fields}
    for name, first in (*table.backends.get(backend, {}).items(), *_engine_fields(pairs, table)):
        fields[name] = (*first, *fields.get(name, ()))
    found: dict[str, Any] = {}
    spelt: dict[str, str] = {}
    silent_names = set[str]()
    for name, names in fields.items():
        key = next((one for one in names if pairs.get(one) is not None), None)
        if key is not None:
            found[name] = _ours(table, name, pairs[key])
            silent_names |= {name} if key in own_keys else set()
            spelt[name] = given.spelt.get(key, key)
    claimed = table.known
    found |= {name: pairs[name] for name in CHIP_KEYS if name in pairs and name not in claimed}
    for key in table.plan:
        if pairs.get(key) is not None:
            found[f"key:{key}"], spelt[f"key:{key}"] = pairs[key], given.spelt.get(key, key)
    for name, factors in table.products.items():
        if ":" in factors[0] or pairs.get(factors[0]) is not None:
            found[name], spelt[name] = _product(pairs, factors)
    silent = {**table.defaults, **dict(table.defaults.get(backend, {}))}
    # A launcher's open number of processes is not the tool's own default.
    open_chips = (
        {*CHIP_KEYS, "gpus", "nodes"} if any("--gpus" in ask for ask in given.asks) else {*()}
    )
    missing = {
        name: value
        for name, value in silent.items()
        if name not in {*found, *open_chips, "plan"} and not isinstance(value, Mapping)
    }
    own = replace(
        given,
        words=(*given.words, *words),
        pairs=(*found.items(), *missing.items()),
        spelt={**given.spelt, **spelt},
    )
    keys = Keys(own, tool=table.tool)
    keys.defaults = frozenset({*missing, *silent_names})
    keys.alone = frozenset(key for key in table.plan if pairs.get(key) is not None)
    plan, sources, warned = _plan(pairs, table, silent, keys)
    left = _left(pairs, table)
    return Translated(
        keys=keys, plan=plan, sources=sources, left=left, backend=backend, warned=tuple(warned)
    )


def _completed(given: ArgumentTable, table: ToolTable) -> tuple[ArgumentTable, frozenset[str]]:
    """Arguments with their sections where the tool has some, under them those of a configuration of the
    tool's own that they name, whose keys are the other value."""
    pairs = []
    for key, value in given.pairs:
        parts = table.words.get("section", {}) if "." not in key else {}
        section = next((one for part, one in parts.items() if part in key), None)
        pairs.append((f"{section}.{key}" if section else key, value))
    said = dict(pairs)
    known = own_configurations(table.options["own"])["configs"] if "own" in table.options else {}
    named = next((str(said[key]) for key in table.fields.get("own", ()) if said.get(key)), "")
    said |= {key.rpartition(".")[0]: None for key in said if key == "activation_checkpoint.mode"}
    more = {key: value for key, value in known.get(named, {}).items() if key not in said}
    return replace(given, pairs=(*more.items(), *pairs)), frozenset(more)


def launch_of(
    told: Translated,
    given: ArgumentTable,
    table: ToolTable,
    job: Mapping[str, Any],
    values: Mapping[str, object],
    sources: Mapping[str, tuple[str, ...]],
    /,
    **more: Any,
) -> Launch:
    """The launch that values of a plan and of a job make, with where each is from and what is left over."""
    keys = told.keys
    made: dict[str, Any] = {
        "tool": table.tool, "gpus": job.get("gpus"), "global_batch": job.get("global_batch"),
        "seq_len": job.get("seq_len"), "plan": plan_words(values), "accelerator": given.accelerator,
        "values": read_back(keys, {**job, **values}, sources), "notes": tuple(keys.notes),
        "doubts": tuple(keys.doubts), "asks": tuple(keys.asks), "ignored": told.left.quiet,
        "unmodelled": (*told.warned, *told.left.bears), "unknown": told.left.unknown,
    }  # fmt: skip
    return Launch(**{**made, **more})


def _alone(given: ArgumentTable, table: ToolTable) -> tuple[list[str], dict[str, Any]]:
    """(words behind flags that take no value, keys and values in the table's spelling)."""
    words: list[str] = []
    pairs: dict[str, Any] = {}
    for key, value in given.pairs:
        name = key.rpartition(".")[2] if table.last and table.verdict(key) is None else key
        plain = name.removeprefix("no_")
        if plain != name and table.verdict(name) is None and table.verdict(plain) == "sets":
            name, value = plain, str(value).lower() in ("false", "0")
        if name in table.switches and not is_truth(value):
            words += [str(one) for one in (value if isinstance(value, list) else [value])]
            value = True
        if pairs.get(name) is None or value is not None:
            pairs[name] = value
    return words, pairs


def _product(pairs: Mapping[str, Any], factors: tuple[str, ...]) -> tuple[int, str]:
    """A degree that several keys make, each with what it is where it is not given (`key:1`); -1 is what the
    chips leave, and between slices as many as there are. Without the first, where it has no value of its
    own, there is none."""
    found, key = 1, factors[0].partition(":")[0]
    for factor in factors:
        name, _, silent = factor.partition(":")
        told = whole_number(str(pairs.get(name, silent)).lstrip("-")) or 1
        left = str(pairs.get(name, silent)).startswith("-")
        key = name if pairs.get(name) is not None else key
        if left and name.startswith("dcn_"):
            told, left = whole_number(pairs.get("num_slices")) or 1, False
        found = -1 if left or found < 0 else found * told
    return found, key


def _backend(pairs: Mapping[str, Any], table: ToolTable) -> str:
    """The trainer that a launch names, else the tool's own."""
    for key in table.fields.get("backend", ()):
        told = pairs.get(key)
        if told is not None:
            ours = table.values.get("backend", {}).get(str(told).lower())
            if ours is not None:
                return str(ours)
            if not table.values.get("backend"):
                return str(told).lower()
    engines = {str(word) for word in table.values.get("engine", {}).values()}
    said = [
        name
        for name, own in table.backends.items()
        if name not in engines and any(pairs.get(key) for keys in own.values() for key in keys)
    ]
    return said[0] if len(said) == 1 else str(table.defaults.get("backend", ""))


def _engine_fields(
    pairs: Mapping[str, Any], table: ToolTable
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Fields that keys of the engine that generates set, where each has a section of its own."""
    told = next((pairs[key] for key in table.fields.get("engine", ()) if pairs.get(key)), "")
    return tuple(table.backends.get(str(_ours(table, "engine", told)), {}).items())


def _ours(table: ToolTable, name: str, value: Any) -> Any:
    """A value in our words, where the table has them."""
    words = table.values.get(name)
    return value if words is None else words.get(str(value).lower(), value)


def _plan(
    pairs: Mapping[str, Any], table: ToolTable, silent: Mapping[str, Any], keys: Keys
) -> tuple[dict[str, object], dict[str, tuple[str, ...]], list[str]]:
    """Words of a plan, the tool's own and over them those that keys stand for; the keys of each; and values
    that matter and are not modelled (`!` in a table)."""
    read = _service_words if table.family == "service" else _training_words
    words = read(str(silent.get("plan", "")))
    sources: dict[str, tuple[str, ...]] = {}
    warned: list[str] = []
    for key, values in table.plan.items():
        told = pairs.get(key)
        if (told is None and not (key in pairs and "none" in values)) or isinstance(
            told, list | dict
        ):
            continue
        text = str(told).strip().strip("\"'").lower()
        if text not in values and "$" in text:
            keys.ask_for(key, str(told))
            keys.unset.add(f"key:{key}")
            continue
        if text not in values and "*" not in values:
            keys.doubt(f"{key} {str(told)[:40]} is not known here")
            continue
        meant = values.get(text, values.get("*", ""))
        if meant == "!":
            warned.append(f"{key}={text[:40]}")
            continue
        if meant == "stop":
            keys.doubt(f"{key} {text[:40]} is another step, which is not computed")
            continue
        found = read(meant)
        words |= found
        for name in found:
            sources[name] = (*sources.get(name, ()), f"key:{key}")
    return words, sources, warned


def _training_words(text: str) -> dict[str, object]:
    return {**read_words(text)[0]} if text else {}


def _service_words(text: str) -> dict[str, object]:
    """Words of a deployment: `no-graph` and `kv=fp8`."""
    pairs = (word.partition("=") for word in text.split())
    return {
        name.removeprefix("no-"): value if equals else not name.startswith("no-")
        for name, equals, value in pairs
    }


def _left(pairs: Mapping[str, Any], table: ToolTable) -> LeftArguments:
    """Keys that set nothing, by what the table says of them."""
    found: dict[str, list[str]] = {"bears": [], "quiet": [], "unknown": []}
    for key, value in pairs.items():
        verdict = table.verdict(key) or table.verdict(key.removeprefix("no_"))
        if verdict == "sets" or key in ("m", "module") or key.startswith("$"):
            continue
        if verdict is None and key in CHIP_KEYS:
            continue
        if verdict is None and key.removeprefix("no_") in LAUNCHER_FLAGS:
            verdict = "quiet"
        kind = verdict or "unknown"
        if kind == "bears" and (
            value is None or value is False or str(value).lower() in ("none", "null", "false")
        ):
            kind = "quiet"
        found[kind].append(key)
    return LeftArguments(**{kind: tuple(names) for kind, names in found.items()})


def resolved(pairs: Mapping[str, Any]) -> dict[str, Any]:
    """Pairs with references followed: another key, a resolver's arithmetic, an environment's default."""
    found = dict(pairs)
    for key, value in found.items():
        if isinstance(value, str) and "${" in value:
            found[key] = _follow(value, pairs, key, 8)
    return found


def _follow(text: str, pairs: Mapping[str, Any], key: str, depth: int) -> Any:
    """One value with its references followed, as far as they can be."""
    for _ in range(12):
        match = _REFERENCE.search(text)
        if match is None or depth == 0:
            return text
        told = _referred(match[1].strip(), pairs, key, depth)
        if told is None:
            return text
        if match[0] == text.strip():
            return told
        text = text[: match.start()] + str(told) + text[match.end() :]
    return text


def _referred(name: str, pairs: Mapping[str, Any], key: str, depth: int) -> Any:
    """What a reference stands for; None where it is not in the text."""
    call = _RESOLVER.fullmatch(name)
    if call:
        parts = [one.strip().strip("\"'") for one in call[2].split(",")]
        if call[1].isupper():  # a variable of the environment with its default
            return parts[0] if parts[0] else None
        if call[1] == "env":
            return parts[1] if len(parts) > 1 else None
        if call[1] == "select":
            told = _referred(parts[0], pairs, key, depth)
            return told if told is not None or len(parts) < 2 else parts[1]
        if call[1] == "not":
            return {"true": False, "false": True}.get(parts[0].lower())
        numbers = [number for one in parts if (number := as_number(one)) is not None]
        if call[1] in _ARITHMETIC and len(numbers) == len(parts) == 2:
            whole = _ARITHMETIC[call[1]](numbers[0], numbers[1])
            return int(whole) if float(whole).is_integer() else whole
        return None
    if name.startswith("."):
        levels = len(name) - len(name.lstrip("."))
        base = key.split(".")[:-levels]
        name = ".".join([*base, name.lstrip(".")])
    value = pairs.get(name.replace("-", "_"))
    if value is None:  # a group's own name in front, which its file does not have
        value = pairs.get(name.partition(".")[2].replace("-", "_"))
    if isinstance(value, str) and "${" in value:
        return _follow(value, pairs, name, depth - 1)
    return value
