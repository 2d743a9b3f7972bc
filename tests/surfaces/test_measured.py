"""--measured on every surface: the answer moves to what was measured, says before and after, and is surer."""

from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.api.diagnose import diagnose
from foretell.api.measured_files import read_measured
from foretell.errors import BadInput
from tests.surfaces.command import foretell as command

JOB = {"gpus": "512xH100", "global_batch": 1024, "seq_len": 8192}
PLAN = "tp8 pp4 zero1 mbs1"


def test_an_estimate_moves_to_what_was_measured() -> None:
    plain = foretell.estimate("llama-3.1-70b", **JOB, plan=PLAN)
    slow = 1.12 * plain.step_s
    found = foretell.estimate("llama-3.1-70b", **JOB, plan=PLAN, measured=[f"{PLAN}: {slow} s"])
    assert found.step_s == pytest.approx(slow, rel=0.02)
    told = found.to_dict()
    assert told["prior"]["step_s"] == pytest.approx(plain.step_s)
    assert all(f["factor"] > 1.0 for f in told["posterior_factors"].values())
    assert found.breakdown is not None
    assert sum(leaf.value for leaf in found.breakdown.leaves()) == pytest.approx(found.step_s)
    assert "prior" not in plain.to_dict()


def test_rates_and_tables_say_the_same_as_a_time() -> None:
    plain = foretell.estimate("llama-3.1-70b", **JOB, plan=PLAN)
    rate = plain.tokens_per_s_per_gpu / 1.1
    ways = [f"{PLAN}: {1.1 * plain.step_s} s", {"plan": PLAN, "tokens_per_s_per_gpu": rate}]
    steps = {
        round(foretell.estimate("llama-3.1-70b", **JOB, plan=PLAN, measured=[way]).step_s, 6)
        for way in ways
    }
    assert len(steps) == 1


def test_a_search_explanation_simulation_and_memory_answer_given_it() -> None:
    slow = 1.1 * foretell.estimate("llama-3.1-70b", **JOB, plan=PLAN).step_s
    measured = [f"{PLAN}: {slow} s, 45 GiB"]
    best = foretell.search("llama-3.1-70b", **JOB, top=2, measured=measured).best
    assert best.posterior_factors is not None
    assert best.prior is not None
    assert best.step_s > best.prior["step_s"]
    told = foretell.simulate("llama-3.1-70b", **JOB, plan=PLAN, measured=measured)
    assert told.to_dict()["step_s"] == pytest.approx(slow, rel=0.03)
    held = foretell.memory("llama-3.1-70b", **JOB, plan=PLAN, measured=measured)
    plain = foretell.memory("llama-3.1-70b", **JOB, plan=PLAN)
    assert held.estimate.peak_memory_bytes > plain.estimate.peak_memory_bytes


@pytest.mark.parametrize("top", [1, 5, 30])
def test_the_plan_chosen_is_the_first_of_a_search(top: int) -> None:
    """Each plan is ranked by its own factors, however many are shown."""
    measured = ["tp8 pp1 zero1 mbs1 recompute=full: 31 s", "tp2 pp4 zero1 mbs1: 12 s"]
    best = foretell.estimate("llama-3.1-70b", **JOB, measured=measured)
    found = foretell.search("llama-3.1-70b", **JOB, top=top, measured=measured)
    assert str(best.plan) == str(found.best.plan)
    assert best.step_s == found.best.step_s
    assert len(found.plans) <= top
    assert [one.step_s for one in found.plans] == sorted(one.step_s for one in found.plans)


@pytest.mark.parametrize("name", ["allocated_bytes", "reserved_bytes", "peak_memory_bytes"])
def test_memory_is_measured_as_it_was_printed(name: str) -> None:
    """Tensors, what is reserved, or what the process holds: as predicted each says that nothing is off."""
    plain = foretell.estimate("llama-3.1-70b", **JOB, plan=PLAN)
    for factor in (1.0, 1.2):
        row = {"plan": PLAN, "step_s": plain.step_s, name: factor * getattr(plain, name)}
        found = foretell.estimate("llama-3.1-70b", **JOB, plan=PLAN, measured=[row])
        if factor == 1.0:
            assert getattr(found, name) == pytest.approx(getattr(plain, name), rel=1e-6)
        else:
            assert 1.1 < getattr(found, name) / getattr(plain, name) <= 1.25
        low, high = found.intervals[name]["p90"]
        assert low < getattr(found, name) < high


def test_problems_say_which_measurement() -> None:
    with pytest.raises(foretell.BadInput, match="measured 1"):
        foretell.estimate("llama-3.1-70b", **JOB, plan=PLAN, measured=["tp7: 3 s"])


def test_a_step_beyond_the_peak_of_its_chips_is_refused() -> None:
    """At the peak itself it is a measurement; twice as fast is another run."""
    place = {"gpus": "8xH100", "global_batch": 1024, "seq_len": 4096}
    plain = foretell.estimate("llama-3.1-8b", **place, plan="tp1 zero3")
    peak_s = plain.step_s * plain.mfu_causal
    kept = foretell.estimate("llama-3.1-8b", **place, measured=[f"tp1 zero3: {1.01 * peak_s} s"])
    assert kept.posterior_factors is not None
    rows = [
        "tp1 zero3: 50 s",
        f"tp1 zero3: {peak_s / 2} s",
        {"plan": "tp1 zero3", "tflops_per_gpu": 1400},
    ]
    with pytest.raises(foretell.BadInput) as caught:
        foretell.estimate("llama-3.1-8b", **place, measured=rows)
    first, second = caught.value.problems
    assert (first.path, second.path) == ("measured 2: step_s", "measured 3: step_s")
    assert "MFU of 200%" in first.message
    assert "another batch, sequence length, number of GPUs" in first.message


def test_a_service_moves_to_what_was_measured() -> None:
    load = {"gpus": "8xH200", "isl": 4000, "osl": 500, "concurrency": 64, "plan": "tp8"}
    plain = foretell.serve("llama-3.1-70b", **load)
    slow = 1.1 * plain.tpot_ms.mean
    found = foretell.serve("llama-3.1-70b", **load, measured=[f"tp8: tpot {slow} ms"])
    assert plain.tpot_ms.mean < found.tpot_ms.mean <= slow * 1.001
    assert found.to_dict()["prior"]["tpot_ms"]["mean"] == pytest.approx(plain.tpot_ms.mean)


BOOT = """INFO 02-28 03:56:16 [gpu_model_runner.py:3338] Model loading took {weights} GiB memory
INFO 02-28 03:57:01 [gpu_worker.py:349] Available KV cache memory: {cache} GiB
INFO 02-28 03:57:01 [kv_cache_utils.py:1229] GPU KV cache size: {tokens} tokens
"""


def test_a_boot_log_sets_the_cache_and_says_nothing_of_speed(tmp_path: Path) -> None:
    place = {
        "system": "h100-sxm",
        "gpus": 1,
        "plan": "tp1",
        "isl": 1000,
        "osl": 200,
        "concurrency": 32,
    }
    plain = foretell.serve("llama-3.1-8b", **place)
    log = tmp_path / "boot.log"
    cache = 0.9 * plain.kv_bytes / 2**30
    held = {
        "weights": f"{plain.weight_bytes / 2**30:.4f}",
        "tokens": f"{0.9 * plain.kv_cache_tokens:,.0f}",
    }
    log.write_text(BOOT.format(cache=f"{cache:.4f}", **held))
    found = foretell.serve("llama-3.1-8b", **place, measured=[log])
    assert found.kv_bytes == pytest.approx(0.9 * plain.kv_bytes, rel=1e-3)
    assert found.kv_cache_tokens == pytest.approx(0.9 * plain.kv_cache_tokens, rel=1e-3)
    assert found.tpot_ms == plain.tpot_ms
    assert found.interval == plain.interval
    slow = {"tpot_ms": 1.1 * plain.tpot_ms.p50}
    both = foretell.serve("llama-3.1-8b", **place, measured=[log, slow])
    assert both.tpot_ms.p50 > 1.02 * plain.tpot_ms.p50
    assert both.kv_bytes == pytest.approx(found.kv_bytes, rel=1e-3)


def test_a_boot_log_is_of_the_release_that_it_names(tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    first = "INFO 02-28 03:53:49 [core.py:93] Initializing a V1 LLM engine (v0.11.2) with config: dtype=x\n"
    log.write_text(first + BOOT.format(weights=51.4, cache=88.5, tokens="165,712"))
    (row,) = read_measured([log])
    assert row.asked["engine"] == "vllm@0.11.2"
    log.write_text(BOOT.format(weights=51.4, cache=88.5, tokens="165,712"))
    (row,) = read_measured([log])
    assert row.asked["engine"] == "vllm"


@pytest.mark.parametrize(
    ("weights", "times", "named"), [(8.0, 0.9, "weight_bytes"), (15.0, 1.6, "no room")]
)
def test_a_boot_log_of_something_else_is_not_believed(
    tmp_path: Path, weights: float, times: float, named: str
) -> None:
    place = {"system": "h100-sxm", "gpus": 1, "plan": "tp1", "concurrency": 32}
    plain = foretell.serve("llama-3.1-8b", **place)
    log = tmp_path / "boot.log"
    tokens = f"{times * plain.kv_cache_tokens:,.0f}"
    log.write_text(
        BOOT.format(weights=weights, cache=times * plain.kv_bytes / 2**30, tokens=tokens)
    )
    with pytest.raises(BadInput, match=named):
        foretell.serve("llama-3.1-8b", **place, measured=[log])


def test_a_diagnosis_says_causes_and_what_to_measure_next() -> None:
    slow = 1.2 * foretell.estimate("llama-3.1-70b", **JOB, plan=PLAN).step_s
    found = diagnose([f"{PLAN}: {slow} s"], model="llama-3.1-70b", **JOB).to_dict()
    (one,) = found["runs"]
    assert one["gap"] == pytest.approx(0.2)
    assert 0.5 < sum(cause["probability"] for cause in one["causes"]) <= 1.0 + 1e-9
    assert found["next"]["narrower"] > 0.0


def test_calibrated_runs_are_a_system(tmp_path: Path) -> None:
    table, out = tmp_path / "runs.csv", tmp_path / "mine.toml"
    slow = 1.1 * foretell.estimate("llama-3.1-70b", **JOB, plan=PLAN).step_s
    other = {**JOB, "global_batch": 2048}
    also = 1.1 * foretell.estimate("llama-3.1-70b", **other, plan=PLAN).step_s
    rows = [f"{PLAN},512,1024,8192,{slow}", f"{PLAN},512,2048,8192,{also}"]
    table.write_text("\n".join(["plan,gpus,global_batch,seq_len,step_s", *rows]))
    names = ["--model", "llama-3.1-70b", "--system", "h100-sxm"]
    done = command("calibrate", "runs", str(table), *names, "--out", str(out), "--json")
    assert done.json["after"] < 0.03
    told = foretell.estimate(
        "llama-3.1-70b", system=str(out), gpus=512, global_batch=1024, seq_len=8192, plan=PLAN
    )
    assert told.step_s == pytest.approx(slow, rel=0.03)


def test_words_before_a_file_state_what_its_log_does_not(tmp_path: Path) -> None:
    log = tmp_path / "titan.log"
    lines = [
        f"[titan] root - INFO - step: {i}  loss: 8.0  memory: 62.3GiB(78%)  tps: 7,200  "
        "tflops: 398.0  mfu: 40.2%"
        for i in range(1, 21)
    ]
    log.write_text("\n".join(lines))
    place = {"gpus": "8xH100", "seq_len": 8192, "global_batch": 64}
    with pytest.raises(foretell.BadInput, match="its plan is not stated"):
        foretell.search("llama-3.1-8b", **place, measured=[str(log)])
    found = foretell.estimate(
        "llama-3.1-8b", **place, plan="tp2 zero1", measured=[f"zero3 mbs1: {log}"]
    )
    told = foretell.estimate(
        "llama-3.1-8b",
        **place,
        plan="tp2 zero1",
        measured=["zero3 mbs1: 7200 tokens/s/gpu, 62.3 GiB"],
    )
    assert found.step_s == pytest.approx(told.step_s, rel=1e-3)
    with pytest.raises(foretell.BadInput, match="no such file"):
        foretell.search("llama-3.1-8b", **place, measured=["zero3 mbs1: nowhere.log"])


@pytest.mark.parametrize(
    "told", ["400000 s", "1e300 s", "tp2: 9 s, 1e290 GB", {"peak_memory_bytes": 1e300}]
)
def test_numbers_that_cannot_be_of_the_question_are_not_believed(told: Any) -> None:
    with pytest.raises(BadInput, match="is not believed where"):
        foretell.estimate("gpt2", system="h100-sxm", gpus=8, plan="tp2", measured=told)


def test_latencies_that_cannot_be_of_the_service_are_not_believed() -> None:
    load = {"system": "h100-sxm", "gpus": 1, "isl": 128, "osl": 16, "concurrency": 4}
    for told in ("ttft 1e9 ms, tpot 9 ms", {"ttft_ms": 80.0, "tpot_ms": 1e-9}):
        with pytest.raises(BadInput, match="is not believed where"):
            foretell.serve("gpt2", **load, measured=told)
