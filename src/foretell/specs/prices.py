"""What is paid for time and power."""

from foretell.records import dataclass
from foretell.specs._base import NotNegative, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What is paid: filled from the catalogue or by hand."""

    usd_per_chip_hour: NotNegative = 0.0
    """Rent of one chip for an hour; 0 where unknown."""
    low_usd_per_chip_hour: NotNegative = 0.0
    """The cheapest of the offers that the rent is the median of; 0 where it is one price alone."""
    high_usd_per_chip_hour: NotNegative = 0.0
    """The dearest."""
    usd_per_kwh: NotNegative = 0.08
    """Electricity."""
    pue: Positive = 1.3
    """Power usage effectiveness of the building."""
    source: str = ""
    """Provider, region, term and date."""

    @property
    def rent_range(self) -> tuple[float, float] | None:
        """Ends of the offers around the rent; None where there are none."""
        low, high = float(self.low_usd_per_chip_hour), float(self.high_usd_per_chip_hour)
        return (low, high) if 0.0 < low <= float(self.usd_per_chip_hour) <= high else None
