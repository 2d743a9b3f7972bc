"""The host beside the chip: layers take the longer of both, and some frameworks start them late."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog import system as catalog_system
from foretell.catalog.hosts import usual_host
from foretell.catalog.software import software
from foretell.inputs.software import with_software
from foretell.specs.plan import Plan
from foretell.specs.result import Leaf, StepEstimate
from foretell.specs.scenario import Job
from foretell.training.answer import answer_of
from foretell.training.layer_costs import beside_host
from tests.builders import make_network, make_scenario


def asked(plan: Plan, gpus: int, batch: int = 64, system: str = "aws-p5") -> StepEstimate:
    scenario = make_scenario("dense", gpus=gpus, batch=batch)
    scenario = replace(
        scenario,
        system=catalog_system(system),
        job=Job(gpus=gpus, global_batch=batch, seq_len=2048),
    )
    return answer_of(with_software(scenario, plan), plan, chosen=False)


def part(found: StepEstimate, name: str) -> Leaf:
    assert found.breakdown is not None
    return next(child for child in found.breakdown.children if child.name == name)


@given(st.floats(1e-6, 1.0), st.floats(0.0, 1.0))
def test_a_pass_takes_the_longer_of_both(chip_s: float, host_s: float) -> None:
    both = float(beside_host(np.asarray(chip_s), np.asarray(host_s)))
    assert max(chip_s, host_s) <= both * (1 + 1e-9)
    assert both <= 2.0 ** (1.0 / 6.0) * max(chip_s, host_s) * (1 + 1e-9)


def test_exchanges_hide_behind_a_slow_host() -> None:
    """Slower links between the ranks of tiny layers cost next to nothing where the host is slower still: here
    twice as slow as the measured one."""
    usual = usual_host()
    host = replace(usual, operation_s=2.0 * usual.operation_s, kernel_s=2.0 * usual.kernel_s)
    across = ("dp", "tp", "cp", "pp")
    plan = Plan(tp=2, dp=8, sp=True, fused=False, framework="nanotron", order=across)
    found = []
    for rate in (50e9, 25e9):
        scenario = make_scenario("dense", network=make_network(outer=rate))
        scenario = replace(scenario, system=replace(scenario.system, host=host))
        found.append(answer_of(with_software(scenario, plan), plan, chosen=False))
    fast, slow = (part(one, "tensor_parallel").value for one in found)
    assert slow > 1.3 * fast
    assert part(found[1], "host").value > 0.1 * found[1].step_s
    assert found[1].step_s - found[0].step_s < 0.25 * (slow - fast)


def test_the_tree_still_adds_up() -> None:
    for plan in (
        Plan(tp=2, pp=2, dp=4, sp=True, framework="nanotron", recompute="full"),
        Plan(tp=2, pp=2, dp=4, sp=True, framework="megatron-core", recompute="mlp"),
    ):
        found = asked(plan, 16)
        assert found.breakdown is not None
        total = sum(child.value for child in found.breakdown.children)
        assert total == pytest.approx(found.step_s, rel=0.02)


@pytest.mark.parametrize("zero", [2, 3])
def test_hooks_that_fetch_modules_of_a_layer_are_the_hosts(zero: int) -> None:
    """DeepSpeed's hooks take the host for every layer and micro-batch with ZeRO 3, and never otherwise."""
    plan = Plan(dp=16, zero=zero, framework="deepspeed")
    scenario = with_software(make_scenario("dense", gpus=16, batch=64), plan)
    host, many = usual_host(), software("deepspeed").shared_operations
    assert many > 0.0
    without = replace(scenario, software=replace(scenario.software, shared_operations=0.0))
    step_s, free_s = (answer_of(one, plan, chosen=False).step_s for one in (scenario, without))
    layers, micro_batches = len(scenario.model.stack.layers), 4.0
    hooks_s = layers * micro_batches * many * (host.operation_s + host.kernel_s)
    assert step_s - free_s <= hooks_s * (1 + 1e-9)
    assert step_s >= (hooks_s if zero == 3 else 0.0)
    assert (step_s > free_s) == (zero == 3)


@pytest.mark.parametrize("framework", ["nanotron", "megatron-core", "fsdp2"])
def test_a_slower_host_makes_no_step_shorter(framework: str) -> None:
    """Nor does one that takes no time add anything to what the chips take."""
    plan, usual = Plan(tp=2, dp=8, sp=True, framework=framework), usual_host()
    steps, shares = [], []
    for slower in (0.0, 1.0, 4.0):
        host = replace(
            usual,
            operation_s=slower * usual.operation_s,
            kernel_s=slower * usual.kernel_s,
            collective_s=slower * usual.collective_s,
        )
        scenario = make_scenario("dense", gpus=16, batch=64)
        scenario = replace(scenario, system=replace(scenario.system, host=host))
        found = answer_of(with_software(scenario, plan), plan, chosen=False)
        steps.append(found.step_s)
        shares.append(part(found, "host").value)
    assert steps == sorted(steps)
    assert shares[0] == pytest.approx(0.0, abs=1e-9 * steps[0])
    assert shares[2] > shares[1] > 0.0
