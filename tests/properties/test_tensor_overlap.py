"""Tensor-parallel exchanges in pieces behind products: bounds, and what does not change."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.software import software
from foretell.network.placement import group_counts
from foretell.search.space import enumerate_plans
from foretell.sharding.rules import broken_rules
from foretell.specs.ffn import Experts
from foretell.specs.plan import Plan, batch_of, parse_plan
from foretell.training.exchanges import exchanges_of, in_pieces
from foretell.training.step import evaluate
from foretell.training.tables import tables_of
from foretell.training.tensor_exchanges import EndTimes, _split_loss, pieces_shown, region_ends
from tests.builders import GENERIC, make_model, make_scenario

ENDS = ("embedding", "head")
CASES = [("dense", 16, 32), ("moe", 16, 16), ("hybrid", 8, 16)]


@pytest.mark.parametrize(("name", "gpus", "batch"), CASES)
def test_pieces_are_never_slower_and_change_nothing_without_tp(
    name: str, gpus: int, batch: int
) -> None:
    scenario = make_scenario(name, gpus, batch)
    plans = enumerate_plans(scenario, Plan(tp_overlap="on")).plans
    on, held = evaluate(scenario, plans)
    off, held_off = evaluate(scenario, replace(plans, base=Plan(tp_overlap="off")))
    assert (on <= off * (1 + 1e-12)).all()
    assert (held == held_off).all()
    alone = plans.tp == 1
    np.testing.assert_array_equal(on[alone], off[alone])
    # Gradients summed inside their products hide a scatter without pieces, at times all that pieces would.
    apart = replace(scenario, software=replace(scenario.software, sums_fused=False))
    on_apart, _ = evaluate(apart, plans)
    off_apart, _ = evaluate(apart, replace(plans, base=Plan(tp_overlap="off")))
    assert (on_apart[~alone] < off_apart[~alone]).all()


def test_the_last_piece_of_a_scatter_always_shows() -> None:
    """At least 1/tp of the scatters, at most all of the exchanges."""
    scenario = make_scenario("dense", 16, 32)
    for tp in (2, 4, 8):
        found = {}
        for word in ("off", "on"):
            plan = Plan(tp=tp, dp=16 // tp, sp=True, zero=1, tp_overlap=word)  # type: ignore[arg-type]
            plans = batch_of([plan])
            tables = tables_of(scenario, plans)
            where = group_counts(plans, scenario.system.network, 16)
            found[word] = exchanges_of(
                tables.parts, tables.shape, {"tp": where["tp"]}, scenario.system, plan, GENERIC
            )
        off, on = found["off"], found["on"]
        assert (on.forward_s <= off.forward_s + 1e-15).all()
        assert (on.backward_s <= off.backward_s + 1e-15).all()
        apart = exchanges_of(
            tables.parts, tables.shape, {"tp": where["tp"]}, scenario.system,
            replace(plan, tp_overlap="off"), replace(GENERIC, sums_fused=False),
        )  # fmt: skip
        # Products that add to sums of gradients run beside a scatter, without any pieces.
        assert (off.backward_s[:, 0] < apart.backward_s[:, 0]).all()
        np.testing.assert_allclose(off.forward_s, apart.forward_s, rtol=1e-12)
        # Of a layer's four exchanges two are scatters, of equal bytes.
        assert on.forward_s[0, 0] >= 0.4 * off.forward_s[0, 0] / tp


def test_every_edge_has_its_products() -> None:
    """Behind an entry what is cut by columns, before an end what is cut by rows; the table has none."""
    plans = batch_of([Plan(tp=4, dp=4, sp=True)])
    parts = tables_of(make_scenario("dense", 16, 32), plans).parts
    flat = [op.name for ops in parts.ops for op in ops]
    found = {
        (parts.names[e.part], e.leave, tuple(flat[r] for r in e.rows)) for e in region_ends(parts)
    }
    assert found == {
        (parts.names[0], False, ("attention.qkv",)),
        (parts.names[0], True, ("attention.o",)),
        (parts.names[0], False, ("ffn.up",)),
        (parts.names[0], True, ("ffn.down",)),
        ("embedding", True, ()),
        ("head", False, ("head.scores",)),
    }


@pytest.mark.parametrize("shared_width", [0, 512])
def test_spread_experts_keep_the_ends_of_a_shared_one(shared_width: int) -> None:
    """Routed tokens travel by all-to-all; a shared expert is cut by tp, and exchanges as before."""
    ffn = Experts(experts=16, top_k=2, width=512, shared_width=shared_width)
    model = make_model("moe")
    layer = replace(model.stack.layers[-1], ffn=ffn)
    model = replace(model, stack=replace(model.stack, layers=(layer,) * 4))
    scenario = replace(make_scenario("moe", 16, 16), model=model)
    plan = Plan(tp=4, dp=4, ep=4, sp=True, tp_overlap="on")
    tables = tables_of(scenario, batch_of([plan]))
    ends = [e for e in region_ends(tables.parts) if tables.parts.names[e.part] not in ENDS]
    assert [e.always for e in ends] == [True, True, shared_width > 0, shared_width > 0]
    # What is waited for: two ends of attention, and those of the shared expert where there is one.
    one_s = np.ones((1, len(tables.parts.ops)))
    times = EndTimes(
        enter_gather=one_s, leave_scatter=one_s, enter_scatter=one_s, leave_gather=one_s
    )
    whole = ("enter_gather", "leave_scatter", "enter_scatter", "leave_gather")
    shown, _ = pieces_shown(tables.parts, tables.shape, times, scenario.system.chip, whole=whole)
    for direction in shown:
        assert direction[0, 0] == (4.0 if shared_width else 2.0)


@given(st.floats(0.01, 1e4), st.integers(1, 64))
def test_pieces_take_whole_waves(waves: float, pieces: int) -> None:
    loss = float(_split_loss(np.array(waves), np.array(float(pieces))))
    assert loss >= 0.0
    # At most one wave more for each round of pieces.
    assert loss <= pieces / max(np.ceil(waves), 1.0) + 1e-12
    assert pieces > 3 or loss == 0.0 or waves > 1.0


def test_who_has_pieces() -> None:
    plan, core, jax = parse_plan("tp8"), software("megatron-core"), software("jax")
    assert in_pieces(plan, core, "hopper")
    assert not in_pieces(parse_plan("tp8 tp_overlap=off"), core, "hopper")
    # A well-tuned stack of today has them, where one is known.
    assert in_pieces(plan, GENERIC, "hopper")
    assert not in_pieces(plan, GENERIC, "cdna3")
    assert in_pieces(parse_plan("tp8 tp_overlap=on"), software("torchtitan"), "hopper")
    # XLA sends pieces on TPUs, not on GPUs.
    assert in_pieces(plan, jax, "tpu-v5p")
    assert not in_pieces(plan, jax, "hopper")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tp4 no-sp dp4 tp_overlap=on", "needs sp"),
        ("tp4 tp2=2 dp4 tp_mode=summa tp_overlap=on", "hides its panels by itself"),
    ],
)
def test_rules_say_what_is_wrong(text: str, words: str) -> None:
    plan = parse_plan(text)
    found = dict(broken_rules(make_scenario("dense", 16, 32), plan, batch_of([plan])))
    assert words in found["overlap"]
    assert "overlap" not in dict(
        broken_rules(make_scenario("dense", 16, 32), Plan(dp=16), batch_of([Plan(dp=16)]))
    )
