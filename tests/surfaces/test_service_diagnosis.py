"""`foretell diagnose` of services: latencies beside their predictions, causes, what to measure next."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import foretell
from foretell.api.service_diagnosis import ServicesDiagnosis
from foretell.api.serving_questions import question_of
from foretell.serving.corrections import served_slopes
from foretell.serving.serve import serve_one
from foretell.specs.corrections import SERVING, Corrections
from foretell.specs.questions.serving import ServiceQuestion
from tests.surfaces.command import foretell as command

MODEL = "llama-3.1-70b"
LOAD = {"isl": 1024, "osl": 256, "concurrency": 64}
PLACE = {"gpus": "4xH100"}


def benchmark(ttft_ms: float, tpot_ms: float) -> dict[str, object]:
    """A result as `vllm bench serve` prints it."""
    return {
        "backend": "vllm", "num_prompts": 512, "completed": 512, "max_concurrency": 64,
        "total_input_tokens": 512 * 1024, "total_output_tokens": 512 * 256, "request_rate": "inf",
        "output_throughput": 1500.0, "mean_ttft_ms": ttft_ms, "mean_tpot_ms": tpot_ms,
    }  # fmt: skip


def test_a_benchmark_names_its_model(root: Path) -> None:
    file = str(root / "examples" / "vllm_bench.json")
    done = command("diagnose", file, "--gpus", "1xH100")
    assert done.code == 0
    assert re.match(r"TTFT \d+% (above|below) predicted.*: llama-3.1-8b on h100-sxm\n", done.out)


def test_a_benchmark_is_laid_beside_its_prediction(tmp_path: Path) -> None:
    plain = foretell.serve(MODEL, **PLACE, **LOAD, plan="tp4")
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(benchmark(plain.ttft_ms.mean, 1.25 * plain.tpot_ms.mean)))
    names = ["--model", MODEL, "--gpus", "4xH100", "--plan", "tp4", "--json"]
    told = command("diagnose", str(file), *names).json
    first, later = told["runs"]
    assert (first["metric"], later["metric"]) == ("ttft_ms", "tpot_ms")
    assert later["gap"] == pytest.approx(0.25, abs=0.01)
    assert abs(first["gap"]) < 0.02
    assert (later["isl"], later["osl"], later["concurrency"]) == (1024, 256, 64)
    for run in told["runs"]:
        assert 0.5 < sum(cause["probability"] for cause in run["causes"]) <= 1.0 + 1e-9
        assert all(cause["gain"] >= 0.0 and cause["check"] for cause in run["causes"])
    assert told["best_plan"].startswith("tp4")
    assert 0.0 < told["next"]["narrower"] < 1.0
    assert (told["next"]["concurrency"], told["next"]["isl"]) != (64, 1024)


def test_a_text_names_the_load_and_what_was_left_open_is_reported() -> None:
    found = foretell.diagnose("c64 tp4 osl=256: tpot 60 ms", model=MODEL, **PLACE)
    assert isinstance(found, ServicesDiagnosis)
    (one,) = found.runs
    assert (one.concurrency, one.osl, one.isl) == (64.0, 256.0, 1024.0)
    assert any("isl is not stated: 1024 tokens" in note for note in found.notes)
    assert not any("osl is not stated" in note for note in found.notes)


@pytest.mark.parametrize("mechanism", ["decode_weights", "prefill"])
def test_a_slower_mechanism_is_named_where_the_load_shows_it(mechanism: str) -> None:
    """At one request a decode step is its weights; long prompts and short answers are prefill."""
    load = {"decode_weights": (1.0, 128.0, 512.0), "prefill": (8.0, 8192.0, 16.0)}[mechanism]
    at_once, isl, osl = load
    asked = ServiceQuestion(MODEL, **PLACE, plan="tp4", isl=isl, osl=osl, concurrency=at_once)
    q, _ = question_of(asked)
    slow = Corrections(**{mechanism: 1.2})
    from dataclasses import replace

    there = serve_one(replace(q, system=q.system.with_corrections(slow)))
    text = (
        f"c{at_once:.0f} tp4 isl={isl:.0f} osl={osl:.0f}: ttft {there.ttft_ms.mean:.4f} ms, "
        f"tpot {there.tpot_ms.mean:.4f} ms"
    )
    found = foretell.diagnose(text, model=MODEL, **PLACE)
    metric = "tpot_ms" if mechanism == "decode_weights" else "ttft_ms"
    (run,) = (one for one in found.runs if one.metric == metric)
    told = [c.mechanism for c in run.causes if c.mechanism in SERVING]
    assert told[0] == mechanism
    (cause,) = (c for c in run.causes if c.mechanism == mechanism)
    assert cause.factor > 1.05
    assert 0.0 < cause.gain < 0.5


def test_a_smaller_cache_makes_requests_wait() -> None:
    """Where the cache is full its capacity has a slope, elsewhere none."""
    zero = np.zeros(len(SERVING))
    place = SERVING.index("cache_capacity")
    full, free = (
        question_of(ServiceQuestion(MODEL, **PLACE, plan="tp4", isl=4000, osl=500, concurrency=n))
        for n in (1000, 8)
    )
    assert served_slopes(full[0], zero)["ttft_ms"][1][place] < -0.1
    assert served_slopes(free[0], zero)["ttft_ms"][1][place] == 0.0


def test_flags_of_training_are_refused_for_a_service() -> None:
    with pytest.raises(foretell.BadInput) as caught:
        foretell.diagnose("c64 tp4: tpot 60 ms", model=MODEL, **PLACE, seq_len=4096, global_batch=8)
    assert [p.path for p in caught.value.problems] == ["global_batch", "seq_len"]


def test_prefill_apart_has_slopes_to_prefill_and_queueing() -> None:
    """Corrections reach the prefill instances, and at no correction the answer is the plain one's."""
    asked = ServiceQuestion(
        MODEL, gpus="8xH200", plan="tp4", prefill_plan="tp4", prefill_gpus=4, isl=4000, osl=500,
        concurrency=16,
    )  # fmt: skip
    q, _ = question_of(asked)
    value, slopes = served_slopes(q, np.zeros(len(SERVING)))["ttft_ms"]
    assert value == pytest.approx(serve_one(q).ttft_ms.mean)
    assert slopes[SERVING.index("prefill")] > 0.3
    assert slopes[SERVING.index("queueing")] > 0.01
