"""Likely causes of a gap between a measurement and its prediction: of a training step, of a service.

Where a log times the parts of its step, each part is put beside the same part of the prediction, and the
causes are the parts that take longer. Without timers, they are the mechanisms that are the largest part of
the gap in most draws of a posterior.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from foretell.api.conditioning import OPEN, PHASE_NOISE, factor_json
from foretell.interop.step_series import PARTS, WHOLE
from foretell.records import as_json, dataclass
from foretell.uncertainty.posterior import Posterior
from foretell.uncertainty.words import REST, SHARED, RunCauses, causes_of

LIKELY = 0.03
"""Probability from which a cause is stated."""
APART = -0.35
"""Correlation below which two causes cannot be distinguished."""

FAST, SLOW = 0.7, 1.4
"""Logged over expected, between which a part is as expected: nine in ten phases of published logs are within
a factor of two."""
DRAWS = 4000
"""Draws from which the probability of a part is counted."""
LARGE = 0.1
"""Share of a step that a part takes longer than predicted from which it is a cause, whatever is larger."""
UNTIMED = 0.03
"""Share of a step in no timer from which it is a part of its own."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseGap:
    """One phase or part of a step beside its prediction."""

    phase: str
    """Its name."""
    measured_s: float
    """Logged, the median over steps."""
    predicted_s: float
    """Expected."""
    ratio: float
    """measured / predicted."""
    verdict: str
    """as expected, slower or faster."""
    check: str
    """What to look at; empty where it is not slower."""

    to_dict = as_json()


def phase_gap(name: str, measured_s: float, predicted_s: float, check: str) -> PhaseGap:
    """A phase beside what is expected of it, which is above 0."""
    ratio = measured_s / predicted_s
    verdict = "slower" if ratio > SLOW else "faster" if ratio < FAST else "as expected"
    return PhaseGap(
        phase=name,
        measured_s=measured_s,
        predicted_s=predicted_s,
        ratio=ratio,
        verdict=verdict,
        check=check if verdict == "slower" else "",
    )


def part_gaps(timed: Mapping[str, float], leaves: Mapping[str, float]) -> tuple[PhaseGap, ...]:
    """The timed parts of a training step beside the leaves of its prediction, the longest first."""
    found = []
    for part in (WHOLE, *PARTS):
        names = part.leaves
        if part is WHOLE and "gradient_sync" not in timed:  # then it is inside
            names = (*names, "data_parallel")
        predicted = sum(leaves.get(name, 0.0) for name in names)
        if part.name in timed and predicted > 0.0:
            found.append(phase_gap(part.name, timed[part.name], predicted, part.check))
    return tuple(sorted(found, key=lambda one: -one.measured_s))


def part_causes(gaps: Sequence[PhaseGap], step_s: float, spread: float) -> tuple[Cause, ...]:
    """The parts that take longer than predicted, the likeliest largest first; `spread` is the relative
    standard deviation of the prediction. Time in no timer is a cause of its own."""
    untimed = step_s - sum(one.measured_s for one in gaps)
    names = [one.phase for one in gaps]
    measured = np.array([one.measured_s for one in gaps])
    predicted = np.array([one.predicted_s for one in gaps])
    deviation = math.hypot(spread, PHASE_NOISE)
    random = np.random.default_rng(0)
    drawn = predicted * np.exp(deviation * random.standard_normal((DRAWS, len(gaps))))
    excess = measured - drawn
    if untimed > UNTIMED * step_s:
        names.append(REST)
        excess = np.column_stack([excess, np.full(DRAWS, untimed)])
    largest = np.where(excess.max(axis=1) > 0.0, excess.argmax(axis=1), len(names))
    counted = np.bincount(largest, minlength=len(names) + 1) / DRAWS
    checks = {part.name: part.check for part in (*PARTS, WHOLE)}
    found = []
    for i in np.argsort(-counted[:-1]):
        more = float(np.mean(excess[:, i]))
        if (counted[i] < LIKELY and more < LARGE * step_s) or more <= 0.0:
            continue
        rest = names[i] == REST
        ratio = step_s / (step_s - untimed) if rest else gaps[i].ratio
        told = factor_json(math.log(ratio), deviation)
        found.append(
            Cause(
                mechanism=names[i],
                probability=float(counted[i]),
                factor=told["factor"],
                interval=told["interval"],
                gain=more / step_s,
                check=UNTIMED_CHECK if rest else checks[names[i]],
            )
        )
    return tuple(found)


UNTIMED_CHECK = "time in none of the timers: data loading, logging, evaluation, garbage collection"
"""What to look at where no timer has the time."""


def likely_causes(
    posterior: Posterior, place: int, checks: Mapping[str, str], far: float, gain_of: GainOf
) -> tuple[tuple[Cause, ...], tuple[tuple[str, str], ...]]:
    """The causes of one measured number of a posterior, the likeliest first and what no mechanism explains at
    the end, and the pairs that it cannot tell apart; no log-factor is beyond `far`."""
    causes, slopes = causes_of(posterior, place), posterior.runs[place].slopes
    found = []
    last = np.array([name == REST for name in causes.names])
    for i in np.lexsort(
        (-causes.probability, last)
    ):  # what no mechanism explains is the last resort
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
