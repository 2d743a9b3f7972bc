"""One predicted number of one measured row."""

import math

from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """One number of one row: measured, and as the version that met it predicted it."""

    wave: str
    """Name of the wave."""
    id: str
    """The row's id."""
    source: str
    """Where the row is published."""
    group: str
    """What counts as one source: a source's short name; of serving model, chip, engine and disaggregation."""
    metric: str
    """What is compared: step_s, tpot, ttft, step, fit_probability, ..."""
    seen_before: bool
    """Whether rows of its source (of serving: of its model, chip and engine) were open already."""
    measured: float | None
    """The measurement; None where it is unknown. Of fit_probability 1: it ran, 0: it ran out of memory."""
    predicted: float
    """The prediction of the version that met it."""
    low: float | None
    """Lower end of the 90 % interval; None where there is none."""
    high: float | None
    """Upper end."""

    @property
    def log_error(self) -> float:
        """ln(measured / predicted); NaN where one of them is no positive number."""
        if not (self.measured and self.measured > 0.0 and self.predicted > 0.0):
            return math.nan
        return math.log(self.measured / self.predicted)
