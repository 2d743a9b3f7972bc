"""A batch of systems is its systems one by one; elasticities are slopes, and obey the scaling of seconds."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.catalog.hosts import host_of
from foretell.errors import BadInput
from foretell.inputs.question import ask, plan_of
from foretell.kernels import plan_kernels
from foretell.search import sensitivity as module
from foretell.search.sensitivity import (
    ALL_HARDWARE,
    SOFTWARE,
    STEP,
    batch_of_systems,
    numbers_of,
    sensitivity,
    sensitivity_of,
)
from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario
from foretell.training import exchanges
from foretell.training.answer import answer_of
from tests.builders import make_scenario

QUESTIONS = [
    ("llama-3.1-70b", "h100-sxm", 512, "tp8 pp4 dp16 zero1 mbs1"),
    ("deepseek-v3", "h100-sxm", 2048, "tp1 pp16 ep64 zero1 mbs1 dp128"),
    ("llama-3.1-70b", "tpu-v5p", 512, "tp8 pp4 dp16 zero1 mbs1"),
    ("llama-3.1-8b", "b200-sxm", 8, "dp8 zero3 mbs1 offload=optimizer precision=fp8"),
    ("llama-3.1-8b", "h100-sxm", 64, "cp8 dp8 zero3 mbs1 optimizer=muon recompute=full"),
    ("llama-3.1-8b", "mi300x", 64, "tp8 pp4 vpp2 sp recompute=selective no-flash"),
    ("llama-3.1-8b", "a100-sxm-80gb", 64, "tp2 pp8 mbs1 schedule=zb-h1 recompute=attention"),
    ("llama-3.1-8b", "gb200", 64, "tp8 tp_overlap=on mbs1 recompute=full:2"),
    ("llama-3.1-8b", "perlmutter", 64, "tp4 tp_mode=summa pp2 mbs1 zero1"),
    ("llama-3.1-8b", "h100-sxm", 64, "tp4 pp4 mbs1 framework=nanotron no-fused"),
]
"""Kinds of collectives, chips, recipes and schedules."""


def question(model: str, system: str, gpus: int, words: str) -> tuple[Scenario, Plan]:
    scenario = ask(model=model, system=system, gpus=gpus, plan=words)
    return plan_of(scenario, words)


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda q: f"{q[0]} {q[1]}")
def test_a_batch_of_systems_is_its_systems_one_by_one(asked: tuple[str, str, int, str]) -> None:
    scenario, plan = question(*asked)
    numbers = numbers_of(scenario, plan)
    batch = batch_of_systems(scenario, plan, numbers)
    assert len(batch.plans) == 1 + 3 * len(numbers)
    for i, number in enumerate(numbers):
        for j, factor in enumerate((1.0 - STEP, 1.0 + STEP, number.better)):
            system = number.scaled(scenario.system, factor)
            alone = answer_of(replace(scenario, system=system), plan, chosen=False)
            row = 1 + 3 * i + j
            for name in ("step_s", "energy_joules", "peak_memory_bytes", "tokens_per_s"):
                found, wanted = batch.result(name)[row], getattr(alone, name)
                assert found == pytest.approx(wanted, rel=1e-12), (number.path, factor, name)


def test_elasticities_are_slopes_of_estimates_asked_for_one_by_one() -> None:
    """The whole way from `--set` on, one number at a time."""
    asked: dict[str, Any] = {"system": "h100-sxm", "gpus": 512, "plan": "tp8 pp4 zero1 mbs1"}
    best = foretell.estimate("llama-3.1-70b", **asked)
    found = foretell.sensitivity(best)
    assert found.value == best.step_s
    for path, now in (
        ("chip.memory_bandwidth_bytes_per_s", 3.35e12),
        ("chip.vector_flop_per_s", 66.9e12),
        ("chip.tdp_watts", 700.0),
        ("chip.host_speed", 1.0),
        ("network.node.bandwidth_bytes_per_s", 450e9),
        ("network.cluster.bandwidth_bytes_per_s", 50e9),
        ("network.cluster.latency_s", 5e-6),
    ):
        steps = [
            foretell.estimate("llama-3.1-70b", **asked, set={path: now * f}).step_s
            for f in (1.0 - STEP, 1.0 + STEP)
        ]
        slope = np.log(steps[1] / steps[0]) / np.log((1.0 + STEP) / (1.0 - STEP))
        assert found[path] == pytest.approx(slope, abs=1e-9)


def test_host_speed_is_felt_where_the_host_is_waited_for() -> None:
    scenario, plan = question("gpt2", "h100-sxm", 8, "dp8 mbs1 no-fused")
    found = sensitivity(scenario, plan)
    assert found["chip.host_speed"] < -0.2


def test_energy_rises_with_what_draws_power() -> None:
    best = foretell.estimate("llama-3.1-8b", system="h100-sxm", gpus=64, plan="zero1 mbs1 pp2")
    assert best.energy_joules == pytest.approx(foretell.sensitivity(best, "energy_joules").value)
    with pytest.raises(BadInput, match="step_s"):
        foretell.sensitivity(best, "step")


degrees = st.sampled_from([1, 2, 4])


@settings(max_examples=25, deadline=None)
@given(
    tp=degrees,
    pp=degrees,
    zero=st.integers(0, 3),
    mbs=st.sampled_from([1, 2, 4]),
    recompute=st.sampled_from(["none", "full"]),
    stack=st.sampled_from(["dense", "mixed", "moe", "hybrid"]),
)
def test_elasticities_sum_to_minus_one(
    tp: int, pp: int, zero: int, mbs: int, recompute: Any, stack: str
) -> None:
    """Rates less times, all of them: seconds scale as one over the speed of everything.

    Of the sum, the software's own times are what all of the hardware together leaves; that the single
    numbers make up this whole is Euler's theorem, to the curvature of central differences.
    """
    scenario = off_the_limit(make_scenario(stack, gpus=32, batch=64))
    plan = Plan(tp=tp, pp=pp, dp=32 // tp // pp, zero=zero, micro_batch=mbs, recompute=recompute)
    numbers = numbers_of(scenario, plan)
    found = sensitivity_of(batch_of_systems(scenario, plan, numbers), numbers)
    signs = {"rate": 1.0, "time": -1.0}
    total = sum(signs.get(e.number.kind, 0.0) * e.elasticity for e in found.numbers)
    assert total == pytest.approx(-1.0, abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(
    tp=degrees,
    pp=degrees,
    zero=st.integers(0, 3),
    factor=st.floats(0.25, 8.0),
    stack=st.sampled_from(["dense", "mixed", "hybrid"]),
)
def test_all_rates_and_all_times_scale_the_step(
    tp: int, pp: int, zero: int, factor: float, stack: str
) -> None:
    """With the hardware's and the software's numbers all scaled, the step is scaled exactly: no number
    that seconds come from is missing from the list."""
    scenario = make_scenario(stack, gpus=32, batch=64)
    plan = Plan(tp=tp, pp=pp, dp=32 // tp // pp, zero=zero)
    whole = next(n for n in numbers_of(scenario, plan) if n.path == ALL_HARDWARE)
    faster = renamed(replace(scenario, system=whole.scaled(scenario.system, factor)))
    now = answer_of(scenario, plan, chosen=False)
    with pytest.MonkeyPatch.context() as patch:
        then = answer_of(scale_software(faster, patch, 1.0 / factor), plan, chosen=False)
    assert then.step_s == pytest.approx(now.step_s / factor, rel=1e-9)


def off_the_limit(scenario: Scenario) -> Scenario:
    """3 % more watts: with the chip's own, some mixtures draw just what it may, where slopes have a kink."""
    chip = scenario.system.chip
    more = replace(chip, tdp_watts=1.03 * chip.tdp_watts)
    return replace(scenario, system=replace(scenario.system, chip=more))


def renamed(scenario: Scenario) -> Scenario:
    """The same on a chip of another name: what a shape costs is remembered by its chip."""
    chip = replace(scenario.system.chip, name="with other software")
    return replace(scenario, system=replace(scenario.system, chip=chip))


def scale_software(scenario: Scenario, patch: pytest.MonkeyPatch, by: float) -> Scenario:
    """Fixed times of kernels and of the framework, times a factor."""
    choose = plan_kernels.coefficients

    def chosen(*args: Any) -> Any:
        found = choose(*args)
        return replace(found, record=scaled_times(found.record, by))

    patch.setattr(plan_kernels, "coefficients", chosen)
    patch.setattr(exchanges, "HANDOVER_S", exchanges.HANDOVER_S * by)
    host = host_of(scenario.system)
    slower = {f.name: getattr(host, f.name) * by for f in fields(host) if f.name == "step_s"}
    many = scenario.software.step_operations * by
    system = replace(scenario.system, host=replace(host, **slower))
    software = replace(scenario.software, step_operations=many)
    return replace(scenario, system=system, software=software)


def scaled_times(record: Any, by: float) -> Any:
    """A record with every field in seconds times a factor."""
    assert is_dataclass(record)
    names = [f.name for f in fields(record) if f.name.endswith("_s")]
    return replace(record, **{name: getattr(record, name) * by for name in names})  # type: ignore[type-var]


def test_software_what_if_is_the_step_with_its_times_halved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = make_scenario("dense", gpus=32, batch=64)
    plan = Plan(tp=4, dp=8)
    found = sensitivity(scenario, plan)
    told = next(e for e in found.numbers if e.number.path == SOFTWARE)
    other = scale_software(renamed(scenario), monkeypatch, 0.5)
    halved = answer_of(other, plan, chosen=False).step_s
    assert told.what_if == pytest.approx(halved / found.value, rel=1e-9)
    assert told.what_if < 1.0


def test_order_and_json() -> None:
    scenario, plan = question(*QUESTIONS[0])
    found = sensitivity(scenario, plan)
    apart = [abs(e.elasticity) for e in found.numbers if e.number.kind != "joint"]
    assert apart == sorted(apart, reverse=True)
    record = found.to_dict()
    assert record["value"] == found.value
    paths = {e["path"] for e in record["elasticities"]}
    assert {"chip.clock", "chip.tdp_watts", "network.cluster.latency_s", SOFTWARE} <= paths
    assert ALL_HARDWARE not in paths
    with pytest.raises(KeyError):
        module.batch_of_systems(scenario, plan, numbers_of(scenario, plan)).result("mfu")
