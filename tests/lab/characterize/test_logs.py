"""Text logs of DeepSpeed and Megatron: the split of a step, and the prediction of the same job beside it."""

import json
from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.lab.characterize.traces.logs import characterize_log, is_log, read_log
from tests.surfaces.command import foretell

HEAD = "[2023-05-01 10:01:02,123] [INFO] [logging.py:68:log_dist] [Rank 0] rank=0 time (ms) | "
DEEPSPEED = [
    HEAD + "fwd_microstep: 1390.1 | bwd_microstep: 6800.0 | bwd_inner_microstep: 6760.0 | "
    "bwd_allreduce_microstep: 40.0 | step_microstep: 1868.0",
    HEAD + "optimizer_gradients: 12.0 | optimizer_step: 250.0 | optimizer_allgather: 1606.0",
    HEAD + "fwd: 1395.0 | bwd: 6833.0 | bwd_inner: 6790.0 | bwd_allreduce: 43.0 | step: 1868.0",
    " iteration 10/ 100 | consumed samples: 320 | elapsed time per iteration (ms): 10154.0 | lr: 1.0E-4",
]
PARTS = "forward-compute: 100.0 | backward-compute: 200.0 | backward-params-all-reduce: 50.0"
MEGATRON = [
    " iteration 1/ 9 | elapsed time per iteration (ms): 500.0 | learning rate: 1.0E-04",
    f"time (ms) | {PARTS} | optimizer: 30.0",
]


def log(folder: Path, lines: list[str]) -> Path:
    path = folder / "run.log"
    path.write_text("\n".join(["starting up", *lines]) + "\n")
    return path


def test_a_step_of_deepspeed(tmp_path: Path) -> None:
    """The published split of a Polaris run: 1,649 ms of 10,154 are collectives."""
    [step] = read_log(log(tmp_path, DEEPSPEED))
    assert step.step_s == pytest.approx(10.154)
    assert step.communication_s == pytest.approx(1.649)
    assert step.compute_s == pytest.approx(1.395 + 6.790 + 0.262)
    assert step.idle_s == pytest.approx(10.154 - 1.649 - 8.447)


@pytest.mark.parametrize("many", [1, 2, 5])
def test_parts_sum_to_every_step(many: int, tmp_path: Path) -> None:
    steps = read_log(log(tmp_path, MEGATRON * many))
    assert len(steps) == many
    for step in steps:
        assert step.compute_s + step.communication_s + step.idle_s == pytest.approx(step.step_s)
        assert step.communication_s == pytest.approx(0.05)


def test_micro_steps_alone_are_steps(tmp_path: Path) -> None:
    [first, second] = read_log(log(tmp_path, DEEPSPEED[:1] * 2))
    assert first.compute_s == pytest.approx((1390.1 + 6760.0 + 1868.0) / 1e3)
    assert second.communication_s == pytest.approx(0.04)


def test_only_logs_are_logs(tmp_path: Path) -> None:
    other = tmp_path / "trace.json"
    other.write_text(json.dumps({"traceEvents": [{"name": "time (ms)"}]}))
    assert not is_log(other)
    assert not is_log(tmp_path / "none")
    assert is_log(log(tmp_path, MEGATRON))
    with pytest.raises(BadInput, match="times no step"):
        read_log(log(tmp_path, ["time (ms) | batch-generator: 3.0"]))


def test_the_command_sets_the_prediction_beside_it(tmp_path: Path) -> None:
    path = log(tmp_path, DEEPSPEED)
    plan = "tp2 zero2 mbs8 no-sp recompute=full framework=megatron-deepspeed"
    found = foretell(
        "characterize",
        "trace",
        str(path),
        "--model",
        "llama-7b",
        "--system",
        "polaris-ss11",
        "--gpus",
        "8",
        "--global-batch",
        "32",
        "--seq-len",
        "4096",
        "--plan",
        plan,
        "--json",
    )
    answer = json.loads(found.out)
    mine, ours = answer["mean"], answer["predicted"]
    assert mine["communication_s"] == pytest.approx(1.649)
    parts = ours["compute_s"] + ours["communication_s"] + ours["idle_s"]
    assert parts == pytest.approx(ours["step_s"], rel=1e-6)
    assert ours["communication_s"] > 0.0
    low, high = answer["interval_s"]
    assert low < ours["step_s"] < high
    alone = characterize_log(path)
    assert alone.predicted is None
