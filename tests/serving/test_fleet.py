"""Several models, or LoRA adapters, on one fleet: what sharing saves, and what it never does."""

from dataclasses import replace
from typing import Any

import pytest

import foretell
from foretell.api.size import sizing_case
from foretell.api.sizing_choices import SizingCase
from foretell.errors import BadInput, Infeasible
from foretell.serving.colocation import Tenant, shared_layouts, turns, with_share
from foretell.serving.engine_options import batch_limit, different_adapters, held_adapters
from foretell.serving.memory import memory_of
from foretell.specs.deployment import Deployment
from foretell.specs.questions.sizing import SizeQuestion

SMALL: dict[str, Any] = {
    "model": "qwen3-4b",
    "rate": 1.0,
    "isl": 500,
    "osl": 50,
    "ttft": 1000,
    "tpot": 60,
}
CHAT: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "rate": 1.0,
    "isl": 1000,
    "osl": 200,
    "ttft": 1000,
    "tpot": 60,
}


def fleet(*models: dict[str, Any], **flags: Any) -> Any:
    return foretell.fleet({"model": list(models)}, **{"system": "h100-sxm", "gpus": 2, **flags})


def case_of(**flags: Any) -> SizingCase:
    return sizing_case(SizeQuestion(**{**CHAT, "system": "h100-sxm", **flags}))


def tenants(*flags: dict[str, Any]) -> list[Tenant]:
    found = []
    for one in flags:
        case = case_of(**one)
        curve = next(c for c in case.found.curves.together if c.deployment.gpus == 1)
        found.append(Tenant(question=case.question, wanted=case.wanted, curve=curve))
    return found


def test_light_models_share_a_chip_and_meet_their_targets() -> None:
    found = fleet(CHAT, SMALL)
    assert found.gpus == 1 < found.gpus_apart == 2
    assert found.pools[0].models == ("llama-3.1-8b", "qwen3-4b")
    for model in found.models:
        assert model.meets
        assert model.stretch == 2.0
        # A step beside a busy neighbour takes longer than alone.
        assert model.tpot_ms > model.sizing.best.tpot_ms


def test_sharing_never_takes_more_chips_than_apart() -> None:
    for rate in (1.0, 20.0):
        shared = fleet({**CHAT, "rate": rate}, SMALL, simulate=False)
        apart = fleet({**CHAT, "rate": rate}, SMALL, simulate=False, share=False)
        assert shared.gpus <= shared.gpus_apart == apart.gpus
        assert not any(pool.shared for pool in apart.pools)


def test_a_fleet_of_one_is_what_size_says() -> None:
    alone = foretell.size(**CHAT, system="h100-sxm")
    found = fleet(CHAT)
    assert found.gpus == alone.best.option.gpus
    assert found.models[0].ttft_ms == alone.best.ttft_ms
    assert found.usd_per_hour == alone.best.usd_per_hour


def test_tight_targets_keep_models_apart() -> None:
    alone = foretell.size(**CHAT, system="h100-sxm").best
    tight = {**CHAT, "tpot": 1.5 * alone.tpot_ms}
    assert fleet(tight, SMALL).gpus_apart == fleet(tight, SMALL).gpus


def test_shares_of_the_memory_are_one_card() -> None:
    some = tenants(CHAT, SMALL)
    layouts = shared_layouts(some)
    assert layouts is not None
    shares = [layout.memory_fraction or 0.0 for layout in layouts]
    assert sum(shares) == pytest.approx(0.92, rel=1e-6)
    for one, layout in zip(some, layouts, strict=True):
        q = one.question
        assert memory_of(q.model, q.system, layout, q.profile).fits


def test_models_that_do_not_fit_together_do_not_share() -> None:
    large = {"model": "qwen3-32b", "rate": 0.1}
    some = [
        replace(one, curve=replace(one.curve, deployment=Deployment()))
        for one in tenants(CHAT, SMALL)
    ]
    big = case_of(**large)
    some.append(
        Tenant(
            question=big.question,
            wanted=big.wanted,
            curve=replace(some[0].curve, deployment=Deployment()),
        )
    )
    assert shared_layouts(some) is None


def test_more_replicas_never_make_a_shared_step_longer() -> None:
    some = tenants({**CHAT, "rate": 8.0}, {**SMALL, "rate": 20.0})
    layouts = shared_layouts(some)
    assert layouts is not None
    held = [with_share(one, layout) for one, layout in zip(some, layouts, strict=True)]
    ready = [one for one in held if one is not None]
    before = None
    for replicas in (1, 2, 4, 8, 64, 1024):
        now = turns(ready, replicas, "mean")
        if before is not None:
            assert all(a <= b + 1e-9 for a, b in zip(now.stretch, before.stretch, strict=True))
            assert all(a <= b + 1e-9 for a, b in zip(now.tpot_ms, before.tpot_ms, strict=True))
        before = now
    # Hardly any request: each has the chips to itself.
    assert before is not None
    assert max(before.stretch) < 1.1


def test_chips_that_do_not_suffice_are_a_no() -> None:
    assert fleet(CHAT, SMALL, available=8, simulate=False).fits
    assert not fleet({**CHAT, "rate": 100.0}, available=1, simulate=False).fits


def test_all_problems_of_all_tables_come_at_once() -> None:
    with pytest.raises(BadInput) as error:
        fleet({"model": "llama-3.1-8b"}, {"model": "qwen3-4b", "rate": -1, "tpott": 3})
    paths = [problem.path for problem in error.value.problems]
    assert paths == ["model.0.rate", "model.1.tpott", "model.1.rate"]
    assert error.value.problems[1].nearest == "tpot"
    with pytest.raises(BadInput, match=r"model\.0\.model"):
        fleet({"model": "no-such-model", "rate": 1})
    with pytest.raises(Infeasible, match=r"llama-3\.1-8b"):
        fleet({**CHAT, "tpot": 0.01}, SMALL)
    with pytest.raises(BadInput, match=r"\[\[model\]\]"):
        foretell.fleet({})


def test_adapters_of_a_model_are_flags_of_its_table() -> None:
    plain, adapted = fleet(CHAT, simulate=False), fleet({**CHAT, "adapters": 64}, simulate=False)
    assert adapted.models[0].tpot_ms > plain.models[0].tpot_ms
    assert "adapters=64" in adapted.pools[0].plans[0]


@pytest.mark.parametrize("verb", [foretell.serve, foretell.size])
def test_adapters_are_flags_and_words_alike(verb: Any) -> None:
    load = {"isl": 500, "osl": 50, "system": "h100-sxm"}
    more = (
        {"gpus": 1, "concurrency": 8}
        if verb is foretell.serve
        else {"rate": 2.0, "simulate": False, "gpus": 1}
    )
    flags = verb("llama-3.1-8b", **load, **more, plan="tp1", adapters=16, adapter_rank=32)
    words = verb("llama-3.1-8b", **load, **more, plan="tp1 adapters=16 adapter_rank=32")
    plain = verb("llama-3.1-8b", **load, **more, plan="tp1")
    told = [one.to_dict() for one in (flags, words, plain)]
    key = "plan" if verb is foretell.serve else "best"
    assert told[0][key] == told[1][key] != told[2][key]


def test_slots_bound_the_adapters_of_a_batch() -> None:
    profile = case_of().question.profile
    many = Deployment(adapters=200, adapter_slots=8)
    assert held_adapters(many) == 8
    # With a hundred requests of 79 adapters in flight, those of eight run: a tenth.
    limit = batch_limit(many, profile, 100.0)
    assert 10.0 <= limit <= 11.0
    assert float(different_adapters(many, limit)) <= 8.0
    # As many slots as adapters bound nothing, and neither does one adapter.
    assert batch_limit(replace(many, adapter_slots=200), profile, 100.0) == profile.max_batch
    one = Deployment(adapters=1, adapter_slots=1)
    assert batch_limit(one, profile, 100.0) == profile.max_batch
    limits = [
        batch_limit(replace(many, adapter_slots=n), profile, 50.0) for n in (1, 4, 16, 64, 199)
    ]
    assert limits == sorted(limits)
    # The longer the queue, the more of it the filled slots can answer: none is blocked by its head.
    queues = [float(batch_limit(many, profile, n)) for n in (1.0, 10.0, 100.0, 1e3, 1e6)]
    assert queues == sorted(queues)
    assert queues[-1] == profile.max_batch


def test_one_slot_for_three_adapters_serves_a_third_at_once() -> None:
    """vllm/v1/core/sched/scheduler.py: a request whose adapter has no slot is skipped, not waited for."""
    load: dict[str, Any] = {"system": "h100-sxm", "gpus": 1, "concurrency": 30, "plan": "tp1"}
    found = foretell.serve("llama-3.1-8b", **load, adapters=3, adapter_slots=1)
    assert found.batch == pytest.approx(10.0, rel=0.02)
    assert "adapter slots" in found.limited_by


def test_few_slots_cost_throughput_and_save_memory() -> None:
    asked: dict[str, Any] = {
        "system": "h100-sxm",
        "gpus": 1,
        "isl": 500,
        "osl": 100,
        "concurrency": 64,
    }
    every, few = (
        foretell.serve("llama-3.1-8b", **asked, plan="tp1", adapters=100, adapter_slots=slots)
        for slots in (None, 4)
    )
    assert few.output_tokens_per_s < 0.5 * every.output_tokens_per_s
    assert few.weight_bytes < every.weight_bytes
    assert few.ttft_ms.mean > every.ttft_ms.mean
    assert any("requests of other adapters wait" in line for line in few.assumptions)


def test_rank_or_slots_without_adapters_is_an_error() -> None:
    with pytest.raises(BadInput, match="--adapters"):
        foretell.serve("llama-3.1-8b", system="h100-sxm", gpus=1, adapter_slots=4)
