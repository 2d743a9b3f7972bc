"""--import, --export, --jsonl and --prices on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

import foretell as package
from foretell.catalog.prices import chip_named
from foretell.serving.memory import cache_bytes, fraction_for, memory_of
from tests.surfaces.command import foretell

MEGATRON = (
    "torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 8 "
    "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 128 --seq-length 8192 --bf16 "
    "--sequence-parallel --use-distributed-optimizer --overlap-grad-reduce --tp-comm-overlap --lr 1e-4 "
    "--tokenizer-model meta-llama/Llama-3.1-70B --frobnicate 3"
)
ACCEPT = "--accept-unknown"
PLAN = "tp8 pp2 vpp1 dp4 zero1 mbs1 sp precision=bf16 gradients=fp32 tp_overlap=on framework=megatron-core"
SERVE = "trtllm-serve meta-llama/Llama-3.1-8B --tp_size 2 --kv_cache_free_gpu_memory_fraction 0.8"
LIST = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,"
    """AvailabilityZone
p5.48xlarge,H100,8,192,2048,20,8,us-east-1,us-east-1a
p5.48xlarge,H100,8,192,2048,40,,us-west-2,us-west-2a
p5.4xlarge,H100,1,16,256,9,,us-east-1,us-east-1a
p4d.24xlarge,A100,8,96,1152,16,4,us-east-1,us-east-1a
m5.large,,,2,8,0.1,0.05,us-east-1,us-east-1a
tpu,tpu-v5p-8,1,,,16.8,,us-central1,us-central1-a
"""
)


def answer(*arguments: str) -> Any:
    outcome = foretell(*arguments, "--json")
    assert outcome.code == 0, outcome.err
    return outcome.json


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "run.sh"
    path.write_text("#!/bin/bash\n" + MEGATRON.replace(" --seq", " \\\n  --seq"))
    return path


def test_a_launch_is_the_same_question(script: Path) -> None:
    given = "llama-3.1-70b --gpus 64 --global-batch 128 --seq-len 8192 --system h100-sxm".split()
    told = answer("estimate", *given, "--plan", PLAN)
    for source in (MEGATRON, str(script)):
        read = answer("estimate", "--import", source, "--system", "h100-sxm", ACCEPT)
        for key in (
            "model",
            "plan",
            "gpus",
            "global_batch",
            "seq_len",
            "step_s",
            "peak_memory_bytes",
        ):
            assert read[key] == told[key]
        assert any("not known here: frobnicate" in text for text in read["assumptions"])
        assert any("without effect here: lr" in text for text in read["assumptions"])


@pytest.mark.parametrize("verb", ["search", "memory", "explain", "simulate", "cost run"])
def test_every_verb_of_training_reads_one(verb: str) -> None:
    more = ["--top", "1"] if verb == "search" else []
    told = answer(*verb.split(), "--import", MEGATRON, "--system", "h100-sxm", ACCEPT, *more)
    assert "llama-3.1-70b" in json.dumps(told)


def test_flags_come_before_what_is_read() -> None:
    more = ["--gpus", "128xH200", "--plan", "recompute=full", ACCEPT]
    told = answer("estimate", "llama-3.1-70b", "--import", MEGATRON, *more)
    assert (told["gpus"], told["system"]) == (128, "h200-sxm")
    assert told["plan"].startswith("tp8 pp2 vpp1 dp8")
    assert "recompute=full" in told["plan"]


def test_python_reads_one_too() -> None:
    launch = package.read_launch(MEGATRON)
    found = package.estimate(**launch.arguments(), system="h100-sxm")
    assert (
        found.step_s
        == answer("estimate", "--import", MEGATRON, "--system", "h100-sxm", ACCEPT)["step_s"]
    )


def test_a_deployment_that_is_read() -> None:
    told = answer("serve", "--import", SERVE, "--system", "h100-sxm")
    assert told["profile"].startswith("trtllm")
    assert "memory_fraction=0.8" in told["plan"]
    other = answer("serve", "--import", SERVE, "--system", "h100-sxm", "--engine", "vllm")
    assert other["profile"].startswith("vllm")
    # Fractions mean different things: the cache stays as large as far as the engines' reserves are alike.
    assert "memory_fraction=0.8" not in other["plan"].split()
    assert other["kv_bytes"] == pytest.approx(told["kv_bytes"], rel=0.1)
    assert any("by the rule of vllm" in text for text in other["assumptions"])


def test_fractions_turned_around_leave_the_same_cache() -> None:
    from foretell.api.serving_questions import question_of
    from foretell.specs.questions.serving import ServiceQuestion

    plan = "tp1 memory_fraction=0.7"
    asked = ServiceQuestion("llama-3.1-8b", system="h100-sxm", gpus=1, plan=plan, concurrency=1)
    q, _ = question_of(asked)
    memory = memory_of(q.model, q.system, q.deployment, q.profile)
    for rule in ("vllm", "trtllm", "sglang"):
        share = fraction_for(rule, memory)
        left = cache_bytes(
            rule,
            share,
            card=memory.card_bytes,
            weights=memory.weight_bytes,
            step=memory.step_bytes,
            reserve=memory.reserve_bytes,
        )
        assert left == pytest.approx(memory.kv_bytes, rel=1e-9)
    assert fraction_for("vllm", memory) == pytest.approx(0.7)


@pytest.mark.parametrize("tool", ["megatron", "torchtitan", "deepspeed"])
def test_what_is_exported_is_read_back(tool: str, tmp_path: Path) -> None:
    asked = "llama-3.1-70b --gpus 64xH100 --global-batch 128 --seq-len 8192".split()
    plan = (
        "tp8 pp2 zero3 mbs1 no-reshard"
        if tool == "torchtitan"
        else "tp8 pp2 zero1 mbs1 recompute=full"
    )
    first = answer("estimate", *asked, "--plan", plan, "--export", tool)
    text = foretell("estimate", *asked, "--plan", plan, "--export", tool)
    assert text.out == first["export"] + "\n"
    assert text.err.count("note: ") == len(first["export_notes"])
    file = tmp_path / "exported.txt"
    file.write_text(text.out)
    more = ["--seq-len", "8192"] if tool == "deepspeed" else []
    again = answer("memory", "llama-3.1-70b", "--import", str(file), "--system", "h100-sxm", *more)
    told = json.dumps(again)
    assert tool == "deepspeed" or "tp8 pp2 vpp1" in told
    assert all(
        word in told
        for word in ("tp8 pp2", "dp4", "mbs1", "zero1" if tool != "torchtitan" else "zero3")
    )


def test_search_exports_its_best(tmp_path: Path) -> None:
    file = tmp_path / "plans.jsonl"
    asked = "llama-3.1-8b --gpus 16xH100 --top 3 --export megatron".split()
    told = answer("search", *asked, "--jsonl", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["config"]["plan"]["text"] for line in lines] == [p["plan"] for p in told["plans"]]
    assert lines[0]["metrics"]["perf/mfu"] == told["plans"][0]["mfu"]
    assert f"--tensor-model-parallel-size {lines[0]['config']['plan']['tp']}" in told["export"]


@pytest.mark.parametrize("tool", ["vllm", "sglang", "trtllm"])
def test_engines_are_exported(tool: str) -> None:
    told = answer(
        "serve", "llama-3.1-8b", "--gpus", "2xH100", "--plan", "tp2 kv=fp8", "--export", tool
    )
    assert "meta-llama/Llama-3.1-8B" in told["export"]
    assert "fp8" in told["export"]
    assert ("fraction" in told["export"]) is (tool != "vllm")
    assert any("leaves the cache as large" in text for text in told["export_notes"]) is (
        tool != "vllm"
    )


def test_lines_for_trackers(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    for gpus in ("8", "16"):
        told = answer("estimate", "llama-3.1-8b", "--gpus", f"{gpus}xH100", "--jsonl", str(file))
    served = answer("serve", "llama-3.1-8b", "--gpus", "1xH100", "--jsonl", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["config"].get("job", {}).get("gpus") for line in lines] == [8, 16, None]
    metrics = lines[1]["metrics"]
    assert metrics["memory/peak_bytes"] == told["peak_memory_bytes"]
    assert metrics["perf/step_s"] == told["step_s"]
    times = {key: value for key, value in metrics.items() if key.startswith("time/")}
    assert sum(times.values()) == pytest.approx(told["step_s"], rel=1e-9)
    assert lines[2]["metrics"]["latency/ttft_ms/p90"] == served["ttft_ms"]["p90"]
    assert all(isinstance(value, float) for line in lines for value in line["metrics"].values())


def test_flat_and_nested_dicts() -> None:
    found = package.estimate("llama-3.1-8b", system="h100-sxm", gpus=8, tokens="1T")
    flat, config = found.to_flat(), found.to_config()
    assert flat["perf/mfu"] == found.mfu
    assert found.run is not None
    assert flat["run/days"] == found.run.days
    assert config["plan"]["tp"] == found.plan.tp
    assert json.loads(json.dumps(config)) == config
    assert not any("." in key or " " in key for key in flat)


@pytest.fixture
def prices(tmp_path: Path) -> str:
    path = tmp_path / "vms.csv"
    path.write_text(LIST)
    return str(path)


def test_rents_of_a_price_list(prices: str) -> None:
    asked = "llama-3.1-8b --gpus 1xH100".split()
    told = answer("serve", *asked, "--prices", prices)
    assert told["usd_per_chip_hour"] == 2.5  # the lower of two nodes of eight: 20 / 8
    assert "vms.csv p5.48xlarge, on-demand, us-east-1a" in told["price_source"]
    assert answer("serve", *asked, "--prices", prices, "--price", "7")["usd_per_chip_hour"] == 7.0
    sized = answer("size", "llama-3.1-8b", "--system", "h100-sxm", "--rate", "5", "--gpus", "1",
                   "--no-simulate", "--prices", prices)  # fmt: skip
    assert sized["best"]["usd_per_hour"] == pytest.approx(2.5 * sized["gpus"])
    spot = answer("cost", "token", *asked, "--rent", "spot", "--prices", prices)
    demand = answer("cost", "token", *asked, "--prices", prices)
    owned = answer("cost", "system", "hgx-h100", "--gpus", "8", "--prices", prices)
    rents = owned["renting"]
    assert [rent["term"] for rent in rents] == ["on-demand", "spot"]
    assert spot["usd"] / demand["usd"] == pytest.approx(1.0 / 2.5, rel=1e-6)


def test_spellings_of_a_price_list() -> None:
    assert chip_named("A100") == "a100-sxm-40gb"
    assert chip_named("A100-80GB") == "a100-sxm-80gb"
    assert chip_named("H100") == "h100-sxm"
    assert chip_named("tpu-v5p-8") == "tpu-v5p"
    assert chip_named("tpu-v5litepod-8") == "tpu-v5e"
    assert chip_named("Inferentia9") is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "AcceleratorName"),
        ("a,b\n1,2\n", "is no column of the file"),
        (LIST.replace(",20,", ",twenty,"), "line 2 Price: is not a usable number"),
        (LIST.replace("H100", "NoSuchChip"), "has no offer of h100-sxm"),
        ("InstanceType,AcceleratorName,AcceleratorCount,Price,Region\nm5,,,1,x\n", "has no row"),
    ],
)
def test_price_lists_that_are_none(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "vms.csv"
    path.write_text(content)
    outcome = foretell("serve", "llama-3.1-8b", "--gpus", "1xH100", "--prices", str(path))
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("estimate", "--gpus", "8xH100"), "--model: missing"),
        (("serve", "--gpus", "8xH100"), "--model: missing"),
        (("estimate", "--import", "no-such.sh", "--system", "h100-sxm"), "there is no such file"),
        (("estimate", "--import", SERVE, "--system", "h100-sxm"), "are of a deployment"),
        (("serve", "--import", MEGATRON, "--system", "h100-sxm"), "are of a training run"),
        (
            (
                "estimate",
                "--import",
                '{"train_micro_batch_size_per_gpu": 8}',
                "--system",
                "h100-sxm",
            ),
            "name no model",
        ),
        (("estimate", "llama-3.1-8b", "--gpus", "8xH100", "--export", "vllm"), "--export: unknown"),
        (("serve", "llama-3.1-8b", "--gpus", "8xH100", "--export", "megatrn"), "--export: unknown"),
        (
            ("estimate", "llama-3.1-8b", "--gpus", "8xH100", "--jsonl", "/no/such/f"),
            "--jsonl: cannot",
        ),
        (("serve", "llama-3.1-8b", "--gpus", "1xH100", "--prices", "/no/such.csv"), "no such file"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], said: str) -> None:
    outcome = foretell(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
