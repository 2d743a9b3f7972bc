"""What one file adds, each in a copy of the package: an engine by its data, a family of software that states
dtypes, a tool whose launches are read, a schedule that deals its layers by `layout=`."""

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.docs.blocks import ROOT

FAMILY = """
[family]
id = "example-framework"
name = "Example framework"
based_on = "fsdp2"
dates = "an example"
[sources]
code = "An example"
[[release]]
release = "1.0"
released = "2030-01"
gradients = { value = "bf16", source = "code", why = "An example: gradients in 16 bits." }
master = { value = "none", source = "code", why = "An example: no copy in 32 bits." }
states = { value = "bf16", source = "code", why = "An example: states in 16 bits." }
"""
TOOL = """
family = "training"
source = "example-trainer 1.0 config.py"
programs = "example-train"
marks = "example_batch example_length"
quiet = "seed"

[fields]
model = "model_name"
micro_batch = "example_batch"
seq_len = "example_length"
tp = "parallel.tensor"

[defaults]
plan = "zero3 precision=bf16 framework=fsdp2"
"""
SCHEDULE = '''"""As 1F1B, under a name of its own."""

from dataclasses import replace

from foretell.schedules.orders import _1f1b

SCHEDULE = replace(_1f1b.SCHEDULE, name="example-order")
'''
QUESTIONS = """
import json
import foretell
from foretell.catalog.index import main as write_index

write_index()
job = {"system": "h100-sxm", "gpus": 8, "global_batch": 64, "seq_len": 2048}
said = {}
words = "zero3 mbs1 framework=example-framework"
one = foretell.estimate("llama-3.1-8b", plan=words, **job)
again = foretell.estimate("llama-3.1-8b", plan=str(one.plan), **job)
said["software"] = [one.plan.states, one.plan.master, str(one.plan), again.step_s == one.step_s]
found = foretell.serve("llama-3.1-8b", system="h100-sxm", gpus=1, plan="tp1", engine="exampleserve")
usual = foretell.serve("llama-3.1-8b", system="h100-sxm", gpus=1, plan="tp1", engine="vllm")
said["engine"] = [found.profile, found.tpot_ms.mean, usual.tpot_ms.mean]
text = "example-train --model_name meta-llama/Llama-3.1-8B --example_batch 2 --parallel.tensor 4"
text += " --example_length 4096"
launch = foretell.read_launch(text, files=False)
said["launch"] = [str(launch.plan), launch.seq_len]
plan = "tp2 pp4 mbs1 schedule=example-order layout={}"
dealt = [
    foretell.estimate("llama-3.1-8b", plan=plan.format(sizes), **job).step_s for sizes in ("8*4", "5,9,9,9")
]
said["schedule"] = dealt
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the package answers with one more file, or table, for each."""
    folder = tmp_path_factory.mktemp("promises")
    ignore = shutil.ignore_patterns("__pycache__", "static", "parsed.jsonl", "*.new")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignore)
    package = folder / "src" / "foretell"
    (package / "catalog/software/example-framework.toml").write_text(FAMILY)
    (package / "interop/tools/example-trainer.toml").write_text(TOOL)
    (package / "schedules/orders/example_order.py").write_text(SCHEDULE)
    engines = package / "catalog" / "engines.toml"
    profile = next(
        block
        for block in engines.read_text().split("[[profile]]")
        if 'id = "vllm-0.18-hopper"' in block
    )
    profile = profile.replace("vllm-0.18-hopper", "exampleserve-1-hopper").replace(
        'engine = "vllm"', 'engine = "exampleserve"'
    )
    profile = profile.replace("host_step_s = ", "host_step_s = 1")
    with engines.open("a") as file:
        file.write(f"\n[[profile]]{profile}")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", QUESTIONS],
        env={**kept, "PYTHONPATH": str(folder / "src")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def test_a_family_of_software_that_states_dtypes(said: dict[str, Any]) -> None:
    """One file: its plans print their dtypes, and what is printed gives the same answer."""
    states, master, text, same = said["software"]
    assert (states, master) == ("bf16", "none")
    assert "master=none" in text
    assert "states=bf16" in text
    assert same


def test_an_engine_by_its_data(said: dict[str, Any]) -> None:
    """One table of a profile: its name is known, and its host is a second slower."""
    profile, tpot_ms, usual_ms = said["engine"]
    assert profile == "exampleserve-1-hopper"
    assert tpot_ms > 500.0 > usual_ms


def test_a_tool_whose_launches_are_read(said: dict[str, Any]) -> None:
    plan, seq_len = said["launch"]
    assert "tp4" in plan
    assert "mbs2" in plan
    assert seq_len == 4096


def test_a_schedule_that_deals_layers_by_a_layout(said: dict[str, Any]) -> None:
    even_s, uneven_s = said["schedule"]
    assert 0.0 < even_s < uneven_s
