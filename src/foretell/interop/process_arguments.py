"""The arguments that a launch file gives, process by process: keys, values and the line of each (forms/).

A process's own flags and overrides count; of the launchers around it accelerate's and DeepSpeed's flags,
which set what
the program would. What the form states of nodes and GPUs is in `variables`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.errors import BadInput
from foretell.interop.arguments import (
    LARGEST_TEXT,
    ArgumentTable,
    assigned_pairs,
    command_pairs,
    parse_arguments,
    spell_key,
    written_pairs,
)
from foretell.interop.forms import LaunchContents, LaunchedProcess, Word, gpu_count, read_form
from foretell.interop.forms.records import LauncherLayer
from foretell.interop.forms.unwrap import LAUNCHERS
from foretell.interop.python_configs import program_pairs, read_recipe
from foretell.interop.user_files import are_read, is_there

_CONTINUED = re.compile(r"(?<![\\\n])\n(?=[ \t]*--\w)")
"""Lines of a pasted command that begin with a flag and that nothing joins."""
_REPOSITORY = re.compile(r"[A-Z][\w-]*/[\w.-]+|[\w-]+/[\w-]*\d[\w.-]*")
"""A model's repository as the first word behind an image."""
SLURM_NAMES = {"a100": "a100-80gb"}
"""Names that batch systems give kinds of GPU, where a cloud means another by them: clusters have the larger
A100."""
CONFIGURATIONS = (".json", ".yaml", ".yml", ".toml", ".py")
"""Endings of files that hold arguments."""
VARIABLES = {
    "nodes": "nnodes",
    "gpus_per_node": "gpus_per_node",
    "processes_per_node": "gpus_per_node",
}
"""What a form states of chips, and the name that readers count them by."""
LISTED = {"#SBATCH": "srun", "sbatch": "srun", "torch.distributed.run": "torchrun"}
"""Launchers and the row that lists their options."""
INNER = ("accelerate", "deepspeed", "accelerate launch")
"""Launchers whose flags set what the program would."""


def argument_tables(given: str | Path, text: str) -> list[ArgumentTable]:
    """One table for each process that a launch starts, or one for a configuration or a program in Python."""
    if isinstance(given, str):
        given = _CONTINUED.sub(" \\\\\n", given)
    found = read_form(given)
    recipe = read_recipe(text) if found.processes else ()
    if recipe:
        told = tuple((spell_key(key), value) for key, value in recipe)
        return [ArgumentTable(words=(), pairs=told, variables={}, text=text)]
    if found.processes and not found.python:
        tables = [_of_process(one, found, text) for one in found.processes]
        pasted = isinstance(given, str) and found.form in ("shell", "slurm")
        bare = pasted and not any(_is_command(one) for one in tables)
        return [parse_arguments(text)] if bare else tables
    if found.python:
        called = ((spell_key(key), value) for key, value in program_pairs(found.python))
        told = tuple(called) or tuple(assigned_pairs(found.python))
        tables = [_of_process(one, found, text) for one in found.processes]
        return (
            [ArgumentTable(words=(), pairs=told, variables={}, text=text), *tables]
            if told
            else tables
        )
    if not found.settings:
        plain = not isinstance(given, Path) or found.form in ("helm", "kubernetes")
        return [parse_arguments(text)] if plain else []
    held = {spell_key(one.key): one.value for one in found.settings}
    places = {spell_key(one.key): one.line for one in found.settings}
    parent = _parent(given, held)
    if parent is not None:
        held = {**dict(parent.pairs), **held, "defaults": None}
        places = {**dict.fromkeys(dict(parent.pairs), 0), **places}
    held = {key.removeprefix("llm_api_args."): value for key, value in held.items()}
    return [
        ArgumentTable(words=(), pairs=tuple(held.items()), variables={}, text=text, places=places)
    ]


def _is_command(one: ArgumentTable) -> bool:
    """Whether a process has a program and something that it is given."""
    files = any(word.endswith(CONFIGURATIONS[:-1]) for word in one.words)
    return bool(one.words and (one.pairs or files))


def _parent(given: str | Path, pairs: Mapping[str, Any], depth: int = 4) -> ArgumentTable | None:
    """The configuration that a file says it is made from (NeMo-RL: `defaults: FILE`), where it is at hand."""
    name = pairs.get("defaults")
    if not isinstance(given, Path) or not isinstance(name, str) or not are_read() or depth == 0:
        return None
    path = (given.resolve().parent / name).resolve()
    if not name.endswith((".yaml", ".yml")) or not is_there(path, folder=False):
        return None
    tables = argument_tables(path, path.read_text(encoding="utf-8")[:LARGEST_TEXT])
    return tables[0] if tables else None


def _of_process(process: LaunchedProcess, found: LaunchContents, text: str) -> ArgumentTable:
    """The arguments of one process."""
    told = command_pairs([(word.text, word.line) for word in process.argv])
    pairs: list[tuple[str, Any]] = []
    places: dict[str, int] = {}
    for layer in process.layers:
        if layer.name in INNER:
            outer = command_pairs([(word.text, word.line) for word in layer.argv])
            pairs += outer.pairs
            places |= outer.places
        pairs += _strange(layer)
    inner = [layer.name for layer in process.layers if layer.name in INNER]
    values = " ".join(word.text for word in process.argv)
    for name, content in {**found.files, **process.files}.items():
        if name.endswith(CONFIGURATIONS) and Path(name).stem in values:
            try:
                pairs += written_pairs(content)
            except BadInput:
                continue
    pairs += told.pairs
    places |= told.places
    env = dict(process.env)
    pairs += [(f"${name}", word.text) for name, word in env.items()]
    places |= {f"${name}": word.line for name, word in env.items()}
    open_launcher = process.program.startswith("$") or any(
        word.unknown for layer in process.layers for word in layer.argv
    )
    count = gpu_count(
        [
            one
            for one in (*process.facts, *found.facts)
            if not (open_launcher and one.source == "torchrun's default")
        ]
    )
    facts = {
        "world_size": count.gpus if count.nodes is None and count.per_node is None else None,
        "nnodes": count.nodes,
        "gpus_per_node": count.per_node,
    }
    named = [
        word for word in process.argv if word.text.startswith("--") and word.raw.isidentifier()
    ]
    spelt = {spell_key(word.text.lstrip("-")): word.raw for word in named}
    places |= {word.raw: word.line for word in named}
    for fact in count.facts:
        source = spell_key(fact.source) if fact.line else ""
        if source:
            spelt[VARIABLES.get(fact.name, "world_size")] = source
            places.setdefault(source, fact.line)
    own = {key for key, _ in told.pairs}
    known = {name: word.text for name, word in env.items() if word.known}
    variables = known if own & {"nproc_per_node", "num_processes"} else {
        **known, **{name: str(value) for name, value in facts.items() if value is not None}
    }  # fmt: skip
    asks = (*found.asks, *(f"{name} is not set in the file: --gpus" for name in count.unknown))
    first = process.argv[0].text if process.argv else "-"  # the image's own program takes the rest
    override = bool(re.match(r"[\w.]+=", first))
    bare = first.startswith("-") or bool(
        process.image and (override or _REPOSITORY.fullmatch(first))
    )
    image = process.image if bare else ""
    role = process.fact("role")
    copies = process.fact("replicas")
    return ArgumentTable(
        bare=bare and not process.image,
        words=tuple(one for one in (*_modules(process), *told.words, image, *inner) if one),
        pairs=tuple(pairs),
        variables=variables,
        accelerator=_chip(count.accelerator, found),
        text=text,
        wrapped=found.form not in ("shell", "slurm") or bool(process.image),
        places=places,
        spelt=spelt,
        asks=asks,
        role=str(role.value) if role else "",
        copies=process.copies * (copies.value if copies and isinstance(copies.value, int) else 1),
        started=True,
    )


def _strange(layer: LauncherLayer) -> list[tuple[str, Any]]:
    """Options that a launcher whose options are listed does not have."""
    row = LAUNCHERS.get(LISTED.get(layer.name, layer.name))
    if row is None or not row.options:
        return []
    own = {one.replace("-", "_") for one in row.options}
    said = [word.text[2:].partition("=") for word in layer.argv if word.text.startswith("--")]
    told = [(spell_key(name), value or True) for name, _, value in said if name and "$" not in name]
    return [(name, value) for name, value in told if name.replace("-", "_") not in own]


def _modules(process: LaunchedProcess) -> Sequence[str]:
    """The program's own name where the words do not begin with it."""
    words: Sequence[Word] = process.argv
    return () if words and words[0].text == process.program else (process.program,)


def _chip(name: str | None, found: LaunchContents) -> str | None:
    """The kind of GPU, as a cloud would name it."""
    own = SLURM_NAMES.get((name or "").lower()) if found.form in ("shell", "slurm") else None
    return own or name
