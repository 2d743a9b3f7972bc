"""Kubernetes objects: pods and what makes them, Dynamo graphs, KServe and llm-d services, Ray clusters.

Every container is found wherever it is. Fields on the way multiply it: replicas, parallelism, the size of
a LeaderWorkerSet's group, `multinode.nodeCount` of a Dynamo service, `minReplicas` of a predictor. A service
that is one half of a split one is known by its name or its `subComponentType`.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from foretell.errors import BadInput
from foretell.interop.forms.containers import gpus_at, processes_of, table, variables_at, words_at
from foretell.interop.forms.declared import applications, declared_servers, inference_service
from foretell.interop.forms.records import (
    LaunchContents,
    LaunchedProcess,
    StatedFact,
    Word,
    plain_word,
    stated,
)
from foretell.interop.forms.script import read_script
from foretell.interop.forms.trees import Path, Tree, settings, walked, yaml_trees
from foretell.records import dataclass

SELECTORS = (
    "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "gpu.nvidia.com/class",
    "amd.com/gpu.product-name", "cloud.google.com/gke-tpu-accelerator", "skypilot.co/accelerator",
    "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", "accelerator",
)  # fmt: skip
"""Labels of a node that say which accelerator it has."""
COPIES = ("replicas", "parallelism", "minReplicas", "replicaCount", "minAvailable")
"""Fields that multiply the containers below them."""
MOST_COPIES = 1_000_000
SKIPPED = frozenset(
    "initContainers metadata selector status volumes volumeMounts startupProbe livenessProbe readinessProbe "
    "affinity tolerations scaling autoscaling ephemeralContainers".split()
)
"""Fields without a container that runs the work."""
REQUESTED = frozenset(
    "model modelName backend image searchStrategy autoApply useMocker enableGpuDiscovery".split()
)
"""Fields of a DynamoGraphDeploymentRequest that are read, or that move nothing."""
_DEEPEST = 28
_ROLE = re.compile(r"prefill|decode", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext:
    """What is around a container."""

    copies: int = 1
    """Pods that run it."""
    nodes: int = 1
    """Pods that make one copy."""
    lines: tuple[StatedFact, ...] = ()
    """Where that is reported."""
    labels: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Labels of its node with their lines."""
    env: Mapping[str, Word] = field(default_factory=dict)
    """Variables of all containers."""
    gpus: StatedFact | None = None
    """GPUs that a service asks for outside of its container."""
    role: str = ""
    """prefill or decode."""
    name: str = ""
    """The service."""


def is_manifest(value: Any) -> bool:
    """Whether a document is a Kubernetes object."""
    return isinstance(value, Mapping) and "apiVersion" in value and "kind" in value


def read_manifests(trees: Sequence[Tree]) -> LaunchContents:
    """What the objects of a manifest start."""
    objects = [tree for tree in trees if is_manifest(tree.value)]
    files: dict[str, str] = {}
    for tree in objects:
        if tree.value.get("kind") == "ConfigMap":
            files |= {
                str(k): v for k, v in table(tree.value.get("data")).items() if isinstance(v, str)
            }
    found: list[LaunchedProcess] = []
    for tree in objects:
        if tree.value.get("kind") in ("ConfigMap", "Secret", "Service"):
            continue
        if tree.value.get("kind") == "LLMInferenceService":
            found += inference_service(tree)
            continue
        if servers := [*declared_servers(tree, str(tree.value.get("kind")))]:
            found += servers
            continue
        special = [*_special(tree, files)]
        found += special
        if not (special and tree.value.get("kind") in ("RayService", "RayJob")):  # workers of it
            found += _inside(tree, tree.value, (), PodContext(), 0, files)
    for text in files.values():
        if "engine_kwargs" in text or "llm_configs" in text:  # configures Ray Serve
            found += [one for tree in _trees(text) for one in applications(tree)]
    with_gpus = [one for one in found if one.fact("gpus_per_node") is not None]
    kept = with_gpus or found
    drivers = [one for one in found if one not in kept and _serves(one)]
    joined = _joined([*kept, *drivers])
    texts = () if joined else files.values()
    held = [one for text in texts for tree in _trees(text) for one in settings(tree)]
    return LaunchContents(
        form="kubernetes", processes=tuple(joined), files=files, settings=tuple(held)
    )


def _trees(text: str) -> list[Tree]:
    """Documents of a ConfigMap's file that is YAML; none where it is none."""
    try:
        return [tree for tree in yaml_trees(text) if isinstance(tree.value, dict)]
    except BadInput:
        return []


def _serves(process: LaunchedProcess) -> bool:
    """Whether a container without GPUs of its own drives others: a Ray head, a launcher of MPI."""
    return bool({"ray job", "mpirun", "torchrun"} & {layer.name for layer in process.layers})


def _special(tree: Tree, files: Mapping[str, str]) -> Iterator[LaunchedProcess]:
    """Fields that hold a script or a configuration in their text: RayJob's entrypoint, RayService's."""
    spec = table(tree.value.get("spec"))
    if tree.value.get("kind") == "DynamoGraphDeploymentRequest":
        yield _request(tree, spec)
    trainer = table(spec.get("trainer"))
    if tree.value.get("kind") == "TrainJob" and trainer:
        yield from _trainer(tree, trainer, files)
    workers = _ray_gpus(tree, spec)
    if isinstance(spec.get("entrypoint"), str):
        line = tree.line("spec", "entrypoint")
        inner = read_script(spec["entrypoint"], first_line=line)
        yield from (replace(one, facts=(*one.facts, *workers)) for one in inner.processes)
    if isinstance(spec.get("serveConfigV2"), str):
        line = tree.line("spec", "serveConfigV2")
        for inner_tree in yaml_trees(spec["serveConfigV2"]):
            for one in applications(inner_tree, offset=line):
                yield replace(one, facts=(*one.facts, *workers))


def _trainer(
    tree: Tree, trainer: Mapping[str, Any], files: Mapping[str, str]
) -> Iterator[LaunchedProcess]:
    """The nodes of Kubeflow's TrainJob; without GPUs of a node, one for each process."""
    path: Path = ("spec", "trainer")
    many, each = trainer.get("numNodes"), trainer.get("numProcPerNode")
    nodes = many if isinstance(many, int) else 1
    line = stated("nodes", nodes, tree.line(*path, "numNodes"), "numNodes")
    asked = gpus_at(tree, (*path, "resourcesPerNode"), trainer.get("resourcesPerNode"))
    if asked is None and isinstance(each, int):
        asked = stated("gpus_per_node", each, tree.line(*path, "numProcPerNode"), "numProcPerNode")
    around = PodContext(nodes=nodes, lines=(line,), gpus=asked)
    yield from _container(tree, trainer, path, around, files)


def _request(tree: Tree, spec: Mapping[str, Any]) -> LaunchedProcess:
    """A deployment that Dynamo plans itself: a model and an engine."""
    key = "model" if isinstance(spec.get("model"), str) else "modelName"
    program = f"dynamo.{spec.get('backend') or 'vllm'}"
    line = tree.line("spec", key)
    told = (program, "--model", str(spec.get(key) or ""), "--tensor-parallel-size")
    words = [plain_word(text, line) for text in told]
    for name, value in spec.items():
        if name not in REQUESTED and not isinstance(value, Mapping | list):
            place = tree.line("spec", name)
            flag = re.sub(r"(?<=[a-z])([A-Z])", r"-\1", name).lower()
            words[1:1] = [plain_word(f"--{flag}", place), plain_word(str(value), place)]
    open_ = "tensor_parallel_size"
    words.append(Word(text=f"${{{open_}}}", line=line, raw="", unknown=(open_,)))
    return LaunchedProcess(program=program, argv=tuple(words))


def _ray_gpus(tree: Tree, spec: Mapping[str, Any]) -> tuple[StatedFact, ...]:
    """Workers of a Ray cluster with GPUs."""
    key = "rayClusterSpec" if "rayClusterSpec" in spec else "rayClusterConfig"
    cluster = table(spec.get(key)) or spec
    base: Path = ("spec", key) if key in spec else ("spec",)
    groups = cluster.get("workerGroupSpecs")
    for at, one in enumerate(groups if isinstance(groups, list) else ()):
        path, group = (*base, "workerGroupSpecs", str(at)), table(one)
        pod, inside = table(table(group.get("template")).get("spec")), (*path, "template", "spec")
        pods = pod.get("containers")
        for index, held in enumerate(pods if isinstance(pods, list) else ()):
            place = (*inside, "containers", str(index), "resources")
            gpus = gpus_at(tree, place, table(held).get("resources"))
            if gpus is not None:
                many = [group.get(name) for name in ("replicas", "numOfHosts")]
                total = math.prod(one if isinstance(one, int) else 1 for one in many)
                line = tree.line(*path, "replicas")
                nodes = stated("nodes", total, line, "workerGroupSpecs.replicas")
                labels = _labels(tree, (*inside, "nodeSelector"), pod.get("nodeSelector"))
                return (nodes, gpus, *_chip(labels))
    return ()


def _labels(tree: Tree, path: Path, node: Any) -> dict[str, tuple[str, int]]:
    return {str(k): (str(v), tree.line(*path, str(k))) for k, v in table(node).items()}


def _chip(labels: Mapping[str, tuple[str, int]]) -> list[StatedFact]:
    for name in SELECTORS:
        if name in labels:
            text, line = labels[name]
            return [stated("accelerator", text, line, name)]
    return []


def _inside(
    tree: Tree, node: Any, path: Path, around: PodContext, depth: int, files: Mapping[str, str]
) -> Iterator[LaunchedProcess]:
    """Containers anywhere below a node."""
    if depth > _DEEPEST:
        return
    if isinstance(node, list):
        for at, one in enumerate(node):
            yield from _inside(tree, one, (*path, str(at)), around, depth + 1, files)
    if not isinstance(node, Mapping):
        return
    around = _widened(tree, node, path, around)
    for name, value in node.items():
        key, place = str(name), (*path, str(name))
        if key == "containers" and isinstance(value, list):
            for at, one in enumerate(value):
                yield from _container(tree, table(one), (*place, str(at)), around, files)
        elif key in ("mainContainer", "leaderContainer") or _is_container(value):
            yield from _container(tree, table(value), place, around, files)
        elif key == "model" and "modelFormat" in table(value):  # of an InferenceService
            form = str(table(table(value).get("modelFormat")).get("name") or "")
            flags = _runtime_flags(tree, path, node)
            held = {"image": form, **table(value)}
            yield from _container(tree, held, place, around, files, flags)
        elif key in SKIPPED:
            continue
        elif key in ("leaderTemplate", "workerTemplate"):
            if key == "leaderTemplate" or "leaderTemplate" not in node:
                yield from _inside(tree, value, place, around, depth + 1, files)
        elif key == "services" and isinstance(value, Mapping):
            for label, one in value.items():
                inner = replace(
                    around, name=str(label), role=_role(str(label), table(one)) or around.role
                )
                yield from _inside(tree, one, (*place, str(label)), inner, depth + 1, files)
        else:
            inner = replace(around, role=_role(key, {}) or around.role)
            yield from _inside(tree, value, place, inner, depth + 1, files)


def _is_container(node: Any) -> bool:
    """Whether a mapping outside of any list is a container: OME's `runner`, other operators' own fields."""
    return isinstance(node, Mapping) and "image" in node and bool({"command", "args"} & {*node})


def _runtime_flags(tree: Tree, path: Path, predictor: Mapping[str, Any]) -> list[Word]:
    """Flags that KServe makes of a predictor's fields: the repository, the degrees of several nodes."""
    model, workers = table(predictor.get("model")), table(predictor.get("workerSpec"))
    uri = str(model.get("storageUri") or "")
    found: list[Word] = []
    if uri.startswith("hf://") and "model_id" not in str(model.get("args")):
        line = tree.line(*path, "model", "storageUri")
        found += [Word(text="--model_id", line=line, raw="storageUri"),
                  plain_word(uri.removeprefix("hf://"), line)]  # fmt: skip
    for key, flag in (("tensorParallelSize", "tensor"), ("pipelineParallelSize", "pipeline")):
        if isinstance(workers.get(key), int):
            line = tree.line(*path, "workerSpec", key)
            found.append(Word(text=f"--{flag}-parallel-size", line=line, raw=key))
            found.append(plain_word(str(workers[key]), line))
    return found


def _role(name: str, node: Mapping[str, Any]) -> str:
    kind = str(node.get("subComponentType") or "")
    match = _ROLE.search(kind) or _ROLE.search(name)
    return match[0].lower() if match else ""


def _widened(tree: Tree, node: Mapping[str, Any], path: Path, around: PodContext) -> PodContext:
    """What a mapping adds: copies, nodes, labels, variables, GPUs."""
    copies, nodes, lines = around.copies, around.nodes, around.lines
    for name in COPIES:
        value = node.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            copies = min(copies * value, MOST_COPIES)
            lines = (*lines, stated("replicas", value, tree.line(*path, name), name))
            break
    size = node.get("size")
    if "workerTemplate" in node and isinstance(size, int) and size > 0:
        nodes = min(nodes * size, MOST_COPIES)
        lines = (*lines, stated("nodes", size, tree.line(*path, "size"), "size"))
    hosts = table(node.get("multinode")).get("nodeCount")
    if isinstance(hosts, int) and hosts > 0:
        nodes = min(nodes * hosts, MOST_COPIES)
        place = tree.line(*path, "multinode", "nodeCount")
        lines = (*lines, stated("nodes", hosts, place, "nodeCount"))
    name, role = around.name, around.role
    held = table(node.get("metadata"))
    told = {str(v) for k, v in table(held.get("labels")).items() if re.search(r"role$", str(k))}
    for text in (str(held.get("name") or ""), *told):
        halves = {one.lower() for one in _ROLE.findall(text)}
        role = halves.pop() if len(halves) == 1 else role
    kind = f"{node.get('subComponentType') or ''} {node.get('type') or ''}"
    if isinstance(node.get("name"), str) and {
        "podTemplate",
        "subComponentType",
        "componentType",
    } & {*node}:
        name = node["name"]
        role = _role(f"{kind} {name}", node) or role
    env = around.env
    for key in ("envs", "env"):
        if key in node and "containers" not in node and "image" not in node:
            env = {**env, **variables_at(tree, (*path, key), node[key])}
    gpus = gpus_at(tree, (*path, "resources"), node.get("resources")) or around.gpus
    labels = {**around.labels, **_labels(tree, (*path, "nodeSelector"), node.get("nodeSelector")),
              **_affinity(tree, path, node.get("affinity"))}  # fmt: skip
    return replace(around, copies=copies, nodes=nodes, lines=lines, env=env, gpus=gpus, labels=labels,
                   name=name, role=role)  # fmt: skip


def _affinity(tree: Tree, path: Path, node: Any) -> dict[str, tuple[str, int]]:
    """Labels that a node must have, of an affinity with one value."""
    found: dict[str, tuple[str, int]] = {}
    for place, value in walked(node, (*path, "affinity")) if isinstance(node, Mapping) else ():
        key, values = table(value).get("key"), table(value).get("values")
        if key in SELECTORS and isinstance(values, list) and len(values) == 1:
            found[str(key)] = (str(values[0]), tree.line(*place))
    return found


def _container(
    tree: Tree, node: Mapping[str, Any], path: Path, around: PodContext, files: Mapping[str, str],
    more: Sequence[Word] = (),
) -> Iterator[LaunchedProcess]:  # fmt: skip
    """One container's processes with what is around it; `more` is behind its own words."""
    env = {**around.env, **variables_at(tree, (*path, "env"), node.get("env"), files)}
    words = [*words_at(tree, (*path, "command"), node.get("command"), split=True),
             *words_at(tree, (*path, "args"), node.get("args"), split=True), *more]  # fmt: skip
    gpus = gpus_at(tree, (*path, "resources"), node.get("resources")) or around.gpus
    image = str(node.get("image") or "")
    facts: list[StatedFact] = [gpus] if gpus else []
    for name, many in (("nodes", around.nodes), ("replicas", around.copies)):
        said = [one for one in around.lines if one.name == name]
        facts += [replace(said[0], value=many)] if many > 1 and said else []
    facts += _chip(around.labels)
    if around.role:
        facts.append(stated("role", around.role, tree.line(*path), "name"))
    label = str(node.get("name") or "") or around.name
    role = _ROLE.search(label)
    if role and not around.role:
        facts.append(stated("role", role[0].lower(), tree.line(*path), "name"))
    yield from processes_of(words, env, facts, layer="kubernetes", image=image, name=around.name or label,
                            files=files)  # fmt: skip


def _joined(processes: Sequence[LaunchedProcess]) -> list[LaunchedProcess]:
    """Masters and workers that run the same words on several nodes as one process of all of them."""
    found: dict[tuple[str, ...], LaunchedProcess] = {}
    for one in processes:
        role = one.fact("role")
        words = (word.text for word in one.argv if not _is_rank(word.text))
        key = (one.image, one.program, "" if role is None else str(role.value), *words)
        before = found.get(key)
        if before is None or not one.argv:
            found[key if before is None else (*key, str(len(found)))] = one
            continue
        pods = sum(_pods(each) for each in (before, one))
        rest = tuple(fact for fact in before.facts if fact.name != "replicas")
        joined = stated("replicas", pods, before.argv[0].line if before.argv else 0, "replicas")  # fmt: skip
        found[key] = replace(before, facts=(*rest, joined))
    return list(found.values())


def _pods(process: LaunchedProcess) -> int:
    fact = process.fact("replicas")
    return fact.value if fact is not None and isinstance(fact.value, int) else 1


def _is_rank(text: str) -> bool:
    return "rank" in text.lower() or (text.isdigit() and len(text) < 3)
