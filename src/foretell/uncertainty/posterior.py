"""What measured runs say of a place: log-factors on its mechanisms, and how far the next run may be.

A run's ln(measured / predicted) is the sum of four things: its slopes times the log-factors of the place's
mechanisms (d ln step / d ln factor, from the evaluator that the caller hands over), what runs that are alike
have in common beside them, what is the run's own, and the noise of its measurement. The first two are normal
with the spreads of a prior that was learnt from published tables (catalog/measured_priors.py); the run's own
part may be an outlier, and a place may be far off as a whole. So the posterior is a mixture of normal ones,
one for each choice of outliers, which is exact: no sampling. With many runs the choice is made run by run
instead, each judged by all the others.

    measured_runs     what is seen
    condition         prior, runs -> Posterior
    Posterior.of      the next run: its factors, its median and its interval
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.measured_priors import MeasuredPrior
from foretell.records import dataclass

Array = NDArray[np.float64]
LEVELS: Mapping[str, tuple[float, float]] = {"p50": (0.25, 0.75), "p90": (0.05, 0.95)}
"""Ends of the intervals, as quantiles."""
MANY = 4
"""Runs up to which every choice of outliers is weighed."""
ROUNDS = 8
"""Rounds in which each of many runs is judged by all the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One run beside its prediction."""

    slopes: Array
    """d ln(predicted) / d ln(factor) of each mechanism; (mechanisms,)."""
    log_ratio: float
    """ln(measured / predicted), on the line of the slopes; unused of a run that is to be predicted."""
    features: Mapping[str, float | str]
    """What makes two runs alike: numbers, on a scale of their own, and names."""
    traits: Mapping[str, float]
    """What makes a run doubtful."""
    noise: float = 0.0
    """Standard deviation of ln(measured), from repeated steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One choice of outliers, and the posterior under it; all normal."""

    log_weight: float
    """Logarithm of its probability, up to a constant of all cases."""
    scales: tuple[float, ...]
    """Factor on the own variance of each run."""
    shared: float
    """Variance of what all mechanisms share."""
    pulls: Array
    """Inverse covariance times residuals; (runs,)."""
    precision: Array
    """Inverse covariance of the runs; (runs, runs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """What the posterior says of a run that was not measured."""

    factors: Array
    """Mean log-factor of each mechanism; (mechanisms,)."""
    deviations: Array
    """Standard deviation of each; (mechanisms,)."""
    unexplained: float
    """Log-factor on the whole run beside the mechanisms, so that the median is the mixture's."""
    median: float
    """Median of ln(measured / predicted)."""
    interval: Mapping[str, tuple[float, float]]
    """Its p50 and p90, each (low, high)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """The cases that are left after some runs, by their weight."""

    prior: MeasuredPrior
    """What was held before."""
    mechanisms: tuple[str, ...]
    """What the slopes are of."""
    runs: tuple[MeasuredRun, ...]
    """The runs."""
    cases: tuple[Case, ...]
    """The cases."""
    weights: Array
    """Probability of each."""

    @property
    def outlier_shares(self) -> tuple[float, ...]:
        """How probable it is of each run that it contradicts the rest."""
        out = np.array([[scale > 4.0 for scale in case.scales] for case in self.cases], float)
        return tuple((self.weights @ out).tolist()) if len(self.runs) else ()

    def of(self, run: MeasuredRun) -> NextRun:
        """The next run, by the slopes that it has."""
        prior, names = self.prior, self.mechanisms
        mean = prior.mean * float(run.slopes.sum())
        scale, own = doubt_of(prior, run), own_variance(prior, names, run)
        beside, sums = covariance_of(prior, names, [run], self.runs)
        alone, square = covariance_of(prior, names, [run], [run])
        factors, squares, centres, spreads = [], [], [], []
        for case in self.cases:
            theta, covariance = _factors_of(self, case)
            factors.append(scale * theta)
            squares.append(scale**2 * np.diagonal(covariance))
            cross = (beside + case.shared * sums)[0]
            centres.append(mean + float(cross @ case.pulls))
            explained = float(cross @ case.precision @ cross)
            spreads.append(max(float((alone + case.shared * square)[0, 0]) - explained, 0.0))
        kinds = np.array(outlier_kinds(prior))
        weights = np.outer(self.weights, kinds[:, 1]).ravel()
        means = np.repeat(centres, len(kinds))
        wide = prior.interval_scale * np.sqrt(
            np.add.outer(np.array(spreads), own * kinds[:, 0]).ravel()
        )
        told = self.weights @ np.array(factors)
        spread = self.weights @ (np.array(squares) + (np.array(factors) - told) ** 2)
        told = told + prior.mean
        median = quantile(weights, means, wide, 0.5)
        ends = {
            key: (quantile(weights, means, wide, low), quantile(weights, means, wide, high))
            for key, (low, high) in LEVELS.items()
        }
        return NextRun(
            factors=told,
            deviations=np.sqrt(spread),
            unexplained=median - float(run.slopes @ told),
            median=median,
            interval=ends,
        )


def condition(
    prior: MeasuredPrior, mechanisms: tuple[str, ...], runs: Sequence[MeasuredRun]
) -> Posterior:
    """What is held after some runs; none leave the prior."""
    runs = tuple(runs)
    rest = np.array([run.log_ratio - prior.mean * float(run.slopes.sum()) for run in runs])
    places = ((prior.shared**2, 1.0 - prior.wide_share),
              (prior.shared**2 + prior.shared_wide**2, prior.wide_share))  # fmt: skip
    own = np.array([own_variance(prior, mechanisms, run) for run in runs])
    noise = np.array([run.noise**2 for run in runs])
    beside, sums = covariance_of(prior, mechanisms, runs, runs)
    cases: list[Case] = []
    for shared, share in places:
        common = beside + shared * sums
        for scales, log_share in _choices(prior, common, own, noise, rest):
            total = common + np.diag(own * np.array(scales) + noise)
            precision = np.asarray(np.linalg.inv(total), float) if len(runs) else total
            pulls = precision @ rest
            _, log_determinant = np.linalg.slogdet(total) if len(runs) else (1.0, 0.0)
            cases.append(
                Case(
                    log_weight=math.log(share)
                    + log_share
                    - 0.5 * float(rest @ pulls)
                    - 0.5 * float(log_determinant),
                    scales=tuple(scales),
                    shared=shared,
                    pulls=pulls,
                    precision=precision,
                )
            )
    logs = np.array([case.log_weight for case in cases])
    weights = np.exp(logs - logs.max())
    return Posterior(
        prior=prior,
        mechanisms=mechanisms,
        runs=runs,
        cases=tuple(cases),
        weights=weights / weights.sum(),
    )


def outlier_kinds(prior: MeasuredPrior) -> list[tuple[float, float]]:
    """Factor on a run's own variance, and its probability: as usual first."""
    rest = 1.0 - sum(share for _, share in prior.outliers)
    return [(1.0, rest), *((scale**2, share) for scale, share in prior.outliers)]


def _choices(
    prior: MeasuredPrior, common: Array, own: Array, noise: Array, rest: Array
) -> list[tuple[tuple[float, ...], float]]:
    """Which runs are outliers: every choice with the logarithm of its probability, or the one that many runs
    make of each other."""
    kinds, many = outlier_kinds(prior), len(rest)
    if many > 2:
        kinds = [kinds[0], kinds[-1]]
        kinds = [(scale, share / sum(s for _, s in kinds)) for scale, share in kinds]
    if many <= MANY:
        return [
            (tuple(scale for scale, _ in chosen), sum(math.log(share) for _, share in chosen))
            for chosen in itertools.product(kinds, repeat=many)
        ]
    (_, usual), (wide, rare) = kinds
    scales = np.ones(many)
    for _ in range(ROUNDS):
        inverse = np.linalg.inv(common + np.diag(own * scales + noise))
        # Each run as all the others see it.
        variance = 1.0 / np.diagonal(inverse)
        gap = (inverse @ rest) * variance
        apart = np.maximum(variance - own * scales, 1e-12)
        near, far = apart + own, apart + own * wide
        odds = np.log(rare / usual) + 0.5 * (np.log(near / far) + gap**2 * (1.0 / near - 1.0 / far))
        out = 1.0 / (1.0 + np.exp(-np.clip(odds, -50.0, 50.0)))
        scales = 1.0 / ((1.0 - out) + out / wide)
    return [(tuple(scales.tolist()), 0.0)]


def covariance_of(
    prior: MeasuredPrior,
    mechanisms: tuple[str, ...],
    some: Sequence[MeasuredRun],
    others: Sequence[MeasuredRun],
) -> tuple[Array, Array]:
    """Covariance of what runs have in common with others, and what a variance that all mechanisms share adds
    to it; (some, others)."""
    if not some or not others:
        empty = np.zeros((len(some), len(others)))
        return empty, empty
    left, right = (np.array([run.slopes for run in runs]) for runs in (some, others))
    spread = np.array([prior.spread[name] for name in mechanisms])
    apart = distances(prior, some, others)
    one, other = (np.array([doubt_of(prior, run) for run in runs]) for runs in (some, others))
    doubts = np.outer(one, other)
    common = (left * spread**2) @ right.T + prior.likeness**2 * np.exp(-apart)
    return common * doubts, np.outer(left.sum(axis=1), right.sum(axis=1)) * doubts


def own_variance(prior: MeasuredPrior, mechanisms: tuple[str, ...], run: MeasuredRun) -> float:
    """Variance of what is a run's own, where it is no outlier."""
    each = np.array([prior.row_spread[name] for name in mechanisms])
    found = prior.noise**2 + float(((run.slopes * each) ** 2).sum())
    return found * doubt_of(prior, run) ** 2


def doubt_of(prior: MeasuredPrior, run: MeasuredRun) -> float:
    """Factor on all spreads of a run, by its traits."""
    return math.exp(sum(prior.doubt.get(name, 0.0) * value for name, value in run.traits.items()))


def distances(
    prior: MeasuredPrior, some: Sequence[MeasuredRun], others: Sequence[MeasuredRun]
) -> Array:
    """How unlike runs are: steps in numbers, and names that differ; (some, others)."""
    apart = np.zeros((len(some), len(others)))
    for name, weight in prior.distance.items():
        left, right = ([run.features.get(name) for run in runs] for runs in (some, others))
        if all(isinstance(value, float) for value in (*left, *right)):
            apart += weight * np.abs(np.subtract.outer(np.array(left), np.array(right)))
        else:
            apart += weight * np.array([[a != b for b in right] for a in left])
    return apart


def _factors_of(posterior: Posterior, case: Case) -> tuple[Array, Array]:
    """Mean and covariance of the log-factors in one case."""
    prior, names = posterior.prior, posterior.mechanisms
    before = np.diag([prior.spread[name] ** 2 for name in names]) + case.shared
    if not posterior.runs:
        return np.zeros(len(names)), before
    slopes = np.array([run.slopes * doubt_of(prior, run) for run in posterior.runs])
    seen = before @ slopes.T
    return seen @ case.pulls, before - seen @ case.precision @ seen.T


def quantile(weights: Array, means: Array, deviations: Array, share: float) -> float:
    """The quantile of a mixture of normal distributions, by bisection."""
    low = float((means - 8.0 * deviations).min())
    high = float((means + 8.0 * deviations).max())
    some = weights > 1e-4 * weights.max()
    triples = list(zip(weights[some], means[some], deviations[some] * math.sqrt(2.0), strict=True))
    total = sum(weight for weight, _, _ in triples)
    for _ in range(30):
        middle = 0.5 * (low + high)
        below = sum(w * (0.5 + 0.5 * math.erf((middle - m) / max(d, 1e-12))) for w, m, d in triples)
        low, high = (middle, high) if below < share * total else (low, middle)
    return 0.5 * (low + high)
