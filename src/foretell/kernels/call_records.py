"""Kernel calls of operations: the records."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index
from foretell.workload.ops import Work

Sizes = Mapping[str, Num]


def table_of(values: Sequence[Num], width: int) -> Array:
    """Numbers and arrays over shapes as one (values, shapes) array."""
    if width == 1:
        try:
            return np.array(values, dtype=float).reshape(-1, 1)
        except ValueError:  # numbers beside arrays of one number
            pass
    rows = np.empty((len(values), width))
    for row, value in zip(rows, values, strict=True):
        row[...] = value
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkForm:
    """How a framework writes down what others leave to one kernel."""

    apart: bool = False
    """Maps of one input are products of their own."""
    repeated: bool = False
    """Keys and values that heads share are written out for every head."""
    modules: bool = False
    """Modules are those of transformers, one plain operation after the other (kernels/modules.py)."""
    in_turn: bool = False
    """Experts run one after the other, each by kernels of its own (a loop over them)."""
    joint: bool = False
    """Queries, keys and values are one product all the same."""
    rms: bool = False
    """Norms are composed of several operations."""
    composed: bool = False
    """Activations are composed of several operations."""
    dropout: bool = False
    """Results of the parts are dropped at random before they are added."""
    capped: bool = False
    """Scores are divided, squashed and multiplied before the loss."""
    padded: bool = True
    """The vocabulary is filled up to whole loads."""
    casts_weights: bool = False
    """Products in 16 bits read casts of weights in 32, and their gradients are widened."""
    casts_inputs: bool = False
    """They read casts of their inputs too, each product its own."""
    adapters: Literal["", "plain", "narrow", "wide"] = ""
    """Of modules with frozen weights: adapters are plain and in 16 bits, or in 32 bits as PEFT makes them,
    their products in 16 (narrow) or in 32 (wide); empty: nothing is frozen."""


PLAINLY = FrameworkForm()
"""Nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One kernel of an operation."""

    family: str
    """gemm, grouped, prefill, prefill-backward, pointwise or scan."""
    linear: bool
    """Whether a low-precision recipe runs it in its narrow format."""
    row: int
    """The operation's place in the stack."""
    sizes: Sizes
    """Its sizes; numbers or (shapes,)."""
    work: Work
    """Its work, for energy and for passes over memory."""
    kind: str = ""
    """Of a pass over memory: norm, residual, act, ... (kernels/fusion.py)."""
    backward: bool = False
    """Which pass it is of."""
    launches: Num = 1.0
    """How often its kernels are launched, each for a part of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStack:
    """Calls of one family and format; arrays are (calls, shapes)."""

    family: str
    """The family."""
    linear: bool
    """Whether a low-precision recipe runs them in its narrow format."""
    rows: Index
    """The operation of each call: forward ones first, then the backward ones; (calls,)."""
    kinds: tuple[tuple[str, bool], ...]
    """Kind of each call's pass over memory, and whether it is of the backward pass."""
    sizes: Mapping[str, Array]
    """Sizes by name."""
    matrix_flop: Array
    """Operations of the matrix products."""
    vector_flop: Array
    """Plain operations."""
    activation_elements: Array
    """Activations read and written."""
    weight_elements: Array
    """Weights read, and weight gradients written."""
    launches: Array
    """How often each call's kernels are launched."""
