"""Each quirk switches what it names and nothing else; corrected forms keep what they must."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.lab.reference import CHIPS, Quirks, StudyChip, evaluate, search
from foretell.lab.reference.rows import Row
from tests.lab.reference.worlds import World, row_of, worlds

DEGREES: Row = {"pp": 8, "dp": 16, "mbs": 1}
PLACES: Row = {"nv_dp": 1, "nv_pp": 2}
PLAN_1D: Row = {"tp": 8, "nv_tp": 4, **DEGREES, **PLACES}
PLAN_2D: Row = {"tp1": 4, "tp2": 2, "nb": 8, "nv_tp1": 4, "nv_tp2": 1, **DEGREES, **PLACES}


def both(
    name: str, plan: Row, strategy: str, model: str = "gpt3_1T", fast_domain: int = 8
) -> tuple[Row, Row]:
    """One plan as published and with one quirk corrected."""
    job: dict[str, Any] = {"model": model, "strategy": strategy, "chip": "a100"}
    job["fast_domain"] = fast_domain
    [published] = evaluate([plan], **job)
    [corrected] = evaluate([plan], **job, quirks=Quirks.corrected(name))
    return published, corrected


def changed(pair: tuple[Row, Row]) -> set[str]:
    return {name for name in pair[0] if pair[0][name] != pair[1][name]}


def real(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, float)
    return value


def test_layernorm_width_is_wrong_by_e_over_l_in_the_pipeline_message() -> None:
    pair = both("layernorm_2d_width", PLAN_2D, "2d")
    plan = {**PLAN_2D, "nv_tp2": 2, "nv_pp": 1}
    slow = both("layernorm_2d_width", plan, "2d")
    latency_s = 2 * 256 * CHIPS["A100"].slow_latency_s
    published, corrected = (real(row, "t_pp_comm") - latency_s for row in slow)
    assert corrected / published == pytest.approx(25600 / 2048, rel=1e-9)
    assert real(pair[1], "acts_mem") > real(pair[0], "acts_mem")
    vit = both("layernorm_2d_width", PLAN_2D, "2d", "vit_era5")
    assert real(vit[1], "acts_mem") < real(vit[0], "acts_mem")
    assert not changed(both("layernorm_2d_width", PLAN_1D, "1d"))


def test_slow_hops_cost_only_the_pipeline_and_its_bubble() -> None:
    pair = both("free_slow_p2p", PLAN_1D, "1d")
    assert {"t_pp_comm", "t_bubble", "t"} <= changed(pair)
    assert not {"t_comp", "t_mem", "t_tp_comm", "t_dp_comm", "mem"} & changed(pair)
    assert real(pair[1], "t_pp_comm") > real(pair[0], "t_pp_comm")
    assert not changed(both("free_slow_p2p", {**PLAN_1D, "nv_pp": 1, "nv_dp": 2}, "1d"))


def test_all_reduce_factor_touches_only_single_tier_groups_of_2d() -> None:
    pair = both("single_tier_all_reduce", PLAN_2D, "2d")
    assert {"t_tp_comm", "t"} <= changed(pair)
    assert not {"t_comp", "t_mem", "t_dp_comm", "t_pp_comm", "mem"} & changed(pair)
    mixed = {**PLAN_2D, "nv_tp1": 2, "nv_tp2": 2}
    assert not changed(both("single_tier_all_reduce", mixed, "2d"))
    assert not changed(both("single_tier_all_reduce", PLAN_1D, "1d"))


def test_no_token_is_dropped_once_corrected() -> None:
    """tp 4 x 16 with b = 2: 64800/64 is not whole, though 2 x 64800/64 is."""
    plan: Row = {**PLAN_2D, "tp1": 4, "tp2": 16, "mbs": 2, "nb": None}
    pair = both("dropped_tokens", plan, "2d-seqp", "vit_era5")
    assert real(pair[1], "t_comp") > real(pair[0], "t_comp")
    assert real(pair[1], "acts_mem") > real(pair[0], "acts_mem")
    assert not changed(both("dropped_tokens", {**plan, "tp2": 8}, "2d-seqp", "vit_era5"))


def test_wired_gpus_share_their_links_and_switched_ones_do_not() -> None:
    halves: Row = {**PLAN_1D, "nv_tp": 2, "nv_pp": 2, "nv_dp": 1}
    pair = both("constant_nvlink", {**halves, "tp": 2}, "1d", fast_domain=4)
    latency_s = 4 * 2.5e-6 * 2 * 256 * 16
    published, corrected = (real(row, "t_tp_comm") - latency_s for row in pair)
    assert corrected == pytest.approx(3 * published, rel=1e-9)  # one of three links, 8 collectives
    whole_domain: Row = {**PLAN_1D, "nv_tp": 4, "nv_dp": 1, "nv_pp": 1}
    assert not changed(both("constant_nvlink", whole_domain, "1d", fast_domain=4))
    assert not changed(both("constant_nvlink", halves, "1d", fast_domain=8))


def test_sharded_inputs_trade_memory_for_an_all_gather() -> None:
    pair = both("gathered_inputs_stored", PLAN_1D, "1d")
    layers_in_flight = 128 // 8 * 8
    shard = 2 * 2048 * 25600 * 2 * (1 - 1 / 8) / 1e9
    saved = real(pair[0], "acts_mem") - real(pair[1], "acts_mem")
    assert saved == pytest.approx(shard * layers_in_flight, rel=1e-9)
    assert real(pair[1], "t_tp_comm") > real(pair[0], "t_tp_comm")
    assert not changed(both("gathered_inputs_stored", PLAN_2D, "2d"))


def test_a_causal_mask_nearly_halves_attention_and_spares_the_vit() -> None:
    pair = both("unmasked_attention", PLAN_1D, "1d")
    assert real(pair[1], "flops_per_gpu") < real(pair[0], "flops_per_gpu")
    assert {"t_comp", "t_bubble", "t"} <= changed(pair)
    assert not {"t_tp_comm", "t_pp_comm", "mem"} & changed(pair)
    assert not changed(both("unmasked_attention", PLAN_1D, "1d", "vit_era5"))


def test_scaled_flops_are_only_reported() -> None:
    pair = both("scaled_vector_flops", PLAN_1D, "1d")
    assert changed(pair) == {"flops_per_gpu"}
    assert real(pair[1], "flops_per_gpu") < real(pair[0], "flops_per_gpu")


def test_the_a100_alone_has_two_parts_figures() -> None:
    assert "t_mem" in changed(both("a100_bandwidth", PLAN_1D, "1d"))
    job = {"model": "gpt3", "strategy": "1d", "fast_domain": 8, "gpus": 64}
    corrected = Quirks.corrected("a100_bandwidth")
    for chip in (CHIPS["H200"], replace(CHIPS["A100"], hbm_bytes_per_s=1e12)):
        published = search(**job, chip=chip)  # type: ignore[arg-type]
        assert search(**job, chip=chip, quirks=corrected) == published  # type: ignore[arg-type]


def test_scattered_rows_cost_less_bias() -> None:
    pair = both("full_bias_1d", PLAN_1D, "1d")
    assert real(pair[1], "t_comp") < real(pair[0], "t_comp")
    assert not {"mem", "t_tp_comm", "t_pp_comm"} & changed(pair)
    assert not changed(both("full_bias_1d", PLAN_2D, "2d-seqp"))


def test_corrected_by_name_or_all() -> None:
    assert Quirks.corrected("free_slow_p2p") == Quirks(free_slow_p2p=False)
    assert not any(getattr(Quirks.corrected(), name) for name in Quirks.names())
    assert len(Quirks.names()) == 10


@settings(max_examples=60, deadline=None)
@given(worlds(), st.sampled_from(["hbm_bytes_per_s", "fast_bytes_per_s", "slow_bytes_per_s"]))
def test_a_faster_part_never_slows_a_plan(world: World, part: str) -> None:
    faster: StudyChip = replace(world.chip, **{part: 2 * getattr(world.chip, part)})
    plan = [row_of(world.plan, world.strategy)]
    [before] = evaluate(plan, **world.question())
    [after] = evaluate(plan, **{**world.question(), "chip": faster})
    # Faster kernels can expose more data-parallel communication, never more than they save.
    assert real(after, "t") <= real(before, "t") * (1 + 1e-12)
