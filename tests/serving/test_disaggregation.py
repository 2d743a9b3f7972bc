"""Prefill and decode on instances of their own: the closed form, the simulation, rows of tables."""

import json
from dataclasses import replace

import numpy as np
import pytest

import foretell
from foretell.catalog import model, system
from foretell.catalog.acceptance import curves
from foretell.catalog.engines import own_version, profile
from foretell.errors import BadInput
from foretell.lab.calibrate.serving_arguments import (
    arguments_of,
    missing_workers,
    worker_layout,
    worker_places,
)
from foretell.lab.calibrate.serving_cases import case_of
from foretell.lab.calibrate.serving_rows import ServingRow, WorkerCells
from foretell.serving.disaggregation import AnswerSide, crowding, joined_s
from foretell.serving.sizing import search_layouts
from foretell.serving.sizing_records import ServiceTargets
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.deployment_text import deployment_text
from tests.surfaces.command import foretell as command

LOAD = {"system": "h100-sxm", "gpus": 16, "plan": "tp4 weights=fp8", "isl": 2000, "osl": 200}


def test_prefill_chips_are_taken_out_before_the_plan_is_checked() -> None:
    done = command(
        "serve", "deepseek-r1", "--system", "h200-sxm", "--simulate", "--gpus", "36",
        "--prefill-gpus", "4", "--plan", "tp8 ep8 weights=nvfp4", "--requests", "64", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["gpus"], found["prefill_gpus"], found["replicas"]) == (36, 4, 4)
    assert found["prefill_plan"].startswith("tp4 ep4")


def test_a_bare_number_is_taken_out_and_a_named_chip_is_added() -> None:
    bare = foretell.serve("llama-3.1-70b", **LOAD, concurrency=16, prefill_gpus=4)
    assert (bare.gpus, bare.replicas, bare.prefill_replicas) == (16, 3, 1)
    named = foretell.serve(
        "llama-3.1-70b", **LOAD, concurrency=16, prefill_gpus="8xB200", prefill_plan="tp2"
    )
    assert (named.gpus, named.replicas, named.prefill_replicas) == (24, 4, 4)
    assert named.prefill_system != named.system
    assert named.usd_per_chip_hour != bare.usd_per_chip_hour


def test_every_side_is_laid_out_whole() -> None:
    with pytest.raises(BadInput) as caught:
        foretell.serve("llama-3.1-70b", **LOAD, prefill_gpus=6, prefill_plan="tp4")
    assert {p.path.partition(".")[0] for p in caught.value.problems} <= {"plan", "prefill_plan"}
    with pytest.raises(BadInput, match="leaves none"):
        foretell.serve("llama-3.1-70b", **LOAD, prefill_gpus=16)
    with pytest.raises(BadInput, match="prefill_gpus"):
        foretell.serve("llama-3.1-70b", **LOAD, prefill_plan="tp4")


@pytest.mark.parametrize("load", [{"concurrency": 8}, {"concurrency": 48}, {"rate": 4.0}], ids=str)
def test_the_closed_form_meets_the_simulation(load: dict[str, float]) -> None:
    asked = {**LOAD, **load, "prefill_gpus": 8, "spread": 0.8}
    closed = foretell.serve("llama-3.1-70b", **asked)
    played = foretell.serve("llama-3.1-70b", **asked, simulate={"requests": 800})
    assert closed.tpot_ms.mean == pytest.approx(played.tpot_ms.mean, rel=0.06)
    assert closed.ttft_ms.mean == pytest.approx(played.ttft_ms.mean, rel=0.1)
    assert closed.prefill_busy is not None
    if closed.prefill_busy < 0.9:  # near there the queue's shape is the simulation's alone
        assert closed.ttft_ms.p50 == pytest.approx(played.ttft_ms.p50, rel=0.12)
    assert closed.output_tokens_per_s == pytest.approx(played.output_tokens_per_s, rel=0.08)


def test_littles_law_holds_over_both_sides() -> None:
    for flight in (1, 16, 400, 4000):
        found = foretell.serve(
            "llama-3.1-70b", **LOAD, concurrency=flight, prefill_gpus=4, prefill_plan="tp2"
        )
        spent = found.ttft_ms.mean + found.tpot_ms.mean * 199
        assert found.requests_per_s * spent / 1e3 == pytest.approx(flight, rel=0.02)


def test_more_prefill_instances_are_never_later() -> None:
    firsts = [
        foretell.serve(
            "llama-3.1-70b", **{**LOAD, "gpus": 8 + n}, rate=3.0, prefill_gpus=n, prefill_plan="tp4"
        ).ttft_ms.mean
        for n in (4, 8, 16)
    ]
    assert firsts == sorted(firsts, reverse=True)


def test_a_queue_without_end_is_refused() -> None:
    with pytest.raises(foretell.Infeasible, match="no end"):
        foretell.serve("llama-3.1-70b", **LOAD, rate=500.0, prefill_gpus=4)


def row_of(**cells: object) -> ServingRow:
    blank = dict.fromkeys(
        ("n_gpus", "tp", "pp", "dp", "ep", "batch", "rate", "isl", "osl", "tokens_per_s",
         "tokens_per_s_per_gpu", "ttft_ms", "tpot_ms", "e2e_ms")
    )  # fmt: skip
    text = dict.fromkeys(("notes", "source", "kv_precision", "version"), "")
    known = {
        "id": "1", "kind": "online_concurrency", "model": "deepseek-ai/DeepSeek-R1", "gpu": "GB200",
        "precision": "fp4", "framework": "dynamo-trt", "batch": 64.0, "isl": 1024.0, "osl": 1024.0,
        "disaggregated": True,
    }  # fmt: skip
    return ServingRow(**{**blank, **text, **known, **cells})


def test_workers_of_a_row_are_read_as_flags_or_as_counts() -> None:
    flag = row_of(
        run="123", prefill=WorkerCells(gpus=4, workers=1, tp=4, ep=4, dp=1),
        decode=WorkerCells(gpus=32, workers=4, tp=8, ep=8, dp=0),
    )  # fmt: skip
    front, back = (worker_layout(flag, side) for side in (flag.prefill, flag.decode))
    assert (front.tp, front.dp, front.ep) == (1, 4, 4)
    assert (back.tp, back.dp, back.ep) == (8, 1, 8)
    count = row_of(
        prefill=WorkerCells(gpus=8, workers=2, tp=4, ep=4, dp=4),
        decode=WorkerCells(gpus=32, workers=1, tp=1, ep=32, dp=32),
    )
    front, back = (worker_layout(count, s) for s in (count.prefill, count.decode))
    assert (front.tp, front.dp) == (1, 4)
    assert (back.tp, back.dp, back.ep) == (1, 32, 32)
    case = case_of(count)
    assert case.prefill is not None
    assert (case.prefill.replicas, case.question.replicas) == (2, 1)
    assert "prefill and decode" in missing_workers(row_of())


def test_drafts_are_the_rows_own_cell_and_never_a_version() -> None:
    plain = {
        "gpu": "B200",
        "framework": "trtllm",
        "disaggregated": False,
        "n_gpus": 8,
        "tp": 8,
        "ep": 8,
    }

    def drafts(**cells: object) -> object:
        return arguments_of(row_of(**plain, **cells))[0].get("speculative")

    assert drafts(version="1.1.0rc2.post2") is None
    assert drafts(speculative="unknown") is None
    assert drafts(speculative="mtp", draft_tokens=2) == "mtp:2"
    assert drafts(speculative="mtp") == "mtp:3"
    assert own_version("dynamo-trt", "0.7.0.post2") == "1.2"
    assert own_version("dynamo-trt", "1.1.0-dev.2") == "1.3"
    assert own_version("dynamo-trt", "1.2.0rc2") == "1.2.0rc2"


def test_acceptance_is_a_curve_and_no_law_of_one_rate() -> None:
    for curve in curves():
        assert 1.0 < curve.tokens[0] < 2.0
        assert all(tokens < 2.0 + i for i, tokens in enumerate(curve.tokens))
        assert curve.kept(0.0) == 0.0
        assert curve.kept(1.0) == pytest.approx(curve.tokens[0] - 1.0)
        assert curve.kept(99.0) == pytest.approx(curve.tokens[-1] - 1.0)
    rates = np.diff([1.0, *next(c for c in curves() if "deepseek-v4-pro" in c.models).tokens])
    assert rates[3] < 0.5 * rates[0] ** 4


@pytest.mark.parametrize("word", ["mtp:3", "eagle3:5", "dspark", "ngram:4"])
def test_drafts_of_a_question_speed_it_up(word: str) -> None:
    asked = {"system": "h200-sxm", "gpus": 8, "plan": "tp8", "concurrency": 4}
    plain = foretell.serve("deepseek-v3", **asked, speculative="no")
    drafted = foretell.serve("deepseek-v3", **asked, speculative=word)
    assert drafted.tpot_ms.mean < plain.tpot_ms.mean
    assert any("drafts" in text for text in drafted.assumptions)
    with pytest.raises(BadInput, match="drafter"):
        foretell.serve("deepseek-v3", **asked, speculative="magic")


@pytest.mark.parametrize("engine", ["trtllm", "vllm", "sglang"])
def test_sizing_and_serving_have_one_time_to_the_first_token(engine: str) -> None:
    """What a search says of a pair of pools is what the same pair answers when it is asked for."""
    place, served = system("h100-sxm"), model("llama-3.1-70b")
    wanted = ServiceTargets(rate=20.0, isl=4000.0, osl=500.0, ttft_ms=3000.0, tpot_ms=40.0)
    own = profile(engine, place.chip, mixture=False)
    found = search_layouts(served, place, Deployment(), own, (wanted, 1.0))
    apart = [one for one in found.options if one.prefill is not None]
    assert len(apart) > 4
    for one in apart[:5]:
        assert one.prefill is not None
        front = one.prefill.deployment
        again = foretell.serve(
            "llama-3.1-70b", system="h100-sxm", isl=4000, osl=500, rate=20.0, engine=engine,
            gpus=one.gpus, plan=deployment_text(one.instance.deployment),
            prefill_plan=deployment_text(front), prefill_gpus=front.gpus * one.prefill_replicas,
        )  # fmt: skip
        assert again.ttft_ms.mean == pytest.approx(one.prefill.ttft_ms, rel=0.04)
        assert again.tpot_ms.mean == pytest.approx(one.instance.tpot_ms, rel=0.02)


def test_requests_of_the_first_waves_come_crowded() -> None:
    def crowd(waves: float, least: float = 0.8) -> float:
        return crowding(Traffic(isl=1.0, osl=1.0, concurrency=1.0, least=least, waves=waves))

    assert crowd(5.0) > crowd(10.0) > crowd(100.0) > 1.0
    assert crowd(10.0, 1.0) > crowd(10.0, 0.8) > crowd(10.0, 0.2) >= 1.0
    assert crowd(1e12) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("batch", "workers", "places"),
    [(144.0, 4, 32), (564.0, 4, 128), (1075.0, 1, 1024), (4301.0, 1, 4096), (666.0, 1, 512),
     (1024.0, 1, None), (384.0, 1, None), (1536.0, 1, None), (2560.0, 1, None), (5.0, 4, None)],
)  # fmt: skip
def test_a_concurrency_a_little_above_a_power_of_two_tells_the_places_of_a_worker(
    batch, workers, places
):
    row = row_of(batch=batch, decode=WorkerCells(gpus=8 * workers, workers=workers))
    assert worker_places(row) == places


def test_requests_beyond_the_places_of_decode_workers_queue():
    """1,075 in flight and places for 1,024: the rest waits 51 / X before its first token."""
    row = row_of(
        batch=1075.0, prefill=WorkerCells(gpus=4, workers=1, tp=4, ep=4, dp=4),
        decode=WorkerCells(gpus=16, workers=1, tp=16, ep=16, dp=16),
    )  # fmt: skip
    asked, said = arguments_of(row)
    assert {"dp16", "max_batch=64", "no-eplb"} <= set(asked["plan"].split())
    assert len(said) == 2
    base = {"system": "gb200", "gpus": 20, "isl": 1024, "osl": 1024, "concurrency": 1075,
            "engine": "trtllm", "prefill_gpus": 4, "prefill_plan": "dp4 ep4"}  # fmt: skip
    free, held = (
        foretell.serve("deepseek-r1", plan=f"dp16 ep16 weights=nvfp4{words}", **base)
        for words in ("", " max_batch=64")
    )
    waits = 51.0 / held.requests_per_s
    assert held.ttft_ms.mean / 1e3 > 0.8 * waits
    assert held.ttft_ms.mean > free.ttft_ms.mean
    assert held.tpot_ms.mean < free.tpot_ms.mean


def test_passing_requests_on_delays_first_tokens_alone():
    """By what it takes, whatever the step."""
    chips = system("h200-sxm")
    plain, slow = (replace(profile("sglang", chips.chip), handover_s=took) for took in (0.0, 0.2))
    answers = [
        joined_s(p, AnswerSide(n=np.array(4.0), step_s=np.array(0.01), tpot_s=np.array(0.01),
                               rate=np.array(1.0)))
        for p in (plain, slow)
    ]  # fmt: skip
    assert float(answers[1] - answers[0]) == pytest.approx(0.2)
