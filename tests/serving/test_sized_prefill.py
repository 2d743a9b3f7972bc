"""Prefill on other chips in `size`: searched, priced, and beside the best way without them."""

from typing import Any

import pytest

import foretell
from foretell.errors import BadInput

ASKED: dict[str, Any] = {
    "system": "h100-sxm", "rate": 20.0, "isl": 4000, "osl": 400, "ttft": 2000, "tpot": 30, "gpus": 8,
    "simulate": False,
}  # fmt: skip


def sized(**more: Any) -> Any:
    return foretell.size("llama-3.1-70b", **{**ASKED, **more})


def test_prefill_is_on_the_chips_asked_for_and_paid_at_their_rent() -> None:
    found = sized(prefill_gpus="8xB200")
    assert found.choices
    for choice in found.choices:
        o = choice.option
        assert o.kind == "disaggregated"
        assert o.prefill_chip == "b200-sxm"
        assert o.prefill is not None
        assert o.prefill.deployment.gpus <= 8
    best = found.best
    rents = [
        foretell.size("llama-3.1-70b", **{**ASKED, "system": chip}).best
        for chip in ("h100-sxm", "b200-sxm")
    ]
    h100, b200 = (one.usd_per_hour / one.option.gpus for one in rents)
    decode = best.option.gpus - best.option.prefill_gpus
    assert best.usd_per_hour == pytest.approx(h100 * decode + b200 * best.option.prefill_gpus)
    money = [choice.usd_per_hour for choice in found.choices]
    assert money == sorted(money)


def test_the_best_way_without_them_is_reported_beside() -> None:
    found, plain = sized(prefill_gpus="8xB200"), sized()
    assert found.elsewhere.option == plain.best.option
    assert found.to_dict()["without_prefill_chips"]["gpus"] == plain.best.option.gpus
    assert plain.elsewhere is None


def test_a_number_means_the_same_chips() -> None:
    found = sized(prefill_gpus=4)
    for choice in found.choices:
        assert choice.option.prefill is not None
        assert choice.option.prefill.deployment.gpus <= 4
        assert not choice.option.prefill_chip


def test_degrees_of_the_prefill_plan_hold() -> None:
    found = sized(prefill_gpus="8xB200", prefill_plan="tp2")
    assert {choice.option.prefill.deployment.tp for choice in found.choices} == {2}


def test_dearer_prefill_chips_never_make_it_cheaper() -> None:
    rents = [
        sized(prefill_gpus="8xB200", set=(f"prices.usd_per_chip_hour={price}",)).best.usd_per_hour
        for price in (1.0, 4.0)
    ]
    assert rents[0] < rents[1]


def test_a_simulated_split_meets_its_targets() -> None:
    found = sized(prefill_gpus="8xB200", simulate=True, top=2)
    assert found.best.meets
    assert found.best.simulated


def test_an_unknown_chip_is_an_error() -> None:
    with pytest.raises(BadInput):
        sized(prefill_gpus="8xB2000")
