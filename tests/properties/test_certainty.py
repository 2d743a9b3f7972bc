"""Intervals, evidence, energy and clocks of an estimate."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.api.training import estimate
from foretell.catalog import system as catalog_system
from foretell.catalog.software import software
from foretell.specs.plan import Plan
from foretell.specs.result import Leaf, StepEstimate
from foretell.training.answer import answer_of
from foretell.uncertainty.evidence import ORDER, leaf, node, whole
from tests.builders import STACKS, make_chip, make_scenario

SPREAD = (-0.3, -0.1, 0.0, 0.1, 0.3)


def answer(name: str = "dense", plan: Plan | None = None, **chip: object) -> StepEstimate:
    scenario = make_scenario(name, gpus=4, batch=16, chip=make_chip(**chip))
    return answer_of(scenario, plan or Plan(tp=2, dp=2, sp=True), chosen=False)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=8))
def test_many_independent_parts_are_surer_than_one(values: list[float]) -> None:
    parts = [leaf(str(i), v, ("fitted", SPREAD), v) for i, v in enumerate(values)]
    together = node("sum", parts)
    alone = leaf("one", sum(values), ("fitted", SPREAD), None)
    assert together.interval is not None
    assert alone.interval is not None
    for key in ("p50", "p90"):
        low, high = together.interval[key]
        assert low <= together.value <= high
        assert high <= alone.interval[key][1] * (1 + 1e-9)
        assert low >= alone.interval[key][0] * (1 - 1e-9)
    wider = whole(together, make_scenario("dense", gpus=4, batch=64), Plan(dp=4)).interval
    assert wider is not None
    assert wider["p90"][0] <= wider["p50"][0] <= together.value
    assert together.value <= wider["p50"][1] <= wider["p90"][1]


def width(found: Leaf) -> float:
    assert found.interval is not None
    low, high = found.interval["p90"]
    return high / low


def test_more_communication_is_less_sure() -> None:
    """Links err more from one place to another than kernels do."""
    scenario = make_scenario("dense", gpus=4, batch=64, chip=make_chip(architecture="hopper"))
    widths = []
    for share in (0.1, 0.5):
        parts = [
            leaf(name, value, ("fitted", SPREAD), None)
            for name, value in (("gemm", 1.0 - share), ("tensor_parallel", share))
        ]
        widths.append(width(whole(node("step", parts), scenario, Plan(tp=4))))
    assert widths[0] < widths[1]


def test_software_that_was_seen_on_the_chip_is_surer() -> None:
    """Evidence is fitted for what was seen with this kind of model on this generation alone."""
    step = leaf("step", 1.0, ("fitted", (0.0,) * 5), None)
    chip = make_chip(id="h100-sxm", architecture="hopper")
    scenario = make_scenario("dense", gpus=4, batch=64, chip=chip)
    found = [
        whole(step, replace(scenario, software=software(word)), Plan(dp=4))
        for word in ("nemo", "primus", "generic")
    ]
    assert [one.evidence for one in found] == ["fitted", "transferred", "transferred"]
    assert width(found[0]) < min(width(found[1]), width(found[2]))


def test_a_generation_without_runs_is_less_sure() -> None:
    """It is no surer than its kernels and links either."""
    step = node("step", [leaf("gemm", 1.0, ("fitted", (-0.9, -0.3, 0.0, 0.3, 0.9)), None)])
    widths = []
    for generation in ("hopper", "another"):
        chip = make_chip(architecture=generation)
        scenario = make_scenario("dense", gpus=4, batch=64, chip=chip)
        found = whole(step, replace(scenario, software=software("megatron-core")), Plan(dp=4))
        widths.append(width(found))
    assert widths[0] < widths[1]
    assert widths[1] > 3.0


@pytest.mark.parametrize("name", sorted(STACKS))
def test_every_leaf_has_evidence_interval_and_joules(name: str) -> None:
    found = answer(name)
    assert found.breakdown is not None
    for end in found.breakdown.leaves():
        if end.value > 0.0:
            assert end.evidence in ORDER
            assert end.interval is not None
            assert end.interval["p90"][0] <= end.interval["p50"][0] <= end.value
            assert end.value <= end.interval["p50"][1] <= end.interval["p90"][1]
            assert end.joules is not None
            assert end.joules > 0.0
    assert found.interval is not None
    assert found.interval["p90"][0] < found.interval["p50"][0] < found.step_s


def products(found: StepEstimate) -> Leaf:
    assert found.breakdown is not None
    return next(end for end in found.breakdown.leaves() if end.name == "gemm")


def test_less_evidence_is_a_wider_interval() -> None:
    """The same peaks on a chip with tables, on one of the same generation, and on one of no kin."""
    known = replace(make_scenario("dense", gpus=4, batch=16), system=catalog_system("h200-sxm"))
    found = [
        answer_of(known, Plan(tp=2, dp=2, sp=True), chosen=False),
        answer(),
        answer(architecture="nothing-like-it"),
    ]
    leaves = [products(one) for one in found]
    assert [end.evidence for end in leaves] == ["fitted", "transferred", "datasheet"]
    widths = [end.interval["p90"][1] / end.value for end in leaves if end.interval]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3


def test_energy_is_between_idle_and_the_limit() -> None:
    found = answer()
    assert found.energy_joules is not None
    watts = found.energy_joules / found.step_s / found.gpus
    assert 60.0 < watts <= 700.0
    cold = answer(tdp_watts=300.0)
    assert cold.energy_joules is not None
    assert cold.energy_joules / cold.step_s / cold.gpus <= 300.0


def test_a_lower_power_limit_is_never_faster() -> None:
    busy = Plan(tp=2, dp=2, sp=True, micro_batch=8)
    steps = [answer(plan=busy, tdp_watts=w).step_s for w in (1500.0, 700.0, 500.0, 350.0)]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]


@given(st.sampled_from((2, 4, 8)), st.integers(1, 4))
def test_stages_that_nobody_interleaved_may_wait_less(stages: int, many: int) -> None:
    """Where no software is named the low end allows for it, and the high end does not move."""
    place = {"system": "h100-sxm", "gpus": 64, "seq_len": 4096, "global_batch": 64 * many}
    words = f"tp1 pp{stages} zero1 mbs1 recompute=full"
    ends = []
    for more in ("", "vpp2"):
        found = estimate("llama-3.1-8b", **place, plan=f"{words} {more}")
        low, high = found.intervals["step_s"]["p90"]
        ends.append((low / found.step_s, high / found.step_s))
    assert ends[0][0] < ends[1][0]
    assert ends[0][1] < 1.2 * ends[1][1]


def test_recipes_that_not_all_runs_follow_widen_the_interval() -> None:
    """What Megatron-Bridge's recipes set and a user's own may not: said, and inside the interval."""
    place = {"system": "h100-sxm", "gpus": 16, "seq_len": 4096, "global_batch": 128}
    words = "ep16 mbs2 recompute=full framework=megatron-bridge"
    silent = estimate("qwen3-30b-a3b", **place, plan=words)
    told = estimate("qwen3-30b-a3b", **place, plan=f"{words} dispatch=dedup")
    other = estimate("qwen3-30b-a3b", **place, plan=f"{words} dispatch=alltoall")
    assert silent.step_s == told.step_s
    assert any("the interval allows for dispatch=alltoall" in text for text in silent.assumptions)
    narrow, wide = (found.intervals["step_s"]["p90"] for found in (told, silent))
    assert wide != narrow
    assert wide[0] <= narrow[0]
    assert narrow[1] <= wide[1]
    assert wide[0] <= other.step_s <= wide[1]
