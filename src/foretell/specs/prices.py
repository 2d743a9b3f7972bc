"""What is paid for time and power."""

from foretell.records import dataclass
from foretell.specs._base import NotNegative, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What is paid: filled from the catalogue or by hand."""

    usd_per_chip_hour: NotNegative = 0.0
    """Rent of one chip for an hour; 0 where unknown."""
    usd_per_kwh: NotNegative = 0.08
    """Electricity."""
    pue: Positive = 1.3
    """Power usage effectiveness of the building."""
    source: str = ""
    """Provider, region, term and date."""
