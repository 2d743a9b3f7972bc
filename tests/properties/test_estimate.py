"""The spine: one formula for one plan and many, conservation, monotonicity, bounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.catalog import system as catalog_system
from foretell.search.space import Space, enumerate_plans
from foretell.specs.plan import Plan, batch_of
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of
from foretell.training.ledger import Ledger
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate, evaluate_rows
from foretell.training.tables import tables_of
from foretell.training.totals import step_flops
from foretell.workload.parameters import count
from tests.builders import STACKS, make_chip, make_network, make_scenario

CASES = [
    ("dense", 16, 64), ("uneven", 12, 24), ("mixed", 8, 32), ("moe", 8, 16), ("hybrid", 24, 48),
]  # fmt: skip


def space_of(name: str, gpus: int, batch: int, flash: bool = True) -> tuple[Scenario, Space]:
    scenario = make_scenario(name, gpus, batch)
    return scenario, enumerate_plans(scenario, Plan(flash=flash))


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize(("name", "gpus", "batch"), CASES)
def test_a_batch_equals_its_plans_one_by_one(name: str, gpus: int, batch: int, flash: bool) -> None:
    scenario, space = space_of(name, gpus, batch, flash)
    step, peak = evaluate(scenario, space.plans)
    rows = np.random.default_rng(0).choice(len(step), size=min(60, len(step)), replace=False)
    for row in rows:
        alone_step, alone_peak = evaluate(scenario, batch_of([space.plans.plan(int(row))]))
        assert alone_step[0] == pytest.approx(step[row], rel=1e-12)
        assert alone_peak[0] == pytest.approx(peak[row], rel=1e-12)


@pytest.mark.parametrize("system", ["dgx-h100", "perlmutter", "gb200-nvl72", "tpu-v5p"])
def test_a_batch_equals_its_plans_on_real_networks(system: str) -> None:
    """Two and three tiers, a library's candidates, and rings where no library is known."""
    scenario = replace(make_scenario("moe", 24, 48), system=catalog_system(system))
    space = enumerate_plans(scenario, Plan())
    step, peak = evaluate(scenario, space.plans)
    assert np.isfinite(step).all()
    rows = np.random.default_rng(0).choice(len(step), size=25, replace=False)
    for row in rows:
        alone_step, alone_peak = evaluate(scenario, batch_of([space.plans.plan(int(row))]))
        assert alone_step[0] == pytest.approx(step[row], rel=1e-12)
        assert alone_peak[0] == pytest.approx(peak[row], rel=1e-12)


@pytest.mark.parametrize(("name", "gpus", "batch"), CASES)
def test_order_and_company_of_plans_change_nothing(name: str, gpus: int, batch: int) -> None:
    scenario, space = space_of(name, gpus, batch)
    mixed = np.random.default_rng(1).permutation(len(space.plans))
    step, peak = evaluate(scenario, space.plans)
    step_mixed, peak_mixed = evaluate(scenario, space.plans.take(mixed))
    np.testing.assert_allclose(step_mixed, step[mixed], rtol=1e-12)
    np.testing.assert_allclose(peak_mixed, peak[mixed], rtol=1e-12)


@pytest.mark.parametrize(("name", "gpus", "batch"), CASES)
def test_leaves_sum_to_the_total(name: str, gpus: int, batch: int) -> None:
    scenario, space = space_of(name, gpus, batch, flash=False)
    for row in range(0, len(space.plans), max(len(space.plans) // 25, 1)):
        answer = answer_of(scenario, space.plans.plan(row), chosen=False)
        assert answer.breakdown is not None
        assert answer.memory is not None
        assert sum(x.value for x in answer.breakdown.leaves()) == pytest.approx(
            answer.step_s, rel=1e-12
        )
        assert sum(x.value for x in answer.memory.leaves()) == pytest.approx(
            answer.peak_memory_bytes, rel=1e-12
        )
        assert all(x.value >= 0 for x in answer.breakdown.leaves())
        assert max(s.value for s in answer.memory_by_stage) == answer.memory.value


@pytest.mark.parametrize("name", list(STACKS))
def test_one_chip_neither_waits_nor_sends(name: str) -> None:
    scenario = make_scenario(name, gpus=1, batch=4)
    answer = answer_of(scenario, Plan(micro_batch=2), chosen=False)
    assert answer.breakdown is not None
    shares = {leaf.name: leaf.value for leaf in answer.breakdown.children}
    quiet = ("tensor_parallel", "pipeline_parallel", "data_parallel", "bubble", "recompute")
    assert all(shares[name] == 0.0 for name in quiet)
    assert shares["compute"] > 0


def parameters_on_all_ranks(scenario: Scenario, plan: Plan) -> float:
    plans = batch_of([plan])
    tables = tables_of(scenario, plans)
    per_part = tables.parts.parameters[0]
    counts = tables.stages.counts[0] * tables.stages.multiplicity[0][:, None]
    return float((counts * per_part).sum()) * plan.tp


@pytest.mark.parametrize("name", list(STACKS))
def test_parameters_are_conserved_over_stages_and_ranks(name: str) -> None:
    scenario = make_scenario(name)
    whole = count(scenario.model).text
    assert parameters_on_all_ranks(scenario, Plan()) == whole
    assert parameters_on_all_ranks(scenario, Plan(pp=4)) == whole
    cut = parameters_on_all_ranks(scenario, Plan(tp=4, sp=True))
    # Norms, routers and latent down-projections are copied on every rank; nothing is lost.
    assert whole <= cut < 1.25 * whole


def test_a_tied_head_is_a_copy_on_another_stage() -> None:
    untied = make_scenario("dense")
    model = replace(untied.model, head=replace(untied.model.head, tied=True))
    tied = replace(untied, model=model)
    for pp, copies in ((1, 0), (4, 1)):
        plans = batch_of([Plan(pp=pp)])
        held = []
        for scenario in (untied, tied):
            tables = tables_of(scenario, plans)
            stages = stages_of_plans(plans, tables)
            held.append(float((stages.parameters * tables.stages.multiplicity).sum()))
        table = 32000 * 1024
        assert held[1] == held[0] - table + copies * table


@pytest.mark.parametrize(("name", "gpus", "batch"), CASES)
def test_a_step_is_not_faster_than_its_products(name: str, gpus: int, batch: int) -> None:
    scenario, space = space_of(name, gpus, batch, flash=False)
    model_flop, _, _ = step_flops(scenario.model, scenario.job)
    step, _ = evaluate(scenario, space.plans)
    bound = model_flop / (gpus * scenario.system.chip.matrix_flop_per_s["bf16"])
    assert step.min() > bound


def faster(scenario: Scenario, field: str, factor: float) -> Scenario:
    """The same scenario on hardware that is better in one number."""
    chip, network = scenario.system.chip, scenario.system.network
    if field in ("memory_bandwidth_bytes_per_s", "vector_flop_per_s"):
        chip = replace(chip, **{field: getattr(chip, field) * factor})
    elif field == "matrix":
        peaks = {k: v * factor for k, v in chip.matrix_flop_per_s.items()}
        chip = replace(chip, matrix_flop_per_s=peaks)
    else:
        tiers = tuple(
            replace(t, bandwidth_bytes_per_s=t.bandwidth_bytes_per_s * factor)
            if field == "links"
            else replace(t, latency_s=t.latency_s / factor)
            for t in network.tiers
        )
        network = replace(network, tiers=tiers)
    return replace(scenario, system=replace(scenario.system, chip=chip, network=network))


@settings(max_examples=25, deadline=None)
@given(
    case=st.sampled_from(CASES),
    field=st.sampled_from(
        ["memory_bandwidth_bytes_per_s", "vector_flop_per_s", "matrix", "links", "latency"]
    ),
    factor=st.floats(1.0, 100.0),
)
def test_better_hardware_is_never_slower(
    case: tuple[str, int, int], field: str, factor: float
) -> None:
    scenario, space = space_of(*case)
    plans = space.plans.take(slice(0, len(space.plans), 37))
    before, _ = evaluate(scenario, plans)
    after, _ = evaluate(faster(scenario, field, factor), plans)
    assert (after <= before * (1 + 1e-12)).all()


def peaks(scenario: Scenario, plans: list[Plan]) -> list[float]:
    return [float(evaluate(scenario, batch_of([p]))[1][0]) for p in plans]


@pytest.mark.parametrize("name", list(STACKS))
def test_more_sharing_holds_less(name: str) -> None:
    scenario = make_scenario(name, gpus=8, batch=32)
    zeros = peaks(scenario, [Plan(dp=8, zero=z) for z in (0, 1, 2)])
    assert zeros == sorted(zeros, reverse=True)
    modes = peaks(
        scenario,
        [Plan(dp=8, flash=False, recompute=r) for r in ("none", "selective", "full")],
    )
    assert modes == sorted(modes, reverse=True)
    no_sp, with_sp = peaks(scenario, [Plan(tp=4, dp=2), Plan(tp=4, dp=2, sp=True)])
    assert with_sp < no_sp


def rows_of(scenario: Scenario, plan: Plan) -> tuple[Ledger, float, float]:
    plans = batch_of([plan])
    rows = evaluate_rows(scenario, plans, tables_of(scenario, plans))
    return rows, float(rows.step_s[0]), float(rows.bubble_s[0])


def test_equal_stages_follow_the_1f1b_formula() -> None:
    """(mu + pp - 1) t for equal stages, and a bubble v times shorter with v virtual stages."""
    scenario = make_scenario("dense", gpus=4, batch=32)
    scenario = replace(
        scenario,
        model=replace(
            scenario.model,
            embedding=replace(scenario.model.embedding, vocab=0),
            head=replace(scenario.model.head, outputs=0),
            stack=replace(scenario.model.stack, final_norm="none"),
        ),
    )
    rows, one, bubble = rows_of(scenario, Plan(pp=4, zero=0))
    _, _, shorter = rows_of(scenario, Plan(pp=4, vpp=3, schedule="interleaved"))
    busy = one - bubble - rows.fixed_s - rows.seconds.optimizer[0, rows.slowest[0]]
    assert bubble == pytest.approx(busy * 3 / 32, rel=0.02)
    assert shorter == pytest.approx(bubble / 3, rel=0.05)


def test_tapered_or_distant_links_cost_time() -> None:
    slow = make_scenario("dense", gpus=16, network=make_network(outer=5e9))
    fast = make_scenario("dense", gpus=16, network=make_network(outer=50e9))
    plan = Plan(tp=2, dp=8, sp=True)
    assert rows_of(slow, plan)[1] > rows_of(fast, plan)[1]
    # Large enough that the chip is what the layers wait for, not the host.
    inner = Plan(tp=8, dp=2, sp=True, micro_batch=16)
    outer = Plan(tp=8, dp=2, sp=True, micro_batch=16, order=("dp", "tp", "cp", "pp"))
    assert rows_of(fast, outer)[1] > rows_of(fast, inner)[1]


def test_recomputation_raises_hfu_alone() -> None:
    """Model FLOPs are what the model needs: recomputation makes the step longer, and HFU exceed MFU."""
    scenario = make_scenario("dense", gpus=1)
    none, full = (
        answer_of(scenario, Plan(micro_batch=4, recompute=mode), chosen=False)
        for mode in ("none", "full")
    )
    assert none.hfu == none.mfu
    assert full.hfu > full.mfu
    assert full.mfu == pytest.approx(none.mfu * none.step_s / full.step_s, rel=1e-12)


def test_fp8_is_faster_and_needs_the_chip_to_have_it() -> None:
    scenario = make_scenario("dense", gpus=1, chip=make_chip())
    half = rows_of(scenario, Plan(micro_batch=4))[1]
    low = rows_of(scenario, Plan(micro_batch=4, precision="fp8"))[1]
    assert 0.5 * half < low < half
