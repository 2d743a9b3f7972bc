"""2-D tensor parallelism: one rank is the whole, nothing is lost, volumes are the published model's."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.lab.reference.ops import Comm, LayerBatch, layer_ops
from foretell.lab.reference.ops import ReferenceOp as PublishedOp
from foretell.lab.reference.records import Quirks, StudyModel
from foretell.sharding.context import context_traffic
from foretell.sharding.rules import broken_rules
from foretell.sharding.tensor2d import TensorGrid, grid_parallel, grid_traffic, panel_count
from foretell.specs.ffn import Dense
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model, Stack
from foretell.specs.plan import Plan, batch_of, parse_plan
from foretell.training.answer import answer_of
from foretell.training.shapes import Shape, graph_parts, shapes_of
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate
from foretell.training.tables import tables_of
from foretell.workload.build import build
from foretell.workload.graph import LayerGraph
from foretell.workload.ops import Gemm
from tests.builders import GENERIC, make_model, make_scenario

SIDES = [(1, 1), (4, 1), (1, 4), (2, 2), (4, 2), (2, 8)]
"""Grids: ranks along the first dimension and along the second."""
LENGTH = 4096
CORRECTED = Quirks(layernorm_2d_width=False)
STUDY = StudyModel(
    name="small", seq_len=LENGTH, embed=1024, heads=16, layers=8, causal=True, samples=1.0
)


def study_model() -> Model:
    """Our form of the published model's layer: plain attention, 4e wide, layer norms."""
    layer = Layer(
        mixers=(Attention(heads=16, kv_heads=16, head_dim=64),),
        ffn=Dense(width=4096, gated=False),
        norm_kind="layer",
    )
    return replace(make_model("dense"), stack=Stack(hidden=1024, layers=(layer,) * 8))


def whole_layer(model: Model, batch: float = 2.0) -> LayerGraph:
    return graph_parts(build(model, batch=batch, seq_len=float(LENGTH)))[0]


def flop(part: LayerGraph) -> float:
    return float(sum(o.forward().matrix_flop + o.backward().matrix_flop for o in part.ops))


def published(m1: int, m2: int, panels: int, strategy: str = "2d") -> dict[str, PublishedOp]:
    one = np.ones(1, dtype=np.int64)
    layers = LayerBatch(b=2 * one, m1=m1 * one, m2=m2 * one, t1=one, t2=one, nb=panels * one)
    ops = layer_ops(STUDY, strategy, layers, 1.0, CORRECTED)  # type: ignore[arg-type]
    return {op.name: op for op in ops}


def volume(comms: tuple[Comm, ...], kind: str, axis: int) -> float:
    return float(sum(np.sum(c.volume_bytes) for c in comms if c.kind == kind and c.axis == axis))


@pytest.mark.parametrize("name", ["dense", "uneven", "mixed"])
def test_one_rank_is_the_whole(name: str) -> None:
    model = make_model(name)
    for part in graph_parts(build(model, batch=2.0, seq_len=float(LENGTH))):
        one = grid_parallel(part, TensorGrid(m1=1.0, m2=1.0, panels=0.0))
        assert flop(one) == flop(part)
        assert sum(s.elements for s in one.saved) == sum(s.elements for s in part.saved)
        assert sum(o.parameters for o in one.ops) == sum(o.parameters for o in part.ops)
        assert [o.forward() for o in one.ops] == [o.forward() for o in part.ops]


@pytest.mark.parametrize(("m1", "m2"), SIDES)
def test_ranks_share_work_weights_and_what_is_kept(m1: int, m2: int) -> None:
    """Norms alone have their weights on every row."""
    ranks, grid = m1 * m2, TensorGrid(m1=float(m1), m2=float(m2), panels=0.0)
    for part in graph_parts(build(study_model(), batch=2.0, seq_len=float(LENGTH))):
        cut = grid_parallel(part, grid)
        assert ranks * flop(cut) == pytest.approx(flop(part), rel=1e-12)
        kept = sum(s.elements for s in part.saved)
        assert ranks * sum(s.elements for s in cut.saved) == pytest.approx(kept, rel=1e-12)
        for op, whole in zip(cut.ops, part.ops, strict=True):
            copies = m2 if whole.family == "norm" else 1
            assert ranks * op.parameters == pytest.approx(copies * whole.parameters, rel=1e-12)


@pytest.mark.parametrize(("m1", "m2"), SIDES[1:])
def test_volumes_are_the_published_ones(m1: int, m2: int) -> None:
    """Broadcasts and reduces of every product, statistics of norms, keys and values: to the byte."""
    part, grid = whole_layer(study_model()), TensorGrid(m1=float(m1), m2=float(m2), panels=8.0)
    local = grid_parallel(part, grid)
    traffic = grid_traffic(part, local, grid, 1024.0)
    theirs = published(m1, m2, 8)
    ours = {local.ops[p.row].name: p for p in traffic.products}
    assert set(ours) == {"attention.qkv", "attention.o", "ffn.up", "ffn.down"}
    pairs = {"attention.qkv": "qkv", "attention.o": "vproj", "ffn.up": "fc1", "ffn.down": "fc2"}
    for name, product in ours.items():
        op = theirs[pairs[name]]
        for comms, kind, times in (
            (op.forward.comms, "broadcast", 1.0),
            (op.backward.comms, "broadcast", 1.0),
            (op.backward.comms, "reduce", 1.0),
        ):
            assert times * 2.0 * product.inputs == volume(comms, kind, 1)
            assert times * 2.0 * product.weights == volume(comms, kind, 2)
        gemm = local.ops[product.row]
        assert isinstance(gemm, Gemm)
        assert 2.0 * gemm.parameters == op.weight_bytes
        assert gemm.forward().matrix_flop == op.forward.flop
        moved = gemm.forward()
        assert 2.0 * (moved.activation_elements + moved.weight_elements) == op.forward.moved_bytes
    norm, flash = theirs["ln1"], theirs["flash"]
    assert traffic.norms == 2.0
    assert 2.0 * traffic.statistics == volume(norm.forward.comms, "all_reduce", 1)
    both = 2.0 * (traffic.statistics + traffic.norm_weights)
    assert both == volume(norm.backward.comms, "all_reduce", 1)
    assert 2.0 * traffic.keys == volume(flash.forward.comms, "all_gather", 2)
    assert 2.0 * traffic.keys == volume(flash.backward.comms, "reduce_scatter", 2)


@pytest.mark.parametrize(("m1", "m2"), [(4, 2), (2, 4), (2, 8)])
def test_the_sequence_grid_is_tensor_and_context_parallelism(m1: int, m2: int) -> None:
    """Volumes of the published 2-D sequence parallelism, from the two parallelisms that it is."""
    text = f"tp{m1 * m2} tp_mode=sequence tp2={m2} dp1"
    plan = parse_plan(text)
    assert plan == parse_plan(f"tp{m1} cp{m2} cp_mode=allgather dp1")
    shape = Shape(micro_batch=2.0, tp=float(m1), sp=1.0, cp=float(m2))
    found = shapes_of(study_model(), (LENGTH, None), plan, GENERIC, shape)
    theirs = published(m1, m2, 1, "seqp")
    edges = found.whole[0].edges
    entering = sum(e.elements for e in edges if not e.leave)
    leaving = sum(e.elements for e in edges if e.leave)
    gathered = sum(volume(theirs[n].forward.comms, "all_gather", 1) for n in ("ln1", "ln2"))
    scattered = sum(volume(theirs[n].forward.comms, "reduce_scatter", 1) for n in ("vproj", "fc2"))
    assert (2.0 * entering, 2.0 * leaving) == (gathered, scattered)
    assert 2.0 * found.context[0].keys == volume(theirs["flash"].forward.comms, "all_gather", 2)
    # The products' weights, and each on all of the m2 ranks.
    held = sum(op.parameters for op in found.ops[0] if isinstance(op, Gemm))
    assert 2.0 * held == sum(theirs[n].weight_bytes for n in ("qkv", "vproj", "fc1", "fc2"))


def test_the_spelling_of_the_sequence_grid_is_checked() -> None:
    assert str(parse_plan("tp8 tp_mode=sequence tp2=2 dp1")).startswith("tp4 pp1 dp1 cp2")
    assert parse_plan("tp_mode=sequence").cp_mode == "allgather"
    for text, words in (
        ("tp8 tp_mode=sequence tp2=3", "must divide tp 8"),
        ("tp8 tp_mode=sequence tp2=2 cp2", "already"),
        ("tp8 tp_mode=sequence tp2=2 panels=4", "already"),
    ):
        with pytest.raises(BadInput, match=words):
            parse_plan(text)
    with pytest.raises(BadInput, match="not a choice"):
        parse_plan("tp8 tp_mode=3d")


@given(
    inputs=st.integers(64, 65536),
    m1=st.sampled_from([1, 2, 3, 4, 8, 16]),
    m2=st.sampled_from([1, 2, 3, 4, 8, 16]),
)
def test_panels_are_whole_for_the_longer_side(inputs: int, m1: int, m2: int) -> None:
    grid = TensorGrid(m1=float(m1), m2=float(m2), panels=0.0)
    many = float(panel_count(float(inputs), grid))
    longer = max(m1, m2)
    assert many == 1.0 if longer == 1 else many % longer == 0
    assert many == longer or inputs / many >= 1024 or longer == 1
    assert panel_count(float(inputs), replace(grid, panels=6.0)) == 6.0


WORDS = "tp_mode=summa mbs1 zero1"


def test_memory_never_grows_with_the_grid() -> None:
    scenario = make_scenario("dense", 16, 64)
    peaks = []
    for words in ("tp1 dp16", "tp2 tp2=1 dp8", "tp4 tp2=2 dp4", "tp8 tp2=2 dp2", "tp16 tp2=4 dp1"):
        plan = parse_plan(f"{words} {WORDS}".replace("zero1", "zero0"))
        peaks.append(float(evaluate(scenario, batch_of([plan]))[1][0]))
    assert peaks == sorted(peaks, reverse=True)


def test_on_one_rank_a_grid_is_no_grid() -> None:
    scenario = make_scenario("dense", 16, 64)
    plain, grid = (
        evaluate(scenario, batch_of([parse_plan(f"pp4 dp4 zero1 {words}")]))
        for words in ("", "tp_mode=summa tp2=1")
    )
    assert (plain[0][0], plain[1][0]) == (grid[0][0], grid[1][0])


def test_a_second_side_of_one_keeps_weights_and_activations() -> None:
    """tp2=1 holds and multiplies what 1-D does; only what it sends differs."""
    scenario = make_scenario("dense", 16, 64)
    found = []
    for words in ("sp", "tp_mode=summa tp2=1"):
        plans = batch_of([parse_plan(f"tp4 pp2 dp2 zero1 {words}")])
        tables = tables_of(scenario, plans)
        stages = stages_of_plans(plans, tables)
        norms = sum(o.parameters for p in tables.parts.ops for o in p if o.family == "norm")
        found.append((stages, flop_of(tables), float(np.sum(norms))))
    one, two = found
    assert two[1] == pytest.approx(one[1], rel=1e-12)
    assert (two[0].kept_bytes <= one[0].kept_bytes * (1 + 1e-12)).all()
    # A grid cuts the weights of norms too.
    assert (two[0].parameters <= one[0].parameters).all()
    assert (one[0].parameters - two[0].parameters <= 25 * one[2]).all()


def flop_of(tables: object) -> float:
    parts = tables.parts  # type: ignore[attr-defined]
    return float(sum(np.sum(o.forward().matrix_flop) for p in parts.ops for o in p))


def test_parameters_are_conserved_through_the_spine() -> None:
    scenario = make_scenario("dense", 16, 64)
    plans = batch_of([parse_plan(f"tp8 tp2=2 pp2 dp1 {WORDS}")])
    tables = tables_of(scenario, plans)
    held = float((stages_of_plans(plans, tables).parameters * tables.stages.multiplicity).sum())
    whole = batch_of([parse_plan("pp2 dp8")])
    apart = tables_of(scenario, whole)
    once = float((stages_of_plans(whole, apart).parameters * apart.stages.multiplicity).sum())
    norms = (24 * 2 + 1) * 1024.0
    assert 8.0 * held == pytest.approx(once + norms * (2 - 1), rel=1e-12)


def test_leaves_sum_and_messages_show() -> None:
    scenario = make_scenario("dense", 16, 64)
    for words in ("tp8 tp2=2 dp2", "tp4 tp2=4 pp2 dp2 recompute=full", "tp4 tp2=2 dp4 panels=8"):
        plan = parse_plan(f"{words} {WORDS}")
        answer = answer_of(scenario, plan, chosen=False)
        assert answer.breakdown is not None
        assert sum(x.value for x in answer.breakdown.leaves()) == pytest.approx(
            answer.step_s, rel=1e-12
        )
        leaves = {leaf.name: leaf.value for leaf in answer.breakdown.children}
        assert leaves["tensor_parallel"] > 0.0
        assert "context_parallel" not in leaves
        assert str(parse_plan(str(plan))) == str(plan)


def test_first_panel_and_what_no_product_hides() -> None:
    """Slow links show all of the panels; with fast ones more panels show less of the first."""
    scenario = make_scenario("dense", 16, 64)

    def waits(panels: int, factor: float) -> float:
        tiers = tuple(
            replace(t, bandwidth_bytes_per_s=t.bandwidth_bytes_per_s * factor, latency_s=0.0)
            for t in scenario.system.network.tiers
        )
        network = replace(scenario.system.network, tiers=tiers)
        there = replace(scenario, system=replace(scenario.system, network=network))
        plan = parse_plan(f"tp4 tp2=2 dp4 panels={panels} {WORDS}")
        tree = answer_of(there, plan, chosen=False).breakdown
        assert tree is not None
        return next(x.value for x in tree.children if x.name == "tensor_parallel")

    assert waits(16, 100.0) < waits(4, 100.0)
    assert waits(4, 0.01) > 50.0 * waits(4, 1.0)


@pytest.mark.parametrize(
    ("model", "text", "words"),
    [
        ("dense", "tp4 tp2=2 dp4", "needs a grid"),
        ("dense", "tp4 panels=4 dp4", "needs a grid"),
        ("dense", "tp4 tp2=3 dp4 tp_mode=summa", "must divide tp 4"),
        ("dense", "tp4 tp2=8 dp4 tp_mode=summa", "must divide tp 4"),
        ("dense", "tp4 tp2=2 dp4 tp_mode=summa no-sp", "no-sp needs tp_mode=1d"),
        ("dense", "tp4 tp2=2 cp2 dp2 tp_mode=summa", "cuts the sequence already"),
        ("dense", "tp4 tp2=2 dp4 tp_mode=summa lora=8", "adapters"),
        ("dense", "tp4 tp2=2 dp4 tp_mode=summa optimizer=muon", "whole matrices"),
        ("dense", "tp4 tp2=2 dp4 tp_mode=summa panels=3", "panels 3 must be whole"),
        ("dense", "tp3 tp2=3 dp4 tp_mode=summa", "must divide widths and tokens: 2816 mod 3"),
        ("moe", "tp4 tp2=2 dp4 tp_mode=summa", "a LatentAttention mixer"),
        ("hybrid", "tp4 tp2=2 dp4 tp_mode=summa", "a Mamba2 mixer"),
    ],
)
def test_rules_say_what_has_no_grid(model: str, text: str, words: str) -> None:
    plan = parse_plan(text)
    found = dict(broken_rules(make_scenario(model, 16, 64), plan, batch_of([plan])))
    assert words in found["grid"]


def test_keys_of_a_grid_are_those_of_context_parallelism() -> None:
    part, grid = whole_layer(make_model("dense")), TensorGrid(m1=2.0, m2=4.0, panels=0.0)
    local = grid_parallel(part, grid)
    assert grid_traffic(part, local, grid, 1024.0).keys == context_traffic(local, "allgather").keys
    assert grid_traffic(part, local, grid, 1024.0).keys == 2 * LENGTH * 2 * 2 * 64


def test_text_comes_back() -> None:
    text = "tp8 pp1 dp2 zero1 mbs1 sp recompute=none tp_mode=summa tp2=2 panels=8"
    assert str(parse_plan(text)) == text
    assert parse_plan(text) == replace(
        Plan(tp=8, dp=2, zero=1, sp=True), tp_mode="summa", tp2=2, panels=8
    )


@pytest.mark.parametrize(("m1", "m2"), SIDES)
def test_two_panels_of_others_are_held(m1: int, m2: int) -> None:
    """The one at work and the next: of A where a row has several ranks, of B where a column has."""
    whole = whole_layer(study_model())
    grid = TensorGrid(m1=float(m1), m2=float(m2), panels=8.0)
    traffic = grid_traffic(whole, grid_parallel(whole, grid), grid, 1024.0)
    panels = [(p.inputs * (m1 > 1) + p.weights * (m2 > 1)) / p.panels for p in traffic.products]
    assert len(panels) == 4
    assert float(traffic.held) == pytest.approx(2.0 * max(map(float, panels)), rel=1e-12)
