"""Tensor chains: factors, bonds, orders, and two forms of one map."""

from itertools import permutations
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.specs.block import MapShape
from foretell.workload.blocks.tensor_chain import (
    LEAST_BOND,
    Chain,
    TensorChain,
    _steps,
    best_steps,
    bond,
    factors,
)
from foretell.workload.ops import Gemm

WIDTH = st.integers(min_value=1, max_value=400)


@given(number=st.integers(min_value=1, max_value=5000), length=st.sampled_from([1, 2, 3]))
def test_factors_multiply_to_the_number_larger_first(number: int, length: int) -> None:
    found = factors(number, length)
    assert prod(found) == number
    assert len(found) == length
    assert list(found) == sorted(found, reverse=True)


@given(number=st.integers(min_value=1, max_value=600))
def test_factors_have_the_least_sum(number: int) -> None:
    pairs = [(a, number // a) for a in range(1, number + 1) if number % a == 0]
    assert sum(factors(number, 2)) == min(map(sum, pairs))
    triples = [
        (a, x, y) for a, b in pairs for x in range(1, b + 1) if b % x == 0 for y in (b // x,)
    ]
    assert sum(factors(number, 3)) == min(map(sum, triples))


def test_published_factors_and_bonds() -> None:
    assert factors(512, 2) == (32, 16)
    assert factors(1365, 2) == (39, 35)
    assert bond(512, 512, 2, 0.07) == 14
    assert bond(512, 1365, 2, 0.1) == bond(1365, 512, 2, 0.1) == 38
    assert bond(512, 1365, 2, 0.005) == LEAST_BOND


def test_published_multiply_adds() -> None:
    """The best orders of the shapes that Anthe uses, against the dense map's."""
    narrow, wide = TensorChain(ratio=0.005), TensorChain(ratio=0.1)
    up = MapShape(name="up", inputs=512, outputs=1365)
    down = MapShape(name="down", inputs=1365, outputs=512)
    assert best_steps(narrow.chain(up)).macs == best_steps(narrow.chain(down)).macs == 83_616
    assert [s.core for s in best_steps(narrow.chain(up)).steps] == [0, 1]
    assert [s.core for s in best_steps(narrow.chain(down)).steps] == [1, 0]
    assert _steps(narrow.chain(down), (0, 1)).macs == 123_200
    assert best_steps(wide.chain(up)).macs == 1_588_704
    own = MapShape(name="q", inputs=512, outputs=512)
    assert best_steps(TensorChain(ratio=0.07).chain(own)).macs == 344_064


def test_the_cheaper_form_is_chosen_by_shape() -> None:
    up = MapShape(name="up", inputs=512, outputs=1365)
    assert TensorChain(ratio=0.005).contracts(up)
    assert not TensorChain(ratio=0.1).contracts(up)
    assert TensorChain(ratio=0.1, form="contract").contracts(up)
    assert not TensorChain(ratio=0.005, form="build").contracts(up)


@given(inputs=WIDTH, outputs=WIDTH, length=st.sampled_from([2, 3]), ratio=st.floats(0.001, 1.0))
def test_cores_spend_no_more_than_their_share(
    inputs: int, outputs: int, length: int, ratio: float
) -> None:
    chain = TensorChain(ratio=ratio, length=length).chain(
        MapShape(name="map", inputs=inputs, outputs=outputs)
    )
    spent = sum(chain.sizes)
    assert chain.bond == LEAST_BOND or spent <= ratio * inputs * outputs * (1 + 1e-9)


@given(
    inputs=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    data=st.data(),
    width=st.integers(1, 5),
)
def test_the_best_order_is_the_best_of_all(
    inputs: list[int], data: st.DataObject, width: int
) -> None:
    outputs = data.draw(st.lists(st.integers(1, 6), min_size=len(inputs), max_size=len(inputs)))
    chain = Chain(inputs=tuple(inputs), outputs=tuple(outputs), bond=width)
    every = [_steps(chain, order).macs for order in permutations(range(len(inputs)))]
    assert best_steps(chain).macs == min(every)


@given(
    inputs=st.integers(2, 60),
    outputs=st.integers(2, 60),
    length=st.sampled_from([2, 3]),
    rows=st.integers(1, 7),
    form=st.sampled_from(["build", "contract"]),
)
def test_graph_holds_cores_and_bias_once(
    inputs: int, outputs: int, length: int, rows: int, form: str
) -> None:
    record = TensorChain(ratio=0.3, length=length, form=form)
    shape = MapShape(name="map", inputs=inputs, outputs=outputs, bias=True)
    chain = record.chain(shape)
    graph = record.graph(shape, float(rows))
    assert sum(float(op.parameters) for op in graph.ops) == sum(chain.sizes) + outputs
    if form == "contract":
        work = sum(float(op.forward().matrix_flop) for op in graph.ops if isinstance(op, Gemm))
        assert work == 2.0 * rows * best_steps(chain).macs
    table = record.table_graph(shape, float(rows))
    held = sum(chain.sizes) + (outputs if form == "build" else 0)
    assert sum(float(op.parameters) for op in table.ops) == held


@settings(deadline=None, max_examples=40)
@given(
    inputs=st.integers(2, 40),
    outputs=st.integers(2, 40),
    length=st.sampled_from([2, 3]),
    width=st.integers(1, 4),
)
def test_both_forms_are_one_map(inputs: int, outputs: int, length: int, width: int) -> None:
    """The contracted form, the built one, the table's rows and the formula give the same numbers."""
    torch = pytest.importorskip("torch", reason="torch is not installed: no modules to build")
    shape = MapShape(name="map", inputs=inputs, outputs=outputs, bias=True)
    torch.manual_seed(0)
    made = {
        form: TensorChain(length=length, bond=width, form=form) for form in ("build", "contract")
    }
    modules = {form: record.module(shape).double() for form, record in made.items()}
    modules["contract"].load_state_dict(modules["build"].state_dict())
    x = torch.randn(3, 2, inputs, dtype=torch.float64)
    built = modules["build"](x)
    assert torch.allclose(built, modules["contract"](x), atol=1e-10)
    cores = [modules["build"][f"core{j}"] for j in range(length)]
    text = "abc,dbe->adce" if length == 2 else "abc,dbef,geh->adgcfh"
    whole = torch.einsum(text, *cores).reshape(inputs, outputs)
    assert torch.allclose(built, x @ whole + modules["build"]["bias"], atol=1e-10)
    ids = torch.randint(0, inputs, (2, 5))
    for record in made.values():
        table = record.table_module(MapShape(name="table", inputs=inputs, outputs=outputs)).double()
        with torch.no_grad():
            for j, core in enumerate(cores):
                table[f"core{j}"].copy_(core)
        assert torch.allclose(table(ids), whole[ids], atol=1e-10)


def test_cores_start_as_spread_as_a_dense_map() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: no modules to build")
    torch.manual_seed(0)
    for length in (2, 3):
        record = TensorChain(length=length, ratio=0.3)
        shape = MapShape(name="map", inputs=512, outputs=512)
        out = record.module(shape)(torch.randn(64, 512)).detach()
        dense = torch.nn.Linear(512, 512, bias=False)(torch.randn(64, 512)).detach()
        assert 0.6 < float(out.std() / dense.std()) < 1.6
