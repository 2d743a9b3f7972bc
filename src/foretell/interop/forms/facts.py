"""Nodes, GPUs and processes that launchers and batch lines state, and how many GPUs that is."""

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from foretell.interop.forms.records import (
    FactName,
    LaunchedProcess,
    LauncherLayer,
    StatedFact,
    Word,
    plain_word,
    stated,
)
from foretell.interop.forms.unwrap import LAUNCHERS
from foretell.interop.forms.values import ArrayValue, Value, literal
from foretell.interop.whole_numbers import whole_number
from foretell.records import dataclass

SLURM_NAMES = {"a100": "A100-80GB"}
"""Kinds of GPU that clouds spell otherwise: there a bare A100 has 40 GB."""
_GRES = re.compile(r"(?:gres/)?gpu(?::(?P<kind>[A-Za-z][\w.-]*))?(?:[:=](?P<many>\d+))?")
_KIND = re.compile(r"(?:(?P<kind>[A-Za-z][\w.-]*):)?(?P<many>\d+)")
_BATCH = re.compile(r"^[ \t]*#(SBATCH|PBS|BSUB|FLUX:?|COBALT)[ \t]+(.*)$", re.MULTILINE)
_SELECT = re.compile(r"(?:select|nodes)=(\d+)")
_PBS_GPUS = re.compile(r"(?:ngpus|gpus)=(\d+)")
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def batch_layer(text: str, first_line: int) -> LauncherLayer | None:
    """Options of the batch lines of a script as one launcher."""
    words: list[Word] = []
    name = ""
    for match in _BATCH.finditer(text):
        name = f"#{match[1].rstrip(':')}"
        line = first_line + text.count("\n", 0, match.start())
        plain = match[2].partition(" #")[0]
        try:
            parts = shlex.split(plain, comments=True)
        except ValueError:
            parts = plain.split()
        words += [plain_word(part, line) for part in parts]
    return LauncherLayer(name=name, argv=tuple(words)) if name else None


_SLURM = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "gpus_per_node": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "processes_per_node": ("SLURM_NTASKS_PER_NODE",),
    "processes": ("SLURM_NTASKS", "SLURM_NPROCS"),
}


def slurm_variables(facts: tuple[StatedFact, ...]) -> dict[str, Value | ArrayValue]:
    """Variables that Slurm sets from the batch lines."""
    told: dict[str, StatedFact] = {}
    for fact in facts:
        told.setdefault(fact.name, fact)
    if "processes" not in told and {"nodes", "processes_per_node"} <= {*told}:
        many = [whole_number(told[name].value) for name in ("nodes", "processes_per_node")]
        if None not in many:
            told["processes"] = stated("processes", math.prod(one or 0 for one in many), 0, "")
    return {
        variable: literal(str(fact.value), fact.line)
        for name, fact in told.items()
        for variable in _SLURM.get(name, ())
    }


def batch_facts(layer: LauncherLayer) -> tuple[StatedFact, ...]:
    """What the options of srun, sbatch or batch lines state."""
    plain: tuple[tuple[FactName, str, Word | None], ...] = (
        ("nodes", "--nodes", _last(layer.value("--nodes", "-N") or _glued(layer, "-N"))),
        ("processes", "--ntasks", layer.value("--ntasks", "-n") or _glued(layer, "-n")),
        ("processes_per_node", "--ntasks-per-node", layer.value("--ntasks-per-node")),
    )
    found = [_fact(name, word, source) for name, source, word in plain if word is not None]
    for option in ("--gpus-per-node", "--gres", "--gpus", "-G"):
        each = option in ("--gpus-per-node", "--gres")
        found += _of_gres(layer.value(option), "gpus_per_node" if each else "gpus", option)
    word, tasks = layer.value("--gpus-per-task"), layer.value("--ntasks-per-node")
    per = whole_number((word.text if word else "").rpartition(":")[2])
    if word and per and not any(one.name.startswith("gpus") for one in found):
        many = per * ((whole_number(tasks.text) if tasks else 1) or 1)
        found.append(stated("gpus_per_node", many, word.line, "--gpus-per-task"))
    for word in layer.argv if layer.name == "#PBS" else ():
        if match := _SELECT.search(word.text):
            found.append(stated("nodes", int(match[1]), word.line, "-l select"))
            if gpus := _PBS_GPUS.search(word.text):
                found.append(stated("gpus_per_node", int(gpus[1]), word.line, "ngpus"))
    return tuple(found)


def _of_gres(word: Word | None, name: FactName, option: str) -> list[StatedFact]:
    """`gpu:h100:8`, `h100:8`, `8`, `gpu:8,nvme:1`."""
    if word is None:
        return []
    if word.unknown or re.search(r"your_|[<>]", word.text, re.IGNORECASE):
        return [_fact(name, word, option)]
    for part in word.text.split(","):
        match = _GRES.fullmatch(part) or (option != "--gres" and _KIND.fullmatch(part))
        if not match:
            continue
        found = [stated(name, int(match["many"] or 1), word.line, option)]
        if match["kind"] and match["kind"].lower() not in ("gpu", "tmp"):
            kind = SLURM_NAMES.get(match["kind"].lower(), match["kind"])
            found.append(stated("accelerator", kind, word.line, option))
        return found
    return []


def process_facts(process: LaunchedProcess) -> tuple[StatedFact, ...]:
    """What the launchers of a process state, the innermost first."""
    found: list[StatedFact] = []
    for layer in reversed(process.layers):
        reader = _READERS.get(layer.name, _stated if layer.name in LAUNCHERS else None)
        if reader is not None:
            found += reader(layer)
    for name in _VISIBLE:
        word = process.env.get(name)
        if word is not None and not word.unknown and re.fullmatch(r"\d+(,\d+)*,?", word.text):
            many = len(word.text.strip(",").split(","))
            found.append(stated("gpus_per_node", many, word.line, name))
            break
    return tuple(found)


def _torchrun(layer: LauncherLayer) -> list[StatedFact]:
    found: list[StatedFact] = []
    nodes, each = layer.value("--nnodes"), layer.value("--nproc-per-node")
    if nodes is not None:
        found.append(_fact("nodes", _last(nodes) or nodes, "--nnodes"))
    elif each is not None and not any(word.text == f"${{{word.unknown[0]}}}" and word is not each
                                      for word in layer.argv if word.unknown):  # fmt: skip
        found.append(stated("nodes", 1, 0, "torchrun's default"))
    if each is not None and each.text not in ("gpu", "auto"):
        found.append(_fact("processes_per_node", each, "--nproc-per-node"))
    return found


def _deepspeed(layer: LauncherLayer) -> list[StatedFact]:
    found = _stated(layer)
    include = layer.value("--include", "-i")
    if include and not include.unknown and include.text:
        hosts = [one.partition(":")[2] for one in include.text.split("@")]
        many = sum(len(one.split(",")) for one in hosts if one)
        if many and all(hosts):
            found.append(stated("gpus", many, include.line, "--include"))
    return found


def _stated(layer: LauncherLayer) -> list[StatedFact]:
    """What a launcher's options state as they are, by its row (launchers.toml)."""
    found: list[StatedFact] = []
    for name, options in LAUNCHERS[layer.name].states.items():
        if word := layer.value(*options):
            found.append(_fact(name, word, options[0]))  # type: ignore[arg-type]
    return found


def _docker(layer: LauncherLayer) -> list[StatedFact]:
    word = layer.value("--gpus")
    if word is None:
        return []
    plain = word.text.strip("\"' ")
    match = re.fullmatch(r"(?:count=)?(\d+)|\"?device=([\w,:.-]+)\"?", plain)
    if match is None:
        return []
    many = int(match[1]) if match[1] else len(match[2].strip(",").split(","))
    return [stated("gpus_per_node", many, word.line, "--gpus")]


_READERS: Mapping[str, Callable[[LauncherLayer], Sequence[StatedFact]]] = {
    "torchrun": _torchrun, "deepspeed": _deepspeed,
    **dict.fromkeys(("docker", "podman", "nerdctl"), _docker),
    **dict.fromkeys(("srun", "sbatch", "#SBATCH", "#PBS"), batch_facts),
}  # fmt: skip


def _fact(name: FactName, word: Word, source: str) -> StatedFact:
    number = whole_number(word.text)
    return StatedFact(name=name, value=word.text if number is None else number, line=word.line, source=source,
                unknown=word.unknown or (() if number is not None else (word.text[:60],)))  # fmt: skip


def _last(word: Word | None) -> Word | None:
    """The most of a range: torchrun's `1:4`, Slurm's `2-4`."""
    if word is None or not re.fullmatch(r"\d+[:-]\d+", word.text):
        return word
    return Word(text=re.split("[:-]", word.text)[1], line=word.line, raw=word.raw)


def _glued(layer: LauncherLayer, flag: str) -> Word | None:
    """`-N2`."""
    for word in layer.argv:
        if re.fullmatch(rf"{flag}\d+", word.text):
            return Word(text=word.text[2:], line=word.line, raw=word.raw)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCount:
    """GPUs of a process, as far as its launchers and its form state them."""

    gpus: int | None = None
    """All of them; None where something is missing."""
    nodes: int | None = None
    """Nodes."""
    per_node: int | None = None
    """GPUs of a node."""
    facts: tuple[StatedFact, ...] = ()
    """What it follows from."""
    unknown: tuple[str, ...] = ()
    """Variables that are missing."""
    accelerator: str | None = None
    """The kind of GPU."""


def gpu_count(facts: Sequence[StatedFact]) -> GpuCount:
    """GPUs of a process by its facts, the innermost launcher first.

    A launcher that starts a process for each GPU (torchrun, accelerate, mpirun) counts before what a batch
    system or a manifest gives to the job; unknown numbers are named.
    """

    def first(*names: FactName) -> StatedFact | None:
        return next((one for one in facts if one.name in names), None)

    chip, nodes, each = first("accelerator"), first("nodes"), first("gpus_per_node")
    per = first("processes_per_node")
    if per is not None and (_is_launcher(per) or each is None):
        each = per
    made = GpuCount(nodes=_int(nodes), accelerator=str(chip.value) if chip else None)
    for one in (first("processes"), first("gpus")):
        if one is None or (each is not None and (_is_launcher(each) or one.source == "--ntasks")):
            continue
        if isinstance(one.value, int):
            return replace(made, gpus=one.value, facts=(one,))
        return replace(made, nodes=None, facts=(one,), unknown=one.unknown)
    if each is None:
        return replace(made, unknown=nodes.unknown if nodes else ())
    used = tuple(one for one in (nodes, each) if one is not None)
    made = replace(made, per_node=_int(each), facts=used)
    if any(not isinstance(one.value, int) for one in used):
        names = dict.fromkeys(name for one in used for name in one.unknown)
        return replace(made, unknown=tuple(names))
    return replace(made, gpus=(made.per_node or 0) * (1 if made.nodes is None else made.nodes))


def _is_launcher(fact: StatedFact) -> bool:
    return fact.source in ("--nproc-per-node", "-npernode", "--nproc", "--num-gpus")


def _int(fact: StatedFact | None) -> int | None:
    return fact.value if fact is not None and isinstance(fact.value, int) else None
