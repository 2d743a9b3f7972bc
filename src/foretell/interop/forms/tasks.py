"""Tasks of clouds and platforms: a script with the nodes and GPUs that it is given.

SkyPilot, dstack, Beaker, Azure ML, MosaicML (its `parameters` are a file of the job) and Determined.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from foretell.interop.forms.containers import processes_of, table, variables_at, words_at
from foretell.interop.forms.records import (
    FactName,
    Form,
    LaunchContents,
    LaunchedProcess,
    StatedFact,
    Word,
    plain_word,
    stated,
)
from foretell.interop.forms.script import read_script
from foretell.interop.forms.trees import Tree

_MEMORY = re.compile(r"\d+GB(?:\.\.(?:\d+GB)?)?|\.\.\d+GB", re.IGNORECASE)


def is_skypilot(value: Any) -> bool:
    """Whether a document is a SkyPilot task."""
    found = table(value)
    return isinstance(found.get("run"), str) and bool(
        {"resources", "num_nodes", "setup", "workdir", "name", "envs", "service"} & {*found}
    )


def is_dstack(value: Any) -> bool:
    """Whether a document is a dstack configuration."""
    return table(value).get("type") in ("task", "service", "dev-environment") and isinstance(
        table(value).get("commands"), list
    )


def read_skypilot(tree: Tree, open_file: Callable[[str], str | None]) -> LaunchContents:
    """A SkyPilot task; of several accelerators that would do, the first."""
    value = tree.value
    resources = table(value.get("resources"))
    chip, many = _accelerator(resources.get("accelerators"))
    line = tree.line("resources", "accelerators")
    facts = []
    nodes = value.get("num_nodes")
    count = nodes if isinstance(nodes, int) and nodes > 0 else 1
    facts.append(
        stated(
            "nodes",
            count,
            tree.line("num_nodes") if nodes else 0,
            "num_nodes" if nodes else "SkyPilot's default",
        )
    )
    if chip:
        facts += [stated("gpus_per_node", many, line, "accelerators"),
                  stated("accelerator", chip, line, "accelerators")]  # fmt: skip
    copies = table(value.get("service")).get("replicas")
    least = table(table(value.get("service")).get("replica_policy")).get("min_replicas")
    for one in (copies, least):
        if isinstance(one, int) and one > 1:
            facts.append(stated("replicas", one, tree.line("service"), "replicas"))
    env = {
        **variables_at(tree, ("envs",), value.get("envs")),
        **variables_at(tree, ("secrets",), value.get("secrets")),
    }
    env |= {"SKYPILOT_NUM_NODES": plain_word(str(count), tree.line("num_nodes"))}
    if chip:
        env["SKYPILOT_NUM_GPUS_PER_NODE"] = plain_word(str(many), line)
    return _script(tree, "skypilot", value["run"], tree.line("run") + 1, env, facts, open_file)


def read_dstack(tree: Tree, open_file: Callable[[str], str | None]) -> LaunchContents:
    """A dstack task or service."""
    value = tree.value
    chip, many = _dstack_gpu(table(value.get("resources")).get("gpu"))
    line = tree.line("resources", "gpu")
    nodes = value.get("nodes")
    facts = []
    if isinstance(nodes, int):
        facts.append(stated("nodes", nodes, tree.line("nodes"), "nodes"))
    if many:
        facts.append(stated("gpus_per_node", many, line, "resources.gpu"))
    if chip:
        facts.append(stated("accelerator", chip, line, "resources.gpu"))
    copies = value.get("replicas")
    least = copies if isinstance(copies, int) else 0
    if least > 1:
        facts.append(stated("replicas", least, tree.line("replicas"), "replicas"))
    env = variables_at(tree, ("env",), value.get("env"))
    count = nodes if isinstance(nodes, int) else 1
    env |= {"DSTACK_NODES_NUM": plain_word(str(count), tree.line("nodes"))}
    if many:
        env |= {"DSTACK_GPUS_PER_NODE": plain_word(str(many), line),
                "DSTACK_GPUS_NUM": plain_word(str(many * count), line)}  # fmt: skip
    script = "\n".join(str(one) for one in value["commands"])
    return _script(tree, "dstack", script, tree.line("commands") + 1, env, facts, open_file,
                   image=str(value.get("image") or ""))  # fmt: skip


def is_beaker(value: Any) -> bool:
    """Whether a document is an experiment of Beaker."""
    several = table(value).get("tasks")
    return (
        isinstance(several, list)
        and "budget" in value
        and "command" in table((several or [None])[0])
    )


def read_beaker(tree: Tree) -> LaunchContents:
    """Tasks of a Beaker experiment."""
    found: list[LaunchedProcess] = []
    for at, task in enumerate(tree.value["tasks"]):
        path, one = ("tasks", str(at)), table(task)
        words = [word for key in ("command", "arguments")
                 for word in words_at(tree, (*path, key), one.get(key))]  # fmt: skip
        facts = []
        each, nodes = table(one.get("resources")).get("gpuCount"), one.get("replicas")
        if isinstance(nodes, int):
            facts.append(stated("nodes", nodes, tree.line(*path, "replicas"), "replicas"))
        if isinstance(each, int):
            facts.append(
                stated("gpus_per_node", each, tree.line(*path, "resources", "gpuCount"), "gpuCount")
            )
        env = variables_at(tree, (*path, "envVars"), one.get("envVars"))
        image = next((str(name) for name in table(one.get("image")).values()), "")
        found += processes_of(
            words, env, facts, layer="beaker", image=image, name=str(one.get("name"))
        )
    return LaunchContents(form="task", processes=tuple(found))


def is_platform(value: Any) -> bool:
    """Whether a document is a job of Azure ML, MosaicML or Determined."""
    found = table(value)
    azure = isinstance(found.get("command"), str) and {"compute", "distribution", "resources"} & {
        *found
    }
    return bool(azure) or (
        isinstance(found.get("entrypoint"), str)
        and "slots_per_trial" in table(found.get("resources"))
    )


def read_platform(tree: Tree, open_file: Callable[[str], str | None]) -> LaunchContents:
    """A job of Azure ML (`command`, `distribution`, `resources`), of MosaicML (`command`, `compute`,
    `parameters`) or of Determined (`entrypoint`, `resources.slots_per_trial`)."""
    value = tree.value
    key = "command" if isinstance(value.get("command"), str) else "entrypoint"
    facts = []
    for path, name in _PLACES.items():
        *above, last = path
        node = value
        for part in above:
            node = table(node.get(part))
        told = node.get(last)
        counts = isinstance(told, int) and not isinstance(told, bool)
        if counts or (isinstance(told, str) and name == "accelerator"):
            facts.append(stated(name, told, tree.line(*path), last))
    env = variables_at(tree, ("environment_variables",), value.get("environment_variables"))
    found = _script(tree, "task", value[key], tree.line(key) + 1, env, facts, open_file,
                    image=str(value.get("image") or ""))  # fmt: skip
    if not isinstance(value.get("parameters"), Mapping):
        return found
    files = {**found.files, "parameters.yaml": json.dumps(value["parameters"], default=str)}
    processes = tuple(replace(one, files=files) for one in found.processes)
    return replace(found, files=files, processes=processes)


_PLACES: Mapping[tuple[str, ...], FactName] = {
    ("resources", "instance_count"): "nodes", ("distribution", "process_count_per_instance"): "gpus_per_node",
    ("compute", "gpus"): "gpus", ("gpu_num",): "gpus", ("compute", "gpu_type"): "accelerator",
    ("gpu_type",): "accelerator", ("resources", "slots_per_trial"): "gpus",
    ("resources", "instance_type"): "accelerator",
}  # fmt: skip
"""Where jobs state nodes and GPUs."""


def _script(
    tree: Tree, form: Form, text: str, line: int, env: Mapping[str, Word], facts: list[StatedFact],
    open_file: Callable[[str], str | None], image: str = "",
) -> LaunchContents:  # fmt: skip
    inner = read_script(text, env=env, first_line=line, open_file=open_file)
    processes = tuple(
        replace(one, facts=(*one.facts, *facts), image=one.image or image)
        for one in inner.processes
    )
    return replace(inner, form=form, processes=processes, facts=(*inner.facts, *facts))


def _accelerator(told: Any) -> tuple[str, int]:
    """(name, count) of `H100:8`, `{H100: 8}`, `[H100:8, A100:8]`."""
    if isinstance(told, Mapping):
        told = [str(name) if many is None else f"{name}:{many}" for name, many in told.items()]
    first = told[0] if isinstance(told, list) and told else told
    name, _, many = str(first or "").strip("{}[]' \"").partition(":")
    number = re.match(r"\s*(\d+)", many)
    return name.strip(), int(number[1]) if number else 1


def _dstack_gpu(told: Any) -> tuple[str, int]:
    """(name, count) of `MI300X:8`, `80GB:2`, `H100:80GB:8`, `2`, `{name: H100, count: 8}`."""
    if isinstance(told, Mapping):
        name = told.get("name")
        first = name[0] if isinstance(name, list) and name else name
        least = re.match(r"\d+", str(told.get("count") or 1))
        return str(first or ""), int(least[0]) if least else 1
    if told is None:
        return "", 0
    label, many = "", 1
    for part in str(told).split(":"):
        if match := re.fullmatch(r"(\d+)(?:\.\.\d*)?", part):
            many = int(match[1])
        elif part and not _MEMORY.fullmatch(part):
            label = part.split(",")[0]
    return label, many
