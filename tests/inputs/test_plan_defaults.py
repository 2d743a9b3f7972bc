"""Software makes the choices that a plan leaves open; words of the plan win; the answer says both."""

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.catalog.hosts import usual_host
from foretell.catalog.software import families, family_releases, software, software_names
from foretell.errors import BadInput
from foretell.inputs.plan_defaults import stated_fields
from foretell.inputs.question import ask, plan_of
from foretell.specs.plan import BY_SOFTWARE, Plan, parse_plan
from foretell.specs.plan_words import GENERIC
from foretell.specs.scenario import Scenario
from tests.surfaces.command import TOY
from tests.surfaces.command import foretell as command
from tests.web.client import client

TOY_MODEL: Any = TOY
SOURCE = Path(foretell.__file__).parent
ENGINE = "training kernels sharding schedules search simulation serving uncertainty network workload".split()
"""Rooms that get their software as a record."""
OPEN: dict[str, list[str]] = {
    "fused": ["fused", "no-fused"],
    "flash": ["flash", "no-flash"],
    "attention": ["attention=auto", "attention=fa2", "attention=cudnn"],
    "gradients": ["gradients=fp32", "gradients=bf16"],
    "recompute": ["recompute=none", "recompute=full", "recompute=mlp"],
    "sp": ["sp", "no-sp"],
    "dispatch": ["dispatch=dedup"],
}
"""Words for what software may state."""


def question(plan: str, system: str = "h100-sxm", gpus: int = 8, **more: Any) -> Scenario:
    return ask(model=TOY_MODEL, system=system, gpus=gpus, plan=plan, **more)


WORD = st.sampled_from(software_names())
CHIP = st.sampled_from(["h100-sxm", "a100-sxm-80gb", "mi300x", "tpu-v5p"])
SAID = st.lists(st.sampled_from(sorted(OPEN)), unique=True)


@settings(max_examples=120, deadline=None)
@given(
    WORD, CHIP, SAID, st.sampled_from(["tp1", "tp2"]), st.sampled_from(["bf16", "fp32"]), st.data()
)
def test_choices_are_the_records_unless_stated(
    word: str, chip: str, said: list[str], tp: str, precision: str, data: st.DataObject
) -> None:
    own = [data.draw(st.sampled_from(OPEN[name])) for name in said]
    text = " ".join([tp, f"precision={precision}", f"framework={word}", *own])
    scenario = question(text, chip)
    scenario, plan = plan_of(scenario, text)
    alone = parse_plan(text, 8)
    assert scenario.software == software(word)
    architecture = scenario.system.chip.architecture
    for name, value in stated_fields(scenario.software, architecture, plan).items():
        if name in said:
            assert getattr(plan, name) == getattr(alone, name), name
        elif name == "attention" and not plan.flash:
            assert plan.attention == "auto"
        else:
            assert getattr(plan, name) == value, name
    length = scenario.job.seq_len
    assert plan.micro_batch * length <= max(scenario.software.micro_tokens, length)
    others = {
        name: getattr(plan, name)
        for name in (*OPEN, "micro_batch", "zero", "master", "states", "optimizer")
    }
    assert replace(alone, **others) == plan
    # What is printed parses back to the same plan, with the software's help and without.
    assert parse_plan(str(plan)) == plan
    assert plan_of(scenario, str(plan))[1] == plan


@pytest.mark.parametrize("word", software_names())
def test_a_searched_plan_keeps_open_what_a_search_tries(word: str) -> None:
    text = f"framework={word}"
    scenario, plan = plan_of(question(text), text, searched=True)
    assert (plan.recompute, plan.sp) == ("none", False)
    assert plan.fused == scenario.software.fused
    assert plan.flash == scenario.software.flash


def test_the_list_of_stated_fields_is_the_catalogues() -> None:
    """Fields that any release states: a plan's text has them all, else it would not parse back."""
    by_field = {
        "sequence_parallel": "sp",
        "selective": "recompute",
    }
    choices = {"fused", "flash", "recompute", "attention", "gradients", "master", "states",
               "optimizer", *by_field}  # fmt: skip
    told = {
        by_field.get(name, name)
        for family in families()
        for release in family_releases(family)
        for name in release.values
        if name in choices
    }
    assert told == {*BY_SOFTWARE, "sp", "recompute", "master", "states", "optimizer"}


@pytest.mark.parametrize(
    ("words", "dtypes"),
    [
        ("framework=transformers", ("bf16", "bf16", "none", "bf16")),
        ("framework=transformers weights=fp32", ("fp32", "fp32", "none", "fp32")),
        ("framework=transformers master=fp32 states=fp32", ("bf16", "bf16", "fp32", "fp32")),
        ("framework=torchtune", ("bf16", "bf16", "none", "bf16")),
        ("framework=fsdp", ("bf16", "bf16", "fp32", "fp32")),
    ],
)
def test_dtypes_follow_the_weights(words: str, dtypes: tuple[str, ...]) -> None:
    scenario, plan = plan_of(question(words), words)
    assert (plan.weights, plan.gradients, plan.master, plan.states) == dtypes
    assert plan_of(scenario, str(plan))[1] == plan


def test_without_a_word_nothing_is_filled_in() -> None:
    scenario, plan = plan_of(question("tp2"), "tp2")
    assert plan == parse_plan("tp2", 8)
    assert scenario.software == software(GENERIC)
    assert not any("framework" in text for text in scenario.assumptions)


def test_a_plan_record_leaves_nothing_open() -> None:
    plan = Plan(dp=8, framework="fsdp")
    scenario, told = plan_of(question("tp1"), plan)
    assert told is plan
    assert scenario.software.family == "fsdp"


def test_the_answer_lists_what_was_set_and_what_the_plan_replaced() -> None:
    words = "zero3 mbs1 framework=fsdp@2023 attention=fa2"
    found = foretell.estimate(TOY_MODEL, system="h100-sxm", gpus=8, plan=words)
    assert (found.plan.fused, found.plan.attention, found.plan.gradients) == (False, "fa2", "bf16")
    told = [text for text in found.assumptions if "framework=fsdp" in text]
    assert len(told) == 2
    for word in ("no-fused", "flash", "recompute=none", "gradients=bf16", "software/fsdp.toml"):
        assert word in told[0]
    assert "attention" not in told[0]
    assert "attention=fa2 for attention=fa1" in told[1]


def test_an_eager_run_is_not_fused() -> None:
    eager, compiled = (
        foretell.estimate(TOY_MODEL, system="h100-sxm", gpus=1, plan=f"mbs1 framework={word}")
        for word in ("pytorch-eager", "pytorch-compiled")
    )
    assert (eager.plan.fused, compiled.plan.fused) == (False, True)
    assert eager.step_s > compiled.step_s


def test_a_search_holds_the_softwares_choices() -> None:
    found = foretell.search(
        TOY_MODEL, system="h100-sxm", gpus=8, plan="framework=megatron-core", top=5
    )
    assert found.plans
    for one in found.plans:
        assert (one.plan.attention, one.plan.gradients) == ("cudnn", "bf16")
        assert any("framework=megatron-core" in text for text in one.assumptions)


def test_plans_of_two_frameworks_each_have_their_own() -> None:
    both = foretell.compare_plans(
        "mbs1 framework=pytorch-eager", "mbs1", TOY_MODEL, system="h100-sxm", gpus=1
    )
    assert both is not None
    told = foretell.scaling(
        TOY_MODEL,
        system="h100-sxm",
        gpus="1,2",
        strategies=["zero1 framework=pytorch-eager", "zero1"],
    )
    for curve, word in zip(told.curves, ("pytorch-eager", GENERIC), strict=True):
        for point in curve.points:
            alone = foretell.estimate(
                TOY_MODEL,
                system="h100-sxm",
                gpus=point.gpus,
                global_batch=point.gpus,
                plan=f"zero1 mbs1 framework={word}",
            )
            assert point.step_s == pytest.approx(alone.step_s, rel=1e-9)


def test_software_is_set_by_hand_from_everywhere() -> None:
    words: Any = {"system": "h100-sxm", "gpus": 8, "plan": "tp2 zero1 mbs1"}
    model = "llama-3.1-8b"
    plain = foretell.estimate(model, **words)
    changed = foretell.estimate(model, **words, set={"host.step_s": "100 ms"})
    more = 0.1 - usual_host().step_s
    assert changed.step_s - plain.step_s == pytest.approx(more)
    assert changed.overrides == {"host.step_s": "100 ms"}
    flags = ("estimate", model, "--system", "h100-sxm", "--gpus", "8", "--plan", "tp2 zero1 mbs1")
    told = command(*flags, "--set", "host.step_s=0.1", "--json").json
    assert told["step_s"] == changed.step_s
    assert told["overrides"] == {"host.step_s": "0.1"}
    with client() as api:
        body = {"model": model, **words, "set": {"host.step_s": "0.1"}}
        assert api.post("/api/estimate", json=body).json()["step_s"] == changed.step_s


def test_a_choice_of_the_software_set_by_hand_reaches_the_plan() -> None:
    found = foretell.estimate(
        TOY_MODEL, system="h100-sxm", gpus=8, plan="mbs1", set=["software.fused=false"]
    )
    assert not found.plan.fused
    other = foretell.estimate(
        TOY_MODEL, system="h100-sxm", gpus=8, plan="mbs1 fused", set=["software.fused=false"]
    )
    assert other.plan.fused


def test_a_framework_set_by_hand_is_a_word_of_the_plan() -> None:
    words: Any = {"system": "h100-sxm", "gpus": 8}
    by_word = foretell.estimate(TOY_MODEL, **words, plan="mbs1 framework=fsdp")
    by_hand = foretell.estimate(TOY_MODEL, **words, plan="mbs1", set=["plan.framework=fsdp"])
    assert by_hand.plan == by_word.plan
    assert by_hand.step_s == by_word.step_s


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("host.stp_s=1", "step_s"),
        ("host.step_s=-1", "too small"),
        ("host.step_s=3 GB", "GB"),
        ("software.attention=fa9", "not a choice"),
        ("software.fused=maybe", "not a switch"),
        ("softwar.fused=no", "software"),
    ],
)
def test_wrong_settings_say_what_is_right(setting: str, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        question("tp1", set=[setting])


def test_an_unknown_framework_is_told_with_all_else() -> None:
    with pytest.raises(BadInput) as caught:
        question("tp0 framework=nanotrn", set=["job.gpu=3"])
    paths = [problem.path for problem in caught.value.problems]
    assert {"plan.tp", "plan.framework"} <= set(paths)
    told = next(p for p in caught.value.problems if p.path == "plan.framework")
    assert told.nearest == "nanotron"
    assert "megatron-core" in (told.allowed or "")
    for text in ("framework=a/b", "framework=a@b@c", "framework=", "framework=../chips"):
        with pytest.raises(BadInput, match=r"plan\.framework"):
            parse_plan(text)


def test_serving_has_no_training_software() -> None:
    with pytest.raises(BadInput, match="--engine"):
        foretell.serve(
            "llama-3.1-8b", system="h100-sxm", gpus=1, set=["software.step_operations=1"]
        )


NO_SOFTWARE = {
    "self.framework": "a part of the memory",
    "memory.framework": "a part of the memory",
}
"""What else is called so."""
LAUNCH_RULES = ("frameworks.py", "search.py")
"""Files of a search that ask which tool can launch a plan, by the plan's own word."""


@pytest.mark.parametrize("room", ENGINE)
def test_the_engine_looks_no_software_up(room: str) -> None:
    """Its rooms neither import the catalogue's software nor read the word for it from a plan."""
    for path in (SOURCE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                told = {node.module, *names} & {
                    "foretell.catalog.software",
                    "foretell.inputs.software",
                }
                assert not told, path
            if path.parent.name == "search" and path.name in LAUNCH_RULES:
                continue
            if isinstance(node, ast.Attribute) and node.attr == "framework":
                assert ast.unparse(node) in NO_SOFTWARE, f"{path}: {ast.unparse(node)}"
