"""Likely causes of a gap between a measurement and its prediction: of a training step, of a service."""

from collections.abc import Callable, Mapping

import numpy as np

from foretell.api.conditioning import OPEN, factor_json
from foretell.records import as_json, dataclass
from foretell.uncertainty.causes import REST, SHARED, RunCauses, causes_of
from foretell.uncertainty.posterior import Posterior

LIKELY = 0.03
"""Probability from which a cause is told."""
APART = -0.35
"""Correlation below which two causes cannot be told apart."""

GainOf = Callable[[str, float], float]
"""Mechanism and its factor -> share of the time that is won without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One mechanism that may explain a gap."""

    mechanism: str
    """Its name."""
    probability: float
    """That it is the largest part of the gap."""
    factor: float
    """What it takes in this run over what is predicted, if it is the largest part."""
    interval: dict[str, tuple[float, float]]
    """p50 and p90 of that factor."""
    gain: float
    """Share of the time that is won where it then takes what is predicted."""
    check: str
    """What to look at."""

    to_dict = as_json()


def likely_causes(
    posterior: Posterior, place: int, checks: Mapping[str, str], far: float, gain_of: GainOf
) -> tuple[tuple[Cause, ...], tuple[tuple[str, str], ...]]:
    """The causes of one measured number of a posterior, the likeliest first, and the pairs that it cannot
    tell apart; no log-factor is beyond `far`."""
    causes, slopes = causes_of(posterior, place), posterior.runs[place].slopes
    found = []
    for i in np.argsort(-causes.probability):
        name, likely = causes.names[i], float(causes.probability[i])
        slope = float(slopes[i]) if name not in (SHARED, REST) else 1.0
        if likely < LIKELY or abs(slope) < OPEN:
            continue
        mean, wide = float(causes.if_largest[i]) / slope, float(causes.deviation[i]) / abs(slope)
        told = factor_json(min(max(mean, -far), far), wide)
        found.append(
            Cause(
                mechanism=name,
                probability=likely,
                factor=told["factor"],
                interval=told["interval"],
                gain=gain_of(name, told["factor"]),
                check=checks[name],
            )
        )
    return tuple(found), _pairs(causes)


def _pairs(causes: RunCauses) -> tuple[tuple[str, str], ...]:
    """Causes that could stand for each other."""
    likely = causes.probability > LIKELY
    return tuple(
        (causes.names[i], causes.names[j])
        for i in range(len(causes.names))
        for j in range(i)
        if causes.correlation[i, j] < APART and (likely[i] or likely[j])
    )
