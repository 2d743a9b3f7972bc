"""Rules of software: who has them, when they hold, and that a plan's words win."""

import pytest

import foretell
from foretell.catalog.software import families, family_of, software
from foretell.catalog.software_rules import family_rules
from foretell.inputs.plan_defaults import PIPELINE
from foretell.inputs.question import ask, plan_of
from foretell.specs.plan import BY_SOFTWARE, OF_EXPERTS, OWN_CUTS, OWN_DTYPES, Plan, parse_plan

NEXT = "qwen3-30b-a3b"


def planned(text: str, model: str = NEXT, system: str = "h100-sxm", gpus: int = 16) -> Plan:
    scenario = ask(model=model, system=system, gpus=gpus, global_batch=64, seq_len=4096, plan=text)
    scenario, plan = plan_of(scenario, text)
    assert scenario.software == software(plan.framework)
    # What is printed is the same plan, with the rules and without.
    assert parse_plan(str(plan)) == plan
    assert plan_of(scenario, str(plan))[1] == plan
    return plan


@pytest.mark.parametrize("family", families())
def test_every_rule_can_be_read(family: str) -> None:
    for rule in family_rules(family):
        known = {*BY_SOFTWARE, *OF_EXPERTS, "capacity", "recompute", "etp", "adapters", "framework"}
        known |= {"zero", *PIPELINE}
        known |= {"cp_cut"} if family in OWN_CUTS else set()
        stated = family in {family_of(word)[0] for word in OWN_DTYPES}
        own = {"master", "states", "wire"} if stated else set()
        assert set(rule.sets) <= known | own
        assert rule.why


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("ep8 framework=megatron-bridge@26.02", "dispatch", "dedup"),
        ("ep8 dispatch=alltoall framework=megatron-bridge@26.04", "dispatch", "alltoall"),
        ("ep8 capacity=1 framework=megatron-bridge@26.04", "dispatch", "alltoall"),
        ("framework=megatron-bridge@26.04", "dispatch", "alltoall"),
        ("tp2 ep4 framework=megatron-core", "etp", 2),
        ("tp2 ep4 etp1 framework=megatron-core", "etp", 1),
        ("tp2 ep4 framework=megatron-bridge", "etp", 1),
        ("pp2 ep8 framework=pithtrain", "schedule", "zb-v"),
        ("pp2 ep8 framework=pithtrain", "vpp", 2),
        ("pp2 ep8 schedule=1f1b framework=pithtrain", "vpp", 1),
        ("ep8 framework=jax", "capacity", 1.25),
        ("framework=jax", "capacity", 1.25),
        ("framework=maxtext", "capacity", 1.25),
        ("framework=jax capacity=0", "capacity", 0.0),
        ("ep8", "dispatch", "alltoall"),
        ("zero3 framework=transformers", "master", "fp32"),
        ("zero3 framework=transformers", "gradients", "fp32"),
        ("zero3 framework=transformers", "wire", "bf16"),
        ("zero3 master=none gradients=bf16 framework=transformers", "gradients", "bf16"),
        ("zero2 framework=transformers", "master", "fp32"),
        ("zero2 framework=transformers", "wire", "auto"),
        ("framework=transformers", "master", "none"),
        ("cp2 framework=torchtitan@2024", "cp_cut", "contiguous"),
        ("cp2 cp_cut=zigzag framework=torchtitan@2024", "cp_cut", "zigzag"),
        ("cp2 framework=torchtitan", "cp_cut", "zigzag"),
        ("framework=torchtitan@2024", "cp_cut", "zigzag"),
        ("zero3 lora=16 framework=transformers", "master", "none"),
        ("tp2 framework=megatron-core", "zero", 1),
        ("tp2 zero0 framework=megatron-core", "zero", 0),
        ("tp8 cp2 framework=nemo", "zero", 1),
        ("tp8 pp2 framework=nemo", "zero", 0),
        ("tp2 framework=megatron-lm@2020", "zero", 0),
        ("tp2 framework=megatron-lm", "zero", 1),
        ("tp2 framework=olmo-core", "zero", 3),
        ("tp2 framework=maxtext", "zero", 3),
        ("tp2 framework=transformers", "zero", 0),
    ],
)
def test_rules_by_release_and_layout(text: str, field: str, value: object) -> None:
    assert getattr(planned(text), field) == value


def test_adapters_of_nemo() -> None:
    dense = "llama-3.1-8b"
    assert planned("lora=8 framework=megatron-core", dense).adapters == "qkv"
    assert planned("lora=8 adapters=all framework=megatron-core", dense).adapters == "all"
    assert planned("lora=8 framework=fsdp", dense).adapters == "all"


def test_stages_are_interleaved_only_if_asked() -> None:
    dense = "llama-3.1-8b"
    for word in ("", "framework=megatron-core", "framework=megatron-bridge", "framework=nemo"):
        assert planned(f"pp4 {word}", dense).vpp == 1
    assert planned("pp4 vpp2 framework=megatron-core", dense).vpp == 2


def test_micro_batches_where_recipes_fill_the_memory() -> None:
    """64 sequences of 4,096 over 16 replicas: 16,384 tokens are the whole share of each."""
    dense = "llama-3.1-8b"
    assert planned("framework=maxtext", dense).micro_batch == 4
    assert planned("framework=maxtext", dense, gpus=32).micro_batch == 2
    assert planned("tp8 framework=maxtext", dense).micro_batch == 4
    assert planned("mbs1 framework=maxtext", dense).micro_batch == 1
    assert planned("pp2 framework=maxtext", dense).micro_batch == 1
    assert planned("framework=megatron@2020", dense).micro_batch == 4
    assert planned("framework=megatron", dense).micro_batch == 1
    assert planned("", dense).micro_batch == 1
    text = "zero3 framework=maxtext"
    found = foretell.estimate(dense, gpus="16xH100", global_batch=64, plan=text)
    assert any(text.startswith("mbs4: recipes of MaxText") for text in found.assumptions)


def test_the_answer_says_what_a_rule_has_set() -> None:
    found = foretell.estimate(
        NEXT,
        system="h200-sxm",
        gpus=16,
        global_batch=64,
        plan="tp2 ep8 zero1 framework=megatron-bridge",
    )
    assert any("megatron-bridge sets etp1" in text for text in found.assumptions)
