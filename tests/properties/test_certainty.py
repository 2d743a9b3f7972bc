"""Intervals, evidence, energy and clocks of an estimate."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    wider = whole(together, "plain", make_scenario("dense", gpus=4, batch=64)).interval
    assert wider is not None
    assert wider["p90"][0] <= wider["p50"][0] <= together.value
    assert together.value <= wider["p50"][1] <= wider["p90"][1]
    for key in ("p50", "p90"):
        assert wider[key][0] <= together.interval[key][0]
        assert wider[key][1] >= together.interval[key][1]


def test_runs_of_another_kind_are_less_sure() -> None:
    """The same step of a kind that runs were further from."""
    step = leaf("step", 1.0, ("fitted", (0.0,) * 5), None)
    scenario = make_scenario("dense", gpus=4, batch=64)
    widths = [whole(step, kind, scenario).interval for kind in ("plain", "narrow")]
    assert widths[0] is not None
    assert widths[1] is not None
    assert widths[0]["p90"][1] < widths[1]["p90"][1]


def test_software_that_was_seen_on_the_chip_is_surer() -> None:
    """Nothing named is the least sure; evidence is fitted for what was seen on this chip alone."""
    step = leaf("step", 1.0, ("fitted", (0.0,) * 5), None)
    scenario = make_scenario("dense", gpus=4, batch=64, chip=make_chip(id="h100-sxm"))
    found = [
        whole(step, "plain", replace(scenario, software=software(word)))
        for word in ("megatron-core", "primus", "generic")
    ]
    assert [one.evidence for one in found] == ["fitted", "transferred", "transferred"]
    ends = [one.interval["p90"] for one in found if one.interval is not None]
    widths = [high / low for low, high in ends]
    assert widths[0] < widths[1] < widths[2]


def test_a_chip_of_another_maker_without_runs_is_less_sure() -> None:
    """Whether its GEMMs were measured or not: libraries reach less than on the chips of the fits."""
    step = leaf("step", 1.0, ("fitted", (0.0,) * 5), None)
    ends = []
    for maker in ("NVIDIA", "AMD"):
        scenario = make_scenario("dense", gpus=4, batch=64, chip=make_chip(vendor=maker))
        found = whole(step, "plain", replace(scenario, software=software("megatron-core")))
        assert found.interval is not None
        ends.append(found.interval["p90"])
    assert ends[1][0] < ends[0][0]
    assert ends[1][1] > ends[0][1]


def test_a_generation_left_out_is_less_sure() -> None:
    source = "HF Ultra-Scale Playbook nanotron benchmark (copy in gkarfakis19/Rapid-LLM)"
    scenario = make_scenario("dense", gpus=4, batch=64, chip=make_chip(vendor="NVIDIA"))
    ends = []
    for left_out in ((), (source,)):
        run_by = replace(scenario, software=software("nanotron", left_out))
        found = answer_of(run_by, Plan(dp=4, framework="nanotron"), chosen=False)
        assert found.interval is not None
        ends.append(found.interval["p90"][1] / found.step_s)
    assert ends[0] < ends[1]


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
