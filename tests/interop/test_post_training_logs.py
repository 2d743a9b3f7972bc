"""Logs of post-training loops: steps, phases and jobs, and what `diagnose` says of them."""

import json
from pathlib import Path

import pytest

import foretell
from foretell.api.measured_files import read_measured
from foretell.errors import BadInput
from foretell.interop.post_training_logs import log_of, step_measurement

VERL = (
    "(TaskRunner pid=7) step:{n} - timing_s/gen:{gen} - timing_s/old_log_prob:8.0 - timing_s/ref:7.5 - "
    "timing_s/update_actor:26.0 - timing_s/step:{step} - timing_s/testing:{test} - "
    "perf/total_num_tokens:1740800 - perf/throughput:np.float64({rate}) - response_length/mean:223.1 - "
    "response_length/max:1024.0 - response_length/clip_ratio:0.002 - prompt_length/mean:116.9"
)
NEMO = """========================= Step 3/100 =========================
  • Mean Generation Length: 812.5
⏱️  Timing:
  • Total step time: 52.21s
  • generation: 17.60s (33.7%)
  • policy_training: 19.25s (36.9%)
  • policy_and_reference_logprobs: 10.10s (19.3%)
  • weight_sync: 2.10s (4.0%)
"""
OTHERS = {
    "trl": ("{'loss': 0.0, 'completions/mean_length': 210.5, 'step_time': 12.5, 'epoch': 0.1}", 12.5, {}),
    "slime": (
        "perf 3: {'perf/rollout_time': 60.0, 'perf/actor_train_time': 30.0, 'perf/step_time': 99.0}",
        99.0, {"gen": 60.0, "update_actor": 30.0},
    ),
    "areal": (
        "│ timeperf/rollout │ 12.0 │ timeperf/train_step │ 8.0 │ timeperf/recompute_logp │ 2.5 │",
        None, {"gen": 12.0, "update_actor": 8.0, "old_logprob": 2.5},
    ),
    "skyrl": (
        json.dumps({"timing/generate": 40.0, "timing/policy_train": 21.0, "timing/step": 70.0}),
        70.0, {"gen": 40.0, "update_actor": 21.0},
    ),
    "wandb": (
        json.dumps({"step": 4, "metrics": {"timing_s/gen": 40.0, "timing_s/step": 70.0}}),
        70.0, {"gen": 40.0},
    ),
}  # fmt: skip


def verl_log(steps: int = 6) -> str:
    lines = []
    for n in range(1, steps + 1):
        slow, test = (40.0 if n <= 2 else 0.0), (100.0 if n == 4 else 0.0)
        step = 125.0 + slow + test
        lines.append(
            VERL.format(n=n, gen=82.0 + slow, step=step, test=test, rate=1740800 / 125.0 / 8)
        )
    return "\n".join(["INFO starting", *lines])


def test_medians_without_warm_up_validation_and_checkpoint() -> None:
    found = log_of(verl_log())
    assert found.steps == 4
    assert found.medians["step"] == 125.0
    assert found.medians["gen"] == 82.0
    assert found.steps_s == (125.0,) * 4


def test_a_log_tells_its_job() -> None:
    found = step_measurement(verl_log(), "a.log")
    assert found is not None
    assert found.asked == {
        "isl": 116.9, "osl": 223.1, "max_osl": 1024, "trajectories": 5120, "gpus": 8,
    }  # fmt: skip
    assert found.phases["update_actor"] == 26.0
    assert read_measured(verl_log())[0].values == found.values


def test_a_console_of_several_lines_is_one_step() -> None:
    found = log_of(NEMO * 5)
    assert found.steps == 3
    assert found.medians["gen"] == 17.6
    assert found.medians["step"] == 52.21
    assert found.medians["mean_response"] == 812.5


@pytest.mark.parametrize("loop", OTHERS)
def test_other_loops(loop: str) -> None:
    line, step, phases = OTHERS[loop]
    found = log_of("\n".join([line] * 4)).medians
    assert found.get("step") == step
    assert {name: found[name] for name in phases} == phases


def test_a_training_log_is_none() -> None:
    with pytest.raises(BadInput, match="timing_s"):
        log_of("iteration 10/100 | elapsed time per iteration (ms): 1234.5")
    assert read_measured("tp8 pp4: 15.2 s")[0].values == {"step_s": 15.2}


def test_diagnosis_says_what_generation_is_made_of(tmp_path: Path) -> None:
    file = tmp_path / "verl.log"
    file.write_text(verl_log())
    found = foretell.diagnose(str(file), model="qwen2.5-7b", system="h100-sxm")
    run = found.to_dict()["runs"][0]
    assert run["said"][0].startswith("generation is 66% of the step: ")
    assert run["said"][0].endswith("is the tail of 256 requests")
    phases = {one["phase"]: one for one in run["phases"]}
    assert phases["gen"]["verdict"] == "slower"
    assert "enforce_eager" in phases["gen"]["check"]
    assert run["measured_s"] == 125.0


def test_a_log_that_does_not_tell_its_job_asks_for_it() -> None:
    line = OTHERS["slime"][0]
    with pytest.raises(BadInput, match="trajectories"):
        foretell.diagnose("\n".join([line] * 3), model="qwen2.5-7b", gpus="8xH100")


def test_a_log_conditions_the_step_that_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "verl.log"
    file.write_text(verl_log())
    asked = {"model": "qwen2.5-7b", "gpus": "8xH100", "prompts": 640, "samples": 8, "osl": 223.1,
             "isl": 116.9, "max_osl": 1024, "framework": "verl"}  # fmt: skip
    before = foretell.post_train(**asked)
    after = foretell.post_train(**asked, measured=[str(file)])
    gaps = [abs(one.step_s / 125.0 - 1.0) for one in (after, before)]
    assert gaps[0] < 0.5 * gaps[1]
    wider = foretell.post_train(**{**asked, "gpus": "16xH100"}, measured=[str(file)])
    assert wider.step_s < after.step_s
