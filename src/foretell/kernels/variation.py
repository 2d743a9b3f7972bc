"""Chips of one kind are not alike: a step that all of them take together waits for the slowest.

Under one power limit, chips of one kind hold clocks that differ by a few percent with their silicon and their
cooling: 8 % between the best and the worst of a cluster on average, 22 % at most (Sinha et al., SC 2022, five
clusters). With a spread sigma, the slowest of N takes 1 + sigma z(N) times the mean's time, z the expected
largest of N normal numbers (Blom 1958); memory and links do not vary.

Besides, tables of kernels are of one chip that works alone in its machine. Where its neighbours work too,
air and supply are shared and every chip is hotter: clocked work takes 5 % longer than the tables say. Fitted
to 35 sources of published runs with each left out in turn it is 4.5 to 5.5 % every time; without it runs came
out 4 % too fast in their median, at every number of chips above one.
"""

from statistics import NormalDist

from foretell.specs.chip import Chip

SPREAD = 0.02
"""Standard deviation of the clocks that chips of one kind hold: 8 % between the ends of some tens of them."""
BESIDE_OTHERS = 0.05
"""Time of clocked work on chips whose neighbours work too, over that of one that works alone, less 1."""
FIXED_CLOCKS = ("tpu", "trainium", "wafer")
"""Architectures, by how their names begin, that run at one clock."""


def slowest(gpus: int, chip: Chip) -> float:
    """Time of clocked work on the slowest of so many chips, over that of one alone; 1 of a single one."""
    if gpus <= 1 or chip.architecture.startswith(FIXED_CLOCKS):
        return 1.0
    return 1.0 + BESIDE_OTHERS + SPREAD * NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))
