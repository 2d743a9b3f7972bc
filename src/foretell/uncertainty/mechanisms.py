"""The mechanisms of a training step: which leaf of its tree goes with which."""

from collections.abc import Mapping

import numpy as np

from foretell.specs.arrays import Array
from foretell.specs.corrections import TRAINING
from foretell.specs.result import Leaf

MECHANISMS: Mapping[str, str] = {
    "gemm": "gemm",
    "grouped-gemm": "experts",
    "attention": "attention",
    "tensor_parallel": "tensor_parallel",
    "context_parallel": "context_parallel",
    "expert_parallel": "expert_parallel",
    "pipeline_parallel": "pipeline_parallel",
    "data_parallel": "data_parallel",
    "host": "host",
    "fixed": "fixed",
    "bubble": "gemm",
}
"""Leaf -> the mechanism that it goes with; the rest are passes over memory."""
PLACES = {name: i for i, name in enumerate(TRAINING)}


def mechanism_of(leaf: str) -> str:
    """The mechanism of a leaf by its name."""
    return MECHANISMS.get(leaf, "memory_bound")


def shares_of(tree: Leaf) -> Array:
    """Share of a step's time that is of each mechanism; (mechanisms,)."""
    found = np.zeros(len(TRAINING))
    for child in tree.children or (tree,):
        for end in child.children or (child,):
            found[PLACES[mechanism_of(end.name)]] += end.value
    total = float(found.sum())
    return found / total if total > 0.0 else found
