"""Conformance checks of operations and layer graphs.

    from foretell.testing.ops import check_op
    check_op(lambda m, n, k: MyOp(name="x", m=m, n=n, k=k), sizes=("m",))

A new op or mixer is right in form when these pass: it states its role; work is finite, never
negative and grows with every dim; nothing to do costs nothing; cutting it once changes nothing and
cutting it in parts loses no work; arrays of dims give what each of their numbers gives. That its
FLOPs are right takes an independent count beside it.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num
from foretell.workload.graph import LayerGraph, Phase, Tokens
from foretell.workload.ops import Op, Work
from foretell.workload.roles import OpRole, Region

RELATIVE = 1e-12
"""How far a batch may be from its numbers, and a sum over ranks from the whole."""

Factory = Callable[..., Op]
"""Makes an op from numeric dims, all given by name."""
Dims = Mapping[str, Num]
"""The dims of one op."""


def check_op(
    factory: Factory,
    *,
    sizes: Sequence[str] | None = None,
    parts: Sequence[float] = (2.0, 4.0),
    copies: bool = False,
    examples: int = 25,
    seed: int = 0,
) -> None:
    """All checks on random dims.

    The dims are the parameters of `factory`, drawn from 1 to 4096. `sizes` names those whose zero
    means that there is nothing to do (default: all). `copies` says that some work is repeated on
    every rank once there are more ranks than parts of it (key and value heads).
    """
    names = tuple(inspect.signature(factory).parameters)
    random = np.random.default_rng(seed)
    draws = [
        {name: float(np.round(2.0 ** random.uniform(0.0, 12.0))) for name in names}
        for _ in range(examples)
    ]
    for dims in draws:
        op = factory(**dims)
        check_work(op)
        for name in names:
            check_monotone(factory, dims, name)
        for name in names if sizes is None else sizes:
            check_zero(factory, dims, name)
        for count in parts:
            check_cut(op, count, copies=copies)
    check_batch(factory, draws)


def check_work(op: Op) -> None:
    """A role and a region are stated; work and weights are finite and not negative; `cut(1)` is the op
    itself."""
    role, region = op.role in [*OpRole], op.region in [*Region]
    _claim(role and region, op, f"role or region is none that there is: {op.role}, {op.region}")
    for where, value in _numbers(op):
        _claim(bool(np.all(np.isfinite(value))), op, f"{where} is not finite: {value}")
        _claim(bool(np.all(np.asarray(value) >= 0)), op, f"{where} is negative: {value}")
    _same(op, op.cut(1.0), op, "cut(1) changes")


def check_monotone(factory: Factory, dims: Dims, name: str, factor: float = 2.0) -> None:
    """No part of the work shrinks when one dim grows by `factor`."""
    small, large = factory(**dims), factory(**{**dims, name: dims[name] * factor})
    for (where, before), (_, after) in zip(_numbers(small), _numbers(large), strict=True):
        message = f"{where} falls from {before} to {after} when {name} grows"
        _claim(_grows(before, after), small, message)


def check_zero(factory: Factory, dims: Dims, name: str) -> None:
    """With dim `name` at zero there is no work in either pass."""
    op = factory(**{**dims, name: 0.0})
    for where, value in _numbers(op):
        if where != "parameters":
            _claim(not np.any(value), op, f"{where} is {value} with {name} = 0")


def check_cut(op: Op, parts: float, *, copies: bool = False) -> None:
    """Over all ranks no work is lost, and none is added beyond what the op's split states.

    none: every rank does everything. tokens: work is shared, weights are whole. Otherwise work is
    shared; weights are between shared and whole, since norms and row biases stay whole.
    """
    part = op.cut(parts)
    if op.split == "none":
        _same(op, part, op, f"cut({parts}) changes an op that is never cut, in")
        return
    for (where, whole), (_, one) in zip(_numbers(op), _numbers(part), strict=True):
        total, slack = np.asarray(one) * parts, RELATIVE * np.asarray(whole)
        label = f"{where}: {parts} ranks have {total}, one has {whole}"
        _claim(bool(np.all(total >= whole - slack)), op, f"work is lost in {label}")
        _claim(bool(np.all(total <= parts * whole + parts * slack)), op, f"work is made in {label}")
        if where.endswith("flop") and not copies:
            _claim(bool(np.all(np.abs(total - whole) <= slack)), op, f"not conserved: {label}")


def check_batch(factory: Factory, draws: Sequence[Dims]) -> None:
    """Arrays of dims give what each of their numbers gives, to 1e-12, before and after a cut."""
    arrays = {name: np.array([d[name] for d in draws], dtype=float) for name in draws[0]}
    batch = factory(**arrays)
    ranks = np.array([float(2 ** (i % 4)) for i in range(len(draws))])
    cut = batch.cut(ranks)
    for i, dims in enumerate(draws):
        one = factory(**dims)
        for many, single in ((batch, one), (cut, one.cut(float(ranks[i])))):
            for (where, values), (_, value) in zip(_numbers(many), _numbers(single), strict=True):
                got = np.broadcast_to(np.asarray(values, float), ranks.shape)[i]
                _claim(_close(got, value), one, f"{where}: batch {got}, alone {value}")


def check_layer(make: Callable[[Tokens], LayerGraph]) -> None:
    """A layer graph (a mixer, a feed-forward part) in all phases, over arrays, and cut.

    The same weights in every phase; no tokens, no work; sizes grow with the tokens; a batch of
    token counts gives what each gives; saved tensors and edges are finite and not negative.
    """
    phases: tuple[Phase, ...] = ("training", "prefill", "decode")
    weights = [float(sum(op.parameters for op in make(_tokens(p, 2.0, 8.0)).ops)) for p in phases]
    assert len(set(weights)) == 1, f"weights differ between phases: {weights}"
    for phase in phases:
        for flash in (True, False):
            _check_phase(make, phase, flash)


def _check_phase(make: Callable[[Tokens], LayerGraph], phase: Phase, flash: bool) -> None:
    batches, lengths = (1.0, 2.0, 3.0), (1.0, 64.0, 300.0)
    many = make(_tokens(phase, np.array(batches), np.array(lengths), flash))
    ones = [make(_tokens(phase, b, s, flash)) for b, s in zip(batches, lengths, strict=True)]
    for i, one in enumerate(ones):
        for several, single in zip(many.ops, one.ops, strict=True):
            check_work(single)
            check_cut(single, 2.0, copies=True)
            for (where, v), (_, w) in zip(_numbers(several), _numbers(single), strict=True):
                got = np.broadcast_to(np.asarray(v, float), (len(batches),))[i]
                _claim(_close(got, w), single, f"{where}: batch {got}, alone {w}")
        for s, t in zip(many.saved + many.edges, one.saved + one.edges, strict=True):
            got = np.broadcast_to(np.asarray(s.elements, float), (len(batches),))[i]
            assert _close(got, t.elements), f"{s.name}: batch {got}, alone {t.elements}"
            assert got >= 0, f"{s.name} is negative: {got}"
    for small, large in pairwise(ones):
        for a, b in zip(small.ops, large.ops, strict=True):
            for (where, v), (_, w) in zip(_numbers(a), _numbers(b), strict=True):
                _claim(_grows(v, w), a, f"{where} falls from {v} to {w} with more tokens")
    for op in make(_tokens(phase, 0.0, 64.0, flash)).ops:
        for where, value in _numbers(op):
            if where != "parameters":
                _claim(not np.any(value), op, f"{where} is {value} without tokens")


def _tokens(phase: Phase, batch: Num, length: Num, flash: bool = True) -> Tokens:
    """One new position against `length` in decode, all at once otherwise."""
    new: Num = 1.0 if phase == "decode" else length
    return Tokens(batch=batch, q_len=new, kv_len=length, cross_len=length, phase=phase, flash=flash)


def _numbers(op: Op) -> Iterable[tuple[str, NDArray[np.float64] | float]]:
    """Every number that an op gives, with its name."""
    yield "parameters", op.parameters
    for name, work in (("forward", op.forward()), ("backward", op.backward())):
        for field in fields(Work):
            yield f"{name} {field.name}", getattr(work, field.name)


def _grows(before: Num, after: Num) -> bool:
    return bool(np.all(np.asarray(after) >= np.asarray(before) * (1.0 - RELATIVE)))


def _close(a: Num, b: Num) -> bool:
    return bool(np.all(np.abs(np.asarray(a) - b) <= RELATIVE * np.abs(b)))


def _same(a: Op, b: Op, op: Op, message: str) -> None:
    for (where, v), (_, w) in zip(_numbers(a), _numbers(b), strict=True):
        _claim(_close(w, v), op, f"{message} {where} from {v} to {w}")


def _claim(true: bool, op: Op, message: str) -> None:
    assert true, f"{op.name}: {message} ({op})"
