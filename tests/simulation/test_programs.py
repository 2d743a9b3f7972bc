"""Programs hold the estimate's numbers: nothing is lost or added on the way to chunks and streams."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretell
from foretell.inputs.software import with_software
from foretell.sharding.pipeline import stages_of
from foretell.simulation.program import DataCollective, Pass
from foretell.simulation.programs import StepLayout, held_cores, lay_out, runs_ahead
from foretell.simulation.programs.dealing import contents_of
from foretell.simulation.streams import held_bytes, play_step, played_step, rank_stride
from foretell.specs.plan import Plan, batch_of, parse_plan
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of
from foretell.training.data_parallel import (
    copy_seconds,
    data_messages,
    kinds_alike,
    shares_of,
)
from foretell.training.exposed_messages import CORES_TAKEN
from foretell.training.stages import stages_of_plans
from foretell.training.tables import tables_of
from tests.builders import make_chip, make_network, make_scenario

PLANS = {
    "1f1b": "tp2 pp4 dp2 zero1 mbs1",
    "gpipe": "tp2 pp4 dp2 zero0 mbs1 schedule=gpipe",
    "interleaved": "tp2 pp4 vpp3 dp2 zero1 mbs1 schedule=interleaved",
    "zb-h1": "tp2 pp4 dp2 zero1 mbs1 schedule=zb-h1",
    "zb-v": "tp2 pp4 vpp2 dp2 zero2 mbs1 schedule=zb-v",
    "dualpipe": "tp2 pp4 dp2 zero1 mbs1 schedule=dualpipe",
    "fsdp": "dp16 zero3 mbs1 framework=fsdp",
    "hybrid": "dp16 zero3 shard=8 mbs2 recompute=full",
    "blocks": "tp2 pp4 dp2 zero1 mbs1 recompute=full:2",
    "modules": "tp2 pp4 dp2 mbs1 recompute=norm+act",
    "no-flash": "tp2 pp4 dp2 mbs1 no-flash recompute=selective",
    "context": "tp2 pp2 cp2 dp2 zero1 mbs1",
}


def laid(name: str, model: str = "dense") -> tuple[Scenario, StepLayout]:
    scenario = with_software(make_scenario(model, gpus=16, batch=64), PLANS[name])
    return scenario, lay_out(scenario, parse_plan(PLANS[name], 16))


@pytest.mark.parametrize("model", ["dense", "uneven", "hybrid"])
@pytest.mark.parametrize("name", sorted(PLANS))
def test_passes_of_a_rank_are_the_closed_forms(name: str, model: str) -> None:
    """Before anything is fitted to them: the parts alone make up the closed form's stages."""
    scenario, found = laid(name, model)
    plans = batch_of([found.plan])
    stages = stages_of_plans(plans, tables_of(scenario, plans))
    share = 0.5 if found.schedule.layout == "both" else 1.0
    for rank, chunks in enumerate(found.program.ranks):
        row = found.stage[rank]
        forward = share * sum(without(c.forward) for c in chunks)
        backward = share * sum(without(c.input) + c.weight.alone_s for c in chunks)
        sums = found.rows.sums_s[0, row]
        assert forward == pytest.approx(float(stages.forward_s[0, row]), rel=1e-9)
        assert backward == pytest.approx(float(stages.backward_s[0, row] + sums), rel=1e-9)
        parts = [p for chunk in found.contents[rank] for p in chunk]
        alone = share * sum(found.forward[p].alone_s for p in parts)
        assert alone == pytest.approx(forward, rel=1e-9)


def without(one: Pass) -> float:
    """A pass less its copies between weights and messages, which the closed form has with the messages."""
    return one.alone_s - one.moved_s


def test_copies_between_weights_and_messages() -> None:
    scenario, found = laid("fsdp")
    plans = batch_of([found.plan])
    tables = tables_of(scenario, plans)
    shares = shares_of(plans, tables, stages_of_plans(plans, tables), found.rows.micro_batches)
    (chunk,) = found.program.ranks[0]
    moved = (chunk.forward.moved_s + chunk.input.moved_s) * found.program.micro_batches
    assert moved == pytest.approx(float(copy_seconds(scenario, plans, shares[0])[0, 0]))


@pytest.mark.parametrize("name", sorted(PLANS))
def test_messages_of_a_rank_are_the_closed_forms(name: str) -> None:
    """Seconds of all collectives of a step, whatever their pieces."""
    scenario, found = laid(name)
    plans = batch_of([found.plan])
    tables = tables_of(scenario, plans)
    shares = shares_of(plans, tables, stages_of_plans(plans, tables), found.rows.micro_batches)
    alike = kinds_alike(plans, tables)
    m, traffic = data_messages(plans, tables, shares[0], alike), shares[0].traffic
    for rank, chunks in enumerate(found.program.ranks):
        row = found.stage[rank]
        pieces = float(m.pieces[0, row])
        reduces = float(traffic.all_reduces[0] + traffic.scatters[0])
        reduced = float(m.reduce_s[0, row] - m.again_s[0, row]) * pieces * reduces
        many = found.program.micro_batches
        have = sum(seconds(c.reduces_last) + many * seconds(c.reduces_each) for c in chunks)
        assert have == pytest.approx(reduced)
        gathered = float(m.gather_s[0, row]) * pieces * float(traffic.gathers_forward[0])
        have = sum(seconds(c.gathers_first) + many * seconds(c.gathers_forward) for c in chunks)
        assert have == pytest.approx(gathered)


def seconds(messages: tuple[DataCollective, ...]) -> float:
    """All of them but the sum of DualPipe's two copies."""
    return sum(m.seconds for m in messages if m.name != "add up both copies")


@given(
    st.lists(st.integers(0, 2), min_size=24, max_size=60),
    st.integers(1, 8),
    st.sampled_from(["loop", "v", "both"]),
    st.integers(1, 3),
)
def test_contents_are_the_stages_of_the_estimate(
    order: list[int], pp: int, layout: str, vpp: int
) -> None:
    vpp = {"v": 2, "both": 1}.get(layout, vpp)
    counts, times, _ = stages_of(tuple(order), 3, pp, vpp, layout)  # type: ignore[arg-type]
    share = 0.5 if layout == "both" else 1.0
    found = [
        tuple(share * np.bincount([p for chunk in rank for p in chunk], minlength=5))
        for rank in contents_of(order, 3, pp, vpp, layout)  # type: ignore[arg-type]
    ]
    expected = {tuple(row): int(n) for row, n in zip(counts.tolist(), times, strict=True)}
    assert {row: found.count(row) for row in found} == expected


def quiet(model: str, batch: int = 64) -> Scenario:
    """Links that take no time, so that passes and bubbles are alone."""
    network = make_network(inner=1e18, outer=1e18)
    tiers = tuple(replace(t, latency_s=1e-15) for t in network.tiers)
    return make_scenario(model, gpus=4, batch=batch, network=replace(network, tiers=tiers))


@pytest.mark.parametrize("model", ["dense", "uneven", "mixed", "moe", "hybrid"])
def test_gpipe_is_what_the_estimate_says(model: str) -> None:
    """Exact for any stages: embedding, head, unequal layers."""
    scenario = quiet(model)
    plan = parse_plan("pp4 dp1 mbs1 schedule=gpipe", 4)
    closed = answer_of(scenario, plan, chosen=False).step_s
    assert played_step(scenario, plan)[1].step_s == pytest.approx(closed, rel=1e-6)


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"])
def test_other_schedules_are_near_what_the_estimate_says(name: str) -> None:
    """Within the bounds that tests/simulation/test_uneven.py states for uneven ends."""
    words = {"interleaved": "vpp3", "zb-v": "vpp2"}.get(name, "")
    plan = parse_plan(f"pp4 {words} dp1 mbs1 schedule={name}", 4)
    scenario = quiet("dense")
    closed = answer_of(scenario, plan, chosen=False).step_s
    step_s, ahead_s = steps(scenario, plan)
    assert step_s == pytest.approx(closed, rel=0.05)
    assert ahead_s <= step_s + 1e-9
    if name == "1f1b":
        assert step_s <= closed * (1.0 + 1e-6)


def steps(scenario: Scenario, plan: Plan) -> tuple[float, float]:
    """A step with a host that is never ahead, as the closed form has it, and as it is played."""
    found = lay_out(scenario, plan)
    behind = play_step(found.schedule, replace(found.program, runs_ahead_s=0.0))
    return behind.step_s, play_step(found.schedule, found.program).step_s


@pytest.mark.parametrize("name", sorted(PLANS))
def test_a_played_step_is_above_its_work(name: str) -> None:
    _, found = laid(name)
    played = play_step(found.schedule, found.program)
    many = found.program.micro_batches * (0.5 if found.schedule.layout == "both" else 1.0)
    for rank, chunks in enumerate(found.program.ranks):
        work = sum(c.forward.chip_s + c.input.chip_s + c.weight.chip_s for c in chunks) * many
        assert played.step_s > work
        assert sum(played.spent[rank].values()) == pytest.approx(played.step_s)
    assert len({round(sum(s.values()), 9) for s in played.spent}) == 1


@pytest.mark.parametrize("name", sorted(PLANS))
def test_memory_peaks_where_the_estimate_says(name: str) -> None:
    _, found = laid(name)
    played = play_step(found.schedule, found.program)
    for rank in range(len(found.stage)):
        moments, held = held_bytes(found, played, rank)
        total = float(found.rows.memory.total[0, found.stage[rank]])
        assert held.max() == pytest.approx(total)
        assert held.min() >= total - float(found.rows.memory.activations[0, found.stage[rank]]) - 1
        assert (np.diff(moments) >= -1e-9).all()


@pytest.mark.parametrize(("optimizer", "on_host"), [("adam", True), ("adam8bit", False)])
def test_offloaded_states_are_copied_beside_the_update(optimizer: str, on_host: bool) -> None:
    """Beside the host's slow update copies hide; states in 8 bits come to the chip, whose update is short."""
    scenario = make_scenario("dense", gpus=8, batch=16, chip=make_chip(host_bytes_per_s=10e9))
    words = f"dp8 zero1 mbs1 optimizer={optimizer} offload=optimizer"
    plan = parse_plan(words, 8)
    found, played = played_step(scenario, plan)
    update_s, copies_s = found.program.update_s[0], found.program.update_copies_s[0]
    assert (update_s > copies_s) == on_host
    assert played.spent[0]["offload"] == pytest.approx(max(copies_s - update_s, 0.0))
    assert steps(scenario, plan)[0] == pytest.approx(
        answer_of(scenario, plan, chosen=False).step_s, rel=0.05
    )
    plan = parse_plan(f"{words}+activations", 8)
    found, played = played_step(scenario, plan)
    closed = answer_of(scenario, plan, chosen=False).step_s
    assert played.spent[0]["offload"] > 0.0
    assert steps(scenario, plan)[0] == pytest.approx(closed, rel=0.05)
    assert [s.name for s in played.copies[0]][-1] == "copies update"


def test_who_holds_cores_and_whose_host_is_ahead() -> None:
    uses = ((1.0, 0.2), (0.25, 1.0))
    taken = np.array([CORES_TAKEN, 0.25 * CORES_TAKEN])
    assert held_cores(make_chip(), uses) == pytest.approx(taken)
    assert held_cores(make_chip(architecture="tpu"), uses) == (0.0, 0.0)
    assert held_cores(make_chip(architecture="cpu"), uses) == (1.0, 1.0)
    assert runs_ahead(parse_plan("dp8 zero3 mbs1", 8))
    assert not runs_ahead(parse_plan("pp4 dp2 mbs1", 8))
    assert runs_ahead(parse_plan("pp4 vpp2 dp2 mbs1 schedule=interleaved", 8))
    assert not runs_ahead(parse_plan("dp8 ep8 mbs1", 8))
    assert runs_ahead(parse_plan("dp8 ep8 mbs1 capacity=1.25", 8))


def test_ranks_are_numbered_as_the_plan_orders_them() -> None:
    assert rank_stride(parse_plan("tp2 pp4 dp2 mbs1", 16)) == 4
    assert rank_stride(parse_plan("tp2 pp4 dp2 mbs1 order=tp,cp,pp,dp", 16)) == 2


@pytest.mark.parametrize(
    "words", ["ep8 zero3 mbs2", "ep2 zero3 mbs2", "tp2 ep4 zero3 mbs2", "zero3 mbs2"]
)
def test_spread_experts_hide_their_weights_as_the_estimate_says(words: str) -> None:
    """In every piece of a pass two groups gather: neither may wait for the other piece by piece."""
    job = {"system": "h200-sxm", "gpus": 64, "global_batch": 512, "seq_len": 4096, "plan": words}
    played = foretell.simulate("mixtral-8x7b", **job)
    assert played.step_s == pytest.approx(played.estimate.step_s, rel=0.1)


def test_gradients_of_every_micro_batch_show_as_the_estimate_says() -> None:
    """With ZeRO 2 over slow links a reduction outlasts its backward pass, sixteen times a step."""
    job = {"system": "h100-sxm", "gpus": 128, "global_batch": 256, "seq_len": 8192}
    played = foretell.simulate("llama-3.1-70b", **job, plan="tp8 zero2 mbs1")
    shares = {share.name: share for share in played.shares}
    assert shares["data_parallel"].closed_s > 0.1 * played.step_s
    assert shares["data_parallel"].simulated_s == pytest.approx(
        shares["data_parallel"].closed_s, rel=0.1
    )
