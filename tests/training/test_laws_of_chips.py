"""Laws of every chip and design: k times less of anything never costs more than k times, and a power limit
above the need changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretell.catalog.files import ROOT
from foretell.catalog.technology import technology
from foretell.errors import BadInput, Infeasible
from foretell.inputs.question import ask, plan_of
from foretell.specs.chip import Chip
from foretell.specs.plan import Plan
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of

SYSTEMS = sorted(path.stem for path in (ROOT / "systems").glob("*.toml"))
JOBS = (
    ("gpt3-1.3b", "zero0 mbs1", 1),
    ("llama-3.1-8b", "zero3 mbs1", 8),
    ("llama-3.1-8b", "tp8 sp mbs2", 8),
    ("mixtral-8x7b", "ep8 zero1 mbs1", 16),
)
ROUNDING = 1e-9
Change = Callable[[Scenario, float], Scenario]


@lru_cache(maxsize=256)
def job_of(system: str, model: str, plan: str, gpus: int) -> tuple[Scenario, Plan] | None:
    """The question and its plan; None where the machine cannot run it."""
    place = {"system": system, "gpus": gpus, "global_batch": 4 * gpus, "seq_len": 2048}
    try:
        found = plan_of(ask(model=model, **place), plan, ())
        answer_of(*found, chosen=False)
    except (BadInput, Infeasible):
        return None
    return found


def designed(node: str, area: float, stacks: int) -> dict[str, Any]:
    """The table of a machine of a chip that does not exist."""
    design = {"node": node, "die_area_mm2": area, "memory_stacks": stacks, "tdp_watts": 4000.0}
    return {"id": "own", "chip": {"design": design}}


def with_chip(scenario: Scenario, change: Callable[[Chip], Chip]) -> Scenario:
    system = scenario.system
    return replace(scenario, system=replace(system, chip=change(system.chip)))


def less_arithmetic(scenario: Scenario, times: float) -> Scenario:
    return with_chip(
        scenario,
        lambda chip: replace(
            chip,
            matrix_flop_per_s={n: rate / times for n, rate in chip.matrix_flop_per_s.items()},
            vector_flop_per_s=chip.vector_flop_per_s / times,
            measured_matmul_flop_per_s=chip.measured_matmul_flop_per_s / times,
        ),
    )


def less_memory_bandwidth(scenario: Scenario, times: float) -> Scenario:
    def change(chip: Chip) -> Chip:
        slower = chip.memory_bandwidth_bytes_per_s / times
        return replace(chip, memory_bandwidth_bytes_per_s=slower)

    return with_chip(scenario, change)


def less_link_bandwidth(scenario: Scenario, times: float) -> Scenario:
    network = scenario.system.network
    tiers = tuple(
        replace(tier, bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s / times)
        for tier in network.tiers
    )
    system = replace(scenario.system, network=replace(network, tiers=tiers))
    return replace(scenario, system=system)


LESS = (less_arithmetic, less_memory_bandwidth, less_link_bandwidth)


def costs_at_most(scenario: Scenario, plan: Plan, less: Change, times: float) -> None:
    usual = answer_of(scenario, plan, chosen=False).step_s
    found = answer_of(less(scenario, times), plan, chosen=False).step_s
    assert usual * (1.0 - 1e-6) <= found <= times * usual * (1.0 + ROUNDING)


def limited(scenario: Scenario, plan: Plan, watts: float) -> StepEstimate:
    changed = with_chip(scenario, lambda chip: replace(chip, tdp_watts=watts))
    return answer_of(changed, plan, chosen=False)


@settings(max_examples=60)
@given(st.sampled_from(SYSTEMS), st.sampled_from(JOBS), st.sampled_from(LESS), st.floats(1, 30))
def test_less_of_anything_costs_at_most_as_much_more(
    system: str, job: tuple[str, str, int], less: Change, times: float
) -> None:
    found = job_of(system, *job)
    assume(found is not None)
    assert found is not None
    costs_at_most(*found, less, times)


@settings(max_examples=25)
@given(
    st.sampled_from(sorted(technology().nodes)),
    st.floats(100.0, 800.0),
    st.integers(1, 8),
    st.sampled_from(LESS),
    st.floats(1, 30),
)
def test_the_same_of_chips_that_do_not_exist(
    node: str, area: float, stacks: int, less: Change, times: float
) -> None:
    place = {"system": designed(node, area, stacks), "gpus": 8, "global_batch": 16}
    try:
        found = plan_of(ask(model="llama-3.1-8b", seq_len=2048, **place), "tp8 mbs1", ())
    except BadInput:
        assume(False)
    costs_at_most(*found, less, times)


@settings(max_examples=25)
@given(
    st.sampled_from(sorted(technology().microarchitectures)),
    st.sampled_from(list(pairwise(technology().nodes))),
    st.floats(300.0, 700.0),
    st.floats(1.0, 1.2),
)
def test_a_newer_node_or_a_larger_die_is_never_slower(
    units: str, nodes: tuple[str, str], area: float, larger: float
) -> None:
    """More stacks and wider links may be: they take the edge and the area of cores."""
    steps = []
    for node, mm2 in ((nodes[0], area), (nodes[1], area), (nodes[0], larger * area)):
        machine = designed(node, mm2, 4)
        machine["chip"]["design"]["microarchitecture"] = units
        place = {"system": machine, "gpus": 8, "global_batch": 16, "seq_len": 2048}
        try:
            found = plan_of(ask(model="llama-3.1-8b", **place), "tp8 mbs1", ())
        except BadInput:
            assume(False)
        steps.append(answer_of(*found, chosen=False).step_s)
    assert max(steps[1:]) <= steps[0] * (1.0 + 1e-6)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_limit_above_the_need_changes_neither_time_nor_energy(system: str) -> None:
    found = job_of(system, *JOBS[0])
    if found is None:
        pytest.skip("the smallest job does not run here")
    scenario, plan = found
    watts = scenario.system.chip.tdp_watts
    usual, more, most = (limited(scenario, plan, times * watts) for times in (1.0, 50.0, 400.0))
    assert more.step_s <= usual.step_s
    assert (more.step_s, more.energy_joules) == (most.step_s, most.energy_joules)
