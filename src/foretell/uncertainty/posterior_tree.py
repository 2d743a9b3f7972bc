"""The intervals of a time tree under a posterior: each leaf as its mechanism is known, sums by squares."""

import math
from collections.abc import Mapping
from dataclasses import replace

from foretell.specs.result import Leaf
from foretell.uncertainty.evidence import join_intervals
from foretell.uncertainty.mechanisms import mechanism_of

ENDS = {"p50": 0.674, "p90": 1.645}
"""Ends of an interval in standard deviations."""


def tree_of(
    tree: Leaf, deviations: Mapping[str, float], whole: Mapping[str, tuple[float, float]]
) -> Leaf:
    """The tree with intervals from the standard deviations of log-factors; the root has its own."""
    return replace(_with_intervals(tree, deviations), interval=dict(whole))


def _with_intervals(tree: Leaf, deviations: Mapping[str, float]) -> Leaf:
    if not tree.children:
        wide = deviations[mechanism_of(tree.name)]
        interval = {
            key: (tree.value * math.exp(-z * wide), tree.value * math.exp(z * wide))
            for key, z in ENDS.items()
        }
        return replace(tree, interval=interval)
    children = tuple(_with_intervals(child, deviations) for child in tree.children)
    return replace(tree, children=children, interval=join_intervals(tree.value, children))
