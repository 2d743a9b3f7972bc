"""Links in use by several groups at once.

A tapered tier gives each of its units an up link of `size x bandwidth x taper`. What one chip gets of it
depends on how many chips of the unit send at the same moment: taper does not hurt one group alone, and
does hurt many side by side.
"""

import numpy as np

from foretell.specs._base import Num
from foretell.specs.arrays import Array


def shared_taper(taper: Num, unit_chips: Num, sending_chips: Num) -> Array:
    """Share of its port that each of `sending_chips` gets out of a unit of so many chips.

    min(1, taper x unit / sending): the tier's taper where all send, no taper for few.
    """
    busy = np.maximum(sending_chips, 1e-300)
    return np.asarray(np.minimum(1.0, taper * unit_chips / busy))


def fair_rates(uses: Array, capacities: Array, limits: Array) -> Array:
    """Max-min fair rates of flows over links they share.

    `uses` (links, flows) is how many bytes a link carries for each byte of a flow, `capacities` the
    links' rates and `limits` the flows' own. All rates rise together; a flow stops when a link of
    its own is full or its limit is met.
    """
    rates = np.zeros(uses.shape[1])
    rising = np.ones(uses.shape[1], bool)
    while rising.any():
        left = np.maximum(capacities - uses @ rates, 0.0)
        demand = uses @ rising.astype(float)
        room = np.full(len(demand), np.inf)
        np.divide(left, demand, out=room, where=demand > 0)
        own = np.where(rising, limits - rates, np.inf)
        step = min(room.min(initial=np.inf), own.min())
        rates = rates + step * rising
        full = room <= step * (1.0 + 1e-12)
        rising &= ~((uses[full] > 0).any(0) | (own <= step * (1.0 + 1e-12)))
    return rates
