"""Room in memory: what software does where a plan does not say, and only there."""

import pytest

import foretell
from foretell.api.answers import Estimate
from foretell.errors import Infeasible
from foretell.report.presentation.verbs import presentation

QUESTION = {
    "model": "llama-3.1-70b",
    "system": "h100-sxm",
    "gpus": 64,
    "global_batch": 128,
    "seq_len": 8192,
}
TIGHT = "tp4 pp4 zero1 mbs2"


def answer(plan: str, **changes: object) -> Estimate:
    """An estimate, of plans that do not fit too."""
    try:
        return foretell.estimate(**{**QUESTION, **changes, "plan": plan})
    except Infeasible as error:
        assert isinstance(error.answer, Estimate)
        return error.answer


def test_a_plan_without_software_is_taken_word_for_word() -> None:
    found = answer(TIGHT)
    assert (found.fits, found.plan.recompute) == ("no", "none")


def test_software_makes_room_where_the_plan_does_not_say() -> None:
    found = answer(f"{TIGHT} framework=megatron-core")
    said = answer(f"{TIGHT} framework=megatron-core recompute=none")
    assert (said.fits, said.plan.recompute, said.plan.offload) == ("no", "none", "none")
    assert found.fits != "no"
    assert (found.plan.recompute, found.plan.offload) != ("none", "none")
    assert any("would not fit otherwise" in text for text in found.assumptions)
    # What is printed is the same plan, and makes no room again.
    again = answer(str(found.plan))
    assert (again.plan, again.step_s) == (found.plan, found.step_s)


def test_room_is_made_by_what_costs_least() -> None:
    found = answer(f"{TIGHT} framework=megatron-core")
    for words in ("recompute=full", "recompute=full offload=activations", "recompute=mlp+act+norm"):
        other = answer(f"{TIGHT} framework=megatron-core {words}")
        assert other.fits == "no" or found.step_s <= other.step_s * (1 + 1e-9)


def test_what_fits_stays_as_it_is() -> None:
    found = answer("tp8 pp4 zero1 mbs1 framework=megatron-core")
    assert (found.fits, found.plan.recompute, found.plan.offload) == ("yes", "none", "none")


@pytest.mark.parametrize("word", ["fsdp", "transformers", "torchtitan"])
def test_only_what_the_software_has_is_tried(word: str) -> None:
    found = answer(f"zero3 mbs4 framework={word}", gpus=64, global_batch=256)
    assert found.plan.offload == "none"
    assert found.plan.recompute in {
        "none",
        "products",
        "full",
        *(f"full:{n}" for n in range(1, 80)),
    }


def test_a_plan_that_never_fits_has_all_its_numbers() -> None:
    found = answer("tp1 framework=megatron-core", gpus=8, global_batch=8)
    assert found.fits == "no"
    assert found.plan.recompute == "none"
    assert found.step_s > 0.0
    assert found.breakdown is not None
    assert found.memory is not None


def headline(found: Estimate) -> tuple[str, ...]:
    shown = presentation("estimate", found.to_dict())
    return shown.title, *shown.lines


def test_what_the_framework_refuses_is_not_filled_in() -> None:
    words = f"{TIGHT} framework=megatron-core"
    found = answer(words)
    assert found.plan.pp > 1
    assert found.plan.offload == "none"  # Megatron hands no activations to the host with stages
    said = answer(f"{words} offload=activations recompute=none")
    assert any("host" in text for text in said.refusals)
    assert said.assumptions[0].startswith("megatron-core cannot run this plan: ")
    assert headline(said)[0].startswith("megatron-core cannot run this plan: ")
    assert found.refusals == ()


def test_the_headline_says_what_was_filled_in() -> None:
    """Of Llama 3 405B nothing: stages are interleaved only if asked for."""
    words = "tp8 pp16 dp128 zero2 framework=megatron-core"
    place = {"model": "llama-3.1-405b", "gpus": 16384, "global_batch": 2048}
    found = answer(words, **place)
    assert found.plan.vpp == 1
    assert found.filled_in == ()
    full = answer(f"{TIGHT} framework=fsdp")
    assert full.filled_in
    assert f"(as given; filled in: {' '.join(full.filled_in)})" in headline(full)[-1]
    assert found.refusals == ()
    again = answer(str(found.plan), **place)
    assert again.filled_in == ()
    assert headline(again)[-1].endswith("(as given)")
    assert again.step_s == found.step_s
