"""Logs of training programs, benchmarks, engines and chips: what each form of line measures.

The snippets are written for these tests, in the form that each program prints.
"""

import csv
import re
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from foretell.api.measured_files import read_measured, text_measurements
from foretell.errors import BadInput
from foretell.interop.log_lines import DEVICES, MEMORY, SERVICE, STEPS, literal
from foretell.interop.step_series import steady_steps, timed_parts
from foretell.specs.measurement import Measurement

GIB = 2.0**30
BENCHMARK = """
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max request concurrency:                 32
Successful requests:                     200
Total input tokens:                      204800
Total generated tokens:                  51200
Request throughput (req/s):              3.10
Output token throughput (tok/s):         793.60
Peak output token throughput (tok/s):    990.00
Mean E2E Latency (ms):                   9800.10
Mean TTFT (ms):                          310.00
Median TTFT (ms):                        150.00
Mean TPOT (ms):                          37.20
Median TPOT (ms):                        36.00
"""
SMI = """
| NVIDIA-SMI 570.10    Driver Version: 570.10    CUDA Version: 12.8 |
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:0A:00.0 Off |                    0 |
| N/A   62C    P0            {w}W /  700W |   61440MiB /  81559MiB |     {b}%      Default |
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    0 |
| N/A   60C    P0            {w}W /  700W |   60000MiB /  81559MiB |     {b}%      Default |
"""
DEEPSPEED = "\n".join(
    f"[2026-01-05 10:00:{3 * i:02},500] [INFO] [logging.py:107:log_dist] [Rank 0] step={i}, skipped=0, "
    "lr=[1e-05], mom=[(0.9, 0.95)]"
    for i in range(1, 9)
)
PIPELINE = "steps: 10 loss: 4.1 iter time (s): 1.250 samples/sec: 25.6"
CLOCK = "\n".join(
    f"step:{i}/900 train_time:{2000 if i < 3 else 3000 + 40 * i}ms step_avg:41.0ms"
    for i in range(1, 12)
)
FACTORY = "\n".join(
    f'{{"current_steps": {10 * i}, "total_steps": 90, "loss": 1.2, "elapsed_time": "0:00:{20 * i:02}", '
    '"remaining_time": "0:10:00"}'
    for i in range(1, 3)
)
STEP_LINES = {
    "Megatron-LM": ("iteration 7/ 90 | elapsed time per iteration (ms): 1460.8/1450.4 | lm loss: 2", 1.4608),
    "Megatron-LM with _": ("iteration= 7/ 90 | elapsed_time_per_iteration_ms=3415.3 | lm loss=2.1", 3.4153),
    "Megatron-Bridge": ("Step Time : 8.12s GPU utilization: 612.3MODEL_TFLOP/s/GPU", 8.12),
    "NeMo": ("Training epoch 0, iteration 9/99 | global_step: 9 | train_step_timing in s: 5.21", 5.21),
    "nanoGPT": ("iter 40: loss 3.1412, time 135.61ms, mfu 42.10%", 0.13561),
    "nanochat": ("step 00010/21400 (0.05%) | loss: 6.1 | dt: 554.32ms | tok/sec: 94,567", 0.55432),
    "llm.c": ("step    5/19560 | loss 9.0 (+nanz)| 293.99 ms | 51.9% bf16 MFU | 178818 tok/s", 0.29399),
    "DeepSpeed pipeline": (PIPELINE, 1.25),
    "LitGPT": ("Epoch 1 | iter 10 step 10 | loss train: 1.2 | iter time: 345.67 ms (step)", 0.34567),
    "modded-nanogpt": (CLOCK, 0.04),
    "LLaMA-Factory": (FACTORY, 2.0),
    "DeepSpeed": (DEEPSPEED, 3.0),
    "a training log": ("step 12 loss 2.2 step_time: 812 ms", 0.812),
}  # fmt: skip


@pytest.mark.parametrize("name", STEP_LINES)
def test_step_lines_of_every_program(name: str) -> None:
    text, step_s = STEP_LINES[name]
    before = "" if name == "LLaMA-Factory" else "a line before\n"
    (found,) = text_measurements(f"{before}{text}\n", "run.log")
    assert name.removesuffix(" with _") in found.source
    assert found.values["step_s"] == pytest.approx(step_s)


def test_every_figure_is_looked_for_by_a_text_that_it_has() -> None:
    """`needs` spares a search: a pattern that matches a line without it would never be tried."""
    assert literal(r"Mean (?:E2EL|E2E Latency) \(ms\): +<N>") == " (ms):"
    assert literal(r"max_total_num_tokens=<N>") in "max_total_num_tokens=12"
    for one in (*SERVICE, *DEVICES, *MEMORY):
        assert not set(one.needs) & set("\\*?[]"), one.pattern.pattern
    assert len({(one.name, one.mark.pattern) for one in STEPS}) == len(STEPS)


def test_the_first_steps_are_warm_up_long_or_short() -> None:
    """Compilation makes a first step long; a program that does not wait for its device makes it short."""
    assert steady_steps([44.9, 0.3, 5.7, 5.4, 5.7, 5.7, 5.7, 5.7]).warm == 2
    assert steady_steps([25.8, 20.3]).median_s == 20.3
    assert steady_steps([0.29, 1.01]).median_s == 1.01
    assert steady_steps([9.0, 5.0, 2.0]).median_s == 2.0
    assert steady_steps([2.0, 2.02, 1.99]).warm == 0


def test_a_progress_bar_counts_training_and_no_other_bar() -> None:
    bars = " ".join(
        f" {i}%|#| {i}/100 [00:{2 * i:02}<03:00,  2.0{i % 2}s/it]" for i in range(1, 20)
    )
    other = "Loading checkpoint shards: 100%|####| 4/4 [00:40<00:00, 10.00s/it]"
    evaluation = "100%|####| 8/8 [00:01<00:00,  8.00it/s]"
    (found,) = text_measurements(f"{other}\n{bars}\n{bars}\n{evaluation}", "run.log")
    assert found.values["step_s"] == pytest.approx(2.0, abs=0.02)
    assert len(found.steps_s) == 19


def test_the_dict_that_ends_a_run_gives_the_step_and_the_batch() -> None:
    end = "{'train_runtime': 273.0, 'train_samples_per_second': 0.938, 'train_steps_per_second': 0.007}"
    (found,) = text_measurements("\n".join(["{'loss': 1.0}", *[end] * 4]), "run.log")
    # Two steps: 1 / 0.007 would be 143 s, the rate is rounded.
    assert found.values["step_s"] == pytest.approx(136.5)
    assert found.asked["global_batch"] == 128
    only = "{'train_runtime': 14.91, 'train_samples_per_second': 13.4, 'train_loss': 3.71}"
    (rate,) = text_measurements(f"{{'loss': 4.1}}\n{only}\n", "run.log")
    assert rate.values == {"samples_per_s": 13.4}


@pytest.mark.parametrize(
    "text",
    [
        '{\n  "epoch": 1.0,\n  "train_runtime": 200.0,\n  "train_steps_per_second": 0.5\n}\n',
        '{"log_history": [{"loss": 1.0}, {"train_runtime": 200.0, "train_steps_per_second": 0.5}]}',
        "** train metrics **\n train_runtime  = 0:03:20.00\n train_steps_per_second =  0.5\n",
    ],
)
def test_files_that_a_trainer_leaves(text: str) -> None:
    (found,) = text_measurements(text, "train_results.json")
    assert found.values["step_s"] == pytest.approx(2.0)


def test_colours_and_wrapped_lines_are_read() -> None:
    coloured = (
        "[31mstep: 20 [32m loss: 8.1 [33m memory: 12.34GiB(25.0%) [34m tps: 1,234 tflops: 12.3"
    )
    (titan,) = text_measurements(coloured, "run.log")
    assert titan.values["tokens_per_s_per_gpu"] == pytest.approx(1234.0)
    wrapped = " iteration 7/ 90 | elapsed time per\n iteration (ms): 1460.8 | lm loss: 2"
    (megatron,) = text_measurements(wrapped, "page.md")
    assert megatron.values["step_s"] == pytest.approx(1.4608)


def test_a_table_of_a_page_is_a_benchmark_too() -> None:
    text = "| Mean TTFT (ms) | 310.0 |\n| Mean TPOT (ms) | 37.2 |\n| Median TPOT (ms) | 36.0 |\n"
    (found,) = text_measurements(text, "page.md")
    assert found.values == pytest.approx(
        {"ttft_ms": 310.0, "tpot_ms": 37.2, "decode_step_s": 0.036}
    )


def test_a_log_of_two_launches_is_two_runs() -> None:
    def run(chips: str, seconds: float) -> str:
        return (
            f"deepspeed --include localhost:{chips} train.py --deepspeed ds_config_zero2.json "
            f"--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16 True\n"
            f"100%|###| 10/10 [00:{10 * seconds:02.0f}<00:00,  {seconds:.2f}s/it]\n"
        )

    first, second = text_measurements(run("7", 2.0) + run("0,1,2,3", 3.0), "both.log")
    assert (first.values["step_s"], second.values["step_s"]) == (2.0, 3.0)
    assert (first.asked["gpus"], second.asked["gpus"]) == (1, 4)
    assert first.source != second.source


def test_runs_of_another_length_and_steps_that_are_run_again() -> None:
    def line(i: int, of: int, ms: float) -> str:
        return f" iteration {i}/ {of} | elapsed time per iteration (ms): {ms} | lm loss: 2.0 |"

    two = [line(i, 90, 1000.0) for i in (7, 8, 9)] + [line(i, 70, 3000.0) for i in (7, 8, 9)]
    first, second = text_measurements("\n".join(two), "both.log")
    assert (first.values["step_s"], second.values["step_s"]) == (1.0, 3.0)
    ranks = [line(i, 90, 1000.0 + r) for i in (7, 8, 9) for r in range(4)]
    resumed = [*ranks, *[line(i, 90, 1000.0) for i in (5, 6, 7)]]
    (one,) = text_measurements("\n".join(resumed), "run.log")
    assert len(one.steps_s) == 6


def test_maxtext_says_its_chips_and_tokens() -> None:
    lines = "\n".join(
        f"completed step: {i}, seconds: {44.0 if i == 0 else 5.0}, TFLOP/s/device: 200.0, "
        "Tokens/s/device: 3276.8, total_weights: 131072, loss: 8.0"
        for i in range(6)
    )
    (found,) = text_measurements(lines, "run.log")
    assert found.values == {"step_s": 5.0}
    assert found.asked["gpus"] == 8
    assert found.stated["step_tokens"] == 131072


def test_torchtitan_says_its_mesh_and_its_batch() -> None:
    text = """[titan] Building 2-D device mesh with ['dp_shard', 'tp'], [16, 4]
[titan] CUDA capacity: NVIDIA H100 80GB HBM3 with 79.10GiB memory
[titan] Training starts at step 1, with local batch size 2, global batch size 32, sequence length 8192, total
[titan] step:  1  loss: 12.0  memory: 61.20GiB(64.4%)  tps: 900  tflops: 30.0  mfu: 3.0%
[titan] step: 10  loss:  8.1  memory: 61.20GiB(64.4%)  tps: 3,000  tflops: 250.0  mfu: 25.28%"""
    (found,) = text_measurements(text, "run.log")
    assert set(found.plan.split()) == {"tp4", "zero3", "mbs2"}
    assert found.asked == {"gpus": 64, "global_batch": 32, "seq_len": 8192}
    assert found.stated["system"] == "H100 80GB HBM3"


def test_timers_are_parts_of_the_step() -> None:
    line = (
        "time (ms) | forward-compute: 300.0 | backward-compute: 600.0 | forward-recv: 50.0 | "
        "embedding-grads-all-reduce: 25.0 | grads-all-reduce: 40.0 | optimizer: 10.0 | batch-generator: 5.0"
    )
    text = "\n".join(
        f" iteration {i}/ 90 | elapsed time per iteration (ms): 1030.0 | global batch size: 8 |\n{line}"
        for i in range(1, 5)
    )
    (found,) = text_measurements(text, "run.log")
    parts = {"passes": 0.9, "pipeline_waits": 0.075, "gradient_sync": 0.04, "optimizer_step": 0.01}
    assert found.phases == pytest.approx(parts)
    rows = """(min, max) time across ranks (ms):
    forward-compute ................................: (280.0, 300.0)
    backward-compute ...............................: (590.0, 600.0)
    all-grads-sync .................................: (30.0, 40.0)
    optimizer ......................................: (9.0, 10.0)"""
    step = " iteration 9/ 90 | elapsed time per iteration (ms): 1030.0 | global batch size: 8 |"
    (other,) = text_measurements(f"{step}\n{rows}\n", "run.log")
    assert other.phases == pytest.approx({k: v for k, v in parts.items() if k != "pipeline_waits"})


def test_timers_of_deepspeed_and_those_not_known() -> None:
    told = {
        "fwd": 0.7,
        "bwd": 2.4,
        "bwd_inner": 1.2,
        "bwd_allreduce": 1.2,
        "step": 0.16,
        "x-y": 0.1,
    }
    parts, other = timed_parts([told | {"optimizer_allgather": 0.15}])
    assert parts == pytest.approx({"passes": 1.9, "gradient_sync": 1.35, "optimizer_step": 0.01})
    assert other == ("x-y",)


def test_timers_that_do_not_add_up_are_left_aside() -> None:
    text = (
        " iteration 9/ 90 | elapsed time per iteration (ms): 100.0 | global batch size: 8 |\n"
        "time (ms) | forward-compute: 300.0 | backward-compute: 600.0"
    )
    (found,) = text_measurements(text, "run.log")
    assert found.phases == {}
    assert any("900% of the step" in note for note in found.notes)


def test_a_printed_benchmark_has_its_load_and_its_latencies() -> None:
    (found,) = text_measurements(BENCHMARK, "bench.txt")
    assert found.asked == {"engine": "sglang", "concurrency": 32.0, "isl": 1024.0, "osl": 256.0}
    assert (found.values["ttft_ms"], found.values["tpot_ms"]) == (310.0, 37.2)
    assert found.values["decode_step_s"] == pytest.approx(0.036)
    assert found.values["output_tokens_per_s"] == 793.6
    assert any("the mean TTFT is 2.1 x the median" in note for note in found.notes)
    assert len(text_measurements(BENCHMARK * 2, "bench.txt")) == 2


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("INFO [kv_cache_utils.py:12] GPU KV cache size: 119,408 tokens", {"kv_cache_tokens": 119408.0}),
        ("INFO # GPU blocks: 1000, # CPU blocks: 100", {"kv_cache_tokens": 16000.0}),
        ("[TP0] max_total_num_tokens=4096, context_len=128", {"kv_cache_tokens": 4096.0}),
        ("Model loading took 14.99 GiB and 3.1 seconds", {"weight_bytes": 14.99 * GIB}),
        ("Available KV cache memory: 50.5 GiB", {"kv_bytes": 50.5 * GIB}),
        ("Maximum concurrency for 4,096 tokens per request: 10.00x", {"kv_cache_tokens": 40960.0}),
        ("KV Cache is allocated. K size: 20.0 GB, V size: 20.0 GB.", {"kv_bytes": 40.0 * GIB}),
    ],
)  # fmt: skip
def test_engines_say_what_they_hold(text: str, values: dict[str, float]) -> None:
    (found,) = text_measurements(f"INFO engine starts\n{text}\n", "boot.log")
    assert found.values == pytest.approx(values)


def test_of_several_engines_the_first_counts() -> None:
    lines = [
        f"INFO worker {i}: GPU KV cache size: {n} tokens" for i, n in enumerate([9000, 9010, 4000])
    ]
    (found,) = text_measurements("\n".join(lines), "boot.log")
    assert found.values == {"kv_cache_tokens": 9000.0}
    assert any("others hold 4,000 tokens" in note for note in found.notes)
    none = "INFO GPU KV cache size: 0 tokens\nINFO Model loading took 14.99 GiB\n"
    assert text_measurements(none, "boot.log")[0].values == {"weight_bytes": 14.99 * GIB}


def test_an_engine_says_its_rate_under_load() -> None:
    lines = "\n".join(
        f"[2026-01-05 10:00:{i:02} TP0] Decode batch. #running-req: {n}, #token: 900, token usage: 0.01, "
        f"gen throughput (token/s): {20.0 * n}, #queue-req: 0"
        for i, n in enumerate([1, 20, 40, 40, 40, 2])
    )
    (found,) = text_measurements(lines, "sglang.log")
    assert found.asked["concurrency"] == 40
    assert found.values["output_tokens_per_s"] == 800.0
    assert found.values["decode_step_s"] == pytest.approx(0.05)


def test_power_counts_where_chips_are_busy() -> None:
    (busy,) = text_measurements(SMI.format(w=500, b=97), "smi.txt")
    assert busy.values == {"power_watts": 500.0, "memory_used_bytes": 61440 * 2.0**20}
    assert busy.stated == {"system": "H100 80GB HBM3", "gpus": 2}
    (idle,) = text_measurements(SMI.format(w=90, b=0), "smi.txt")
    assert idle.values == {"idle_watts": 90.0}
    # A table that a program prints before it trains is no measurement of the training.
    (train,) = text_measurements(SMI.format(w=90, b=0) + CLOCK, "run.log")
    assert set(train.values) == {"step_s"}


QUERY = """timestamp, index, power.draw [W], utilization.gpu [%], memory.used [MiB]
2026/01/05 10:00:00.000, 0, 90.00 W, 0 %, 4 MiB
2026/01/05 10:00:01.000, 0, 410.50 W, 98 %, 61000 MiB
2026/01/05 10:00:02.000, 0, 389.50 W, 99 %, 61000 MiB
"""
DMON = """# gpu    pwr  gtemp     sm    mem     fb
# Idx      W      C      %      %     MB
    0     90     30      0      0      4
    0    410     62     98     40  61000
    0    390     62     99     40  61000
"""
DCGMI = """#Entity   POWER   GPUTL   FBUSD
ID        W       %       MB
GPU 0     90.0    0       4
GPU 0     400.0   98      61000
"""
EXPORTER = """DCGM_FI_DEV_POWER_USAGE{gpu="0",device="nvidia0"} 400.0
DCGM_FI_DEV_FB_USED{gpu="0",device="nvidia0"} 61000
"""


@pytest.mark.parametrize("text", [QUERY, DMON, DCGMI, EXPORTER])
def test_power_over_time(text: str) -> None:
    (found,) = text_measurements(text, "power.csv")
    assert found.values["power_watts"] == pytest.approx(400.0)
    assert found.values["memory_used_bytes"] == 61000 * 2.0**20


def test_what_cannot_be_read_is_said_with_its_line() -> None:
    text = "= PERFORMANCE OVERVIEW\nTP Size: 4\nRequest Throughput (req/sec):   X.XX\nKV share: 85.00%\n"
    with pytest.raises(BadInput) as caught:
        text_measurements(text, "bench.log")
    (problem,) = caught.value.problems
    assert "line 3" in problem.message
    assert "X.XX" in str(problem.value)
    some = "completed step: 4, seconds: 2.0, loss: 1\ncompleted step: 5, loss: 1\n"
    (found,) = text_measurements(some, "run.log")
    assert any("line 2: completed step: 5" in note for note in found.notes)


def _figure(kind: str, text: str) -> float | None:
    """A figure that stands in a log of some kinds, by a pattern of this test's own."""
    forms = {
        "megatron": (r"elapsed time per iteration \(ms\): *([\d.]+)", 1e-3),
        "maxtext": (r"completed step: \d+, seconds: ([\d.]+)", 1.0),
        "bench": (r"Median TPOT \(ms\): +([\d.]+)", 1e-3),
        "vllm-boot": (r"GPU KV cache size: ([\d,]+) tokens", 1.0),
    }
    if kind not in forms:
        return None
    pattern, factor = forms[kind]
    found = [factor * float(one.replace(",", "")) for one in re.findall(pattern, text)]
    return median(found[min(2, len(found) - 1) :]) if found else None


def _has(rows: list[Measurement], figure: float) -> bool:
    values = [value for row in rows for value in row.values.values()]
    return any(abs(value / figure - 1.0) < 0.05 for value in values)


def test_logs_that_people_have(data_dir: Path) -> None:
    """At least 40 of 45 are read, none with another figure than it has, none with a fault."""
    folder = data_dir / "launches"
    if not (folder / "logs_index.csv").is_file():
        pytest.skip("no logs among the published data")
    seen: Counter[str] = Counter()
    index = (folder / "logs_index.csv").read_text()
    for row in csv.DictReader(index.splitlines()):
        path = folder / row["file"]
        figure = _figure(row["kind"], path.read_text(errors="replace"))
        try:
            found = read_measured(path)
        except BadInput:
            seen["refused"] += 1
            continue
        seen["read"] += 1
        assert figure is None or _has(found, figure), row["file"]
    assert seen["read"] >= 40, seen
