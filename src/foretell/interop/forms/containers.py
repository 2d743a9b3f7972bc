"""Containers of manifests, charts and compose files as processes: command, arguments, variables, GPUs.

A command that is a shell with a script is read as a script; `$(NAME)` of Kubernetes is replaced by the
container's own variable. What multiplies a container on the way to it (replicas, nodes) is a fact.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from foretell.interop.forms.facts import process_facts
from foretell.interop.forms.launcher_rows import UTILITIES
from foretell.interop.forms.records import (
    LaunchedProcess,
    LauncherLayer,
    StatedFact,
    Word,
    plain_word,
    stated,
)
from foretell.interop.forms.script import read_script
from foretell.interop.forms.trees import Path, Tree
from foretell.interop.forms.unwrap import unwrapped
from foretell.interop.whole_numbers import whole_number

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu", "gpu")
"""Resources of a container that are accelerators."""
_WITHOUT_GPUS = re.compile(r"[-_:/]cpu(?![a-z])")
"""An image for processors alone: `vllm-openai-cpu`."""
_KUBERNETES = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")


def table(node: Any) -> Mapping[str, Any]:
    """A mapping, or an empty one in the place of anything else."""
    return node if isinstance(node, Mapping) else {}


def words_at(tree: Tree, path: Path, node: Any, *, split: bool = False) -> list[Word]:
    """Words of a list of them, or of one text, with their lines."""
    if isinstance(node, list):
        placed = [
            tree.placed(str(one), tree.line(*path, str(at)))
            for at, one in enumerate(node)
            if not isinstance(one, Mapping | list)
        ]
        return [plain_word(text, line) for text, line in placed]
    if node is None or isinstance(node, Mapping):
        return []
    text, line = tree.placed(str(node), tree.line(*path))
    if not split:
        return [plain_word(text, line)]
    return split_words(text, line)


def split_words(text: str, line: int) -> list[Word]:
    """Words of a command that is one text, each with its line."""
    found: list[Word] = []
    try:
        parts = shlex.split(text.replace("\\\n", " \n"), comments=False)
    except ValueError:
        parts = text.split()
    at = 0
    for part in parts:
        place = text.find(part, at)
        at = place if place >= 0 else at
        found.append(plain_word(part, line + text.count("\n", 0, at)))
        at += len(part) if place >= 0 else 0
    return found


def variables_at(
    tree: Tree, path: Path, node: Any, files: Mapping[str, str] | None = None
) -> dict[str, Word]:
    """Variables of `env:`: a list of names and values, a mapping, or texts `NAME=value`; `files` are those
    of ConfigMaps, by key."""
    found: dict[str, Word] = {}
    if isinstance(node, Mapping):
        for name, value in node.items():
            if not isinstance(value, Mapping | list):
                text = "" if value is None else str(value)
                found[str(name)] = plain_word(text, tree.line(*path, str(name)))
    for at, one in enumerate(node if isinstance(node, list) else ()):
        line = tree.line(*path, str(at))
        if isinstance(one, Mapping) and "name" in one:
            name = str(one["name"])
            if "value" in one:
                text = str(one["value"])
                found[name] = plain_word(text, tree.line(*path, str(at), "value"))
            else:
                held = str(table(table(one.get("valueFrom")).get("configMapKeyRef")).get("key"))
                content = (files or {}).get(held)
                found[name] = (
                    Word(text=f"${{{name}}}", line=line, raw=name, unknown=(name,))
                    if content is None
                    else Word(text=content.strip(), line=line, raw=held)
                )
        elif isinstance(one, str) and "=" in one:
            name, _, text = one.partition("=")
            found[name] = plain_word(text, line)
    return {name: _unset(name, word) for name, word in found.items()}


def _unset(name: str, word: Word) -> Word:
    """A placeholder in capitals or brackets stands for nothing."""
    if re.fullmatch(r"<[^<>]+>|\$\{?\w+\}?", word.text):
        return Word(text=f"${{{name}}}", line=word.line, raw=word.raw, unknown=(name,))
    return word


def filled_word(word: Word, env: Mapping[str, Word]) -> Word:
    """A word with `$(NAME)` of Kubernetes and `${NAME}` put in."""
    unknown: list[str] = []

    def value(match: re.Match[str]) -> str:
        known = env.get(match[1])
        if known is None or known.unknown:
            unknown.append(match[1])
            return f"${{{match[1]}}}"
        return known.text

    text = _KUBERNETES.sub(value, word.text)
    text = re.sub(r"\$\{?([A-Za-z_]\w*)\}?", value, text) if "$" in text else text
    return replace(word, text=text, unknown=(*word.unknown, *unknown))


def gpus_at(tree: Tree, path: Path, node: Any) -> StatedFact | None:
    """GPUs of `resources:`."""
    for part in ("limits", "requests"):
        asked = table(table(node).get(part))
        for name in GPU_RESOURCES:
            number = whole_number(asked.get(name, ""))
            if number is not None:
                line = tree.line(*path, part, name)
                return stated("gpus_per_node", number, line, name)
            if str(asked.get(name, "")).startswith("${"):
                unset = str(asked[name])[2:-1]
                return StatedFact(
                    name="gpus_per_node",
                    value=str(asked[name]),
                    line=tree.line(*path, part, name),
                    source=name,
                    unknown=(unset,),
                )
    return None


def processes_of(
    words: Sequence[Word],
    env: Mapping[str, Word],
    facts: Sequence[StatedFact],
    *,
    layer: str,
    image: str = "",
    name: str = "",
    files: Mapping[str, str] | None = None,
) -> list[LaunchedProcess]:
    """The processes that a container's words start."""
    written = files or {}
    if _WITHOUT_GPUS.search(image) and not any(one.name == "gpus_per_node" for one in facts):
        facts = [*facts, stated("accelerator", "cpu", words[0].line if words else 0, "image")]
    found = unwrapped([_with_shell_text(word) for word in words])
    around = (LauncherLayer(name=layer), *found.layers)
    script, line = None, 0
    if found.text is not None:
        script, line = found.text.text, found.text.line
    elif found.script and found.words:
        script = _mounted(found.words[0].text, written)
    if script is not None:
        inner = read_script(
            script, open_file=lambda one: _mounted(one, written), env=env, first_line=line
        )
        return [
            replace(one, layers=(*around, *one.layers), image=one.image or image, name=name,
                    env={**env, **one.env}, facts=(*one.facts, *facts))
            for one in inner.processes
        ]  # fmt: skip
    plain = tuple(filled_word(word, env) for word in found.words)
    first = plain[0].text if plain else ""
    if first and first.rpartition("/")[2] in UTILITIES:
        return []
    process = LaunchedProcess(
        program="" if first.startswith("-") else first, argv=plain, env={**env, **found.env},
        layers=around, image=image, name=name,
    )  # fmt: skip
    return [replace(process, facts=(*process_facts(process), *facts))]


def _with_shell_text(word: Word) -> Word:
    """A word in which `$(NAME)` of Kubernetes is written as a shell's variable."""
    return (
        replace(word, text=_KUBERNETES.sub(_as_variable, word.text)) if "$(" in word.text else word
    )


def _as_variable(match: re.Match[str]) -> str:
    """`$(NAME)` of a name in capitals is Kubernetes' variable; else a command."""
    return f"${{{match[1]}}}" if match[1].isupper() or "_" in match[1] else match[0]


def _mounted(name: str, files: Mapping[str, str]) -> str | None:
    """The text of a file that a ConfigMap holds, by the last part of its path."""
    return files.get(name.rpartition("/")[2])
