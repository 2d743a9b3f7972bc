"""Recipes in a plan's text: lists, counted layers, numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.search.plan_checks import check_choices
from foretell.specs.plan import Plan, batch_of, parse_plan, plan_problems, recompute_code
from foretell.specs.plan_forms import (
    FORMS,
    MODULES,
    OFFLOADS,
    offloads,
    recompute_form,
    recompute_layers,
    recompute_modules,
)
from tests.builders import make_scenario

RECOMPUTES = (
    st.sampled_from(["none", "selective", "full"])
    | st.integers(1, 500).map(lambda n: f"full:{n}")
    | st.lists(st.sampled_from(MODULES), unique=True, min_size=1).map("+".join)
)
LISTS = st.lists(st.sampled_from(OFFLOADS), unique=True, min_size=1).map("+".join)


@given(
    RECOMPUTES, st.just("none") | LISTS, st.tuples(*[st.integers(0, 10**6)] * 3), st.booleans(),
    st.sampled_from(["adam", "adam8bit", "adafactor", "muon", "sgd"]),
    st.sampled_from(["tensor", "row", "block"]), st.sampled_from(["auto", "step", "micro-batch"]),
    st.sampled_from(["auto", "fp32", "bf16", "fp16"]), st.sampled_from(["auto", "bf16", "fp8"]),
)  # fmt: skip
def test_recipes_round_trip(
    recompute: str, offload: str, numbers: tuple[int, int, int], reshard: bool, optimizer: str,
    scaling: str, reduce: str, wire: str, gather: str,
) -> None:  # fmt: skip
    text = f"recompute={recompute} offload={offload} optimizer={optimizer} scaling={scaling} "
    text += f"reduce={reduce} wire={wire} gather={gather} {'' if reshard else 'no-'}reshard "
    text += "shard={} secondary={} lora={}".format(*numbers)
    plan = parse_plan(text)
    assert parse_plan(str(plan)) == plan
    assert not plan_problems(plan)
    assert (plan.shard, plan.secondary, plan.lora) == numbers
    assert plan.reshard == reshard
    assert plan.optimizer == optimizer
    assert plan.gather == gather
    assert set(offloads(plan.offload)) == set(offload.split("+")) - {"none"}
    assert batch_of([plan]).plan(0) == plan


def test_one_spelling() -> None:
    assert parse_plan("recompute=norm+core").recompute == "core+norm"
    assert parse_plan("recompute=core").recompute == "selective"
    assert parse_plan("recompute=full:007").recompute == "full:7"
    assert parse_plan("offload=weights+optimizer").offload == "optimizer+weights"
    assert recompute_modules("core+mlp") == ("core", "mlp")
    assert recompute_modules("selective") == ("core",)
    assert recompute_modules("full:3") == recompute_modules("none") == ()
    assert (recompute_layers("full:3"), recompute_layers("full")) == (3, 0)
    assert [recompute_code(t) for t in ("none", "selective", "full", "full:2")] == [0, 1, 2, 3]


@pytest.mark.parametrize(("text", "path", "nearest"), [
    ("recompute=mpl", "plan.recompute", "mlp"), ("recompute=full:0", "plan.recompute", None),
    ("recompute=core+core", "plan.recompute", None), ("recompute=full:x", "plan.recompute", None),
    ("recompute=", "plan.recompute", None), ("recompute=full:", "plan.recompute", None),
    ("recompute=full:²", "plan.recompute", None), ("recompute=none+mlp", "plan.recompute", None),
    ("offload=optimiser", "plan.offload", "optimizer"), ("offload=none+weights", "plan.offload", None),
    ("shard=x", "plan.shard", None), ("lora=-1", "plan.lora", None), ("lora=99999999999", "plan.lora", None),
    ("optimizer=moun", "plan.optimizer", "muon"), ("lroa=8", "plan", "lora"),
])  # fmt: skip
def test_wrong_recipes_are_named(text: str, path: str, nearest: str | None) -> None:
    with pytest.raises(BadInput) as error:
        parse_plan(text)
    assert error.value.problems[0].path == path
    if nearest is not None:
        assert error.value.problems[0].nearest == nearest


@given(st.text(max_size=12))
def test_a_form_is_a_fixed_point(text: str) -> None:
    for form in FORMS.values():
        found = form(text)
        assert found is None or form(found) == found
    assert recompute_form("core+" + text) != "core"


def test_records_that_no_text_gives() -> None:
    for plan in (Plan(recompute="norm+core"), Plan(offload="x"), Plan(lora=-1)):
        assert len(plan_problems(plan)) == 1


@pytest.mark.parametrize("word", ["adapters=qkv", "scaling=row", "lora=8 scaling=block"])
def test_a_word_without_effect_is_refused(word: str) -> None:
    with pytest.raises(BadInput):
        check_choices(make_scenario(), parse_plan(word, 16))


@pytest.mark.parametrize("word", [
    "recompute=selective optimizer=sgd", "lora=8", "lora=8 adapters=qkv", "zero3 shard=2",
    "zero3 secondary=2", "zero3 no-reshard", "reduce=step", "wire=bf16", "zero3 gather=fp8",
    "optimizer=muon", "optimizer=adafactor", "optimizer=adam8bit", "recompute=full:2",
    "recompute=mlp",
])  # fmt: skip
def test_recipes_are_taken(word: str) -> None:
    check_choices(make_scenario(), parse_plan(word, 16))


def test_paged_optimizers_are_states_on_the_host() -> None:
    found = parse_plan("dp1 optimizer=paged-adam8bit")
    assert (found.optimizer, found.offload) == ("adam8bit", "optimizer")
    assert parse_plan(str(found)) == found


@pytest.mark.parametrize("name", ["paged_adamw_8bit", "adamw_8bit", "adamw_bnb_8bit"])
def test_names_of_the_trainer_are_their_optimizer(name: str) -> None:
    assert parse_plan(f"dp1 optimizer={name}") == parse_plan("dp1 optimizer=adam8bit")
    wide = name.replace("_bnb", "").replace("_8bit", "")
    assert parse_plan(f"dp1 optimizer={wide}") == parse_plan("dp1 optimizer=adam")


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("qlora", "lora=16 weights=nf4"),
        ("QLoRA", "lora=16 weights=nf4"),
        ("qlora=8", "lora=8 weights=nf4"),
        ("lora32", "lora=32"),
    ],
)
def test_a_method_is_answered_with_the_words_that_say_it(word: str, words: str) -> None:
    with pytest.raises(BadInput) as told:
        parse_plan(word)
    assert told.value.problems[0].nearest == words
    assert parse_plan(words).lora > 0
