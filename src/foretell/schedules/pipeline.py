"""Pipeline schedules in closed form: stage times to the time of a step.

1F1B over stages of times t_s (forward and backward of one micro-batch, sends included) with mu
micro-batches: the slowest stage works without pause once the pipeline is full, and the others' first and
last micro-batch pass by it:

    T = mu max(t) + (sum(t) - max(t)) / v

For equal stages this is (mu + pp - 1) t, exactly; v virtual stages shorten fill and drain by v
(Narayanan et al. 2021). GPipe has the same time and holds all micro-batches.
"""

import numpy as np

from foretell.specs.arrays import Array, Index


def fill_and_drain_s(stage_s: Array, multiplicity: Array, slowest: Index, vpp: Array) -> Array:
    """The bubble seen from the slowest stage; arrays are (plans, stages)."""
    rows = np.arange(len(stage_s))
    around = (stage_s * multiplicity).sum(axis=1) - stage_s[rows, slowest]
    return np.asarray(around / vpp)
