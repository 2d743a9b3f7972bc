"""Values of Helm charts that start servers: the vLLM production stack, llm-d's model service, KubeAI, others.

A chart's values are tables whose parts look like containers: an image, a command, arguments, resources. Such
parts are found wherever they are; the tables of charts that name values of their own are written as the
flags that the chart makes of them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from foretell.interop.forms.containers import (
    gpus_at,
    processes_of,
    split_words,
    table,
    variables_at,
    words_at,
)
from foretell.interop.forms.records import (
    LaunchContents,
    LaunchedProcess,
    LauncherLayer,
    Word,
    plain_word,
    stated,
)
from foretell.interop.forms.trees import Path, Tree
from foretell.interop.whole_numbers import whole_number

STACK_FLAGS = {
    "tensorParallelSize": "tensor-parallel-size", "pipelineParallelSize": "pipeline-parallel-size",
    "maxModelLen": "max-model-len", "maxNumSeqs": "max-num-seqs", "dtype": "dtype",
    "gpuMemoryUtilization": "gpu-memory-utilization", "maxLoras": "max-loras",
}  # fmt: skip
"""Keys of `vllmConfig` and the flags that the production stack's chart makes of them."""
STACK_SWITCHES = {
    "enablePrefixCaching": "enable-prefix-caching", "enableChunkedPrefill": "enable-chunked-prefill",
    "v1": "",
}  # fmt: skip
PARALLELISM = {
    "tensor": "tensor-parallel-size",
    "data": "data-parallel-size",
    "pipeline": "pipeline-parallel-size",
    "dataLocal": "data-parallel-size-local",
}
"""Keys of `parallelism` of llm-d and KServe and vLLM's flags."""
ROLES = {
    "kv_producer": "prefill",
    "sender": "prefill",
    "kv_consumer": "decode",
    "receiver": "decode",
}
"""Words of `lmcacheConfig` for the half that an engine is."""
_PROGRAMS = {"VLLM": "vllm", "vllmServe": "vllm", "OLlama": "ollama", "Infinity": "infinity"}


def is_values(value: Any) -> bool:
    """Whether a document is values of a chart that are known here."""
    found = table(value)
    return (
        isinstance(table(found.get("servingEngineSpec")).get("modelSpec"), list)
        or "modelArtifacts" in found
        or isinstance(found.get("catalog"), Mapping)
    )


def read_values(tree: Tree) -> LaunchContents:
    """Servers of a chart's values."""
    value = _filled(tree.value, tree.value)
    tree = replace(tree, value=value)
    found: list[LaunchedProcess] = []
    specs = table(value.get("servingEngineSpec")).get("modelSpec")
    for at, one in enumerate(specs if isinstance(specs, list) else ()):
        if table(one).get("enabled") is False:
            continue
        found.append(_stack(tree, table(one), ("servingEngineSpec", "modelSpec", str(at))))
    if "modelArtifacts" in value:
        found += _model_service(tree)
    for name, one in table(value.get("catalog")).items():
        if isinstance(one, Mapping) and one.get("enabled") and one.get("url"):
            found.append(_catalogue(tree, one, ("catalog", str(name))))
    return LaunchContents(form="helm", processes=tuple(found))


_VALUE = re.compile(r"\"?\{\{-?\s*(?:tpl\s+)?\.Values\.([\w.]+)\s*-?\}\}\"?")


def _filled(node: Any, values: Any) -> Any:
    """A tree with `{{ .Values.a.b }}` put in from the values themselves."""
    if isinstance(node, Mapping):
        return {key: _filled(one, values) for key, one in node.items()}
    if isinstance(node, list):
        return [_filled(one, values) for one in node]
    return (
        _VALUE.sub(lambda found: _at(values, found[1], found[0]), node)
        if isinstance(node, str)
        else node
    )


def _at(values: Any, path: str, otherwise: str) -> str:
    """The text at a path of the values."""
    for part in path.split("."):
        values = table(values).get(part)
    return otherwise if values is None or isinstance(values, Mapping | list) else str(values)


def _flags(
    tree: Tree, path: Path, node: Mapping[str, Any], names: Mapping[str, str]
) -> Iterator[Word]:
    for key, flag in names.items():
        if key in node and node[key] is not None:
            line = tree.line(*path, key)
            yield Word(text=f"--{flag}", line=line, raw=key)
            yield plain_word(str(node[key]), line)


def _start(tree: Tree, path: Path, model: str) -> list[Word]:
    line = tree.line(*path)
    return [plain_word(text, line) for text in ("vllm", "serve", model)]


def _stack(tree: Tree, model: Mapping[str, Any], path: Path) -> LaunchedProcess:
    """An engine of the vLLM production stack."""
    config = table(model.get("vllmConfig"))
    place = (*path, "vllmConfig")
    words = _start(tree, (*path, "modelURL"), str(model.get("modelURL") or ""))
    words += _flags(tree, place, config, STACK_FLAGS)
    for key, flag in STACK_SWITCHES.items():
        if config.get(key) is True and flag:
            words.append(Word(text=f"--{flag}", line=tree.line(*place, key), raw=key))
    for key, value in config.items():  # what no list has is to be named
        if key not in {*STACK_FLAGS, *STACK_SWITCHES, "extraArgs"} and isinstance(value, str | int):
            flag = re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", str(key)).lower()
            line = tree.line(*place, str(key))
            words += [Word(text=f"--{flag}", line=line, raw=str(key)), plain_word(str(value), line)]
    for at, node in ((place, config), (path, model)):
        words += words_at(tree, (*at, "extraArgs"), node.get("extraArgs"))
    facts = [
        stated(
            "replicas",
            whole_number(model.get("replicaCount", "")) or 1,
            tree.line(*path, "replicaCount"),
            "replicaCount",
        )
    ]
    if (many := whole_number(model.get("requestGPU", ""))) is not None:
        facts.append(stated("gpus_per_node", many, tree.line(*path, "requestGPU"), "requestGPU"))  # fmt: skip
    halves = table(model.get("lmcacheConfig"))
    key = "kvRole" if halves.get("kvRole") else "nixlRole"
    if (role := ROLES.get(str(halves.get(key)))) is not None:
        facts.append(stated("role", role, tree.line(*path, "lmcacheConfig", key), key))
    chip = str(model.get("requestGPUType") or "")
    if chip and "/" not in chip:
        facts.append(
            stated("accelerator", chip, tree.line(*path, "requestGPUType"), "requestGPUType")
        )
    return LaunchedProcess(
        program="vllm",
        argv=tuple(words),
        facts=tuple(facts),
        layers=(LauncherLayer(name="helm"),),
        env=variables_at(tree, (*path, "env"), model.get("env")),
        image=str(model.get("repository") or ""),
        name=str(model.get("name") or ""),
    )


def _model_service(tree: Tree) -> Iterator[LaunchedProcess]:
    """llm-d's model service: decode and prefill with containers and parallelism."""
    value = tree.value
    artifacts = table(value.get("modelArtifacts"))
    kind = table(value.get("accelerator")).get("type")
    start = _start(tree, ("modelArtifacts", "name"), _model_name(artifacts))
    for role in ("decode", "prefill"):
        half = table(value.get(role))
        if half and half.get("create") is not False:
            for one in _half(tree, half, (role,), start, role):
                chip = [stated("accelerator", str(kind), tree.line("accelerator", "type"), "type")]
                yield replace(one, facts=(*one.facts, *(chip if kind == "cpu" else ())))


def inference_service(tree: Tree) -> Iterator[LaunchedProcess]:
    """KServe's LLMInferenceService: the model by its address, parallelism, and a prefill half of its own."""
    spec = table(tree.value.get("spec"))
    start = _start(tree, ("spec", "model", "uri"), _model_name(table(spec.get("model"))))
    prefill = table(spec.get("prefill"))
    yield from _half(tree, spec, ("spec",), start, "decode" if prefill else "")
    if prefill:
        yield from _half(tree, prefill, ("spec", "prefill"), start, "prefill")


def _model_name(node: Mapping[str, Any]) -> str:
    """A model by its repository, else by its name."""
    uri = str(node.get("uri") or "")
    return uri.removeprefix("hf://") if uri.startswith("hf://") else str(node.get("name") or uri)


def _half(
    tree: Tree, half: Mapping[str, Any], path: Path, start: list[Word], role: str
) -> Iterator[LaunchedProcess]:
    """Servers of one half of a service, or of a whole one."""
    facts = [stated("role", role, tree.line(*path), role)] if role else []
    copies = half.get("replicas")
    if isinstance(copies, int):
        facts.append(stated("replicas", copies, tree.line(*path, "replicas"), "replicas"))
    parallel = table(half.get("parallelism"))
    flags = list(_flags(tree, (*path, "parallelism"), parallel, PARALLELISM))
    if parallel.get("expert") is True:
        flags.append(Word(text="--enable-expert-parallel", line=tree.line(*path, "parallelism", "expert"),
                          raw="expert"))  # fmt: skip
    inner = "template" in half
    containers = table(half.get("template")).get("containers") if inner else half.get("containers")
    base: Path = (*path, "template", "containers") if inner else (*path, "containers")
    several = (
        containers if isinstance(containers, list) and containers else [{}] * (path[0] == "spec")
    )
    for at, one in enumerate(several):
        place = (*base, str(at))
        gpus = gpus_at(tree, (*place, "resources"), table(one).get("resources"))
        command = str(table(one).get("modelCommand") or "")
        words = words_at(tree, (*place, "command"), table(one).get("command"))
        words = words or (list(start) if command in ("vllmServe", "imageDefault", "") else [])
        env = variables_at(tree, (*place, "env"), table(one).get("env"))
        words += [*flags, *words_at(tree, (*place, "args"), table(one).get("args"))]
        more = env.get("VLLM_ADDITIONAL_ARGS")
        words += [] if more is None else split_words(more.text, more.line)
        yield from processes_of(words, env, [*facts, *([gpus] if gpus else [])], layer="helm",
                                image=str(table(one).get("image") or ""), name=role)  # fmt: skip


def _catalogue(tree: Tree, one: Mapping[str, Any], path: Path) -> LaunchedProcess:
    """A model of KubeAI's chart: `resourceProfile: nvidia-gpu-h100:8` is a kind and a number of GPUs."""
    model = str(one["url"]).partition("://")[2]
    program = _PROGRAMS.get(str(one.get("engine")), str(one.get("engine")).lower())
    line = tree.line(*path, "url")
    words = [plain_word(text, line) for text in (program, "serve", model)]
    words += words_at(tree, (*path, "args"), one.get("args"))
    kind, _, many = str(one.get("resourceProfile") or "").partition(":")
    place = tree.line(*path, "resourceProfile")
    facts = []
    if kind.startswith(("nvidia-gpu", "amd-gpu")):
        chip = kind.rpartition("gpu-")[2]
        count, key = whole_number(many) or 1, "resourceProfile"
        facts += [stated("gpus_per_node", count, place, key),
                  stated("accelerator", chip, place, key)]  # fmt: skip
    copies = one.get("minReplicas")
    if isinstance(copies, int) and copies > 1:
        facts.append(stated("replicas", copies, tree.line(*path, "minReplicas"), "minReplicas"))  # fmt: skip
    return LaunchedProcess(
        program=program,
        argv=tuple(words),
        facts=tuple(facts),
        layers=(LauncherLayer(name="helm"),),
        env=variables_at(tree, (*path, "env"), one.get("env")),
        name=path[-1],
    )
