"""docs/how-to-add.md by doing it: its files go into a copy of the package, which answers with them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT, blocks

QUESTIONS = """
import io
import json
import foretell
from foretell.catalog.index import main as write_index

write_index()
job = {"global_batch": 64, "seq_len": 2048}
said = {}
one = foretell.estimate("llama-3.1-8b", system="Example-One", gpus=16, **job)
said["chip"] = [one.system, one.step_s, one.breakdown.evidence]
one = foretell.estimate("example-1b", system="h100-sxm", gpus=8, plan="zero1 mbs2", **job)
said["model"] = [one.model, one.step_s]
one = foretell.estimate("squared.toml", system="h100-sxm", gpus=8, plan="tp2 zero1 mbs1", **job)
other = foretell.estimate("dense.toml", system="h100-sxm", gpus=8, plan="tp2 zero1 mbs1", **job)
said["op"] = [one.step_s, other.step_s]
steps = {
    words: foretell.estimate("llama-3.1-8b", system="h100-sxm", gpus=8, plan=f"tp2 pp4 mbs1 {words}", **job)
    for words in ("schedule=1f1b", "schedule=one-by-one")
}
said["parallelism"] = [[one.step_s, one.peak_memory_bytes] for one in steps.values()]
words = "network.node.topology={}"
rings = [
    foretell.estimate(
        "llama-3.1-8b", system="example-1", gpus=16, plan="tp8 mbs1 zero1", set=(words.format(name),), **job
    )
    for name in ("ring", "double-ring")
]
said["topology"] = [one.step_s for one in rings]
from foretell.inputs.question import ask
from foretell.interop.trackers import estimate_metrics
from rich.console import Console
from foretell.report.presentation.text import verb_text
from foretell.specs.plan import batch_of
from foretell.studies.sweep.batches import evaluate_columns
from foretell.studies.sweep.columns import training_columns
asked = {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 8, **job}
one = foretell.estimate(plan="zero1 mbs1", **asked)
name = "joules_per_tflop"
scenario = ask(**asked)
page = Console(file=io.StringIO(), width=200)
page.print(verb_text("estimate", one.to_dict()))
said["output"] = [
    one.energy_joules / (one.tflops_per_gpu * one.step_s * 8),
    one.to_dict()[name],
    foretell.simulate(plan="zero1 mbs1", **asked).to_dict()[name],
    one.intervals[name]["p90"],
    float(evaluate_columns(scenario, batch_of([one.plan]))[name][0]),
    name in training_columns(),
    estimate_metrics(one.to_dict())["energy/joules_per_tflop"],
    "energy of a TFLOP" in page.file.getvalue(),
]
releases = [
    foretell.estimate("llama-3.1-8b", system="h100-sxm", gpus=8, plan=f"zero3 mbs1 framework={name}", **job)
    for name in ("torchtitan", "torchtitan@2025")
]
said["release"] = [[one.plan.attention, one.step_s] for one in releases]
said["engine"] = [
    foretell.serve("llama-3.1-8b", system="h100-sxm", gpus=1, plan="tp1", engine=name).kv_bytes
    for name in ("vllm", "vllm@0.33")
]
print(json.dumps(said))
"""

FLAG = """
import contextlib, io, json
import foretell
from foretell.cli import run
from foretell.specs.questions import question_type
from foretell.studies.sweep.codesign import codesign
from foretell.web.fields import body_model
from foretell.web.limits import Limits
from foretell.web.worker import answer

where = {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 8, "global_batch": 64, "seq_len": 2048}
plan, late = "tp8 mbs1", {"node_latency": "1ms"}


def typed(*more):
    job = ["--gpus", "8xH100", "--global-batch", "64", "--seq-len", "2048", "--plan", plan]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run(["estimate", "llama-3.1-8b", *job, *more]) == 0
    return out.getvalue()


def asked(**more):
    status, _, content = answer("estimate", {**where, "plan": plan, **more}, Limits())
    assert status == 200, content
    return json.loads(content)["step_s"]


study = {
    "study": {"kind": "training", "plan": plan},
    "base": {**where, "rent": "own"},
    "vary": {"node_latency": ["1ms", "2ms"]},
    "objectives": {"step_s": "min"},
}
print(json.dumps({
    "python": [foretell.estimate(**where, plan=plan, **more).step_s for more in ({}, late)],
    "command": [json.loads(typed("--json", *more))["step_s"] for more in ((), ("--node-latency", "1ms"))],
    "help": typed("--help-all"),
    "web": [asked(), asked(**late)],
    "schema": str(body_model("estimate", question_type("estimate")).model_fields["node_latency"].annotation),
    "study": codesign(study).to_dict(),
}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with what the page adds."""
    folder = tmp_path_factory.mktemp("copy")
    ignore = shutil.ignore_patterns("__pycache__", "static", "parsed.jsonl", "*.new")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignore)
    page = (ROOT / "docs" / "how-to-add.md").read_text(encoding="utf-8")
    written = 0
    for block in blocks(page):
        text = "\n".join(block.lines) + "\n"
        named = re.match(r"# file: (\S+)(.*)\n", text)
        if named is not None and "(in class " in named[2]:
            _add_field(folder / named[1], named[2], text.partition("\n")[2])
            written += 1
            continue
        if block.language == "json":
            path = folder / "src/foretell/catalog/models/example--example-1b.json"
        elif named is not None:
            path = folder / named[1]
        else:
            continue
        with path.open("a" if named is not None and "added" in named[2] else "w") as file:
            file.write(text)
        written += 1
    assert written == 11
    dense = (
        (folder / "squared.toml")
        .read_text()
        .replace('kind = "squared"', 'kind = "dense", gated = false')
    )
    (folder / "dense.toml").write_text(dense)
    _add_the_output(folder / "src" / "foretell" / "specs", page)
    return folder


def run(script: str, folder: Path) -> dict[str, Any]:
    """What the changed package answers."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**kept, "PYTHONPATH": str(folder / "src")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module")
def said(copy: Path) -> dict[str, Any]:
    """Answers with each thing that was added."""
    return run(QUESTIONS, copy)


def _add_field(path: Path, where: str, text: str) -> None:
    """A field at the end of a class."""
    before, head, after = path.read_text().partition(
        f"\n{where.strip(' ()').removeprefix('in ')}:\n"
    )
    body, gap, rest = after.partition("\n\n\n")
    assert head
    assert gap
    path.write_text(f"{before}{head}{body}\n{text.rstrip()}{gap}{rest}")


def _add_the_output(specs: Path, page: str) -> None:
    """The entry and the field of the page."""
    texts = ["\n".join(block.lines) for block in blocks(page)]
    entry = next(text for text in texts if text.startswith('(\n    "joules_per_tflop"'))
    field = next(text for text in texts if text.startswith("joules_per_tflop: float"))
    for name, before, new in (
        ("result.py", '    ("energy_joules"', f"    {entry},\n"),
        ("result.py", "    limited_by: str\n", "".join(f"    {x}\n" for x in field.split("\n"))),
    ):
        text = (specs / name).read_text()
        assert text.count(before) == 1, name
        (specs / name).write_text(text.replace(before, new + before))


def test_a_chip(said: dict[str, list[float]]) -> None:
    system, step_s, evidence = said["chip"]
    assert system == "example-1"
    assert 0.01 < step_s < 100.0
    assert evidence in ("transferred", "datasheet")


def test_a_model(said: dict[str, list[float]]) -> None:
    assert said["model"][0] == "example-1b"
    assert 0.01 < said["model"][1] < 100.0


def test_a_release_of_a_framework(said: dict[str, list[float]]) -> None:
    (new_library, new_s), (old_library, old_s) = said["release"]
    assert (new_library, old_library) == ("cudnn", "fa2")
    assert 0.3 < new_s - old_s < 0.49  # of operations on the host


def test_a_release_of_a_serving_engine(said: dict[str, list[float]]) -> None:
    new, old = said["engine"]
    assert new - old == pytest.approx(0.04 * 79.2 * 2**30, rel=0.01)


def test_an_op(said: dict[str, list[float]]) -> None:
    ours, dense = said["op"]
    assert ours == pytest.approx(dense, rel=0.05)  # the same products; a cheaper activation
    assert ours != dense


def test_a_parallelism(said: dict[str, list[float]]) -> None:
    (usual_s, usual_bytes), (serial_s, serial_bytes) = said["parallelism"]
    assert serial_s > 2.0 * usual_s  # stages wait for each other
    assert serial_bytes < usual_bytes


def test_a_topology(said: dict[str, list[float]]) -> None:
    ring_s, double_s = said["topology"]
    assert double_s < ring_s


def test_an_output(said: dict[str, list[float]]) -> None:
    """Two files, and every surface of a training step has it."""
    expected, told, simulated, (low, high), swept, column, metric, printed = said["output"]
    assert told == swept == metric == pytest.approx(expected)
    assert simulated == pytest.approx(told, rel=0.1)
    assert low < told < high
    assert column
    assert printed


def test_a_flag(copy: Path) -> None:
    """One field in one file: Python, the command line, the web and studies take it, and it does something."""
    told = run(FLAG, copy)
    now, late = told["python"]
    assert late > now
    assert told["command"] == told["web"] == [now, late]
    assert "Latency between the chips of a node" in told["help"]
    assert "int" in told["schema"]
    assert "float" in told["schema"]
    (best,) = told["study"]["front"]
    assert best["values"] == {"node_latency": "1ms"}
    assert best["mix"]["step_s"] == pytest.approx(late, rel=1e-9)
