"""Measured runs from words, tables, lines of JSON, benchmarks and logs."""

import json

import pytest

from foretell.api.measured_files import read_measured, text_measurements
from foretell.errors import BadInput
from foretell.interop.step_series import series_findings, steady_steps

MEGATRON = """
  global_batch_size ............................... 256
  micro_batch_size ................................ 1
  pipeline_model_parallel_size .................... 2
  seq_length ...................................... 4096
  sequence_parallel ............................... True
  tensor_model_parallel_size ...................... 4
  use_distributed_optimizer ....................... True
  world_size ...................................... 64
 iteration        1/     500 | elapsed time per iteration (ms): 9000.0 | global batch size:   256 |
 iteration        2/     500 | elapsed time per iteration (ms): 2300.0 | global batch size:   256 |
 iteration        3/     500 | elapsed time per iteration (ms): 2310.0 | global batch size:   256 |
 iteration        4/     500 | elapsed time per iteration (ms): 2305.0 | global batch size:   256 |
[Rank 0] (after 4 iterations) memory (MB) | allocated: 1.0 | max allocated: 33000.0 | max reserved: 34500.0
"""
LOGS = {
    "torchtitan": (
        """[rank0]: step:  1  loss: 12.0  memory: 30.00GiB(31.6%)  tps: 1,000  tflops: 100.0  mfu: 10.0%
        [rank0]: step: 10  loss:  8.1  memory: 61.20GiB(64.4%)  tps: 5,762  tflops: 250.0  mfu: 25.28%""",
        {"tokens_per_s_per_gpu": 5762.0, "reserved_bytes": 61.2 * 2**30},
    ),
    "nanotron": (
        "iteration: 1 / 15 | elapsed_time_per_iteration_ms: 1.52K | tokens_per_sec_per_gpu: 8.61K",
        {"step_s": 1.52},
    ),
    "MaxText": (
        "completed step: 3, seconds: 5.125, TFLOP/s/device: 180.2, Tokens/s/device: 3200.1, loss: 8",
        {"step_s": 5.125},
    ),
    "Hugging Face Trainer": (
        "{'train_runtime': 100.0, 'train_samples_per_second': 16.0, 'train_steps_per_second': 0.5}",
        {"step_s": 2.0},
    ),
}


@pytest.mark.parametrize(
    ("text", "plan", "values"),
    [
        ("tp8 pp4 zero1 mbs1: 15.2 s", "tp8 pp4 zero1 mbs1", {"step_s": 15.2}),
        ("tp8: 420 ms, 61 GiB", "tp8", {"step_s": 0.42, "peak_memory_bytes": 61 * 2**30}),
        ("zero3: 5,762 tokens/s/GPU", "zero3", {"tokens_per_s_per_gpu": 5762.0}),
        ("zero3: MFU 43%", "zero3", {"mfu": 0.43}),
        ("43 % MFU", "", {"mfu": 0.43}),
        ("tp8: 410 TFLOP/s", "tp8", {"tflops_per_gpu": 410.0}),
        ("tp4: ttft 310 ms, tpot 18 ms", "tp4", {"ttft_ms": 310.0, "tpot_ms": 18.0}),
    ],
)
def test_inline_words(text: str, plan: str, values: dict[str, float]) -> None:
    (found,) = text_measurements(text, "measured")
    assert found.plan == plan
    assert found.values == pytest.approx(values)


def test_inline_words_tell_the_job() -> None:
    (found,) = text_measurements("c64 tp4 gpus=8 isl=2000: tpot 18 ms", "measured")
    assert found.asked == {"concurrency": 64, "gpus": 8, "isl": 2000}


@pytest.mark.parametrize("text", ["tp8: fast", "tp8: 12 parsecs", "tp8 pp4"])
def test_what_is_no_measurement_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        text_measurements(text, "measured")


def test_rows_of_a_table() -> None:
    text = "tp,pp,n_gpus,micro_batch,step_time_s,peak_mem_gb,colour\n8,4,512,1,15.2,61,red\n"
    (found,) = text_measurements(text, "runs.csv")
    assert (found.plan, found.asked) == ("tp8 pp4 mbs1", {"gpus": 512})
    assert found.values == {"step_s": 15.2, "peak_memory_bytes": 61 * 2**30}
    assert found.notes == ("columns not known here: colour",)


def test_lines_of_json_and_of_trackers() -> None:
    line = json.dumps({"plan": "tp8", "step_s": 2.0})
    both = json.dumps(
        {"config": {"plan": {"text": "tp4"}, "job": {"gpus": 8}}, "metrics": {"perf/step_s": 3.0}}
    )
    first, second = text_measurements(f"{line}\n{both}\n", "runs.jsonl")
    assert (first.plan, first.values) == ("tp8", {"step_s": 2.0})
    assert (second.plan, second.asked, second.values) == ("tp4", {"gpus": 8}, {"step_s": 3.0})


def test_a_serving_benchmark() -> None:
    told = {
        "backend": "vllm", "mean_ttft_ms": 520.0, "mean_tpot_ms": 44.0, "output_throughput": 1400.0,
        "completed": 10, "total_input_tokens": 40000, "total_output_tokens": 5000, "max_concurrency": 64,
    }  # fmt: skip
    (found,) = text_measurements(json.dumps(told, indent=1), "b.json")
    assert found.asked == {"isl": 4000.0, "osl": 500.0, "concurrency": 64.0, "engine": "vllm"}
    assert found.values["tpot_ms"] == 44.0


def test_a_megatron_log_tells_plan_job_time_and_memory() -> None:
    (found,) = text_measurements(MEGATRON, "run.log")
    assert {"tp4", "pp2", "zero1", "mbs1"} <= set(found.plan.split())
    assert found.asked == {"global_batch": 256, "seq_len": 4096, "gpus": 64}
    assert found.values["step_s"] == pytest.approx(2.305)
    assert found.values["reserved_bytes"] == 34500.0 * 2**20
    assert found.values["allocated_bytes"] == 33000.0 * 2**20
    assert "warm-up skipped: the first step" in found.notes


@pytest.mark.parametrize("name", LOGS)
def test_logs_of_other_programs(name: str) -> None:
    text, values = LOGS[name]
    (found,) = text_measurements(f"some line\n{text}\n", "run.log")
    assert name in found.source
    assert {key: found.values[key] for key in values} == pytest.approx(values)


def test_deepspeed_without_a_batch_has_samples_a_second() -> None:
    line = (
        "[INFO] [timer.py:260:stop] global_step=10, CurrSamplesPerSec=16.0, MaxMemAllocated=30.1GB"
    )
    (found,) = text_measurements(f"x\n{line}\n", "run.log")
    assert found.values == {"samples_per_s": 16.0, "allocated_bytes": 30.1 * 2**30}


def test_warm_up_outliers_and_stalls_are_told_apart() -> None:
    times = [9.0, 5.0, *(2.0 + 0.001 * (i % 7) for i in range(58))]
    for step in (19, 39, 59):
        times[step] += 2.0
    steady = steady_steps(times)
    assert (steady.warm, steady.slow) == (2, (19, 39, 59))
    found = series_findings(times)
    assert found["slow_every_steps"] == 20.0
    assert found["drift"] == pytest.approx(0.0, abs=0.01)


def test_a_profiler_trace_has_its_steps() -> None:
    starts = [0.0, 3.0e6, 5.0e6, 7.0e6, 9.0e6]
    events = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "ts": at, "dur": 2e6}
        for i, at in enumerate(starts)
    ]
    (found,) = read_measured([json.dumps({"traceEvents": events})])
    assert found.values["step_s"] == pytest.approx(2.0)
    assert any("warm-up" in note for note in found.notes)
    with pytest.raises(BadInput, match="ProfilerStep"):
        read_measured([json.dumps({"traceEvents": []})])
    own = {"traceEvents": events, "otherData": {"plan": "tp8", "step_s": 2.0}}
    with pytest.raises(BadInput, match="prediction"):
        read_measured([json.dumps(own)])


def test_characterize_results_are_measured_runs() -> None:
    point = {
        "key": "a", "model": "gpt3-1.3b", "plan": "tp2 mbs1", "processes": 8, "global_batch": 16,
        "seq_len": 2048, "measured": {"step_s": 0.5, "steps": 9, "spread": 0.04},
    }  # fmt: skip
    table = json.dumps({"points": [point, {"key": "b", "measured": None}]})
    (found,) = read_measured([table])
    assert (found.plan, found.values["step_s"], found.asked["gpus"]) == ("tp2 mbs1", 0.5, 8)
    assert "without a measured step: 1" in found.notes[0]
    steps = [{"shares_s": {"compute": 0.3, "idle": 0.1}} for _ in range(4)]
    slow = [{"shares_s": {"compute": 0.6, "idle": 0.2}} for _ in range(4)]
    ranks = [{"steps": steps, "held_bytes": {}}, {"steps": slow, "held_bytes": {}}]
    (one,) = read_measured([json.dumps({"ranks": ranks, "point": {"plan": "tp2", "processes": 2}})])
    assert one.values["step_s"] == pytest.approx(0.8)


def test_timed_parts_of_a_step_are_read() -> None:
    (row,) = read_measured(["plan,step_s,tensor_parallel_s,optimizer_s\ntp8,2.5,0.6,\n"])
    (text,) = read_measured(["tp8: 2.5 s, tensor_parallel 600 ms"])
    assert row.phases == text.phases == {"tensor_parallel": 0.6}
    assert row.values == text.values == {"step_s": 2.5}


def test_a_log_of_rates_has_its_warm_up_told_apart() -> None:
    rates = [900, *[5000 + i for i in range(12)], 2500, *[5000 + i for i in range(12)]]
    text = "\n".join(
        f"[rank0]: step: {i:2}  loss: 8.0  memory: 61.20GiB(64.4%)  tps: {rate:,}  tflops: 250.0"
        for i, rate in enumerate(rates)
    )
    (found,) = read_measured([text])
    assert found.values["tokens_per_s_per_gpu"] == pytest.approx(5006, abs=3)
    assert any("warm-up skipped: the first step" in note for note in found.notes)
    assert any("outliers skipped: 1 step" in note for note in found.notes)
    assert len(found.steps_s) == len(rates)


def test_a_trainer_log_may_begin_with_a_dict() -> None:
    text = "{'loss': 8.1, 'epoch': 0.1}\n 10%|#| 10/100 [00:20<03:00,  2.00s/it]\n" * 3
    (found,) = read_measured([text])
    assert found.values["step_s"] == pytest.approx(2.0)
    with pytest.raises(BadInput, match="is not JSON"):
        read_measured(['[{"step_s": 2.0},'])
