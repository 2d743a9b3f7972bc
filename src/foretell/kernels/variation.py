"""Chips of one kind are not alike: a step that all of them take together waits for the slowest.

Under one power limit, chips of one kind hold clocks that differ by a few percent with their silicon and their
cooling: 8 % between the best and the worst of a cluster on average, 22 % at most (Sinha et al., SC 2022, five
clusters). With a spread sigma, the slowest of N takes 1 + sigma z(N) times the mean's time, z the expected
largest of N normal numbers (Blom 1958); memory and links do not vary.
"""

from statistics import NormalDist

from foretell.specs.chip import Chip

SPREAD = 0.02
"""Standard deviation of the clocks that chips of one kind hold: 8 % between the ends of some tens of them."""
FIXED_CLOCKS = ("tpu", "trainium", "wafer")
"""Architectures, by how their names begin, that run at one clock."""


def slowest(gpus: int, chip: Chip) -> float:
    """Time of clocked work on the slowest of so many chips, over the mean's; 1 of a single one."""
    if gpus <= 1 or chip.architecture.startswith(FIXED_CLOCKS):
        return 1.0
    return 1.0 + SPREAD * NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))
