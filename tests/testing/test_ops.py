"""The conformance checks catch what they are for."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from foretell.testing.ops import check_layer, check_op
from foretell.workload.graph import LayerGraph, Tokens
from foretell.workload.ops import Gemm, Pointwise, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(Gemm):
    """A product with one defect."""

    defect: str = ""

    def forward(self) -> Work:
        work = Gemm.forward(self)
        flop = work.matrix_flop
        if self.defect == "negative":
            return replace(work, matrix_flop=-flop)
        if self.defect == "shrinks":
            return replace(work, matrix_flop=flop / np.maximum(self.k, 1.0) ** 2)
        if self.defect == "overhead":
            return replace(work, matrix_flop=flop + 1.0)
        if self.defect == "infinite":
            return replace(work, matrix_flop=flop + np.inf)
        if self.defect == "first only":
            return replace(work, matrix_flop=flop * 0 + np.ravel(flop)[0])
        return work

    def cut(self, parts: float) -> "Broken":
        if self.defect == "loses":
            return replace(self, n=self.n / parts**2)
        if self.defect == "keeps":
            return self
        if self.defect == "cut once":
            return replace(self, n=self.n / (parts + 1.0))
        return replace(self, n=self.n / parts)


def broken(defect: str) -> None:
    check_op(
        lambda m, n, k: Broken(name="x", m=m, n=n, k=k, split="col", defect=defect), sizes=("m",)
    )


def test_a_sound_op_passes() -> None:
    broken("")


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        ("negative", "is negative"),
        ("shrinks", "when k grows"),
        ("overhead", "with m = 0"),
        ("infinite", "not finite"),
        ("first only", "batch"),
        ("loses", "work is lost"),
        ("keeps", "not conserved"),
        ("cut once", r"cut\(1\) changes"),
    ],
)
def test_each_defect_is_found_and_named(defect: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        broken(defect)


def test_a_role_is_none_of_texts() -> None:
    with pytest.raises(AssertionError, match="role or region"):
        check_op(lambda m, n, k: Gemm(name="x", m=m, n=n, k=k, role="up"), sizes=("m",))  # type: ignore[arg-type]


def test_copied_work_must_be_stated() -> None:
    def make(m: float, n: float, k: float) -> Gemm:
        return Gemm(name="x", m=m, n=n + 8.0, k=k, split="col", n_kv=8.0, n_kv_min=8.0)

    with pytest.raises(AssertionError, match="not conserved"):
        check_op(make, sizes=("m",))
    check_op(make, sizes=("m",), copies=True)


def test_an_op_that_is_never_cut_must_not_change() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Cuts(Pointwise):
        def cut(self, parts: float) -> "Cuts":
            return replace(self, elements=self.elements / parts)

    with pytest.raises(AssertionError, match="never cut"):
        check_op(lambda elements: Cuts(name="x", elements=elements, split="none"))


@pytest.mark.parametrize("defect", ["weights by phase", "work without tokens", "counts batches"])
def test_layers_are_held_to_all_phases_and_sizes(defect: str) -> None:
    def make(tokens: Tokens) -> LayerGraph:
        width = 8.0 if tokens.phase == "decode" and defect == "weights by phase" else 4.0
        rows = tokens.count + (1.0 if defect == "work without tokens" else 0.0)
        if defect == "counts batches":
            rows = rows * np.size(tokens.batch)
        return LayerGraph(name="x", ops=(Gemm(name="x", m=rows, n=width, k=4.0),))

    with pytest.raises(AssertionError):
        check_layer(make)
