"""A batch of systems is its systems one by one: steps with every number of a system varied at once."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.api.serving import closed_form, closed_forms
from foretell.api.serving_questions import question_of
from foretell.errors import Infeasible
from foretell.inputs.question import ask, plan_of
from foretell.serving.serve import serve_one
from foretell.serving.systems import serve_systems
from foretell.specs.plan import batch_of
from foretell.specs.questions.serving import ServiceQuestion
from foretell.specs.result import OUTPUTS, outputs
from foretell.specs.scenario import Scenario
from foretell.specs.service import Percentiles, ServiceEstimate
from foretell.specs.system import (
    System,
    map_numbers,
    one_system,
    repeat_chips,
    stack_systems,
    structure_of,
    system_count,
    take_systems,
    varies_in_batch,
)
from foretell.training.answer import totals_of
from foretell.training.step import evaluate_rows
from foretell.training.tables import tables_of
from foretell.training.variants import evaluate_systems

MANY = 5
CASES = (
    ("llama-3.1-8b", "h100-sxm", 64, "tp2 pp4 vpp2 zero1 mbs1"),
    ("llama-3.1-70b", "mi300x", 64, "tp8 zero3 mbs1 recompute=full"),
    ("deepseek-v3", "gb200-nvl72", 144, "pp8 ep16 zero1 mbs1 recompute=full"),
    ("llama-3.1-8b", "tpu-v5p", 64, "zero3 mbs2 cp2"),
    ("qwen3-32b", "b200-sxm", 32, "tp4 cp2 zero1 precision=fp8"),
    ("llama-3.1-8b", "perlmutter", 16, "tp4 zero1 lora=16 offload=activations"),
    ("llama-3.1-8b", "frontier", 64, "tp2 pp2 schedule=zb-h1 optimizer=muon"),
    ("llama-3.1-8b", "h100-sxm", 16, "tp2 pp2 schedule=dualpipe framework=megatron-core"),
    ("llama-3.1-8b", "h200-sxm", 8, "zero3 framework=transformers compile=on"),
    ("mixtral-8x7b", "a100-sxm-80gb", 32, "tp2 ep8 dispatch=deepep zero1"),
    ("llama-3.1-8b", "h100-sxm", 16, "tp4 tp_mode=summa"),
)
"""Questions over kinds of chips, networks, parallelism and software."""


def scattered(system: System, seed: int) -> System:
    """MANY systems, each number of each of them between half and twice what it is; fractions stay so."""
    chance = np.random.default_rng(seed)

    def vary(value: float) -> object:
        factors = chance.uniform(0.5, 2.0, MANY)
        whole = np.asarray(value * factors)
        return np.minimum(whole, 1.0) if 0.0 < value <= 1.0 else whole

    return map_numbers(system, vary)


def one_by_one(scenario: Scenario, plan: object, system: System) -> dict[str, float]:
    asked = replace(scenario, system=system)
    plans = batch_of([plan])  # type: ignore[list-item]
    tables = tables_of(asked, plans)
    ledger = evaluate_rows(asked, plans, tables)
    totals = totals_of(asked, plans, tables, ledger)
    return {name: float(np.ravel(v)[0]) for name, v in outputs(totals).items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]}: {case[3]}")
@settings(max_examples=2)
@given(seed=st.integers(0, 2**31))
def test_training_on_a_batch_of_systems(case: tuple[str, str, int, str], seed: int) -> None:
    model, name, gpus, words = case
    scenario = ask(model, system=name, gpus=gpus, global_batch=4 * gpus, seq_len=2048)
    scenario, plan = plan_of(scenario, words)
    systems = scattered(scenario.system, seed)
    found = evaluate_systems(scenario, batch_of([plan] * MANY), systems).outputs()
    for row in range(MANY):
        alone = one_by_one(scenario, plan, one_system(systems, row))
        for output in OUTPUTS:
            assert found[output][row] == pytest.approx(alone[output], rel=1e-12), output


def test_systems_are_stacked_and_taken() -> None:
    system = ask("llama-3.1-8b", system="h100-sxm", gpus=8).system
    many = scattered(system, 1)
    ones = [one_system(many, row) for row in range(MANY)]
    assert len({structure_of(one) for one in ones}) == 1
    stacked = stack_systems(ones)
    assert one_system(stacked, 3) == ones[3]
    assert one_system(take_systems(stacked, slice(2, 4)), 1) == ones[3]
    twice = replace(stacked, chip=repeat_chips(stacked.chip, 2), network=ones[3].network)
    assert one_system(twice, MANY + 3) == ones[3]
    assert system_count(stacked) == MANY
    assert stack_systems([system, system]) == system
    larger = replace(system.network.tiers[0], size=2.0 * system.network.tiers[0].size)
    other = replace(system, network=replace(system.network, tiers=(larger,)))
    assert structure_of(other) != structure_of(system)


def test_paths_that_a_batch_may_vary() -> None:
    for path in ("chip.tdp_watts", "chip.matrix_flop_per_s.bf16", "network.node.latency_s"):
        assert varies_in_batch(path)
    for path in (
        "chip.id",
        "network.node.size",
        "network.node.topology",
        "chip.design.cores",
        "gpus",
    ):
        assert not varies_in_batch(path)


SERVICES = (
    ("llama-3.1-70b", "h100-sxm", 8, "tp8", {"isl": 2048, "osl": 256, "concurrency": 32}),
    ("llama-3.1-70b", "mi300x", 8, "tp4 pp2", {"isl": 9000, "osl": 1, "concurrency": 16}),
    ("deepseek-v3", "gb200-nvl72", 72, "dp72 ep72", {"isl": 4096, "osl": 512, "concurrency": 700}),
    ("qwen3-30b-a3b", "h200-sxm", 8, "dp8 ep8", {"isl": 700, "osl": 90, "concurrency": 3}),
    ("llama-3.1-8b", "tpu-v6e", 8, "tp2", {"isl": 100, "osl": 900, "concurrency": 900}),
    (
        "llama-3.1-8b",
        "l40s",
        8,
        "tp1",
        {"isl": 30000, "osl": 30, "concurrency": 9, "prefix_hit": 0.4},
    ),
    ("llama-3.1-70b", "h100-sxm", 32, "tp8 cp2 pp2", {"isl": 40000, "osl": 200, "concurrency": 4}),
)
"""Services over kinds of chips, layouts and loads."""


@pytest.mark.parametrize("case", SERVICES, ids=lambda case: f"{case[0]} on {case[1]}: {case[3]}")
@settings(max_examples=2)
@given(
    seed=st.integers(0, 2**31),
    longer=st.floats(0.5, 2.0),
    more=st.floats(0.3, 3.0),
)
def test_serving_on_a_batch_of_systems(
    case: tuple[str, str, int, str, dict[str, float]], seed: int, longer: float, more: float
) -> None:
    model, name, gpus, words, load = case
    load = {**load, "isl": round(longer * load["isl"])}
    load["concurrency"] = max(1.0, round(more * load["concurrency"]))
    asked, _ = question_of(ServiceQuestion(model, system=name, gpus=gpus, plan=words, **load))
    systems = scattered(asked.system, seed)
    chunk = next(iter(serve_systems(replace(asked, system=systems), [asked.deployment])))
    for row in range(MANY):
        alone = replace(asked, system=one_system(systems, row))
        try:
            one = serve_one(alone)
        except Infeasible as error:
            with pytest.raises(Infeasible) as caught:
                chunk.estimate(row)
            assert str(caught.value) == str(error)
            continue
        same_service(chunk.estimate(row), one)


def same_service(found: ServiceEstimate, alone: ServiceEstimate) -> None:
    """Every number the same to 1e-12, all else equal."""
    for field in fields(alone):
        value, wanted = getattr(found, field.name), getattr(alone, field.name)
        if isinstance(wanted, Percentiles):
            value, wanted = value.to_dict(), wanted.to_dict()
        if isinstance(wanted, float | dict) and field.name not in ("interval", "overrides"):
            assert value == pytest.approx(wanted, rel=1e-12), field.name
        elif field.name != "interval":
            assert value == wanted, field.name


def test_closed_forms_are_closed_forms_one_by_one() -> None:
    """Questions of several systems, some alike, some of another structure, some that cannot be."""
    place = {"isl": 1000, "osl": 100, "concurrency": 8}
    settings_of_each = (
        (),
        ("chip.memory_bandwidth_bytes_per_s=5e12",),
        ("chip.memory_bytes=200e9", "network.node.latency_s=1e-6"),
        (),
        ("network.cluster.taper=0.5",),
        ("chip.memory_bytes=90e9", "chip.tdp_watts=300"),
    )
    for plan in ("tp8", None):
        asked = [
            question_of(
                ServiceQuestion(
                    "llama-3.1-70b", system="h100-sxm", gpus=8, plan=plan, **place, set=one
                )
            )[0]
            for one in settings_of_each
        ]
        given = plan is not None
        for found, question in zip(closed_forms(asked, given), asked, strict=True):
            assert isinstance(found, ServiceEstimate)
            same_service(found, closed_form(question, given))


@pytest.mark.parametrize("plan", ["tp8", None])
def test_closed_forms_of_several_loads(plan: str | None) -> None:
    """Loads are rows of a batch, on one system and on several at once."""
    flights = (1.0, 3.0, 40.0, 900.0)
    faster = "chip.memory_bandwidth_bytes_per_s=5e12"
    asked = [
        question_of(
            ServiceQuestion(
                "llama-3.1-70b", system="h100-sxm", gpus=16, plan=plan, isl=900, osl=150,
                concurrency=flight, set=settings_of_one,
            )
        )[0]
        for settings_of_one in ((), (faster,))
        for flight in flights
    ]  # fmt: skip
    given = plan is not None
    for few in (asked[: len(flights)], asked):
        for found, question in zip(closed_forms(few, given), few, strict=True):
            assert isinstance(found, ServiceEstimate)
            same_service(found, closed_form(question, given))
