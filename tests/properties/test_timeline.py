"""The closed form of each stage's peak against the step played task by task."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretell.catalog.software import software
from foretell.inputs.software import with_software
from foretell.schedules.rules import all_broken
from foretell.simulation.memory_timeline import StepMemory, step_memory
from foretell.specs.plan import Plan, batch_of, parse_plan
from foretell.specs.scenario import Scenario
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate_rows
from foretell.training.tables import tables_of
from tests.builders import make_chip, make_scenario

GPUS = 32
RECOMPUTE = (
    "recompute=none",
    "recompute=full",
    "recompute=selective no-flash",
    "recompute=mlp+norm",
    "recompute=full:2",
    "recompute=act no-fused",
    "recompute=products",
)
MORE = (
    "zero0",
    "zero1",
    "zero3",
    "zero3 no-reshard",
    "zero1 offload=optimizer",
    "offload=activations",
    "zero3 offload=weights",
    "framework=nanotron no-fused zero1",
    "framework=megatron-core precision=fp8",
    "framework=torchtitan zero3",
    "optimizer=muon zero1",
    "lora=8",
)
EXACT = ("", "schedule=gpipe", "schedule=zb-h1")
"""Schedules of one chunk on a rank whose closed form is exact."""


def asked(model: str) -> Scenario:
    chip = make_chip(host_bytes_per_s=60e9)
    return make_scenario(model, gpus=GPUS, batch=64, seq_len=512, chip=chip)


def played(model: str, words: str) -> tuple[StepMemory, Scenario, Plan]:
    """A plan that the rules allow, played; others are passed over."""
    plan = parse_plan(words, GPUS)
    scenario = with_software(asked(model), plan)
    assume(not all_broken(scenario, plan, batch_of([plan])))
    return step_memory(scenario, plan), scenario, plan


def step(model: str, words: str) -> StepMemory:
    return step_memory(with_software(asked(model), words), parse_plan(words, GPUS))


def gaps(found: StepMemory) -> list[float]:
    """The played peak over the closed form, less one, of each stage."""
    return [stage.line.peak[0] / stage.closed_bytes - 1.0 for stage in found.stages]


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(("dense", "uneven", "mixed")),
    schedule=st.sampled_from(EXACT),
    pp=st.sampled_from((1, 2, 4, 8)),
    tp=st.sampled_from((1, 2)),
    mbs=st.sampled_from((1, 2)),
    recompute=st.sampled_from(RECOMPUTE),
    more=st.sampled_from(MORE),
)
def test_the_closed_form_is_the_largest_of_the_step(
    model: str, schedule: str, pp: int, tp: int, mbs: int, recompute: str, more: str
) -> None:
    """Layers of one size, one chunk on a rank: exact on every stage, however many layers it has."""
    assume(not (schedule == "schedule=zb-h1" and recompute == "recompute=full:2"))
    assume(recompute.count("fused") + more.count("fused") < 2)
    words = f"tp{tp} pp{pp} mbs{mbs} {schedule} {recompute} {more}"
    found, _, _ = played(model, words)
    assert gaps(found) == pytest.approx([0.0] * len(found.stages), abs=1e-9)


@pytest.mark.parametrize("recompute", ["recompute=none", "recompute=full"])
@pytest.mark.parametrize(
    "words",
    [
        "gradients=bf16 master=none states=bf16",
        "gradients=fp32 master=fp32 states=fp32",
        "lora=8 loss=chunked",
        "lora=8 weights=nf4 loss=chunked",
    ],
)
def test_shards_of_gradients_and_inputs_that_stay(words: str, recompute: str) -> None:
    """FSDP as transformers runs it, one micro-batch: gradients made on the way, inputs of frozen layers held
    to the end of the backward pass."""
    plan = parse_plan(f"mbs2 zero3 no-fused {recompute} {words} framework=transformers", GPUS)
    scenario = with_software(asked("dense"), plan)
    found = step_memory(scenario, plan)
    assert gaps(found) == pytest.approx([0.0], abs=1e-9)
    software = replace(scenario.software, holds="")
    early = step_memory(replace(scenario, software=software), plan).fullest.closed_bytes
    held = found.fullest.closed_bytes
    if "lora" in words:
        assert (held > early) == (recompute == "recompute=full")
    else:
        assert held <= early


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.sampled_from(((2, 2), (2, 3), (4, 2), (4, 3))),
    schedule=st.sampled_from(("", "schedule=zb-v")),
    recompute=st.sampled_from(RECOMPUTE[:4]),
    more=st.sampled_from(MORE),
)
def test_exact_with_equal_chunks(
    sizes: tuple[int, int], schedule: str, recompute: str, more: str
) -> None:
    """Interleaved 1F1B and ZB-V with as many layers in every chunk."""
    pp, vpp = sizes
    assume(vpp == 2 or not schedule)
    found, _, _ = played("dense", f"pp{pp} vpp{vpp} {schedule} {recompute} {more}")
    assert gaps(found) == pytest.approx([0.0] * len(found.stages), abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    model=st.sampled_from(("uneven", "mixed", "moe", "hybrid")),
    form=st.sampled_from(
        ("pp4 vpp2", "pp2 vpp3", "pp4 vpp2 schedule=zb-v", "pp4 schedule=dualpipe", "pp4")
    ),
    recompute=st.sampled_from(RECOMPUTE[:5]),
)
def test_near_where_chunks_differ(model: str, form: str, recompute: str) -> None:
    """Layers or chunks of different sizes: within a layer of what each chunk in flight keeps, and what the
    largest layer takes in its backward pass."""
    found, scenario, plan = played(model, f"{form} mbs1 {recompute}")
    plans = batch_of([plan])
    tables = tables_of(scenario, plans)
    stages = stages_of_plans(plans, tables)
    rows = evaluate_rows(scenario, plans, tables)
    chunks = 2 if "dualpipe" in form or "zb-v" in form else plan.vpp
    largest = float(tables.parts.kept_whole[0, : tables.parts.kinds].max())
    for index, stage in enumerate(found.stages):
        flight = float(rows.memory.activations[0, index] / stages.kept_bytes[0, index])
        # A micro-batch of DualPipe passes half of a rank's layers.
        layer = largest * flight * chunks
        once = float(stages.again_bytes[0, index] + stages.kept_bytes[0, index])
        assert abs(stage.line.peak[0] - stage.closed_bytes) <= layer + once


@settings(max_examples=15, deadline=None)
@given(
    pp=st.sampled_from((2, 4, 8)),
    recompute=st.sampled_from(RECOMPUTE[:4]),
    more=st.sampled_from(MORE[:6]),
)
def test_dualpipe_holds_no_more_than_said(pp: int, recompute: str, more: str) -> None:
    """In a pair one pass fills while the other frees: up to one micro-batch and the scores are not there."""
    found, scenario, plan = played("dense", f"pp{pp} schedule=dualpipe {recompute} {more}")
    plans = batch_of([plan])
    stages = stages_of_plans(plans, tables_of(scenario, plans))
    for index, stage in enumerate(found.stages):
        spare = float(stages.kept_bytes[0, index] + stages.head_bytes[0, index])
        spare += float(stages.again_bytes[0, index])
        gap = stage.closed_bytes - stage.line.peak[0]
        assert -1e-6 * stage.closed_bytes <= gap <= spare * (1.0 + 1e-9)


@pytest.mark.parametrize(
    "words",
    ["pp4", "pp4 vpp2", "pp4 schedule=gpipe", "pp4 schedule=zb-h1", "pp4 vpp2 schedule=zb-v",
     "pp4 schedule=dualpipe", "pp1 recompute=full", "pp2 tp2 zero3 precision=fp8"],
)  # fmt: skip
def test_everything_is_given_back(words: str) -> None:
    """A step ends with what it began with; no category is ever below zero."""
    found = step("mixed", f"{words} mbs1")
    for stage in found.stages:
        total = stage.line.allocated_bytes
        assert total[-1] == pytest.approx(total[0], rel=1e-9)
        assert all((values >= 0.0).all() for values in stage.line.held_bytes.values())
        assert np.all(np.diff(stage.line.moments_s) >= 0.0)
        assert stage.line.moments_s[-1] == pytest.approx(found.step_s)
        kept = sum(stage.kept_at_peak.values())
        now = stage.line.at(stage.line.peak[1])
        groups = ("attention", "feed-forward", "experts", "mixer", "layer entries")
        assert kept == pytest.approx(sum(now.get(g, 0.0) for g in groups), rel=1e-6)


def test_recomputation_is_seen_over_time() -> None:
    """What is computed again is there in backward passes alone, and lowers the peak."""
    plain = step("dense", "pp2 mbs2 recompute=none")
    again = step("dense", "pp2 mbs2 recompute=full")
    assert again.fullest.line.peak[0] < plain.fullest.line.peak[0]
    first = again.stages[0].line.held_bytes["backward pass"]
    assert first.max() > 2.0 * plain.stages[0].line.held_bytes["backward pass"].max()
    assert (first == 0.0).any()


LATE = "framework=pytorch-eager gradients=bf16 master=none states=bf16"


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(("dense", "uneven")),
    pp=st.sampled_from((1, 2, 4)),
    mbs=st.sampled_from((1, 4, 32)),
    recompute=st.sampled_from(RECOMPUTE[:4]),
    seq_len=st.sampled_from((64, 512, 4096)),
)
def test_gradients_made_on_the_way(
    model: str, pp: int, mbs: int, recompute: str, seq_len: int
) -> None:
    """One micro-batch, no replicas: exact too, below the sum, and never below all gradients or all
    activations."""
    scenario = make_scenario(model, gpus=pp, batch=mbs, seq_len=seq_len)
    plain = f"pp{pp} dp1 mbs{mbs} {recompute} gradients=bf16 master=none states=bf16"
    eager = replace(scenario, software=software("pytorch-eager"))
    found = step_memory(eager, parse_plan(f"{plain} framework=pytorch-eager", pp))
    assert gaps(found) == pytest.approx([0.0] * len(found.stages), abs=1e-9)
    plans = batch_of([parse_plan(f"{plain} framework=megatron@2021", pp)])
    scenario = replace(scenario, software=software("megatron@2021"))
    summed = evaluate_rows(scenario, plans, tables_of(scenario, plans)).memory
    held = (summed.weights + summed.states)[0]
    for index, stage in enumerate(found.stages):
        assert stage.closed_bytes < summed.allocated[0, index]
        least = max(summed.gradients[0, index], summed.activations[0, index])
        assert stage.closed_bytes > held[index] + least
        total = stage.line.allocated_bytes
        assert total[-1] == pytest.approx(total[0], rel=1e-9)


def test_sums_over_micro_batches_wait_for_the_update() -> None:
    """Two micro-batches: the gradients of the first meet the activations of the second."""
    plan = parse_plan(f"pp1 dp1 mbs1 {LATE}", 1)
    one, two = (
        step_memory(with_software(make_scenario(gpus=1, batch=n), plan), plan) for n in (1, 2)
    )
    assert two.fullest.closed_bytes > one.fullest.closed_bytes
    assert gaps(one) == pytest.approx([0.0], abs=1e-9)
    assert gaps(two) == pytest.approx([0.0], abs=1e-9)
