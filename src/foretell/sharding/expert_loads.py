"""How many rows the busiest rank of an expert-parallel group has, over the mean: in closed form.

Tokens fall on experts by the router's choice, and every layer waits for the rank that got the most. With n
experts on each of ep ranks, r rows of a rank on the mean and the tokens of q sequences in the group,

    spread^2 = (1 - 1/ep) ((popularity^2 + sequence^2 / q) / n + 1 / r)
    busiest  = 1 + z(ep) spread

`popularity` and `sequence` are how much the shares of single experts differ, by the way that the router is
balanced (`routing` of a plan, catalog/routing.toml); 1 / r is the chance of a draw, which is left where all
are alike. z(ep) is the expected largest of ep normal numbers (Blom 1958); a test holds it to draws.
"""

from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.plan_words import Routing


@dataclass(frozen=True, slots=True, kw_only=True)
class Unevenness:
    """How much the shares of single experts differ, as standard deviations over the mean share."""

    popularity: float
    """Over many batches."""
    sequence: float
    """Of the tokens of one sequence, besides."""


@lru_cache(maxsize=8)
def unevenness(routing: Routing) -> Unevenness:
    """What the catalogue has for a way of balancing."""
    table = read_table(ROOT / "routing.toml")[routing]
    return Unevenness(popularity=table["popularity"], sequence=table["sequence"])


def largest_normal(many: Num) -> NDArray[np.float64]:
    """The expected largest of so many standard normal numbers; 0 of one."""
    counts = np.asarray(many, float)
    flat = [
        NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) if n > 1.0 else 0.0 for n in counts.ravel()
    ]
    return np.array(flat).reshape(counts.shape)


def busiest_rank(routing: Routing, ep: Num, experts: Num, rows: Num, sequences: Num) -> Num:
    """Rows of the busiest of ep ranks over the mean's; `experts` of all ranks, `rows` of one on the mean."""
    if routing == "even":
        return 1.0
    how, local = unevenness(routing), np.maximum(experts / ep, 1.0)
    apart = how.popularity**2 + how.sequence**2 / np.maximum(sequences, 1.0)
    spread = np.sqrt((1.0 - 1.0 / ep) * (apart / local + 1.0 / np.maximum(rows, 1.0)))
    most = 1.0 + largest_normal(ep) * spread
    # No rank gets more than all of the rows.
    return np.minimum(most, np.maximum(ep, 1.0))
