"""Roles and regions as the graph's builders state them."""

import tomllib
from dataclasses import replace

import pytest

from foretell.catalog import model as catalog_model
from foretell.interop.own_model import read_table, write_toml
from foretell.specs.model import Projection
from foretell.workload.build import build
from foretell.workload.ends import projection_ops
from foretell.workload.graph import Edge, LayerGraph, Saved, with_region
from foretell.workload.ops import Gemm, Lookup, Op, Pointwise
from foretell.workload.roles import ALL_EXPERTS, EdgeRole, OpRole, Region, SavedRole

MODELS = ["gpt2-xl", "deepseek-v3", "deepseek-v4-flash", "qwen3-next-80b-a3b", "t5-base", "anthe"]
MAPS = {
    "listed": Region.HEAD,
    "layer": Region.NONE,
    "attention": Region.ATTENTION,
    "mixer": Region.MIXER,
    "indexer": Region.INDEXER,
}


def test_what_states_nothing_is_plain() -> None:
    ops: list[Op] = [Gemm(name="x", m=1.0, n=1.0, k=1.0), Pointwise(name="x", elements=1.0)]
    ops.append(Lookup(name="x", tokens=1.0, rows=1.0, width=1.0))
    assert {(op.role, op.region) for op in ops} == {(OpRole.OTHER, Region.NONE)}
    kept = Saved(name="x", elements=1.0, split="none")
    assert (kept.role, kept.region) == (SavedRole.OTHER, Region.NONE)
    edge = Edge(name="x", elements=1.0, leave=True)
    assert (edge.role, edge.region) == (EdgeRole.HIDDEN, Region.NONE)


def test_a_block_stands_in_the_region_where_it_is_used() -> None:
    product = Gemm(name="x", m=1.0, n=1.0, k=1.0)
    graph = LayerGraph(
        name="x",
        ops=(product, replace(product, region=Region.INDEXER)),
        saved=(Saved(name="x", elements=1.0, split="none"),),
        edges=(Edge(name="x", elements=1.0, leave=False),),
    )
    placed = with_region(graph, Region.MIXER)
    assert [op.region for op in placed.ops] == [Region.MIXER, Region.INDEXER]
    assert [placed.saved[0].region, placed.edges[0].region] == [Region.MIXER, Region.MIXER]


@pytest.mark.parametrize("name", MODELS)
def test_the_ends_are_regions_of_their_own(name: str) -> None:
    graph = build(catalog_model(name), batch=1.0, seq_len=64.0)
    assert {op.region for op in graph.embedding.ops} == {Region.EMBEDDING}
    # Streams of hyper-connections are collapsed behind the last layer, and belong to no head.
    assert {op.region for op in graph.head.ops} - {Region.NONE} == {Region.HEAD}
    ends = {Region.EMBEDDING, Region.HEAD}
    assert not ends & {op.region for kind in graph.kinds for op in kind.ops}


@pytest.mark.parametrize("name", MODELS)
def test_every_region_with_edges_has_products_inside(name: str) -> None:
    for kind in build(catalog_model(name), batch=1.0, seq_len=64.0).kinds:
        for edge in kind.edges:
            assert edge.region is not Region.NONE
            assert any(op.region is edge.region for op in kind.ops)
        experts = [op.role for op in kind.ops if op.region in ALL_EXPERTS]
        assert experts.count(OpRole.PERMUTE) == experts.count(OpRole.UNPERMUTE) == bool(experts)


@pytest.mark.parametrize("part", MAPS)
def test_further_maps_say_what_they_belong_to(part: str) -> None:
    one = Projection(name="x", inputs=8, outputs=24, part=part, qkv=True)  # type: ignore[arg-type]
    (op,) = projection_ops((one,), 4.0, Region.HEAD)
    assert (op.role, op.region) == (OpRole.QKV, MAPS[part])
    base = catalog_model("gpt2")
    layers = tuple(replace(layer, projections=(one,)) for layer in base.stack.layers)
    mine = replace(base, stack=replace(base.stack, layers=layers), assumptions=())
    text = write_toml(mine)
    assert ("part" in text) == (part != "listed")
    assert read_table(tomllib.loads(text), id="mine").stack == mine.stack
