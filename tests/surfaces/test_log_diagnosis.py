"""`foretell diagnose` of logs: what a log states need not be typed, and timed parts name the cause."""

from pathlib import Path

import pytest

import foretell
from foretell.api.diagnose import RunsDiagnosis
from tests.surfaces.command import foretell as command

ARGUMENTS = """------------------------ arguments ------------------------
  bf16 ............................................ True
  data_path ....................................... ['/data/some text_document']
  ffn_hidden_size ................................. 16384
  global_batch_size ............................... 64
  hidden_size ..................................... 4096
  max_position_embeddings ......................... 2048
  micro_batch_size ................................ 1
  num_attention_heads ............................. 32
  num_experts ..................................... [1]
  num_layers ...................................... 24
  pipeline_model_parallel_size .................... 4
  seq_length ...................................... 2048
  tensor_model_parallel_size ...................... 4
  tokenizer_type .................................. GPT2BPETokenizer
  world_size ...................................... 32
-------------------- end of arguments ---------------------
"""
SMI = """
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:0A:00.0 Off |                    0 |
| N/A   62C    P0            {watts}W /  700W |   61440MiB /  81559MiB |     97%      Default |
"""


def megatron(parts: dict[str, float], step_s: float) -> str:
    """A log of Megatron-LM whose timers are given in seconds."""
    timers = " | ".join(f"{name}: {1e3 * seconds:.2f}" for name, seconds in parts.items())
    lines = [
        f" iteration {i:8}/ 500 | elapsed time per iteration (ms): {1e3 * step_s:.1f} | lm loss: 2.0 |"
        f"\ntime (ms) | {timers}"
        for i in range(3, 9)
    ]
    return "\n".join([ARGUMENTS, *lines])


@pytest.fixture(scope="module")
def plain() -> RunsDiagnosis:
    """The same run without timers: its prediction."""
    text = ARGUMENTS + " iteration 9/ 9 | elapsed time per iteration (ms): 3000.0 | lm loss: 2.0 |"
    return foretell.diagnose([text], system="h100-sxm")


def test_a_log_with_its_arguments_needs_only_the_system(plain: RunsDiagnosis) -> None:
    (run,) = plain.runs
    assert plain.model == "megatron-24x4096"
    assert {"tp4", "pp4", "dp2", "mbs1"} <= set(run.plan.split())
    assert run.measured_s == 3.0
    assert run.phases == ()


@pytest.mark.parametrize(
    ("slow", "part"),
    [
        ("grads-all-reduce", "gradient_sync"),
        ("embedding-grads-all-reduce", "pipeline_waits"),
        ("backward-compute", "passes"),
    ],
)
def test_the_slow_part_is_the_cause(
    plain: RunsDiagnosis, slow: str, part: str, tmp_path: Path
) -> None:
    whole = plain.runs[0].predicted_s
    parts = {
        "forward-compute": 0.25 * whole, "backward-compute": 0.5 * whole, "forward-recv": 0.1 * whole,
        "embedding-grads-all-reduce": 0.002, "grads-all-reduce": 0.002, "optimizer": 0.01,
    }  # fmt: skip
    parts[slow] += whole
    log = tmp_path / "run.log"
    log.write_text(megatron(parts, sum(parts.values())))
    told = command("diagnose", str(log), "--system", "h100-sxm", "--json").json
    (run,) = told["runs"]
    assert run["causes"][0]["mechanism"] == part
    assert run["causes"][0]["gain"] > 0.3
    assert "unexplained" not in {cause["mechanism"] for cause in run["causes"]}
    assert {one["phase"] for one in run["phases"]} >= {"passes", part}
    text = command("diagnose", str(log), "--system", "h100-sxm").out
    assert "x what is predicted" in text
    assert "Phase" in text


def test_time_in_no_timer_is_said(plain: RunsDiagnosis) -> None:
    whole = plain.runs[0].predicted_s
    parts = {"forward-compute": 0.3 * whole, "backward-compute": 0.6 * whole, "optimizer": 0.01}
    found = foretell.diagnose([megatron(parts, 1.6 * whole)], system="h100-sxm")
    assert found.runs[0].causes[0].mechanism == "unexplained"
    assert "none of the timers" in found.runs[0].causes[0].check


def test_without_parts_what_no_mechanism_explains_comes_last() -> None:
    found = foretell.diagnose(
        ["tp4 pp2 zero1 mbs1: 30 s"], model="llama-3.1-8b", gpus="64xH100", seq_len=4096
    )
    names = [cause.mechanism for cause in found.runs[0].causes]
    assert "unexplained" not in names[:-1]


def test_power_and_memory_are_beside_the_prediction() -> None:
    job = {"model": "llama-3.1-8b", "plan": "zero3", "global_batch": 64}
    found = foretell.diagnose([SMI.format(watts=300)], gpus=8, **job)
    (run,) = found.runs
    assert (found.system, run.measured_s, run.gap) == ("h100-sxm", None, None)
    assert {one.metric for one in run.watched} == {"power_watts", "memory_used_bytes"}
    assert any("less power than predicted" in line for line in run.said)
    assert found.next is None


def test_an_engine_log_is_beside_the_predicted_memory() -> None:
    text = (
        "INFO Initializing a V1 LLM engine with config: model='meta-llama/Llama-3.1-8B-Instruct', "
        "tensor_parallel_size=1, quantization=None\n"
        "INFO Model loading took 14.99 GiB and 3.1 seconds\nINFO GPU KV cache size: 100,000 tokens\n"
    )
    found = foretell.diagnose([text], system="h100-sxm")
    figures = {run.metric: run for run in found.runs}
    assert abs(figures["weight_bytes"].gap) < 0.05
    assert figures["kv_cache_tokens"].gap < -0.5
    assert "gpu_memory_utilization" in figures["kv_cache_tokens"].causes[0].check
    assert figures["weight_bytes"].causes == ()
    assert found.best_plan is None


def test_an_engine_under_load_is_judged_by_its_decode_step() -> None:
    lines = "\n".join(
        f"[2026-01-05 10:00:{i:02} TP0] Decode batch. #running-req: 40, #token: 900, token usage: 0.01, "
        "gen throughput (token/s): 800.0, #queue-req: 0"
        for i in range(5)
    )
    found = foretell.diagnose([lines], model="llama-3.1-8b", gpus="1xH100", plan="tp1")
    (run,) = found.runs
    assert (run.metric, run.measured, run.concurrency) == ("tpot_ms", pytest.approx(50.0), 40.0)


def test_tokens_of_a_step_are_its_batch() -> None:
    lines = "\n".join(
        f"completed step: {i}, seconds: 6.0, TFLOP/s/device: 400.0, Tokens/s/device: 8192, "
        "total_weights: 393216, loss: 8.0"
        for i in range(4, 9)
    )
    job = {"model": "llama-3.1-8b", "system": "h100-sxm", "seq_len": 8192, "plan": "zero3"}
    found = foretell.diagnose([lines], **job)
    assert any("global batch 48" in note for note in found.notes)
    assert "dp8" in found.runs[0].plan


def test_what_a_log_does_not_say_is_asked_for(tmp_path: Path) -> None:
    line = "completed step: 5, seconds: 6.0, TFLOP/s/device: 400.0, loss: 8.0"
    with pytest.raises(foretell.BadInput, match="model: missing"):
        foretell.diagnose([f"x\n{line}\n"], system="h100-sxm")
    named = "INFO engine config: model='/etc/hostname'\nINFO GPU KV cache size: 9 tokens\n"
    with pytest.raises(foretell.BadInput, match="the log names /etc/hostname"):
        foretell.diagnose([named], system="h100-sxm")
