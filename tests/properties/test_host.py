"""The host beside the chip: layers take the longer of both, and some frameworks start them late."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog import system as catalog_system
from foretell.inputs.software import with_software
from foretell.specs.job import Job
from foretell.specs.plan import Plan
from foretell.specs.result import Leaf, StepEstimate
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
    """Slower links between the ranks of tiny layers cost next to nothing where the host is slower still."""
    across = ("dp", "tp", "cp", "pp")
    plan = Plan(tp=2, dp=8, sp=True, fused=False, framework="nanotron", order=across)
    found = [
        answer_of(
            with_software(make_scenario("dense", network=make_network(outer=rate)), plan),
            plan,
            chosen=False,
        )
        for rate in (50e9, 25e9)
    ]
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


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_stages_on_several_nodes_start_late_by_tensor_parallel_ranks(tp: int) -> None:
    """nanotron takes 2.3 ms a rank, layer and micro-batch more than on one node; Megatron-Core nothing."""
    for framework, late_s in (("nanotron", 2.3e-3), ("megatron-core", 0.0)):
        plan = Plan(tp=tp, pp=2, dp=32 // tp, sp=True, framework=framework)
        found = asked(plan, 64, batch=64 * plan.dp)
        layers = 0.5 * 24
        started_s = 64.0 * layers * late_s * tp
        assert found.step_s >= started_s
        if late_s == 0.0:
            assert part(found, "host").value < 0.3 * 64.0 * layers * 2.3e-3 * tp


def test_one_node_starts_no_later() -> None:
    plan = Plan(tp=2, pp=2, dp=2, sp=True, framework="nanotron")
    one, two = asked(plan, 8, batch=128), asked(replace(plan, dp=4), 16, batch=256)
    assert two.step_s > 1.3 * one.step_s
