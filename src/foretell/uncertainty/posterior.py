"""What measured runs say of a place: log-factors on its mechanisms, and how far the next run may be.

A run's ln(measured / predicted) is the sum of four things: its slopes times the log-factors of the place's
mechanisms (d ln step / d ln factor, from the evaluator that the caller hands over), what runs that are alike
have in common beside them, what is the run's own, and the noise of its measurement. A mechanism's factor is
in part the same for all runs of a place, in part only as far as runs are alike. All are normal with the
spreads of a prior that was learnt from published tables (catalog/measured_priors.py); the run's own part may
be an outlier; a place may be tidy or rough (all its spreads smaller or larger), far off as a whole, or far
off in one part (its fabric). So the posterior is a mixture of normal ones, one for each kind of place and
choice of outliers, which is exact: no sampling. A run that is as predicted makes a tidy place likelier, so
that intervals narrow where they may. With many runs the outliers are chosen run by run instead, each judged
by all the others.

    measured_runs     what is seen
    condition         prior, runs -> Posterior
    Posterior.of      the next run: its factors, its median and its interval
"""

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.measured_priors import MeasuredPrior
from foretell.records import dataclass

Array = NDArray[np.float64]
LEVELS: Mapping[str, tuple[float, float]] = {"p50": (0.25, 0.75), "p90": (0.05, 0.95)}
"""Ends of the intervals, as quantiles."""
MANY = 4
"""Runs up to which every choice of outliers is weighed."""
REPEAT = 0.015
"""Standard deviation of ln(measured) of one and the same run from one time to another; judged."""
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
    key: Hashable = None
    """What was run, to the last setting: two runs with one key have their own part in common, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceKind:
    """A kind of place."""

    share: float
    """How many places are of this kind."""
    shared: float
    """Variance of what all mechanisms share."""
    spread: Array
    """Variance of each mechanism's log-factor; (mechanisms,)."""
    part: Array
    """What of it is the same for all runs, however unlike; (mechanisms,)."""
    scale: float
    """Factor on every variance of the place; those above have it already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One choice of outliers, and the posterior under it; all normal."""

    log_weight: float
    """Logarithm of its probability, up to a constant of all cases."""
    outliers: tuple[float, ...]
    """Further variance of each run."""
    place: "PlaceKind"
    """The kind of place."""
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
    places: tuple[PlaceKind, ...]
    """The kinds of places."""
    cases: tuple[Case, ...]
    """The cases."""
    weights: Array
    """Probability of each."""

    @property
    def outlier_shares(self) -> tuple[float, ...]:
        """How probable it is of each run that it contradicts the rest."""
        own = np.array([own_variance(self.prior, self.mechanisms, run) for run in self.runs])
        out = np.array(
            [np.array(case.outliers) > 3.0 * case.place.scale * own for case in self.cases], float
        )
        return tuple((self.weights @ out).tolist()) if len(self.runs) else ()

    def of(self, run: MeasuredRun) -> NextRun:
        """The next run, by the slopes that it has."""
        prior, names = self.prior, self.mechanisms
        mean = prior.mean * float(run.slopes.sum())
        scale, own = doubt_of(prior, run), own_variance(prior, names, run)
        near = nearness(prior, [run], self.runs)
        factors, squares, centres, spreads = [], [], [], []
        again = same_runs([run], self.runs)[0]
        owns = np.array([own_variance(prior, names, one) for one in self.runs])
        crosses = {id(p): covariance_of(prior, p, [run], self.runs)[0] for p in self.places}
        alone = {id(p): float(covariance_of(prior, p, [run], [run])[0, 0]) for p in self.places}
        for case in self.cases:
            theta, variance = _factors_of(self, case, near[0])
            factors.append(scale**prior.doubt_power * theta)
            squares.append(scale ** (2.0 * prior.doubt_power) * variance)
            cross, before = crosses[id(case.place)], alone[id(case.place)]
            if again.any():  # measured itself: its own part is known
                single = case.place.scale * owns + np.array(case.outliers)
                mine = float((single * again).max())
                cross = cross + again * np.sqrt(mine * single)
                before += mine
            centres.append(mean + float(cross @ case.pulls))
            explained = float(cross @ case.precision @ cross)
            spreads.append(max(before - explained, 0.0))
        kinds = np.array(outlier_kinds(prior))
        own_of = np.outer([case.place.scale for case in self.cases], own + scale**2 * kinds[:, 0])
        if again.any():
            own_of, kinds = np.full((len(self.cases), 1), REPEAT**2), np.array([(0.0, 1.0)])
        weights = np.outer(self.weights, kinds[:, 1]).ravel()
        means = np.repeat(centres, len(kinds))
        wide = prior.interval_scale * np.sqrt((np.array(spreads)[:, None] + own_of).ravel())
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
    places = places_of(prior, mechanisms)
    own = np.array([own_variance(prior, mechanisms, run) for run in runs])
    noise = np.array([run.noise**2 + REPEAT**2 * (run.key is not None) for run in runs])
    again = np.maximum(same_runs(runs, runs), np.eye(len(runs)))
    doubts = np.array([doubt_of(prior, run) ** 2 for run in runs])
    cases: list[Case] = []
    for place in places:
        common, mine = covariance_of(prior, place, runs, runs), place.scale * own
        for outliers, log_share in _choices(
            prior, common, mine + noise, place.scale * doubts, rest
        ):
            single = np.sqrt(mine + np.array(outliers))
            total = common + again * np.outer(single, single) + np.diag(noise)
            precision = np.asarray(np.linalg.inv(total), float) if len(runs) else total
            pulls = precision @ rest
            _, log_determinant = np.linalg.slogdet(total) if len(runs) else (1.0, 0.0)
            cases.append(
                Case(
                    log_weight=math.log(place.share)
                    + log_share
                    - 0.5 * float(rest @ pulls)
                    - 0.5 * float(log_determinant),
                    outliers=tuple(outliers),
                    place=place,
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
        places=places,
        cases=tuple(cases),
        weights=weights / weights.sum(),
    )


def outlier_kinds(prior: MeasuredPrior) -> list[tuple[float, float]]:
    """Further variance of a run, and its probability: none first."""
    rest = 1.0 - sum(share for _, share in prior.outliers)
    return [(0.0, rest), *((spread**2, share) for spread, share in prior.outliers)]


def _choices(
    prior: MeasuredPrior, common: Array, own: Array, doubts: Array, rest: Array
) -> list[tuple[tuple[float, ...], float]]:
    """Which runs are outliers: the further variance of each in every choice with the logarithm of its
    probability, or in the one that many runs make of each other."""
    kinds, many = outlier_kinds(prior), len(rest)
    if many > 2:
        kinds = [kinds[0], kinds[-1]]
        kinds = [(more, share / sum(s for _, s in kinds)) for more, share in kinds]
    if many <= MANY:
        return [
            (
                tuple(more * doubt for (more, _), doubt in zip(chosen, doubts, strict=True)),
                sum(math.log(share) for _, share in chosen),
            )
            for chosen in itertools.product(kinds, repeat=many)
        ]
    (_, usual), (wide, rare) = kinds
    more = np.zeros(many)
    for _ in range(ROUNDS):
        inverse = np.linalg.inv(common + np.diag(own + more))
        # Each run as all the others see it.
        variance = 1.0 / np.diagonal(inverse)
        gap = (inverse @ rest) * variance
        near = np.maximum(variance - more, own)
        far = near + wide * doubts
        odds = np.log(rare / usual) + 0.5 * (np.log(near / far) + gap**2 * (1.0 / near - 1.0 / far))
        out = 1.0 / (1.0 + np.exp(-np.clip(odds, -50.0, 50.0)))
        more = 1.0 / ((1.0 - out) / own + out / (own + wide * doubts)) - own
    return [(tuple(more.tolist()), 0.0)]


def places_of(prior: MeasuredPrior, mechanisms: tuple[str, ...]) -> tuple[PlaceKind, ...]:
    """Tidy, usual and rough ones, then those far off as a whole, and far off in one part."""
    spread = np.array([prior.spread[name] for name in mechanisms]) ** 2
    more = np.array([prior.part_wide.get(name, 0.0) for name in mechanisms]) ** 2
    part, shared = prior.carry * spread, prior.shared**2
    whole = shared + prior.shared_wide**2
    usual = 1.0 - prior.wide_share - prior.part_share
    found = [
        PlaceKind(
            share=share * usual,
            shared=factor**2 * shared,
            spread=factor**2 * spread,
            part=factor**2 * part,
            scale=factor**2,
        )
        for factor, share in prior.place_scales
    ]
    one_part = (spread + more, part + more)
    for share, common, (each, fixed) in (
        (prior.wide_share, whole, (spread, part)),
        (prior.part_share, shared, one_part),
    ):
        found.append(PlaceKind(share=share, shared=common, spread=each, part=fixed, scale=1.0))
    return tuple(place for place in found if place.share > 0.0)


def covariance_of(
    prior: MeasuredPrior,
    place: PlaceKind,
    some: Sequence[MeasuredRun],
    others: Sequence[MeasuredRun],
) -> Array:
    """Covariance of what runs of a place have in common with others; (some, others)."""
    if not some or not others:
        return np.zeros((len(some), len(others)))
    left, right = (np.array([run.slopes for run in runs]) for runs in (some, others))
    near = nearness(prior, some, others)
    one, other = (np.array([doubt_of(prior, run) for run in runs]) for runs in (some, others))
    common = (left * place.part) @ right.T
    common += (left * (place.spread - place.part)) @ right.T * near
    common += place.shared * np.outer(left.sum(axis=1), right.sum(axis=1))
    common *= np.outer(one, other) ** prior.doubt_power
    alike = place.scale * prior.likeness**2
    return np.asarray(common + alike * near * np.outer(one, other), float)


def same_runs(some: Sequence[MeasuredRun], others: Sequence[MeasuredRun]) -> Array:
    """1 where two runs are one and the same by their keys; (some, others)."""
    return np.array(
        [[a.key is not None and a.key == b.key for b in others] for a in some], float
    ).reshape(len(some), len(others))


def own_variance(prior: MeasuredPrior, mechanisms: tuple[str, ...], run: MeasuredRun) -> float:
    """Variance of what is a run's own, where it is no outlier."""
    each = np.array([prior.row_spread[name] for name in mechanisms])
    found = prior.noise**2 + float(((run.slopes * each) ** 2).sum())
    return found * doubt_of(prior, run) ** 2


def doubt_of(prior: MeasuredPrior, run: MeasuredRun) -> float:
    """Factor on all spreads of a run, by its traits."""
    return math.exp(sum(prior.doubt.get(name, 0.0) * value for name, value in run.traits.items()))


def nearness(
    prior: MeasuredPrior, some: Sequence[MeasuredRun], others: Sequence[MeasuredRun]
) -> Array:
    """How alike runs are, 1 the same: less by steps in numbers, and by names that differ; (some, others)."""
    apart = np.zeros((len(some), len(others)))
    for name, weight in prior.distance.items():
        left, right = ([run.features.get(name) for run in runs] for runs in (some, others))
        if all(isinstance(value, float) for value in (*left, *right)):
            apart += weight * np.abs(np.subtract.outer(np.array(left), np.array(right)))
        else:
            apart += weight * np.array([[a != b for b in right] for a in left])
    return np.exp(-apart)


def _factors_of(posterior: Posterior, case: Case, near: Array) -> tuple[Array, Array]:
    """Mean and variance of the log-factors in one case, of a run that is so near to those measured."""
    prior, place = posterior.prior, case.place
    before = place.spread + place.shared
    if not posterior.runs:
        return np.zeros(len(before)), before
    doubts = [doubt_of(prior, run) ** prior.doubt_power for run in posterior.runs]
    slopes = np.array([run.slopes for run in posterior.runs]) * np.array(doubts)[:, None]
    each = place.part + np.outer(near, place.spread - place.part)  # (runs, mechanisms)
    seen = (each * slopes + place.shared * slopes.sum(axis=1, keepdims=True)).T
    return seen @ case.pulls, before - np.einsum("mi,ij,mj->m", seen, case.precision, seen)


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
