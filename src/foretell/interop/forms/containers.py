"""Containers as processes: of manifests, charts, Compose files, Dockerfiles and units of systemd.

A command that is a shell with a script is read as a script; `$(NAME)` of Kubernetes is replaced by the
container's own variable. What multiplies a container on the way to it (replicas, nodes) is a fact.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from foretell.interop.forms.facts import process_facts
from foretell.interop.forms.records import (
    LaunchContents,
    LaunchedProcess,
    LauncherLayer,
    StatedFact,
    Word,
    plain_word,
    stated,
)
from foretell.interop.forms.script import read_script
from foretell.interop.forms.trees import Path, Tree
from foretell.interop.forms.unwrap import UTILITIES, unwrapped
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
    """A word in which `$(NAME)` of Kubernetes, a name in capitals, is written as a shell's variable."""

    def variable(match: re.Match[str]) -> str:
        return f"${{{match[1]}}}" if match[1].isupper() or "_" in match[1] else match[0]

    return replace(word, text=_KUBERNETES.sub(variable, word.text))


def _mounted(name: str, files: Mapping[str, str]) -> str | None:
    """The text of a file that a ConfigMap holds, by the last part of its path."""
    return files.get(name.rpartition("/")[2])


_DEFAULT = re.compile(r"\$\{\w+:?-([^}]*)\}")
"""`${NAME:-default}` of Compose."""
_INSTRUCTION = re.compile(
    r"^[ \t]*(FROM|CMD|ENTRYPOINT|ENV|ARG|RUN)[ \t]+(.*)$", re.IGNORECASE | re.MULTILINE
)


def is_compose(value: Any) -> bool:
    """Whether a document is a Compose file: services with an image, a build or a command."""
    services = table(table(value).get("services"))
    some = [one for one in services.values() if isinstance(one, Mapping)]
    return bool(some) and all(
        {"image", "build", "command", "extends", "entrypoint"} & {*one} for one in some
    )


def read_compose(tree: Tree) -> LaunchContents:
    """Processes of the services; those with GPUs alone where there are such."""
    found: list[LaunchedProcess] = []
    for name, service in table(tree.value.get("services")).items():
        if not isinstance(service, Mapping):
            continue
        path: Path = ("services", str(name))
        env = variables_at(tree, (*path, "environment"), service.get("environment"))
        words = [*words_at(tree, (*path, "entrypoint"), service.get("entrypoint"), split=True),
                 *words_at(tree, (*path, "command"), service.get("command"), split=True)]  # fmt: skip
        words = [replace(word, text=_DEFAULT.sub(r"\1", word.text)) for word in words]
        found += processes_of(words, env, _facts(tree, path, service), layer="compose", name=str(name),
                              image=str(service.get("image") or ""))  # fmt: skip
    with_gpus = [one for one in found if one.fact("gpus_per_node") is not None]
    return LaunchContents(form="compose", processes=tuple(with_gpus or found))


def _facts(tree: Tree, path: Path, service: Mapping[str, Any]) -> list[StatedFact]:
    """GPUs that a service reserves, and its replicas."""
    deploy = table(service.get("deploy"))
    reserved = table(table(deploy.get("resources")).get("reservations"))
    devices = reserved.get("devices")
    found: list[StatedFact] = []
    for at, one in enumerate(devices if isinstance(devices, list) else ()):
        place = (*path, "deploy", "resources", "reservations", "devices", str(at))
        ids = table(one).get("device_ids")
        many = len(ids) if isinstance(ids, list) else whole_number(table(one).get("count", ""))
        if many:
            found.append(stated("gpus_per_node", many, tree.line(*place), "devices"))
            break
    copies = deploy.get("replicas")
    if isinstance(copies, int) and copies > 1:
        found.append(stated("replicas", copies, tree.line(*path, "deploy", "replicas"), "replicas"))
    return found


def is_dockerfile(text: str) -> bool:
    """Whether a text is a Dockerfile."""
    kinds = [match[1].upper() for match in _INSTRUCTION.finditer(text)]
    begins = re.match(r"(?i)[ \t]*(?:FROM|ARG)\b", first_line(text))
    return "FROM" in kinds and len(kinds) > 1 and begins is not None


def first_line(text: str) -> str:
    """The first line that is neither empty nor a comment."""
    lines = (line for line in text.splitlines() if line.strip())
    return next((line for line in lines if not line.lstrip().startswith("#")), "")


def read_dockerfile(text: str) -> LaunchContents:
    """The command that the last image of a Dockerfile starts with."""
    joined = re.sub(r"\\\n", "  ", text)
    image, env, parts = "", dict[str, Word](), dict[str, list[Word]]()
    for match in _INSTRUCTION.finditer(joined):
        kind, rest = match[1].upper(), match[2].strip()
        line = _line(text, match[0])
        if kind == "FROM":
            image, parts = rest.split()[0], {}
        elif kind in ("ENV", "ARG"):
            pairs = re.findall(r"(\w+)=(\"[^\"]*\"|\S+)", rest) or [tuple(rest.split(None, 1))]
            env |= {pair[0]: Word(text=pair[1].strip('"'), line=line, raw=pair[1])
                    for pair in pairs if len(pair) == 2}  # fmt: skip
        elif kind in ("CMD", "ENTRYPOINT"):
            parts[kind] = _command(rest, line)
    words = [*parts.get("ENTRYPOINT", ()), *parts.get("CMD", ())]
    found = processes_of(words, env, (), layer="dockerfile", image=image) if words else []
    return LaunchContents(form="dockerfile", processes=tuple(found), env=env)


def _command(rest: str, line: int) -> list[Word]:
    """The words of `CMD ["a", "b"]`, or a shell's text."""
    if rest.startswith("["):
        try:
            return [plain_word(str(one), line) for one in json.loads(rest)]
        except (ValueError, RecursionError):
            pass
    return [plain_word(text, line) for text in ("sh", "-c", rest)]


def _line(text: str, found: str) -> int:
    at = text.find(found[:40].rstrip())
    return text.count("\n", 0, max(at, 0)) + 1


def read_unit(text: str) -> LaunchContents:
    """The command of a systemd unit with what it sets; each stays on its line."""
    lines, going = list[str](), False
    for line in text.splitlines():
        key, _, rest = line.partition("=")
        kept = line if going else ""
        if key == "Environment":
            kept = f"export {rest}"
        elif key == "ExecStart":
            kept = rest.lstrip("-@:+!")
        going = bool(kept) and line.endswith("\\")
        lines.append(kept)
    inner = read_script("\n".join(lines))
    return LaunchContents(form="systemd", processes=inner.processes, env=inner.env)
