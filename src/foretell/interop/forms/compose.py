"""Docker Compose files and Dockerfiles: services or the image's own command as processes."""

import json
import re
from collections.abc import Mapping
from typing import Any

from foretell.interop.forms.containers import processes_of, table, variables_at, words_at
from foretell.interop.forms.records import (
    LaunchContents,
    LaunchedProcess,
    StatedFact,
    Word,
    plain_word,
    stated,
)
from foretell.interop.forms.script import read_script
from foretell.interop.forms.trees import Path, Tree
from foretell.interop.whole_numbers import whole_number

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
        words = [_default(word) for word in words]
        found += processes_of(words, env, _facts(tree, path, service), layer="compose", name=str(name),
                              image=str(service.get("image") or ""))  # fmt: skip
    with_gpus = [one for one in found if one.fact("gpus_per_node") is not None]
    return LaunchContents(form="compose", processes=tuple(with_gpus or found))


def _default(word: Word) -> Word:
    """`${NAME:-default}` of Compose."""
    text = re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", word.text)
    return Word(text=text, line=word.line, raw=word.raw)


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
    return (
        "FROM" in kinds
        and len(kinds) > 1
        and bool(re.match(r"(?i)[ \t]*(?:FROM|ARG)\b", _first_line(text)))
    )


def _first_line(text: str) -> str:
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
