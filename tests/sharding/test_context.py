"""Context parallelism: one rank is the identity, work is shared, messages are what the modes say."""

import numpy as np
import pytest

from foretell.sharding.context import context_parallel, context_traffic
from foretell.specs.plan import Plan
from foretell.specs.plan_words import ContextMode
from foretell.training.shapes import Shape, graph_parts, shapes_of
from foretell.workload.build import build
from foretell.workload.graph import Graph, LayerGraph
from tests.builders import GENERIC, STACKS, make_model

MODES: tuple[ContextMode, ...] = ("ring", "allgather", "ulysses")
LENGTHS = (4096, None)


def graph_of(name: str, flash: bool = True) -> Graph:
    return build(make_model(name), batch=2.0, seq_len=4096.0, flash=flash)


def flop(part: LayerGraph, skip: tuple[str, ...] = ()) -> float:
    return float(
        sum(
            op.forward().matrix_flop + op.backward().matrix_flop
            for op in part.ops
            if op.name not in skip
        )
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", list(STACKS))
def test_one_rank_is_the_whole(name: str, mode: ContextMode) -> None:
    for part in graph_parts(graph_of(name)):
        one = context_parallel(part, 1.0, mode)
        assert flop(one) == flop(part)
        assert sum(s.elements for s in one.saved) == sum(s.elements for s in part.saved)
        assert one.input_elements == part.input_elements
        assert one.edges == part.edges
        merges = [op for op in one.ops if op.name.endswith("merge")]
        assert all(op.forward().activation_elements == 0.0 for op in merges)


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", list(STACKS))
def test_ranks_share_the_work_and_what_is_kept(name: str, mode: ContextMode, flash: bool) -> None:
    """All products, summed over the ranks, are the whole's; a gathered latent is expanded by each."""
    skip = ("attention.kv_up",) if mode == "allgather" else ()
    for part in graph_parts(graph_of(name, flash)):
        cut = context_parallel(part, 4.0, mode)
        assert 4.0 * flop(cut, skip) == pytest.approx(flop(part, skip), rel=1e-12)
        whole = sum(s.elements for s in part.saved if s.name != "attention.expanded")
        shared = sum(s.elements for s in cut.saved if s.name != "attention.expanded")
        assert 4.0 * shared == pytest.approx(whole, rel=1e-12)
        held = sum(op.parameters for op in part.ops)
        assert sum(op.parameters for op in cut.ops) == held


def traffic(name: str, cp: float, tp: float, mode: ContextMode) -> tuple[float, float, float]:
    """Elements of keys, of what an all-to-all sends, and of states, of the first layer kind."""
    shape = Shape(micro_batch=2.0, tp=tp, sp=1.0, cp=cp)
    found = shapes_of(make_model(name), LENGTHS, Plan(cp_mode=mode), GENERIC, shape).context[0]
    return float(found.keys), float(found.queries + found.results), float(found.states)


def test_only_keys_and_values_of_the_grouped_heads_travel() -> None:
    """16 heads of 64 share 4 of keys and values: 2 x 4 x 64 elements a token, over the ranks of tp."""
    tokens = 2 * 4096
    for mode in ("ring", "allgather"):
        assert traffic("dense", 4.0, 1.0, mode)[0] == tokens * 2 * 4 * 64
        assert traffic("dense", 4.0, 4.0, mode)[0] == tokens * 2 * 64
        # Beyond one head a rank, heads are copied.
        assert traffic("dense", 2.0, 8.0, mode)[0] == tokens * 2 * 64
    sent = traffic("dense", 4.0, 1.0, "ulysses")[1]
    assert sent == tokens / 4 * (2 * 16 + 2 * 4) * 64


def test_a_gathered_latent_travels_as_it_is() -> None:
    shape = Shape(micro_batch=2.0, tp=4.0, sp=1.0, cp=4.0)
    gathered, passed = (
        shapes_of(make_model("moe"), LENGTHS, Plan(cp_mode=mode), GENERIC, shape).context[1].keys
        for mode in ("allgather", "ring")
    )
    assert gathered == 2 * 4096 * (128 + 32)
    assert passed == 2 * 4096 * (16 / 4) * (64 + 32 + 64)


def test_recurrences_exchange_heads_for_tokens() -> None:
    assert traffic("hybrid", 4.0, 1.0, "ring")[2] > 0.0
    assert traffic("dense", 4.0, 1.0, "ring")[2] == 0.0


def test_arrays_and_numbers_agree() -> None:
    cp = np.array([1.0, 2.0, 4.0])
    many = Shape(micro_batch=np.ones(3), tp=np.full(3, 2.0), sp=np.ones(3), cp=cp)
    batch = shapes_of(make_model("moe"), LENGTHS, Plan(), GENERIC, many)
    for i, degree in enumerate(cp):
        one = Shape(micro_batch=1.0, tp=2.0, sp=1.0, cp=float(degree))
        alone = shapes_of(make_model("moe"), LENGTHS, Plan(), GENERIC, one)
        for a, b in zip(batch.kept, alone.kept, strict=True):
            assert np.broadcast_to(a.whole, 3)[i] == pytest.approx(float(b.whole), rel=1e-12)


def test_traffic_of_a_part_without_attention_is_nothing() -> None:
    found = context_traffic(LayerGraph(name="empty"), "ring")
    assert (found.keys, found.queries, found.results, found.states) == (0.0, 0.0, 0.0, 0.0)
