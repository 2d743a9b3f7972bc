"""Plans that launch: what a framework refuses, how layouts are followed, and which of equals comes first."""

from dataclasses import replace

import numpy as np
import pytest

import foretell
from foretell.api.answers import scenario_of
from foretell.search.frameworks import (
    FAMILIES,
    RULES,
    launchable_with,
    launcher_of,
    refusals,
    runs_on,
)
from foretell.search.leading import NEAR, burden, is_equal
from foretell.sharding.pipeline import stages_of
from foretell.specs.plan import Plan, batch_of, parse_plan
from foretell.specs.plan_forms import even_sizes, layout_form, layout_sizes
from foretell.training.step import evaluate
from tests.surfaces.command import foretell as command

PLACE = {"system": "h100-sxm", "gpus": 512, "global_batch": 1024, "seq_len": 8192}


def estimate(
    plan: str, model: str = "llama-3.1-70b", **more: object
) -> foretell.api.answers.Estimate:
    try:
        return foretell.estimate(model, **{**PLACE, **more}, plan=plan)
    except foretell.Infeasible as error:
        assert error.answer is not None
        return error.answer  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("tp8 pp16 zero1", ()),  # 80 layers
        ("tp4 pp32 zero1", ("layers",)),
        ("tp8 pp4 vpp7 zero1", ("layers",)),
        ("tp16 pp2 zero1", ("kv_heads",)),  # eight key-value heads, before 0.16
        ("tp8 pp4 zero1 schedule=zb-h1", ("schedule",)),
    ],
)
def test_megatron_refuses(words: str, refused: tuple[str, ...]) -> None:
    found = estimate(f"{words} mbs1")
    names = {rule.says: rule.name for rule in RULES["megatron-core"]}
    said = refusals(scenario_of(found), found.plan, "megatron-core@0.14")
    assert tuple(names[text] for text in said) == refused
    # Since 0.16 key-value heads may be copied.
    newer = refusals(scenario_of(found), found.plan, "megatron-core@0.16")
    assert tuple(names[text] for text in newer) == tuple(n for n in refused if n != "kv_heads")


@pytest.mark.parametrize("framework", ["megatron-core@0.14", "torchtitan", "deepspeed"])
def test_a_search_keeps_to_what_its_framework_runs(framework: str) -> None:
    found = foretell.search(
        "llama-3.1-405b", **PLACE | {"gpus": 1024}, plan=f"framework={framework}", top=20
    )
    assert found.plans
    for plan in found.plans:
        assert not refusals(scenario_of(plan), plan.plan, framework)
        assert plan.launchable_with == (framework.partition("@")[0],)
    lost = {name for name in found.rejected if name.startswith(framework.partition("@")[0])}
    assert lost


def test_layers_that_do_not_divide_are_dealt_by_a_word_that_the_export_writes() -> None:
    found = foretell.search(
        "llama-3.1-405b", **PLACE | {"gpus": 1024}, plan="framework=megatron-core tp8 pp16", top=3
    )
    best = found.best
    assert best.plan.layout == layout_form(
        ",".join(map(str, even_sizes(126, best.plan.pp * best.plan.vpp)))
    )
    written = best.export("megatron-core@0.14")
    assert "--pipeline-model-parallel-layout" in written.text
    assert not any("layout" in note for note in written.notes)


def test_a_layout_that_is_the_even_one_changes_nothing() -> None:
    plain, told = estimate("tp8 pp16 zero1 mbs1", "llama-3.1-405b"), None
    word = layout_form(",".join(map(str, even_sizes(126, 16))))
    told = estimate(f"tp8 pp16 zero1 mbs1 layout={word}", "llama-3.1-405b")
    assert (told.step_s, told.peak_memory_bytes) == (plain.step_s, plain.peak_memory_bytes)


def test_a_heavier_stage_takes_longer_and_holds_more() -> None:
    even = estimate("tp8 pp4 zero1 mbs1")
    heavy = estimate("tp8 pp4 zero1 mbs1 layout=17,23,23,17")
    assert heavy.step_s > even.step_s
    assert heavy.peak_memory_bytes > even.peak_memory_bytes * 0.95


@pytest.mark.parametrize(
    ("layout", "pp", "vpp"), [("3,2,2,1", 4, 1), ("3,1,2,2", 2, 2), ("0,8", 2, 1)]
)
def test_stages_have_the_layers_that_a_layout_deals(layout: str, pp: int, vpp: int) -> None:
    sizes = layout_sizes(layout)
    counts, times, _ = stages_of((0,) * 8, 1, pp, vpp, "loop", 0.0, sizes)
    dealt = sorted(np.repeat(counts[:, 0], times.astype(int)).tolist())
    ranks = [sum(sizes[rank + pp * chunk] for chunk in range(vpp)) for rank in range(pp)]
    assert dealt == sorted(map(float, ranks))


@pytest.mark.parametrize("layout", ["40,41", "40,40,0", "x", "1*0"])
def test_a_layout_of_other_layers_or_chunks_is_refused(layout: str) -> None:
    done = command(
        "estimate", "llama-3.1-70b", "--gpus", "64xH100", "--plan", f"tp8 pp2 zero1 layout={layout}"
    )
    assert done.code in (1, 2)
    assert "layout" in done.err


def test_batch_and_single_plans_are_judged_alike() -> None:
    found = estimate("tp8 pp4 zero1 mbs1")
    scenario = scenario_of(found)
    plans = [
        parse_plan(words, 512)
        for words in ("tp8 pp4", "tp8 pp8", "tp4 pp32", "tp8 pp16", "tp16 pp2")
    ]
    for framework in RULES:
        mask, _ = runs_on(scenario, batch_of(plans), framework)
        alone = [not refusals(scenario, dealt(plan, 80), framework) for plan in plans]
        assert mask.tolist() == alone
    for plan in plans:
        assert launchable_with(scenario, plan) == tuple(
            name for name in RULES if not refusals(scenario, plan, name)
        )


def dealt(plan: Plan, layers: int) -> Plan:
    """With the layout that a search writes where stages do not divide the layers."""
    if layers % (plan.pp * plan.vpp) == 0:
        return plan
    sizes = ",".join(map(str, even_sizes(layers, plan.pp * plan.vpp)))
    return replace(plan, layout=layout_form(sizes) or plan.layout)


def test_layers_that_no_stages_divide_are_dealt_and_told() -> None:
    question = {"gpus": "512xH800", "global_batch": 4096, "seq_len": 4096}
    found = foretell.search("deepseek-v3", plan="framework=megatron-core pp16", **question)
    assert found.best.fits == "yes"
    assert sum(layout_sizes(found.best.plan.layout)) == 61
    assert launchable_with(scenario_of(found.best), found.best.plan) == ("megatron-core",)


def test_every_word_for_a_framework_has_rules() -> None:
    assert {launcher_of(word) is not None for word in FAMILIES} == {True}
    assert launcher_of("generic") is None
    assert set(FAMILIES.values()) == set(RULES)


def test_the_simplest_of_equals_comes_first() -> None:
    found = foretell.search(
        "qwen3-32b", system="dgx-h200", gpus=96, global_batch=768, seq_len=4096, top=8
    )
    fastest = min(found.plans, key=lambda plan: plan.step_s)
    assert found.equal[0]
    assert found.best.step_s <= NEAR * fastest.step_s
    assert is_equal(fastest, found.best)
    scenario = scenario_of(found.best)
    lead, rest = (burden(scenario, batch_of([plan.plan]))[0] for plan in (found.best, fastest))
    assert lead <= rest
    assert [plan.step_s for plan in found.plans[1:]] == sorted(
        plan.step_s for plan in found.plans[1:]
    )
    told = found.to_dict()
    assert len(told["equal"]) == len(told["plans"])
    assert all("launchable_with" in plan for plan in told["plans"])


def test_burden_grows_with_kinds_of_parallelism_and_beyond_the_node() -> None:
    scenario = scenario_of(estimate("tp8 pp4 zero1 mbs1"))
    weights = burden(
        scenario,
        batch_of(
            [
                parse_plan(words, 512)
                for words in ("zero3", "tp8", "tp8 pp4", "tp8 pp4 vpp2", "tp16 pp4")
            ]
        ),
    )
    assert list(weights) == sorted(weights)
    assert len(set(weights)) == 5


def test_a_layout_in_a_batch_is_that_of_each_plan_alone() -> None:
    scenario = scenario_of(estimate("tp8 pp4 zero1 mbs1"))
    plans = [
        replace(parse_plan(words, 512), layout="19,21*2,19")
        for words in ("tp8 pp4 zero1", "tp4 pp4 zero1")
    ]
    step, peak = evaluate(scenario, batch_of(plans))
    for at, plan in enumerate(plans):
        one = evaluate(scenario, batch_of([plan]))
        np.testing.assert_allclose((step[at], peak[at]), (one[0][0], one[1][0]), rtol=1e-12)
