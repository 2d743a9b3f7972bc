"""Exports that run: launchers are read back to the same run, services and bundles are whole."""

import json
import re
import runpy
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.api.bundles import row_of
from foretell.api.launches import read_launch
from foretell.catalog import model as catalog_model
from foretell.errors import BadInput
from foretell.interop.fleets import InstancePool, fleet_script, nodes_of, places_of
from foretell.interop.launchers import LAUNCHERS
from foretell.interop.service_write import Serving, write_serving
from foretell.interop.tools import read_arguments
from foretell.lab.validate.training_rows import read_rows
from foretell.specs.deployment_text import parse_deployment
from foretell.specs.plan import parse_plan
from foretell.workload.parameters import count
from tests.surfaces.command import foretell as command


@pytest.fixture(scope="module")
def run() -> Any:
    plan = "tp2 pp2 zero1 mbs1 framework=megatron-core"
    return foretell.estimate(
        "llama-3.1-8b", system="gb200-nvl72", gpus=16, global_batch=64, plan=plan
    )


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_is_read_back_to_the_same_run(run: Any, launcher: str) -> None:
    launch = read_launch(run.export("megatron", launcher).text)
    plan = parse_plan(launch.plan, launch.gpus)
    assert (launch.gpus, launch.global_batch, launch.seq_len) == (16, 64, run.seq_len)
    assert (plan.tp, plan.pp, plan.dp, plan.zero, plan.vpp) == (2, 2, 4, 1, run.plan.vpp)
    assert launch.models == ("meta-llama/Llama-3.1-8B",)
    assert (launch.unknown, launch.doubts) == ((), ())


def test_nodes_are_those_of_the_system(run: Any) -> None:
    assert "--nnodes 4 --nproc_per_node 4" in run.export("megatron").text
    assert "#SBATCH --gpus-per-node=4" in run.export("megatron", "slurm").text
    other = foretell.estimate("llama-3.1-8b", system="h100-sxm", gpus=16, plan="tp2 zero1 mbs1")
    assert "--nnodes 2 --nproc_per_node 8" in other.export("megatron").text
    few = foretell.estimate("llama-3.1-8b", system="h100-sxm", gpus=4, plan="tp2 zero1 mbs1")
    assert "--nnodes 1 --nproc_per_node 4" in few.export("megatron").text


@pytest.mark.parametrize(
    "model", ["llama-3.1-70b", "qwen3-30b-a3b", "qwen3-32b", "mixtral-8x7b", "gpt3-175b"]
)
def test_model_flags_describe_the_model(model: str) -> None:
    found = foretell.search(
        model, system="h200-sxm", gpus=64, plan="framework=megatron-core", top=1
    ).best
    written = found.export("megatron")
    launch = read_arguments(written.text, len(catalog_model(model).stack.layers))
    assert launch.table is not None
    meant = count(catalog_model(model)).total
    assert abs(count(catalog_model(launch.table)).total - meant) < 0.005 * meant
    assert not any("weights," in note for note in written.notes), written.notes


@pytest.mark.parametrize("tool", ["torchtitan@0.3", "torchtitan@0.2", "deepspeed"])
def test_configurations_are_written_and_read_within_their_script(tool: str) -> None:
    if tool.endswith("0.2"):
        pytest.importorskip("tomli_w")
    found = foretell.estimate(
        "llama-3.1-8b", system="h100-sxm", gpus=16, global_batch=64, seq_len=4096, plan="zero3 mbs2"
    )
    for launcher in LAUNCHERS:
        launch = read_launch(found.export(tool, launcher).text, model="llama-3.1-8b")
        plan = parse_plan(launch.plan, launch.gpus)
        assert (launch.gpus, launch.global_batch) == (16, 64)
        assert (plan.dp, plan.zero, plan.micro_batch) == (16, 3, 2)


def test_a_launcher_or_release_that_is_not_written_is_bad_input(run: Any) -> None:
    for tool, launcher in (
        ("megatron", "sbatch"),
        ("megatron@0.9", None),
        ("megatron@2", None),
        ("vllm", None),
    ):
        with pytest.raises(BadInput):
            run.export(tool, launcher)


def test_instances_have_gpus_and_ports_of_their_own() -> None:
    pools = [
        InstancePool(role="prefill", count=3, command="vllm serve m -tp 2", gpus=2),
        InstancePool(role="decode", count=2, command="vllm serve m -tp 4", gpus=4),
    ]
    every = places_of(pools, 8)
    assert [(one.node, one.gpus) for one in every] == [
        (0, (0, 1)), (0, (2, 3)), (0, (4, 5)), (1, (0, 1, 2, 3)), (1, (4, 5, 6, 7)),
    ]  # fmt: skip
    assert len({(one.node, one.port) for one in every}) == len(every)
    used = [(one.node, gpu) for one in every for gpu in one.gpus]
    assert len(set(used)) == len(used) == 14
    assert nodes_of(pools, 8) == 2


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("vllm", ("kv_producer", "kv_consumer", "vllm-router --vllm-pd-disaggregation")),
        (
            "sglang",
            (
                "--disaggregation-mode prefill",
                "--disaggregation-mode decode",
                "--pd-disaggregation",
            ),
        ),
        ("trtllm", ("cache_transceiver_config", "context_servers", "trtllm-serve disaggregated")),
    ],
)
def test_both_halves_of_a_split_service_with_their_router(
    tool: Any, words: tuple[str, ...]
) -> None:
    pools = [
        InstancePool(role=role, count=1, command="serve m", gpus=2)
        for role in ("prefill", "decode")
    ]  # type: ignore[arg-type]
    text, _ = fleet_script(tool, pools, 8)
    assert all(word in text for word in words)
    assert text.count("CUDA_VISIBLE_DEVICES") == 2
    alone, _ = fleet_script(tool, [replace(pools[0], role="both")], 8)
    assert alone == "serve m"


def test_all_instances_of_a_service_are_written() -> None:
    asked = "llama-3.1-8b --gpus 8xH100 --plan tp2 --export vllm".split()
    done = command("serve", *asked)
    assert done.code == 0, done.err
    assert done.out.count("vllm serve meta-llama/Llama-3.1-8B") == 4
    assert "vllm-router --worker-urls" in done.out


def test_a_bundle_is_whole_and_its_benchmark_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plan"
    asked = [
        "llama-3.1-8b",
        "--gpus",
        "16xH100",
        "--plan",
        "tp2 zero1 mbs1 framework=megatron-core",
    ]
    done = command("estimate", *asked, "--export", "bundle", str(folder))
    assert done.code == 0, done.err
    names = {path.name for path in folder.iterdir()}
    launches = "launch.sh launch.sbatch kubernetes.yaml skypilot.yaml"
    assert names == {*launches.split(), "collect.py", "benchmark.sh", "README.md"}
    log = folder / "run.log"
    log.write_text(
        "".join(
            f" iteration {i} | elapsed time per iteration (ms): {900 + i}.0 |\n" for i in range(20)
        )
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["collect.py", str(log)])
    runpy.run_path(str(folder / "collect.py"))
    row = read_rows(folder / "measured.csv")[0]
    assert row.step_s == pytest.approx(0.912)
    assert (row.tp, row.dp, row.gpus, row.framework_id) == (2, 8, 16, "megatron-core")
    scored = command("validate", "training", str(folder / "measured.csv"), "--json")
    assert scored.code == 0, scored.err
    assert json.loads(scored.out)["predictions"]


def test_a_bundles_row_names_what_was_planned(run: Any) -> None:
    row = row_of(run)
    assert (row["pp"], row["layers"], row["vocab"], row["chip_id"]) == (2, 32, 128_256, "gb200")


OWN = (
    "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 8 --max-model-len 8192 --trust-remote-code "
    "--quantization awq --host 0.0.0.0 --port 8000"
)


@pytest.mark.parametrize(
    "text",
    [
        OWN,
        "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2 --context-length 8192",
        "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 2 --max_batch_size 64 --host 0.0.0.0",
    ],
)
def test_a_launch_that_does_not_change_is_written_as_it_was(text: str) -> None:
    tool = read_launch(text).tool
    load = ["--system", "h100-sxm", "--isl", "512", "--osl", "64", "--concurrency", "8"]
    assert command("serve", "--import", text, *load, "--export", tool).out.strip() == text


def test_only_changed_flags_of_a_server_change() -> None:
    load = ["--system", "h100-sxm", "--isl", "512", "--osl", "64", "--concurrency", "8"]
    done = command("serve", "--import", OWN, *load, "--plan", "tp4 dp2", "--export", "vllm")
    assert done.code == 0, done.err
    wanted = OWN.replace("-tp 8", "-tp 4") + " --data-parallel-size 2"
    assert done.out.strip() == wanted


def test_flags_of_places_go_with_the_layout_and_ports_with_the_script() -> None:
    text = (
        "python -m sglang.launch_server --model-path m --tp 8 --enable-dp-attention --dp 8 "
        "--node-rank 0 --port 8000"
    )
    launch = read_launch(text)
    read = parse_deployment(launch.plan)
    meant = Serving(model="m", deployment=read, as_read=read, launch=launch)
    assert write_serving("sglang", meant).text == text
    other = replace(meant, deployment=replace(read, dp=4, tp=1), alone=False)
    wanted = "m --tp 4 --enable-dp-attention --dp 4"
    assert write_serving("sglang", other).text.endswith(wanted)


def test_megatron_is_told_that_there_is_no_dropout(run: Any) -> None:
    assert "--attention-dropout 0.0 --hidden-dropout 0.0" in run.export("megatron").text


def test_torchtitan_imports_only_what_it_uses() -> None:
    texts = {
        kind: foretell.estimate(
            "llama-3.1-8b", system="h100-sxm", gpus=8, plan=f"zero3 mbs1 recompute={kind}"
        )
        .export("torchtitan")
        .text
        for kind in ("none", "full", "products")
    }
    classes = {kind: {n for n in ("FullAC", "SelectiveAC") if n in t} for kind, t in texts.items()}
    assert classes == {"none": set(), "full": {"FullAC"}, "products": {"SelectiveAC"}}
    assert "activation_checkpoint import" not in texts["none"]


@pytest.mark.parametrize("tool", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("launcher", [None, "slurm"])
def test_a_script_of_a_split_service_is_one_that_a_shell_can_read(
    tool: str, launcher: str | None
) -> None:
    """Every file that it writes is ended where a shell looks for it, and every node reaches the others."""
    load = {"rate": 20.0, "isl": 4000.0, "osl": 500.0, "ttft": 2000.0, "tpot": 30.0}
    found = foretell.size("qwen3-32b", system="h200-sxm", **load, simulate=False)
    assert found.best.option.prefill is not None
    text = found.export(tool, launcher).text
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("there is no bash here")
    done = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    ends = re.findall(r"<<-?'?(\w+)'?", text)
    for word in ends:
        assert re.search(rf"^{word}$", text, re.MULTILINE), word
    if tool != "vllm":  # which listens to every address by itself
        assert text.count("--host 0.0.0.0") == text.count("CUDA_VISIBLE_DEVICES")


def test_a_bundle_of_a_split_service_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "plan"
    words = (
        "--rate 20 --isl 4000 --osl 500 --ttft 2000 --tpot 30 --no-simulate --export bundle".split()
    )
    done = command("size", "qwen3-32b", "--system", "h200-sxm", *words, str(place))
    assert done.code == 0, done.err
    names = {path.name for path in place.iterdir()}
    starts = {"launch.sh", "launch.sbatch", "kubernetes.yaml", "skypilot.yaml"}
    assert names == {*starts, "benchmark.sh", "README.md"}
    assert "--request-rate 20" in (place / "benchmark.sh").read_text()
    whole = read_launch(place / "launch.sh")
    load = {"rate": 20.0, "isl": 4000.0, "osl": 500.0, "ttft": 2000.0, "tpot": 30.0}
    found = foretell.size("qwen3-32b", system="h200-sxm", **load, simulate=False)
    assert whole.gpus == found.best.option.gpus
    assert found.best.option.name() in (place / "README.md").read_text()
