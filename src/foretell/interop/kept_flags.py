"""An engine's command with the flags of the launch that it comes from: what does not change stays as it was.

A flag changes where the engine's writer says it otherwise for the new deployment than for the one that was
read. Every other flag of the launch is kept, also those that change no answer: host, port, length, template.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from foretell.interop.arguments import ArgumentTable, parse_arguments, spell_key
from foretell.interop.keys import LONGEST_KEY

OwnFlags = tuple[tuple[str, str], ...]
"""Flags as a launch spells them, each with its value as a shell takes it; "" stands for a flag alone."""
PLACES = frozenset(
    """nnodes node_rank master_addr master_port dist_init_addr headless data_parallel_address
    data_parallel_rpc_port data_parallel_size_local data_parallel_start_rank data_parallel_rank""".split()
)
"""Flags that say where the ranks of one layout are; another layout has other places."""
DEGREES = frozenset({"tp", "pp", "dp", "cp", "ep"})
"""Values that lay an instance out."""
NOT_FLAGS = frozenset({"m", "model", "model_path", "serve"})
"""What the start of a command says."""
FILES = frozenset({"config", "extra_llm_api_options"})
"""Flags that name a file of options, which a command that writes one names itself."""
HALVES = ("kv_transfer_config", "disaggregation_")
"""How flags begin that say which half of a service an instance is: a script of both says them itself."""


def own_flags(given: ArgumentTable, pairs: Mapping[str, Any]) -> OwnFlags:
    """Flags of a launch in its own spelling; keys of a file of options that it writes are not flags."""
    found = []
    for key, value in pairs.items():
        if (
            key in NOT_FLAGS
            or key.startswith(HALVES)
            or "." in key
            or value is None
            or value is False
            or len(key) > LONGEST_KEY
        ):
            continue
        if isinstance(value, Mapping):
            continue
        dash = re.search(
            rf"(?<![\w-])(--?{re.escape(key).replace('_', '[-_]')})(?=[\s=\"',\]]|$)", given.text
        )
        if dash is None and "--" in given.text:
            continue
        spelt = dash[1] if dash else f"--{key.replace('_', '-')}"
        found.append((spelt, _shell(value)))
    return tuple(found)


def _shell(value: Any) -> str:
    if value is True:
        return ""
    items = value if isinstance(value, list) else [value]
    return " ".join(_quoted(str(item)) for item in items)


def _quoted(text: str) -> str:
    """A word as a shell takes it; one with a variable that the launch leaves open stays open."""
    # One set of characters alone: a pattern with the sign in its midst would try every one of many.
    spares = "$" in text and re.fullmatch(r"[\w./:${}-]*", text)
    return f'"{text}"' if spares else shlex.quote(text)


def keep_flags(
    own: OwnFlags,
    as_read: str,
    written: str,
    sources: Mapping[str, Sequence[str]],
    *,
    alone: bool = True,
) -> str:
    """The written command with a launch's flags: those that the two texts say alike stay as they were.

    `sources` are the flags of each value; not `alone`, an instance gets its port from the script around it.
    """
    *head, command = written.split("\n")
    before, after = _pairs(as_read.rpartition("\n")[2]), _pairs(command)
    changed = {key for key in {**before, **after} if before.get(key) != after.get(key)}
    moved = any(changed & set(sources.get(name, ())) for name in DEGREES)
    gone = {*(PLACES if moved else ()), *(() if alone else ("port",)), *(FILES if head else ())}
    left = {key: after[key] for key in after if key in changed or head}
    words = []
    for flag, value in own:
        key = spell_key(flag)
        if key in gone:
            continue
        meant = _meant(key, value, before, sources)
        if meant in changed:
            words += [_said(meant, left.pop(meant), command)] if meant in left else []
        else:
            left.pop(meant, None)
            words.append(f"{flag} {value}".strip())
    words += [_said(key, value, command) for key, value in left.items()]
    return "\n".join([*head, " ".join([_start(command), *words])])


def _meant(
    key: str, value: str, before: Mapping[str, Any], sources: Mapping[str, Sequence[str]]
) -> str:
    """The writer's name for a flag: another of the same value that says the same, else its own."""
    groups = (names for name, names in sources.items() if name not in ("gpus", "model"))
    alike = (one for names in groups if key in names for one in names)
    if key in before:
        return key
    return next((one for one in alike if one in before and _shell(before[one]) == value), key)


def _start(command: str) -> str:
    """The program with its model, before the first flag of the deployment."""
    start = re.split(r"\s--(?!model-path)", command, maxsplit=1)[0]
    return start.strip()


def _pairs(command: str) -> dict[str, Any]:
    return {key: value for key, value in parse_arguments(command).pairs if key not in NOT_FLAGS}


def _said(key: str, value: Any, command: str) -> str:
    """A flag as the writer spells it."""
    match = re.search(rf"--{re.escape(key).replace('_', '[-_]')}(?=\s|$)", command)
    return f"{match[0] if match else '--' + key} {_shell(value)}".strip()


LAUNCHER_FLAGS = frozenset(
    """nnodes nproc_per_node node_rank master_addr master_port rdzv_id rdzv_backend rdzv_endpoint
    max_restarts monitor_interval standalone""".split()
)
"""Flags of torchrun, which stand before the program."""
DATA = frozenset({"data_path", "train_data_path", "data_args_path", "per_split_data_args_path"})
"""Flags of Megatron that name data."""
MADE_UP = ("--mock-data", "--split 99,1,0")
"""What a benchmark says instead."""


def quiet_flags(own: OwnFlags, ignored: Sequence[str]) -> OwnFlags:
    """Flags of a training program that change no answer."""
    kept = set(ignored) - LAUNCHER_FLAGS
    return tuple((flag, value) for flag, value in own if spell_key(flag) in kept)


def with_own(lines: Sequence[str], own: OwnFlags) -> list[str]:
    """Lines of a program's flags with a launch's own: in the place of the same flag, else at the end."""
    found, more = list(lines), list[str]()
    if any(spell_key(flag) in DATA for flag, _ in own):
        for text in MADE_UP:
            found = [line.replace(text, "").strip() for line in found]
    for flag, value in own:
        said = f"{flag} {value}".strip()
        name = re.escape(spell_key(flag)).replace("_", "[-_]")
        same = re.compile(rf"--{name}(?![\w-])(?: (?!--)\S+)*")
        places = [at for at, line in enumerate(found) if same.search(line)]
        for at in places:
            found[at] = same.sub(lambda _, said=said: said, found[at])  # type: ignore[misc]
        more += [] if places else [said]
    return [line for line in (*found, *more) if line]
