"""Played requests behind `foretell.serve`, and what sizing makes of them."""

import json
from pathlib import Path

import pytest

import foretell
from foretell.api.size import Choice
from foretell.errors import BadInput, Infeasible
from foretell.interop.launch import SERVING, Tool
from foretell.interop.service_write import Serving, write_serving
from foretell.report.presentation.numbers import fact_of
from foretell.specs.deployment import Deployment
from foretell.specs.deployment_text import parse_deployment
from tests.surfaces.command import foretell as command

LOAD = {"system": "h100-sxm", "gpus": 8, "plan": "tp4 weights=fp8", "isl": 1000, "osl": 200}


def test_a_loop_of_requests_meets_the_closed_form() -> None:
    """Lengths that differ a little, as benchmarks draw them: else all requests go in step."""
    for flight in (8, 64):
        load = {**LOAD, "concurrency": flight, "spread": 0.8}
        closed = foretell.serve("llama-3.1-70b", **load)
        played = foretell.serve("llama-3.1-70b", **load, simulate={"requests": 1500})
        assert played.simulated
        assert not closed.simulated
        assert played.tpot_ms.mean == pytest.approx(closed.tpot_ms.mean, rel=0.08)
        assert played.output_tokens_per_s == pytest.approx(closed.output_tokens_per_s, rel=0.08)
        assert played.to_dict().keys() == closed.to_dict().keys()


@pytest.mark.parametrize("load", [{"concurrency": 1}, {"rate": 0.001}], ids=str)
def test_a_request_alone_waits_for_no_prompt(load: dict[str, float]) -> None:
    """Nobody else's prompt is under way: no wait beside the play, and no spread of the first token."""
    asked = {**LOAD, **load, "isl": 50_000}
    closed = foretell.serve("llama-3.1-70b", **asked)
    played = foretell.serve("llama-3.1-70b", **asked, simulate={"requests": 50})
    assert closed.ttft_ms.mean == pytest.approx(played.ttft_ms.mean, rel=0.03)
    assert closed.ttft_ms.p99 < 1.02 * closed.ttft_ms.p50


def test_a_seed_plays_the_same_requests() -> None:
    options = {"arrivals": "gamma", "requests": 300, "seed": 7, "lengths": "lognormal"}
    load = {**LOAD, "rate": 4.0}
    first, second = (foretell.serve("llama-3.1-70b", **load, simulate=options) for _ in range(2))
    assert first == second
    other = foretell.serve("llama-3.1-70b", **load, simulate={**options, "seed": 8})
    assert other.ttft_ms != first.ttft_ms


def test_a_rate_beyond_reach_is_told_and_costs_the_exit_code() -> None:
    done = command(
        "serve", "llama-3.1-70b", "--system", "h100-sxm", "--gpus", "4", "--plan", "tp4 weights=fp8",
        "--isl", "2000", "--osl", "300", "--rate", "40", "--simulate", "--requests", "800", "--json",
    )  # fmt: skip
    found = json.loads(done.out)
    assert done.code == 1
    assert found["simulation"]["queue_grows"]
    assert found["limited_by"].startswith("arrivals")
    shown = foretell.serve(
        "llama-3.1-70b", system="h100-sxm", gpus=4, plan="tp4 weights=fp8", isl=2000, osl=300,
        rate=40, simulate={"requests": 800},
    )  # fmt: skip
    assert "no: saturated, " in repr(shown)


def test_the_ends_shown_beside_a_median_are_around_it() -> None:
    told = {"mean": 400.0, "p50": 100.0}
    shown = fact_of("ttft_ms", told, {"p90": (0.5 * told["mean"], 2.0 * told["mean"])})
    assert shown.ends == pytest.approx((0.5 * told["p50"], told["p50"], 2.0 * told["p50"]))


def test_prompts_and_answers_apart() -> None:
    load = {**LOAD, "gpus": 16, "rate": 6.0}
    options = {"requests": 400, "prefill_plan": "tp2 weights=fp8", "prefill_gpus": 4}
    apart = foretell.serve("llama-3.1-70b", **load, simulate=options)
    together = foretell.serve("llama-3.1-70b", **load, simulate={"requests": 400})
    assert apart.tpot_ms.p99 < together.tpot_ms.p99


def test_common_beginnings_save_prompt_tokens() -> None:
    options = {"requests": 300, "prefixes": 2, "prefix_tokens": 3000}
    found = foretell.serve("llama-3.1-70b", **LOAD, concurrency=4, simulate=options)
    assert found.simulation is not None
    assert found.simulation["prefix_hit_tokens"] > 0.9 * 300 * 3000


def test_a_trace_is_played(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [{"at_s": 0.3 * i, "isl": 400 + i, "osl": 40} for i in range(60)]
    trace.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    found = foretell.serve("llama-3.1-70b", **LOAD, simulate={"arrivals": str(trace)})
    assert found.simulation is not None
    assert found.simulation["answered"] == 60
    assert found.isl == pytest.approx(429.5)
    assert found.rate == pytest.approx(60 / (0.3 * 59))


def test_what_is_wrong_with_a_play_is_told_at_once() -> None:
    options = {"requests": 0, "routing": "best", "lengths": "long", "prefixes": 3, "sed": 1}
    with pytest.raises(BadInput) as told:
        foretell.serve("llama-3.1-70b", **LOAD, concurrency=4, simulate=options)
    assert {problem.path for problem in told.value.problems} == {
        "requests", "routing", "lengths", "prefixes", "sed",
    }  # fmt: skip
    with pytest.raises(BadInput, match="does not go with"):
        foretell.serve("llama-3.1-70b", **LOAD, rate=4.0, simulate={"arrivals": "closed"})


def test_options_of_a_play_without_one() -> None:
    done = command(
        "serve",
        "llama-3.1-70b",
        "--system",
        "h100-sxm",
        "--gpus",
        "8",
        "--seed",
        "3",
        "--ttft",
        "9",
    )
    assert done.code == 2
    assert done.out == ""
    assert "--simulate" in done.err


SERVICE = {"system": "h100-sxm", "rate": 20.0, "isl": 2000, "osl": 300, "plan": "weights=fp8"}


def test_a_sized_service_meets_its_levels_and_less_would_not() -> None:
    found = foretell.size("llama-3.1-70b", **SERVICE, ttft=1500, tpot=30, gpus=16)
    best = found.best
    assert best.meets
    assert best.simulated
    assert best.option.requests_per_s >= 20.0 * 1.2
    assert {choice.option.kind for choice in found.choices} == {"aggregated", "disaggregated"}
    rents = [choice.usd_per_hour for choice in found.choices if choice.meets]
    assert rents == sorted(rents)
    rates = [point.output_tokens_per_s_per_gpu for point in found.pareto]
    users = [point.tpot_ms for point in found.pareto]
    assert rates == sorted(rates)
    assert users == sorted(users)


@pytest.mark.parametrize("simulate", [False, True])
def test_tighter_targets_take_no_fewer_chips(simulate: bool) -> None:
    """And an answer that meets a target is found when that target is asked for."""

    def sized(tpot: float) -> Choice:
        return foretell.size(
            "llama-3.1-70b", **SERVICE, ttft=2000, tpot=tpot, gpus=16, simulate=simulate
        ).best

    found = {tpot: sized(tpot) for tpot in (80.0, 40.0, 30.0, 28.0, 20.0)}
    sizes = [choice.option.gpus for choice in found.values()]
    assert sizes == sorted(sizes)
    for choice in (found[40.0], found[28.0]):
        again = sized(1.0001 * choice.tpot_ms)
        assert again.option.gpus <= choice.option.gpus


def test_a_target_met_by_little_is_borderline() -> None:
    asked = {**SERVICE, "ttft": 2000, "gpus": 8, "simulate": False}
    met = foretell.size("llama-3.1-70b", **asked, tpot=40).best
    close = foretell.size("llama-3.1-70b", **asked, tpot=1.001 * met.tpot_ms).best
    assert close.meets
    assert "TPOT" in close.borderline
    assert close.to_dict()["borderline"] == close.borderline


def test_levels_that_none_meets_say_what_is_reached() -> None:
    with pytest.raises(Infeasible, match="quickest layouts reach"):
        foretell.size("llama-3.1-70b", **SERVICE, ttft=1500, tpot=0.5, gpus=16)


@pytest.mark.parametrize("engine", SERVING)
def test_commands_name_every_degree(engine: Tool) -> None:
    layout = parse_deployment("tp4 dp2 ep8 pp2 kv=fp8 max_tokens=4096", Deployment())
    text = write_serving(engine, Serving(model="some/model", deployment=layout, batch=64)).text
    assert "some/model" in text
    # SGLang's chunk is of all data-parallel ranks together.
    assert ("8192" if engine == "sglang" else "4096") in text
    assert "fp8" in text
    plain = write_serving(engine, Serving(model="some/model", deployment=Deployment(), batch=64))
    assert "None" not in plain.text


@pytest.mark.parametrize("played", [False, True])
@pytest.mark.parametrize("rate", [3.0, 30.0])
def test_options_are_ordered_by_money(played: bool, rate: float) -> None:
    """Of equal money simulated ones first, then those with more headroom that is sure, then the soonest."""
    found = foretell.size(
        "llama-3.1-8b", system="h100-sxm", rate=rate, isl=1000, osl=200, ttft=1000, tpot=20,
        gpus=4, simulate=played, top=40,
    )  # fmt: skip
    told = [
        (not c.meets, c.usd_per_hour, not c.simulated, -round(c.option.sure_per_s / rate, 2),
         c.ttft_ms + c.tpot_ms)
        for c in found.choices
    ]  # fmt: skip
    assert told == sorted(told)
    assert found.best.simulated == played


def test_the_size_verb_gives_json_a_picture_and_a_command(tmp_path: Path) -> None:
    picture = tmp_path / "front.svg"
    words = (
        "size", "llama-3.1-8b", "--system", "h100-sxm", "--rate", "5", "--isl", "500", "--osl", "100",
        "--ttft", "2000", "--tpot", "40", "--gpus", "4", "--export", "vllm", "--plot", str(picture),
        "--json",
    )  # fmt: skip
    done = command(*words)
    assert done.code == 0
    found = json.loads(done.out)
    assert found["gpus"] == found["best"]["gpus"]
    assert found["export"].count("vllm serve") >= 1
    assert picture.read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang"])
def test_stages_meet_the_closed_form(engine: str) -> None:
    """While a prompt is in later stages the first goes on: in the play as in the closed form."""
    load = {**LOAD, "plan": "tp4 pp2", "isl": 4000, "osl": 500, "concurrency": 32, "spread": 0.5}
    closed = foretell.serve("llama-3.1-70b", engine=engine, **load)
    played = foretell.serve("llama-3.1-70b", engine=engine, **load, simulate={"requests": 500})
    assert played.tpot_ms.mean == pytest.approx(closed.tpot_ms.mean, rel=0.1)
    assert played.output_tokens_per_s == pytest.approx(closed.output_tokens_per_s, rel=0.1)


def test_short_answers_meet_the_closed_form() -> None:
    load = {**LOAD, "isl": 300, "osl": 30, "concurrency": 256, "spread": 0.5}
    closed = foretell.serve("llama-3.1-70b", **load)
    played = foretell.serve("llama-3.1-70b", **load, simulate={"requests": 2000})
    assert played.output_tokens_per_s == pytest.approx(closed.output_tokens_per_s, rel=0.1)


@pytest.mark.parametrize("simulate", [False, {"requests": 100}])
def test_fewer_requests_than_instances_leave_some_without_work(simulate: object) -> None:
    """Little's law: no more tokens a second than those in flight can have."""
    load = {"system": "h100-sxm", "plan": "tp1", "isl": 1000, "osl": 100, "simulate": simulate}
    few = foretell.serve("llama-3.1-8b", gpus=16, concurrency=4, **load)
    as_many = foretell.serve("llama-3.1-8b", gpus=4, concurrency=4, **load)
    assert few.concurrency == 4
    assert few.output_tokens_per_s == pytest.approx(as_many.output_tokens_per_s, rel=0.02)
    assert few.usd_per_million_output_tokens == pytest.approx(
        4 * as_many.usd_per_million_output_tokens, rel=0.05
    )


@pytest.mark.parametrize("simulate", [False, {"requests": 200}])
@pytest.mark.parametrize("name", ["bert-large", "llama-3.1-8b"])
def test_one_token_has_no_time_after_it(name: str, simulate: object) -> None:
    found = foretell.serve(
        name, system="h100-sxm", gpus=1, isl=512, osl=1, concurrency=32, simulate=simulate
    )
    assert found.tpot_ms.mean == found.tpot_ms.p99 == 0.0
    assert found.e2e_ms.mean == found.ttft_ms.mean
    inside = found.requests_per_s * found.e2e_ms.mean / 1e3
    assert inside == pytest.approx(32, rel=0.15)
    assert found.limited_by == "prefill"


def test_words_without_effect_are_said() -> None:
    found = foretell.serve("llama-3.1-8b", system="h100-sxm", gpus=2, plan="tp2 ep2", isl=200_000)
    assert any("has no experts" in line for line in found.assumptions)
    assert any("beyond the model's own 131072" in line for line in found.assumptions)


def test_chips_for_answers_are_laid_out_whole() -> None:
    asked = {"system": "h100-sxm", "gpus": 16, "rate": 1.0}
    options = {"requests": 50, "prefill_plan": "tp4", "prefill_gpus": 4}
    with pytest.raises(BadInput) as caught:
        foretell.serve("llama-3.1-70b", **asked, plan="tp8", simulate=options)
    assert [problem.path for problem in caught.value.problems] == ["plan.tp"]
    options["prefill_gpus"] = 8
    found = foretell.serve("llama-3.1-70b", **asked, simulate=options)
    assert (found.plan_chosen, found.prefill_gpus, found.gpus) == (True, 8, 16)


def test_without_a_plan_both_sides_of_prefill_apart_are_laid_out() -> None:
    found = foretell.serve(
        "deepseek-r1", system="h200-sxm", gpus=32, prefill_gpus=16, engine="sglang", rate=2.0
    )
    assert found.plan_chosen
    assert found.prefill_plan.split(" weights")[0] == found.plan.split(" weights")[0]


def test_degrees_that_are_given_hold_in_a_sizing() -> None:
    found = foretell.size(
        "llama-3.1-8b", system="h100-sxm", rate=20.0, isl=500, osl=100, plan="tp2", simulate=False
    )
    assert {choice.option.instance.deployment.tp for choice in found.choices} == {2}


def test_a_model_that_writes_nothing_is_sized_by_its_first_token() -> None:
    found = foretell.size("bert-large", system="h100-sxm", rate=500.0, isl=512, osl=1, top=2)
    assert found.best.meets
    assert found.best.option.kind == "aggregated"
    assert found.to_dict()["best"]["output_tokens_per_s_per_user"] > 0.0


def test_chips_with_stages_draw_no_more_than_they_may() -> None:
    found = foretell.serve(
        "llama-3.1-70b", system="polaris-ss11", gpus=8, plan="tp4 pp2", engine="trtllm",
        isl=1000, osl=200, concurrency=128,
    )  # fmt: skip
    assert found.joules_per_token * found.output_tokens_per_s / 8 < 400.0


def test_a_picture_of_another_kind_is_refused() -> None:
    done = command("size", "llama-3.1-8b", "--system", "h100-sxm", "--rate", "5", "--plot", "x.pdf")
    assert (done.code, done.out) == (2, "")
    assert ".svg" in done.err
