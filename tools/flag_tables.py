"""Writes tests/interop/release_flags.json: flags and defaults of released tools, read from their own sources.

`python tools/flag_tables.py FOLDER` takes a folder of wheels and source archives, as

    pip download --no-deps megatron-core==0.16.1 torchtitan==0.3.0 vllm==0.32.0 sglang==0.5.23 \\
        deepspeed==0.19.8 trl==1.16.0 -d FOLDER

makes it, older releases beside the newer where they are written for. Sources are parsed, never run: fields of
the dataclasses and models that command lines and schemas are made from, with defaults that are literals.
"""

import ast
import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "interop" / "release_flags.json"
WANTED: Mapping[str, tuple[str, ...]] = {
    "megatron_core": (
        r"megatron/core/model_parallel_config\.py",
        r"megatron/core/transformer/transformer_config\.py",
        r"megatron/core/distributed/distributed_data_parallel_config\.py",
        r"megatron/core/optimizer/optimizer_config\.py",
    ),
    "torchtitan": (r"torchtitan/config/(configs|job_config)\.py",),
    "vllm": (r"vllm/engine/arg_utils\.py",),
    "sglang": (r"sglang/srt/arg_groups/fields/\w+\.py", r"sglang/srt/server_args\.py"),
    "deepspeed": (
        r"[^/]+/deepspeed/runtime/(constants|precision_config)\.py",
        r"[^/]+/deepspeed/runtime/zero/(config|offload_config)\.py",
        r"[^/]+/deepspeed/runtime/(tensor_parallel|activation_checkpointing)/config\.py",
    ),
    "trl": (r"trl/trainer/(base|sft|dpo|grpo|model|reward|kto)_config\.py",),
}
"""Files of each tool that its options are declared in."""
CLASSES: Mapping[str, str] = {
    "vllm": r"EngineArgs|AsyncEngineArgs",
    "torchtitan": r"(Training|Parallelism|Compile|Model|ActivationCheckpoint|Optimizer)(Config)?",
}
"""Classes that count, where a file has others."""
SECTIONS = {
    "TrainingConfig": "training", "ParallelismConfig": "parallelism", "CompileConfig": "compile",
    "Training": "training", "Parallelism": "parallelism", "Compile": "compile", "Model": "model",
    "ActivationCheckpoint": "activation_checkpoint", "Optimizer": "optimizer",
}  # fmt: skip
"""torchtitan's classes and the section of the command line that each is."""


def sources(archive: Path, patterns: tuple[str, ...]) -> Iterator[str]:
    """Texts of an archive's files whose path matches."""
    match = re.compile("|".join(patterns)).fullmatch
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as whole:
            for name in sorted(filter(match, whole.namelist())):
                yield whole.read(name).decode()
        return
    with tarfile.open(archive) as whole:
        for member in sorted(whole.getmembers(), key=lambda one: one.name):
            if match(member.name) and (file := whole.extractfile(member)):
                yield io.TextIOWrapper(file, "utf-8").read()


def declared(text: str, tool: str) -> dict[str, Any]:
    """Option -> default of one source; None where it is none or no literal."""
    found: dict[str, Any] = {}
    wanted = re.compile(CLASSES.get(tool, ".*")).fullmatch
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and wanted(node.name):
            own = tool == "torchtitan" and node.name in SECTIONS
            section = f"{SECTIONS[node.name]}." if own else ""
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    found[section + line.target.id] = literal(line.value)
                    found |= {name: literal(line.value) for name in aliases(line.value)}
        if tool == "deepspeed" and isinstance(node, ast.Assign):
            # Names of keys are constants there: TRAIN_BATCH_SIZE = "train_batch_size".
            value = literal(node.value)
            if isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9_]+", value):
                found.setdefault(value, None)
    return found


def aliases(node: ast.expr | None) -> list[str]:
    """Names that a schema takes a field by too: `Field(..., alias="stage3_prefetch_bucket_size")`."""
    words = node.keywords if isinstance(node, ast.Call) else []
    values = [literal(word.value) for word in words if word.arg == "alias"]
    return [value for value in values if isinstance(value, str)]


def literal(node: ast.expr | None) -> Any:
    """A default that is plain; of `field(default=...)` and `Field(...)` the one inside."""
    if isinstance(node, ast.Call):
        inner = [word.value for word in node.keywords if word.arg == "default"] or node.args[:1]
        return literal(inner[0]) if inner else None
    try:
        value = ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError):
        return None
    return value if isinstance(value, str | int | float | bool) else None


def table_of(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Tool -> release -> option -> default of every archive in a folder."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for archive in sorted(folder.iterdir()):
        match = re.match(r"([a-z_]+)-(\d+(?:\.\d+)*)", archive.name)
        if match is None or match[1] not in WANTED:
            continue
        options: dict[str, Any] = {}
        for text in sources(archive, WANTED[match[1]]):
            options |= declared(text, match[1])
        found.setdefault(match[1].replace("_", "-"), {})[match[2]] = dict(sorted(options.items()))
    return found


def main() -> None:
    """Write the table."""
    made = table_of(Path(sys.argv[1]))
    lines = []
    for tool, releases in made.items():
        inner = ",\n".join(
            f"  {json.dumps(version)}: {json.dumps(options, separators=(',', ':'))}"
            for version, options in releases.items()
        )
        lines.append(f"{json.dumps(tool)}: {{\n{inner}\n }}")
    TABLE.write_text("{\n " + ",\n ".join(lines) + "\n}\n", encoding="utf-8")
    for tool, releases in made.items():
        print(tool, {version: len(options) for version, options in releases.items()})


if __name__ == "__main__":
    main()
