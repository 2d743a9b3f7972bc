"""Context and expert parallelism through the spine: batches, conservation, monotonicity, placement."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.catalog import system as catalog_system
from foretell.errors import Infeasible
from foretell.network.placement import FOLDED, group_counts
from foretell.search.space import enumerate_plans
from foretell.sharding.rules import broken_rules
from foretell.specs.plan import Plan, Plans, batch_of, parse_plan
from foretell.specs.plan_words import ContextMode
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate
from foretell.training.tables import tables_of
from foretell.workload.parameters import count
from tests.builders import STACKS, make_scenario
from tests.properties.test_estimate import faster

MODES: tuple[ContextMode, ...] = ("ring", "allgather", "ulysses")
CASES = [("dense", 16, 32), ("moe", 16, 16), ("hybrid", 16, 16)]


def long(name: str, gpus: int, batch: int) -> Scenario:
    """A scenario whose sequences are long enough for the search to cut them."""
    return make_scenario(name, gpus, batch, seq_len=16384)


def spread_plans(scenario: Scenario, base: Plan, many: int) -> Plans:
    plans = enumerate_plans(scenario, base).plans
    some = np.flatnonzero((plans.cp > 1) | (plans.ep > 1))
    return plans.take(np.random.default_rng(0).choice(some, size=many, replace=False))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "gpus", "batch"), CASES)
def test_a_batch_equals_its_plans_one_by_one(
    name: str, gpus: int, batch: int, mode: ContextMode
) -> None:
    scenario = long(name, gpus, batch)
    plans = spread_plans(scenario, Plan(cp_mode=mode), 40)
    step, peak = evaluate(scenario, plans)
    for row in range(len(plans)):
        alone = evaluate(scenario, batch_of([plans.plan(row)]))
        assert alone[0][0] == pytest.approx(step[row], rel=1e-12)
        assert alone[1][0] == pytest.approx(peak[row], rel=1e-12)


@pytest.mark.parametrize("system", ["dgx-h100", "gb200-nvl72", "tpu-v5p"])
@pytest.mark.parametrize("dispatch", ["alltoall", "dedup"])
def test_a_batch_equals_its_plans_on_real_networks(system: str, dispatch: str) -> None:
    scenario = replace(long("moe", 32, 32), system=catalog_system(system))
    base = Plan(dispatch=dispatch)  # type: ignore[arg-type]
    plans = spread_plans(scenario, base, 25)
    step, _ = evaluate(scenario, plans)
    assert np.isfinite(step).all()
    for row in range(len(plans)):
        assert evaluate(scenario, batch_of([plans.plan(row)]))[0][0] == pytest.approx(
            step[row], rel=1e-12
        )


@pytest.mark.parametrize("mode", MODES)
def test_company_changes_nothing_for_plans_without(mode: ContextMode) -> None:
    """cp 1 and ep 1 are bit for bit the same among plans that have more and among plans that do not."""
    scenario = long("moe", 16, 16)
    plans = enumerate_plans(scenario, Plan(cp_mode=mode)).plans
    plain = np.flatnonzero((plans.cp == 1) & (plans.ep == 1))
    step, peak = evaluate(scenario, plans)
    alone = evaluate(scenario, plans.take(plain))
    np.testing.assert_array_equal(alone[0], step[plain])
    np.testing.assert_array_equal(alone[1], peak[plain])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "gpus", "batch"), CASES)
def test_leaves_sum_to_the_total(name: str, gpus: int, batch: int, mode: ContextMode) -> None:
    scenario = long(name, gpus, batch)
    plans = spread_plans(scenario, Plan(cp_mode=mode), 15)
    for row in range(len(plans)):
        plan = plans.plan(row)
        answer = answer_of(scenario, plan, chosen=False)
        assert answer.breakdown is not None
        leaves = {leaf.name: leaf.value for leaf in answer.breakdown.children}
        assert sum(x.value for x in answer.breakdown.leaves()) == pytest.approx(
            answer.step_s, rel=1e-12
        )
        assert all(value >= 0.0 for value in leaves.values())
        assert ("context_parallel" in leaves) == (plan.cp > 1)
        assert leaves.get("expert_parallel", 0.0) > 0.0 or plan.ep == 1


def held_by_all(scenario: Scenario, plan: Plan) -> float:
    """Weights of all ranks that together hold the model once."""
    plans = batch_of([plan])
    tables = tables_of(scenario, plans)
    stages = stages_of_plans(plans, tables)
    many = tables.stages.multiplicity
    routed = np.zeros(1) if stages.routed is None else stages.routed
    rest = float(((stages.parameters - routed) * many).sum()) * plan.tp
    return rest + float((routed * many).sum()) * plan.ep * plan.etp


@pytest.mark.parametrize("name", list(STACKS))
def test_parameters_are_conserved(name: str) -> None:
    scenario = make_scenario(name)
    whole = count(scenario.model).text
    assert held_by_all(scenario, Plan(cp=4)) == whole
    if name == "moe":
        assert held_by_all(scenario, Plan(dp=8, ep=8)) == whole
        assert held_by_all(scenario, Plan(pp=2, cp=2, dp=4, ep=4, etp=2)) == whole
        cut, spread = (held_by_all(scenario, Plan(tp=4, sp=True, dp=4, ep=ep)) for ep in (1, 16))
        assert spread == cut


@settings(max_examples=20, deadline=None)
@given(
    case=st.sampled_from(CASES),
    mode=st.sampled_from(MODES),
    field=st.sampled_from(["memory_bandwidth_bytes_per_s", "matrix", "links", "latency"]),
    factor=st.floats(1.0, 100.0),
)
def test_better_hardware_is_never_slower(
    case: tuple[str, int, int], mode: ContextMode, field: str, factor: float
) -> None:
    scenario = long(*case)
    plans = spread_plans(scenario, Plan(cp_mode=mode), 60)
    before, _ = evaluate(scenario, plans)
    after, _ = evaluate(faster(scenario, field, factor), plans)
    assert (after <= before * (1 + 1e-12)).all()


def step_and_peak(scenario: Scenario, plan: Plan) -> tuple[float, float]:
    step, peak = evaluate(scenario, batch_of([plan]))
    return float(step[0]), float(peak[0])


def test_more_ranks_hold_less() -> None:
    scenario = long("moe", 16, 16)
    cuts = [step_and_peak(scenario, Plan(dp=16 // cp, cp=cp, zero=0))[1] for cp in (1, 2, 4, 8)]
    assert cuts == sorted(cuts, reverse=True)
    experts = [step_and_peak(scenario, Plan(dp=16, ep=ep, zero=0))[1] for ep in (1, 2, 4, 16)]
    assert experts == sorted(experts, reverse=True)


def test_choices_cost_what_they_say() -> None:
    scenario = make_scenario("moe", 64, 64, seq_len=8192)
    base = Plan(dp=64, ep=16, zero=1)
    plain = step_and_peak(scenario, base)
    for worse in (replace(base, imbalance=1.5), replace(base, capacity=1.5)):
        assert step_and_peak(scenario, worse)[0] > plain[0]
        assert step_and_peak(scenario, worse)[1] > plain[1]
    for better in (replace(base, dispatch="dedup"), replace(base, ep_overlap="on")):
        assert step_and_peak(scenario, better)[0] <= plain[0]


def test_a_ring_hides_what_a_gather_shows() -> None:
    """With long blocks attention covers the sends; a gather of as much stands in the way."""
    scenario = make_scenario("dense", 8, 8, seq_len=65536)
    ring, gather = (
        answer_of(scenario, Plan(cp=8, cp_mode=mode, zero=1), chosen=False).breakdown
        for mode in ("ring", "allgather")
    )
    assert ring is not None
    assert gather is not None
    shown = [
        next(leaf.value for leaf in tree.children if leaf.name == "context_parallel")
        for tree in (ring, gather)
    ]
    assert shown[0] < 0.3 * shown[1]


@pytest.mark.parametrize("order", ["tp,cp,dp,pp", "tp,cp,pp,dp", "pp,tp,cp,dp", "dp,pp,tp,cp"])
def test_folded_groups_have_their_members(order: str) -> None:
    scenario = make_scenario("moe", 64, 64)
    plan = Plan(tp=2, cp=2, pp=2, dp=8, ep=8, etp=2, sp=True, order=tuple(order.split(",")))
    counts = group_counts(batch_of([plan]), scenario.system.network, 64)
    sizes = {"etp": 2, "ep": 8, "edp": 2, "tp": 2, "cp": 2, "pp": 2, "dp": 8}
    for name, size in sizes.items():
        assert counts[name].prod() == size
    assert set(FOLDED) < set(counts)


def test_experts_stand_inside_a_node_where_they_fit() -> None:
    scenario = make_scenario("moe", 64, 64)
    near = group_counts(batch_of([Plan(tp=2, dp=32, ep=8, sp=True)]), scenario.system.network, 64)
    assert near["ep"][:, 0].tolist() == [8.0, 1.0]
    assert near["edp"][:, 0].tolist() == [1.0, 8.0]


@pytest.mark.parametrize(
    ("plan", "rule", "words"),
    [
        (Plan(dp=8, ep=3), "experts", "16 mod 3 = 1"),
        (Plan(dp=8, ep=16), "experts", "must divide tp x cp x dp = 8"),
        (Plan(tp=2, dp=4, ep=4), "experts", "needs sp"),
        (Plan(dp=8, etp=2), "experts", "needs ep > 1"),
        (Plan(tp=2, sp=True, dp=4, ep=2, etp=3), "width", "512 mod 3"),
        (Plan(cp=3, dp=2), "context", "2 cp = 6"),
        (Plan(cp=2, dp=2), "gpus", "tp x pp x dp x cp = 1 x 1 x 2 x 2 = 4"),
        (Plan(cp=8, tp=4, cp_mode="ulysses"), "heads", "tp x cp must divide the heads: 16 mod 32"),
    ],
)
def test_rules_say_what_is_wrong(plan: Plan, rule: str, words: str) -> None:
    found = dict(broken_rules(make_scenario("moe", 8, 16), plan, batch_of([plan])))
    assert words in found[rule]


def test_a_model_without_experts_spreads_none() -> None:
    found = dict(
        broken_rules(make_scenario("dense", 8, 16), Plan(dp=8, ep=8), batch_of([Plan(dp=8, ep=8)]))
    )
    assert "no experts" in found["experts"]


@pytest.mark.parametrize(
    "text",
    [
        "tp4 pp8 dp16 cp2 ep8 zero1 mbs1 sp recompute=none",
        "tp1 pp1 dp8 cp4 zero1 mbs1 recompute=none cp_mode=ulysses",
        "tp1 pp1 dp8 ep8 etp2 zero1 mbs1 recompute=none dispatch=dedup ep_overlap=on",
        "tp1 pp1 dp8 ep8 zero1 mbs1 recompute=none capacity=1.25",
        "tp1 pp1 dp8 ep8 zero1 mbs1 recompute=none imbalance=2",
    ],
)
def test_text_comes_back(text: str) -> None:
    assert str(parse_plan(text)) == text


def test_a_whole_plan_through_the_door() -> None:
    plan = "tp4 cp2 pp8 ep8 etp1 dp32 zero1 mbs1 recompute=full"
    answer = foretell.estimate(
        "deepseek-v3", system="h200-sxm", gpus=2048, global_batch=8192, seq_len=4096, plan=plan
    )
    assert answer.plan == parse_plan(plan)
    assert any("expert parallelism" in text for text in answer.assumptions)
    with pytest.raises(Infeasible, match="must divide the experts"):
        foretell.estimate(
            "deepseek-v3", system="h200-sxm", gpus=2016, global_batch=8064, seq_len=4096,
            plan="pp8 ep7 dp252",
        )  # fmt: skip
