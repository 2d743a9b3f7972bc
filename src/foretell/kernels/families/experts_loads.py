"""How pairs of a token and an expert fall on the experts of the most loaded rank.

Experts' loads are represented by a few quantiles. With skew a > 0 they are drawn from a power law x^-a
between 1 and 0.8 tokens (0.01 and 2 where there are fewer pairs than experts), scaled to the number of
pairs and limited to one row a token: what NVIDIA aiconfigurator's collector does for its `power_law_a` tables
(github.com/ai-dynamo/aiconfigurator, collector/helper.py). With skew 0 all experts get the same, as its
`balanced` tables. Against draws of that generator the rows of the most loaded rank are within 11 % (root mean
square over 1 to 65,536 tokens, 8 to 384 experts, 1 to 256 ranks), the distinct experts within 5 %.
"""

import numpy as np

from foretell.kernels.families.base import Dims
from foretell.records import dataclass
from foretell.specs.arrays import Array

_NODES = (0.18343464249564978, 0.525532409916329, 0.7966664774136267, 0.9602898564975362)
_WEIGHTS = (0.36268378337836166, 0.3137066458778869, 0.22238103445337443, 0.10122853629037706)
"""Gauss's eight points between -1 and 1, the four above zero: a test holds them to NumPy's."""
QUANTILES = (1.0 + np.array([-node for node in reversed(_NODES)] + [*_NODES])) / 2.0
"""Experts' places in the order of their loads, from the least to the most liked: points of Gauss."""
SHARES = np.array([*reversed(_WEIGHTS), *_WEIGHTS]) / 2.0
"""Parts of the experts that each stands for."""


LARGEST_OF_TWO = 0.564
"""Mean of the larger of two normal numbers, 1 / sqrt(pi); the largest of R is about so much times
log2(R) ** 0.8 (5 % up to 256)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """What one rank's experts get."""

    rows: Array
    """Rows of all its experts together."""
    distinct: Array
    """Experts that get any."""
    tiles: Array
    """Tiles that hold the rows, each expert's rounded up; the sizes of tiles are the last axis."""


def loads_of(dims: Dims, tiles: Array) -> Loads:
    """Rows, distinct experts and tiles of the most loaded rank.

    `pinned` experts of the rank get every token and take part of top_k. Where `drawn` is 1, rows fall on
    experts by chance, as a router's do: one that expects r of them gets any with 1 - exp(-r). Tables deal
    them out in turn, so that one is there as soon as it expects a whole row. Where `most` is above 0, experts
    are placed by their loads, and no rank gets more than that over the even share.
    """
    tokens, experts, ranks = dims["tokens"], dims["experts"], dims["ep"]
    pinned = np.asarray(dims.get("pinned", 0.0))
    spread = dims["top_k"] - pinned
    local = experts / ranks
    load = quantile_loads(tokens, experts, spread, ranks, dims["skew"])
    most = np.asarray(dims.get("most", 0.0))[..., None]
    even = (tokens * spread / experts)[..., None]
    over = _mean(load) / np.maximum(even, 1e-12)
    load = np.where((most > 0.0) & (over > most), load * most / np.maximum(over, 1e-12), load)
    drawn = np.asarray(dims.get("drawn", 0.0))[..., None]
    load = np.where(drawn > 0.0, np.minimum(by_chance(load, even, dims), tokens[..., None]), load)
    # An expert that expects less than one row is there with that probability.
    present = np.where(drawn > 0.0, -np.expm1(-load), np.minimum(load, 1.0))
    each = np.asarray(local)[..., None]
    rows = np.maximum(load / np.maximum(present, 1e-12), np.minimum(load, 1.0))
    filled = ((present * SHARES)[..., None, :] * np.ceil(rows[..., None, :] / tiles[:, None])).sum(
        -1
    )
    always = np.asarray(pinned * np.ones_like(tokens))[..., None]
    return Loads(
        rows=np.asarray(local * (load * SHARES).sum(-1) + pinned * tokens),
        distinct=np.asarray(
            np.minimum(local * (present * SHARES).sum(-1) + pinned, np.maximum(local, 1.0))
        ),
        tiles=np.asarray(each * filled + always * np.ceil(np.asarray(tokens)[..., None] / tiles)),
    )


def by_chance(load: Array, even: Array, dims: Dims) -> Array:
    """Loads of the rank that has the most in one step, where rows fall by chance.

    A rank that expects m rows has m +- sqrt(m); the most of R ranks have z sqrt(m (1 - 1 / R)) more, z the
    mean largest of R normal numbers, and z^2 / 6 since few rows are not spread evenly. What
    liked experts bring and what chance does are independent.
    """
    ranks = np.asarray(dims["ep"], float)[..., None]
    expected = np.maximum(even * np.asarray(dims["experts"])[..., None] / ranks, 1e-12)
    largest = LARGEST_OF_TWO * np.log2(np.maximum(ranks, 1.0)) ** 0.8
    others = 1.0 - 1.0 / ranks
    chance = largest * np.sqrt(others / expected) + largest**2 / 6.0 * others / expected
    over = np.maximum(_mean(load) / np.maximum(even, 1e-12), 1e-12)
    liked = np.maximum(over - 1.0, 0.0)
    return np.asarray(load * (1.0 + np.hypot(liked, chance)) / np.maximum(over, 1.0))


def quantile_loads(tokens: Array, experts: Array, top_k: Array, ranks: Array, skew: Array) -> Array:
    """Rows of the experts of the most loaded rank, by quantile on the last axis."""
    tokens, experts, top_k, ranks, skew = (
        np.asarray(value, dtype=np.float64)[..., None]
        for value in np.broadcast_arrays(tokens, experts, top_k, ranks, skew)
    )
    tokens = np.maximum(tokens, 1e-9)
    local = np.maximum(experts / ranks, 1.0)
    mean = np.maximum(tokens * top_k / experts, 1e-12)
    many = tokens * top_k > experts
    low = np.where(many, 1.0, 0.01)
    high = np.where(many, np.maximum(0.8 * tokens, 1.001), 2.0)
    power = 1.0 - skew
    power = np.where(np.abs(power) < 1e-3, 1e-3, power)
    start = low**power
    span = high**power - start
    # The most loaded of several ranks has the more liked experts: exactly so with one expert a rank,
    # where it has the largest of all; the less the more experts average within a rank.
    lift = ranks ** (-1.0 / (1.0 + 0.5 * np.sqrt(local - 1.0)))
    # x ** y as exp(y log x), which arrays do several times faster.
    plain = np.exp(np.log(span * QUANTILES + start) / power)
    lifted = np.exp(np.log(span * np.exp(lift * np.log(QUANTILES)) + start) / power)
    scale = mean / _mean(plain)
    # No expert gets a token twice: what is cut off goes to the others, by the room that they have left.
    kept = _mean(np.minimum(plain * scale, tokens))
    given = np.maximum(mean - kept, 0.0) / np.maximum(tokens - kept, 1e-12)
    drawn = np.minimum(lifted * scale, tokens)
    drawn = drawn + given * (tokens - drawn)
    # Loads that all round to nothing are dealt out evenly.
    load = np.where((skew <= 0.0) | (drawn[..., -1:] < 0.5), mean, drawn)
    # A rank that is looked at has one row at least.
    least = np.minimum(1.0, top_k) / local
    return np.asarray(load * np.maximum(least / _mean(load), 1.0))


def _mean(values: Array) -> Array:
    """The mean over the experts, the axis kept."""
    return np.asarray((values * SHARES).sum(-1, keepdims=True))
