"""Files that start a command on many machines: SkyPilot tasks, Kubernetes objects, batch scripts.

What they run is read as any command is; what they add is how many nodes of how many GPUs, and of which kind.

    SkyPilot     num_nodes, resources.accelerators (H100:8), run
    Kubernetes   of a Pod, Job, Deployment, PyTorchJob, MPIJob, LeaderWorkerSet or JobSet: command and args
                 of the containers with nvidia.com/gpu, their replicas, the node selector's accelerator
    Compose      the service with GPUs: image, entrypoint and command
    KServe       an InferenceService's model: its arguments, GPUs and least replicas
    vLLM stack   the production stack's Helm values: servingEngineSpec.modelSpec
    systemd      ExecStart and Environment of a unit
    Slurm        #SBATCH lines (shell_words.py); the kind of GPU of --gres or --gpus-per-node
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foretell.records import dataclass

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu")
"""Resources of a container that are accelerators."""
SELECTORS = (
    "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "gpu.nvidia.com/class",
    "amd.com/gpu.product-name", "node.kubernetes.io/instance-type", "skypilot.co/accelerator",
)  # fmt: skip
"""Labels of a node that say which accelerator it has."""
REPLICAS = ("replicas", "parallelism", "size", "minReplicas")
"""Fields of a Kubernetes object that multiply its containers."""
SLURM_NAMES = {"a100": "A100-80GB"}
"""Kinds of GPU that SkyPilot spells otherwise: there a bare A100 has 40 GB."""
_KIND = re.compile(r"(?:gpu:)?([a-z][\w.-]*):(\d+)", re.IGNORECASE)
_DEEPEST = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """A command and what it is started on."""

    script: str
    """What is run."""
    variables: Mapping[str, str]
    """Nodes and GPUs of a node, under the names that a batch script has them."""
    accelerator: str | None
    """The GPU as the file spells it."""


def opened(documents: Sequence[Mapping[str, Any]]) -> Wrapped | None:
    """The command inside a task or an object; None where the documents are neither."""
    for table in documents:
        if isinstance(table.get("run"), str) and (
            {"resources", "num_nodes", "setup", "workdir", "name"} & {*table}
        ):
            return _task(table)
    for table in documents:
        if isinstance(table.get("services"), Mapping):
            return _composed(table["services"])
    for table in documents:
        engines = _table(table.get("servingEngineSpec")).get("modelSpec")
        if isinstance(engines, list) and engines and isinstance(engines[0], Mapping):
            return _stack(engines[0])
    objects = [table for table in documents if "apiVersion" in table and "kind" in table]
    if not objects:
        return None
    groups = [group for table in objects for group in _containers(table, 1, {}, 0)]
    with_gpus = [group for group in groups if group.gpus]
    return _object(with_gpus or groups)


def accelerator_of(batch: Mapping[str, str]) -> str | None:
    """The kind of GPU that flags of a batch script ask for: --gres=gpu:h100:8."""
    for name in ("gres", "gpus_per_node", "gpus", "gpus_per_task", "G"):
        match = _KIND.fullmatch(batch.get(name, "").partition(",")[0])
        if match and match[1].lower() != "gpu":
            return SLURM_NAMES.get(match[1].lower(), match[1])
    return None


def _task(table: Mapping[str, Any]) -> Wrapped:
    """A SkyPilot task; of several accelerators that would do, the first."""
    resources = table.get("resources")
    told = resources.get("accelerators") if isinstance(resources, Mapping) else None
    if isinstance(told, Mapping):
        told = [str(name) if many is None else f"{name}:{many}" for name, many in told.items()]
    first = told[0] if isinstance(told, list) and told else told
    name, _, many = str(first or "").strip("{}[]' \"").partition(":")
    variables = {str(k): str(v) for k, v in _table(table.get("envs")).items()}
    variables["nnodes"] = str(table.get("num_nodes") or 1)
    if name:
        variables["gpus_per_node"] = many.strip() or "1"
        variables["SKYPILOT_NUM_GPUS_PER_NODE"] = variables["gpus_per_node"]
    variables["SKYPILOT_NUM_NODES"] = variables["nnodes"]
    lines = "\n".join(
        f"{key}={shlex.quote(value)}"
        for key, value in variables.items()
        if key.isidentifier() and key.isupper()
    )
    return Wrapped(
        script=f"{lines}\n{table['run']}", variables=variables, accelerator=name.strip() or None
    )


def _composed(services: Mapping[str, Any]) -> Wrapped | None:
    """The service of a Docker Compose file that has GPUs, else the first with a command."""
    some = [one for one in services.values() if isinstance(one, Mapping) and one.get("command")]
    with_gpus = [one for one in some if _devices(one)]
    for one in with_gpus or some:
        command = one["command"]
        words = (
            " ".join(map(shlex.quote, _words(command)))
            if isinstance(command, list)
            else str(command)
        )
        entry = " ".join(map(shlex.quote, _words(one.get("entrypoint"))))
        script = f"IMAGE={shlex.quote(str(one.get('image') or ''))} {entry} {words}"
        many = _devices(one)
        return Wrapped(
            script=script, variables={"gpus_per_node": str(many)} if many else {}, accelerator=None
        )
    return None


def _stack(model: Mapping[str, Any]) -> Wrapped:
    """An engine of the vLLM production stack: its values as the flags they become."""
    config = _table(model.get("vllmConfig"))
    flags = {
        "tensorParallelSize": "tensor-parallel-size", "pipelineParallelSize": "pipeline-parallel-size",
        "maxModelLen": "max-model-len", "maxNumSeqs": "max-num-seqs", "dtype": "dtype",
        "gpuMemoryUtilization": "gpu-memory-utilization",
    }  # fmt: skip
    words = [
        f"IMAGE={model.get('repository') or ''}",
        "vllm",
        "serve",
        str(model.get("modelURL") or ""),
    ]
    words += [part for name, flag in flags.items() if name in config
              for part in (f"--{flag}", str(config[name]))]  # fmt: skip
    words += _words(config.get("extraArgs"))
    variables = {"nnodes": str(model.get("replicaCount") or 1)}
    if model.get("requestGPU"):
        variables["gpus_per_node"] = str(model["requestGPU"])
    chip = model.get("requestGPUType")
    return Wrapped(
        script=" ".join(map(shlex.quote, words)),
        variables=variables,
        accelerator=str(chip) if chip and chip not in GPU_RESOURCES else None,
    )


_EXEC = re.compile(r"^ExecStart=[-@:+!]*((?:[^\n\\]|\\\n|\\.)*)", re.MULTILINE)
_ENVIRONMENT = re.compile(r"^Environment=(.*)$", re.MULTILINE)


def unit_command(text: str) -> str:
    """The command of a systemd unit after what it sets; empty where the text is none."""
    found = _EXEC.findall(text)
    if not found or "[Service]" not in text:
        return ""
    try:
        pairs = [one for line in _ENVIRONMENT.findall(text) for one in shlex.split(line)]
    except ValueError:
        pairs = []
    return "\n".join([*(one for one in pairs if "=" in one and " " not in one), found[-1]])


def _devices(service: Mapping[str, Any]) -> int:
    """GPUs that a service reserves."""
    part = service
    for name in ("deploy", "resources", "reservations"):
        part = _table(part.get(name))
    devices = part.get("devices")
    some = devices if isinstance(devices, list) else []
    counts = [str(one.get("count")) for one in some if isinstance(one, Mapping)]
    return sum((int(one) for one in counts if one.isdigit() and len(one) < 7), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerGroup:
    """One container, and how often it is started."""

    script: str
    """Its command and arguments."""
    copies: int
    """Pods that run it."""
    gpus: int
    """GPUs of one."""
    accelerator: str | None
    """Which, where a label says."""


MOST_PODS = 1_000_000
"""Copies of a container that count; no object means more."""


def _containers(
    node: Any, copies: int, labels: Mapping[str, Any], depth: int
) -> Iterator[ContainerGroup]:
    """Containers anywhere in an object, with what multiplies them on the way."""
    if depth > _DEEPEST:
        return
    if isinstance(node, list):
        for one in node:
            yield from _containers(one, copies, labels, depth + 1)
    if not isinstance(node, Mapping):
        return
    for name in REPLICAS:
        if isinstance(node.get(name), int) and not isinstance(node[name], bool):
            copies *= min(max(int(node[name]), 1), MOST_PODS)
    labels = {**labels, **_table(node.get("nodeSelector"))}
    share = dict.fromkeys(node, copies)
    if "workerTemplate" in node and isinstance(node.get("size"), int):
        # A leader of each group, the others are workers.
        groups = copies // min(max(int(node["size"]), 1), MOST_PODS)
        leaders = groups if "leaderTemplate" in node else 0
        share |= {"leaderTemplate": leaders, "workerTemplate": copies - leaders}
    for name, value in node.items():
        if name == "containers" and isinstance(value, list):
            for one in value:
                yield from _container(one, copies, labels)
        elif name == "model" and "modelFormat" in _table(value):  # of an InferenceService
            form = _table(_table(value).get("modelFormat")).get("name")
            yield from _container({"image": form, **_table(value)}, copies, labels)
        elif name not in ("initContainers", "metadata", "selector"):
            yield from _containers(value, share[name], labels, depth + 1)


def _container(node: Any, copies: int, labels: Mapping[str, Any]) -> Iterator[ContainerGroup]:
    """One container's command."""
    if not isinstance(node, Mapping):
        return
    words = [*_words(node.get("command")), *_words(node.get("args"))]
    image = str(node.get("image") or "")
    script = "\n".join(f"{k}={shlex.quote(v)}" for k, v in _environment(node.get("env")))
    shell = len(words) > 2 and words[0].rpartition("/")[2] in ("sh", "bash") and "-c" in words[1]
    if shell:
        script += "\n" + "\n".join(words[2:])
    else:
        script += "\n" + " ".join([f"IMAGE={shlex.quote(image)}", *map(shlex.quote, words)])
    gpus = 0
    for part in ("limits", "requests"):
        asked = _table(_table(node.get("resources")).get(part))
        gpus = gpus or sum(int(str(asked.get(name, 0) or 0)) for name in GPU_RESOURCES
                           if re.fullmatch("[0-9]{1,6}", str(asked.get(name, 0))))  # fmt: skip
    chip = next((str(labels[name]) for name in SELECTORS if name in labels), None)
    yield ContainerGroup(script=script, copies=copies, gpus=gpus, accelerator=chip)


def _object(groups: Sequence[ContainerGroup]) -> Wrapped:
    """Containers with GPUs as one command: masters and workers run the same, on as many nodes together."""
    if not groups:
        return Wrapped(script="", variables={}, accelerator=None)
    first = groups[0]
    same = [one for one in groups if one.gpus == first.gpus]
    variables = {}
    if first.gpus:
        variables = {
            "nnodes": str(sum(one.copies for one in same)),
            "gpus_per_node": str(first.gpus),
        }
    chip = next((one.accelerator for one in groups if one.accelerator), None)
    return Wrapped(script=first.script, variables=variables, accelerator=chip)


def _environment(node: Any) -> list[tuple[str, str]]:
    """Variables that a container is started with."""
    found = [one for one in node if isinstance(one, Mapping)] if isinstance(node, list) else []
    return [
        (str(one["name"]), str(one["value"]))
        for one in found
        if "name" in one and "value" in one and str(one["name"]).isidentifier()
    ]


def _words(node: Any) -> list[str]:
    """Words of a command: a list of them, or one; a table is none."""
    many = node if isinstance(node, list) else [node] if node else []
    return [str(one) for one in many if not isinstance(one, Mapping | list)]


def _table(node: Any) -> Mapping[str, Any]:
    return node if isinstance(node, Mapping) else {}
