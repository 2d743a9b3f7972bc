"""What a log says of its job: the arguments that Megatron-LM prints, the launch command, single lines."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from foretell.errors import BadInput
from foretell.interop.launch import Known, Launch
from foretell.interop.log_lines import COMMAND, ENGINES, STATED, present
from foretell.interop.tools import read_arguments
from foretell.interop.whole_numbers import whole_number
from foretell.records import dataclass

ARGUMENT = re.compile(r"^\s*(?:\S+:\s*)?([A-Za-z][A-Za-z0-9_]+) \.{2,} (.+?)\s*$")
"""A line of the arguments that Megatron-LM prints."""
NOT_ARGUMENTS = ("world_size", "rank", "local_rank", "data_parallel_size")
UNSET = ("None", "False", "[]", "", "[1]")
"""Values that say nothing."""
FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
RENAMED = {"checkpoint_activations": FULL, "deepspeed_activation_checkpointing": FULL}
"""Switches of older releases and of Megatron-DeepSpeed, as they are called now."""
MESH = re.compile(r"device mesh with \[([^\]]*)\], \[([0-9, ]*)\]")
"""torchtitan's axes and their sizes."""
FIRST = ("model", "system", "engine")
"""Values of which the first counts; of others the last, since a log may begin with attempts that failed."""
AXES = {"tp": "tp", "pp": "pp", "cp": "cp", "ep": "ep"}
INCLUDED = re.compile(r"(?:--include[ =]\S*?localhost:|CUDA_VISIBLE_DEVICES=)([0-9]+(?:,[0-9]+)*)")
"""Chips of one node that a command lists."""
LONGEST = 20_000
"""Characters of a command that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogJob:
    """What a log says of its job."""

    plan: str
    """Words of the plan; empty where none is printed."""
    asked: Mapping[str, Any]
    """By the names of ASKED."""
    stated: Mapping[str, Any]
    """Model, system and chips of a node, which count where a question leaves them open."""
    notes: tuple[str, ...]
    """What could not be read."""


def job_of_log(lines: Sequence[str]) -> LogJob:
    """Arguments first, then the command, then what single lines say."""
    told = {m[1]: m[2] for line in lines if " .." in line and (m := ARGUMENT.match(line[:2000]))}
    asked, words, stated = _stated(lines)
    launch: Launch | None = None
    notes: tuple[str, ...] = ()
    if "tensor_model_parallel_size" in told:
        asked.pop("gpus", None)
        if chips := whole_number(told.get("world_size", "")):
            asked["gpus"] = chips
        launch, notes = _of_arguments(told, asked.get("gpus"))
    else:
        launch, notes = _of_command(lines, asked.get("gpus"))
    plan = " ".join(words.values())
    if launch is not None:
        plan = launch.plan or plan
        if "zero_stage" in told:  # Megatron-DeepSpeed's
            plan = re.sub(r"\bzero[0-3]\b", f"zero{told['zero_stage']}", plan)
        job = {name: getattr(launch, name) for name in ("gpus", "global_batch", "seq_len")}
        asked = {**{k: v for k, v in job.items() if v}, **asked}
        described = launch.table or next(iter(launch.models), None)
        stated = {**stated, **({"model": described} if described else {})}
    return LogJob(plan=plan, asked=asked, stated=stated, notes=notes)


def _of_arguments(
    told: Mapping[str, str], gpus: int | None
) -> tuple[Launch | None, tuple[str, ...]]:
    """The launch of a block of arguments."""
    words = []
    for name, value in told.items():
        if name in NOT_ARGUMENTS or value in UNSET or name.startswith("zero_stage"):
            continue
        flag = f"--{name.replace('_', '-')}"
        words.append(RENAMED.get(name, flag) if value == "True" else f"{flag} {shlex.quote(value)}")
    text = "pretrain_gpt.py " + " ".join(words)
    try:
        return read_arguments(text, None, "megatron", Known(gpus=gpus)), ()
    except BadInput as error:
        return None, tuple(
            f"arguments of the log not read: {p.path} {p.message}" for p in error.problems
        )


def _of_command(lines: Sequence[str], gpus: int | None) -> tuple[Launch | None, tuple[str, ...]]:
    """The launch of a command that the log shows."""
    for text in _commands(lines):
        try:
            found = read_arguments(text[:LONGEST], None, None, Known(gpus=gpus))
        except BadInput as error:
            problem = error.problems[0]
            return None, (f"command of the log not read: {problem.path} {problem.message}",)
        listed = INCLUDED.search(text)
        if listed and found.gpus is None:
            found = replace(found, gpus=listed[1].count(",") + 1)
        left = found.not_understood
        notes = (
            (f"of the command in the log not understood: {'; '.join(left[:3])}",) if left else ()
        )
        return found, notes
    return None, ()


def _commands(lines: Sequence[str]) -> Iterator[str]:
    """Commands with flags, lines that a backslash continues joined."""
    place = 0
    while place < len(lines):
        match = COMMAND.match(lines[place][:LONGEST])
        place += 1
        if match is None:
            continue
        text = match[1]
        while text.rstrip().endswith("\\") and place < len(lines) and len(text) < LONGEST:
            text = text.rstrip()[:-1] + " " + lines[place].strip()
            place += 1
        if text.count(" --") > 1:
            yield text.strip().rstrip("\\")


def _stated(lines: Sequence[str]) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """Values of single lines: of the job, words of the plan by their name, and what a question may leave
    open."""
    said: dict[str, str] = {}
    rows = list[str]()
    stating = present(STATED, "\n".join(lines))
    for line in (line[:4000] for line in lines):
        if "device mesh with" in line and (match := MESH.search(line)):
            said |= _axes(match[1], match[2])
        for one in stating:
            match = one.pattern.search(line) if one.needs in line else None
            if match is None:
                continue
            rows += [match[1]] if one.names == ("chip_row",) else []
            for name, value in zip(one.names, match.groups(), strict=True):
                if name not in FIRST or name not in said:
                    said[name] = value
        for text, engine in ENGINES:
            if text in line:
                said.setdefault("engine", engine)
    said.pop("chip_row", None)
    if rows:
        said.setdefault("system", rows[0])
    asked: dict[str, Any] = {
        name: number
        for name in ("gpus", "global_batch", "seq_len")
        if (number := whole_number(said.get(name, "").replace(",", "")))
    }
    if "engine" in said:
        asked["engine"] = "@".join(said[name] for name in ("engine", "release") if name in said)
    stated: dict[str, Any] = {}
    if "system" in said:
        stated["system"] = said["system"].removeprefix("NVIDIA ").removeprefix("AMD ")
    stated |= {"gpus": len(rows)} if rows else {}
    stated |= {"model": said["model"]} if "model" in said else {}
    words = {n: n.format(v) for n, v in said.items() if "{}" in n and _says(n, v)}
    return asked, words, stated


def _says(name: str, value: str) -> bool:
    """Whether a word says something: one rank of a parallelism that few programs have says nothing."""
    return value != "1" or name not in ("cp{}", "ep{}")


def _axes(names: str, sizes: str) -> dict[str, str]:
    """Words and chips of a mesh of torchtitan's."""
    pairs = list(zip(re.findall(r"\w+", names), re.findall(r"[0-9]+", sizes), strict=False))
    found = {f"{AXES[name]}{{}}": size for name, size in pairs if name in AXES}
    if any(name.startswith("dp_shard") for name, _ in pairs):
        found["zero{}"] = "3"
    chips = 1
    for name, size in pairs:
        chips *= int(size[:9]) if not name.startswith("ep") else 1
    return {**found, "gpus": str(chips)}
