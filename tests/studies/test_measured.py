"""Systems compared given measured runs of one of them."""

import pytest

import foretell
from foretell.errors import BadInput

STEP = {"model": "llama-3.1-8b", "global_batch": 256, "seq_len": 4096, "plan": "zero2 mbs1"}


def test_a_slow_run_slows_its_system_and_less_the_other() -> None:
    pair = ["h100-sxm", "a100-sxm-80gb"]
    plain = foretell.compare(pair, **STEP, gpus=64)
    slow = (
        1.4 * next(one for one in plain.kinds if one.system == "h100-sxm").works[0].facts["step_s"]
    )
    found = foretell.compare(pair, **STEP, gpus=64, measured=[f"zero2 mbs1: {slow} s"])
    facts = {one.system: one.works[0].facts for one in found.kinds}
    moved = {name: told["step_s"] / told["prior"]["step_s"] for name, told in facts.items()}
    assert moved["h100-sxm"] > moved["a100-sxm-80gb"] > 1.0
    assert "gemm" in facts["h100-sxm"]["posterior_factors"]
    assert any("measured runs of h100-sxm" in said for said in found.assumptions)


def test_a_service_is_conditioned_too() -> None:
    found = foretell.compare(
        ["h100-sxm"], model="llama-3.1-8b", gpus=8, isl=1024, osl=256, concurrency=64, plan="tp1",
        measured=["gpus=1 c8 tp1: ttft 60 ms, tpot 14 ms"],
    )  # fmt: skip
    facts = found.kinds[0].works[0].facts
    assert facts["prior"]["tpot_ms"]["mean"] != pytest.approx(facts["tpot_ms"])


def test_a_budget_needs_the_chips_that_were_measured() -> None:
    with pytest.raises(BadInput, match="say how many were measured"):
        foretell.compare(["h100-sxm"], **STEP, budget="10M", measured=["zero2 mbs1: 3 s"])
