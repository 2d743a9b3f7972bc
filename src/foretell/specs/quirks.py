"""Mistakes of public cost models, by name: all off, but where a published value is reproduced."""

from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CostQuirks:
    """Each switch puts one mistake back."""

    bumps_once: bool = False
    """Chiplet Actuary: micro-bumps on a carrier are paid for one die, however many there are."""
    uptime_multiplies: bool = False
    """CATCH: machine time costs its share of uptime, rather than one over it."""


RIGHT = CostQuirks()
"""None of them."""
