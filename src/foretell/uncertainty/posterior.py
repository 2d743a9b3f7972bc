"""What is held of a run, before and after others of its place were measured, by one model of log error.

A run's ln(measured / predicted) is the sum of what all work of its place shares, of its slopes times what is
each mechanism's own there, of what runs that are alike have in common, of what is the run's own, and of the
noise of its measurement (catalog/error_models.py has the spreads). What a place shares has heavy tails: its
variance is one of a few equally likely multiples, so that a place may be far off as a whole, and a measured
run says so at once. A run's own part may be wide, where others of its place contradict it; a lone run has
nothing beside it to contradict it. So the posterior is a mixture of normal distributions, one for each
multiple and choice of such runs: exact, without sampling. With many runs the choice is made run by run, each
judged by all the others.

    prior_interval    a question with nothing measured
    condition         model, measured runs -> Posterior
    Posterior.of      the next run: its factors, its median and its interval
"""

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache

import numpy as np

from foretell.catalog.error_models import ErrorModel
from foretell.records import dataclass
from foretell.specs.arrays import Array

LEVELS: Mapping[str, tuple[float, float]] = {"p50": (0.25, 0.75), "p90": (0.05, 0.95)}
"""Ends of the intervals, as quantiles."""
MANY = 4
"""Runs up to which every choice of wide ones is weighed."""
REPEAT = 0.015
"""Standard deviation of ln(measured) of one and the same run from one time to another; judged."""
ROUNDS = 8
"""Rounds in which each of many runs is judged by all the others."""
FIRST_NODE, NODES_PER_UNIT, LAST_NODE = -4.0, 8.0, 56
"""Nodes of the logarithm of own over shared spread, between which ends of intervals are straight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One run beside its prediction."""

    slopes: Array
    """d ln(predicted) / d ln(factor) of each mechanism: its share of a training step; (mechanisms,)."""
    log_ratio: float = 0.0
    """ln(measured / predicted); unused of a run that is to be predicted."""
    features: Mapping[str, float | str] = field(default_factory=dict)
    """What makes two runs alike: numbers in powers of two, and names."""
    novelty: Mapping[str, float] = field(default_factory=dict)
    """What is new about it (uncertainty/novelty.py)."""
    noise: float = 0.0
    """Standard deviation of ln(measured), from repeated steps."""
    key: Hashable = None
    """What was run, to the last setting: two runs with one key have their own part in common, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One multiple of the spread of places and one choice of wide runs, and the posterior under it."""

    log_weight: float
    """Logarithm of its probability, up to a constant of all cases."""
    tail: float
    """Multiple of the variance of what a place shares."""
    own: Array
    """Variance of what is each run's own; (runs,)."""
    pulls: Array
    """Inverse covariance times residuals; (runs,)."""
    precision: Array
    """Inverse covariance of the runs; (runs, runs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """What the posterior says of a run that was not measured."""

    factors: Array
    """Mean log-factor of each mechanism, with what all of them share; (mechanisms,)."""
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

    model: ErrorModel
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
        if len(self.runs) < 2:
            return (0.0,) * len(self.runs)
        usual = np.array([own_variance(self.model, run) for run in self.runs])
        wide = np.array([case.own > 2.0 * usual for case in self.cases], float)
        return tuple((self.weights @ wide).tolist())

    def of(self, run: MeasuredRun) -> NextRun:
        """The next run, by the slopes that it has."""
        model, names = self.model, self.mechanisms
        again = same_runs([run], self.runs)[0]
        cross = covariance_of(model, names, [run], self.runs)[0]
        before = float(covariance_of(model, names, [run], [run])[0, 0])
        centres, spreads, factors, squares = [], [], [], []
        for case in self.cases:
            seen, alone = case.tail * cross, case.tail * before
            if again.any():  # measured itself: its own part is known
                mine = float((case.own * again).max())
                seen = seen + again * np.sqrt(mine * case.own)
                alone += mine
            centres.append(centre_of(model, names, run, case.tail) + float(seen @ case.pulls))
            spreads.append(max(alone - float(seen @ case.precision @ seen), 0.0))
            theta, variance = _factors_of(self, case, run)
            factors.append(theta)
            squares.append(variance)
        own = [(REPEAT**2, 1.0)] if again.any() else own_kinds(model, run)
        weights = np.outer(self.weights, [share for _, share in own]).ravel()
        means = np.repeat(centres, len(own))
        wide = np.sqrt(np.add.outer(np.array(spreads), np.array([v for v, _ in own])).ravel())
        wide *= model.after if self.runs and not again.any() else 1.0
        mean = self.weights @ np.array(factors)
        spread = self.weights @ (np.array(squares) + (np.array(factors) - mean) ** 2)
        median = quantile(weights, means, wide, 0.5)
        return NextRun(
            factors=mean,
            deviations=np.sqrt(np.maximum(spread, 0.0)),
            unexplained=median - float(run.slopes @ mean),
            median=median,
            interval={
                key: (quantile(weights, means, wide, low), quantile(weights, means, wide, high))
                for key, (low, high) in LEVELS.items()
            },
        )


def condition(
    model: ErrorModel, mechanisms: tuple[str, ...], runs: Sequence[MeasuredRun]
) -> Posterior:
    """What is held after some runs; none leave what was held before."""
    runs = tuple(runs)
    common = covariance_of(model, mechanisms, runs, runs)
    again = np.maximum(same_runs(runs, runs), np.eye(len(runs)))
    noise = np.array([run.noise**2 + REPEAT**2 * (run.key is not None) for run in runs])
    cases: list[Case] = []
    for tail in model.tails:
        rest = np.array([run.log_ratio - centre_of(model, mechanisms, run, tail) for run in runs])
        for own, log_share in _choices(model, tail * common, noise, runs, rest):
            single = np.sqrt(own)
            total = tail * common + again * np.outer(single, single) + np.diag(noise)
            precision = np.asarray(np.linalg.inv(total), float) if runs else total
            pulls = precision @ rest
            _, log_determinant = np.linalg.slogdet(total) if runs else (1.0, 0.0)
            likely = log_share - 0.5 * float(rest @ pulls) - 0.5 * float(log_determinant)
            cases.append(
                Case(log_weight=likely, tail=tail, own=own, pulls=pulls, precision=precision)
            )
    logs = np.array([case.log_weight for case in cases])
    weights = np.exp(logs - logs.max())
    return Posterior(
        model=model,
        mechanisms=mechanisms,
        runs=runs,
        cases=tuple(cases),
        weights=weights / weights.sum(),
    )


def prior_interval(
    model: ErrorModel, mechanisms: tuple[str, ...], run: MeasuredRun
) -> Mapping[str, tuple[float, float]]:
    """p50 and p90 of ln(measured / predicted) of a question with nothing measured; each holds 0."""
    shared = math.sqrt(shared_variance(model, mechanisms, run.slopes))
    scale = scale_of(model, run.novelty)
    ratio = math.log(model.own / shared)
    place = min(max((ratio - FIRST_NODE) * NODES_PER_UNIT, 0.0), LAST_NODE)
    node = min(int(place), LAST_NODE - 1)
    before, behind = _prior_ends(model, node), _prior_ends(model, node + 1)
    ends = before + (place - node) * (behind - before)
    rises = float(run.slopes.sum()) >= 0.0  # a rate falls where a time rises
    found: dict[str, tuple[float, float]] = {}
    for i, key in enumerate(LEVELS):
        low, high = (model.mean + scale * shared * float(ends[2 * i + side]) for side in (0, 1))
        low, high = (low, high) if rises else (-high, -low)
        found[key] = (min(low, 0.0), max(high, 0.0))
    return found


@lru_cache(maxsize=1024)
def _prior_ends(model: ErrorModel, node: int) -> Array:
    """Ends of the intervals in shared spreads, at a node of the logarithm of own over shared spread."""
    ratio = math.exp(FIRST_NODE + node / NODES_PER_UNIT)
    tails = np.array(model.tails)
    centres = np.repeat(model.skew * (tails - middle_tail(model)), len(model.own_kinds))
    shares = np.tile([share for _, share in model.own_kinds], len(tails))
    own = ratio**2 * np.array([factor**2 for factor, _ in model.own_kinds])
    wide = np.sqrt(np.add.outer(tails, own).ravel())
    levels = [level for ends in LEVELS.values() for level in ends]
    return np.array([quantile(shares / len(tails), centres, wide, level) for level in levels])


def middle_tail(model: ErrorModel) -> float:
    """The median multiple."""
    low, high = (len(model.tails) - 1) // 2, len(model.tails) // 2
    ordered = sorted(model.tails)  # np.median loads masked arrays, a tenth of a first answer
    return 0.5 * (ordered[low] + ordered[high])


def centre_of(
    model: ErrorModel, mechanisms: tuple[str, ...], run: MeasuredRun, tail: float
) -> float:
    """Mean log error of a run where the spread of places has a multiple."""
    whole = float(run.slopes.sum())
    shared = math.sqrt(shared_variance(model, mechanisms, run.slopes))
    far = model.skew * (tail - middle_tail(model))
    return model.mean * whole + math.copysign(
        far * scale_of(model, run.novelty) * shared, whole * far
    )


def shared_variance(model: ErrorModel, mechanisms: tuple[str, ...], slopes: Array) -> float:
    """Variance of what a run has in common with others of its place, where nothing is new."""
    each = np.array([model.mechanisms[name] for name in mechanisms])
    every = (model.common**2 + model.alike**2) * float(slopes.sum()) ** 2
    return every + float(((each * slopes) ** 2).sum())


def scale_of(model: ErrorModel, novelty: Mapping[str, float]) -> float:
    """Factor on all spreads of a run, by what is new about it."""
    return math.exp(sum(model.novelty.get(name, 0.0) * x for name, x in novelty.items()))


def covariance_of(
    model: ErrorModel,
    mechanisms: tuple[str, ...],
    some: Sequence[MeasuredRun],
    others: Sequence[MeasuredRun],
) -> Array:
    """Covariance of what runs of a place have in common with others; (some, others)."""
    if not some or not others:
        return np.zeros((len(some), len(others)))
    left, right = (np.array([run.slopes for run in runs]) for runs in (some, others))
    one, other = (
        np.array([scale_of(model, run.novelty) for run in runs]) for runs in (some, others)
    )
    each = np.array([model.mechanisms[name] for name in mechanisms])
    every = model.common**2 + model.alike**2 * nearness(model, some, others)
    shared = every * np.outer(left.sum(axis=1), right.sum(axis=1)) + (left * each**2) @ right.T
    return np.asarray(shared * np.outer(one, other), float)


def own_variance(model: ErrorModel, run: MeasuredRun) -> float:
    """Variance of what is a run's own, where it is a usual one."""
    return (model.own * scale_of(model, run.novelty)) ** 2


def own_kinds(model: ErrorModel, run: MeasuredRun) -> list[tuple[float, float]]:
    """Variance of what is a run's own, and its probability: usual first."""
    own = own_variance(model, run)
    return [(own * factor**2, share) for factor, share in model.own_kinds]


def _choices(
    model: ErrorModel,
    common: Array,
    noise: Array,
    runs: Sequence[MeasuredRun],
    rest: Array,
) -> list[tuple[Array, float]]:
    """Variance of what is each run's own, and the logarithm of its probability: of every choice of wide
    runs, or of the one that many runs make of each other."""
    kinds = [own_kinds(model, run) for run in runs]
    usual = np.array([kind[0][0] for kind in kinds])
    if len(runs) < 2:
        return [(usual, 0.0)]
    if len(runs) <= MANY:
        return [
            (np.array([own for own, _ in chosen]), sum(math.log(share) for _, share in chosen))
            for chosen in itertools.product(*kinds)
        ]
    wide = np.array([kind[-1][0] for kind in kinds])
    rare = model.own_kinds[-1][1]
    odds = math.log(rare / (1.0 - rare))
    own = usual
    for _ in range(ROUNDS):
        inverse = np.linalg.inv(common + np.diag(own + noise))
        # Each run as all the others see it.
        variance = 1.0 / np.diagonal(inverse)
        gap = (inverse @ rest) * variance
        near = np.maximum(variance - own + usual, usual)
        far = near - usual + wide
        told = odds + 0.5 * (np.log(near / far) + gap**2 * (1.0 / near - 1.0 / far))
        out = 1.0 / (1.0 + np.exp(-np.clip(told, -50.0, 50.0)))
        own = 1.0 / ((1.0 - out) / usual + out / wide)
    return [(own, 0.0)]


def same_runs(some: Sequence[MeasuredRun], others: Sequence[MeasuredRun]) -> Array:
    """1 where two runs are one and the same by their keys; (some, others)."""
    return np.array(
        [[a.key is not None and a.key == b.key for b in others] for a in some], float
    ).reshape(len(some), len(others))


def nearness(
    model: ErrorModel, some: Sequence[MeasuredRun], others: Sequence[MeasuredRun]
) -> Array:
    """How alike runs are, 1 the same: less by steps in numbers, and by names that differ; (some, others)."""
    apart = np.zeros((len(some), len(others)))
    for name, weight in model.distance.items():
        left, right = ([run.features.get(name) for run in runs] for runs in (some, others))
        if all(isinstance(value, float) for value in (*left, *right)):
            apart += weight * np.abs(np.subtract.outer(np.array(left), np.array(right)))
        else:
            apart += weight * np.array([[a != b for b in right] for a in left])
    return np.exp(-apart)


def _factors_of(posterior: Posterior, case: Case, run: MeasuredRun) -> tuple[Array, Array]:
    """Mean and variance of the log-factors in one case, of a run."""
    model, names = posterior.model, posterior.mechanisms
    scale = scale_of(model, run.novelty)
    spread = np.array([model.mechanisms[name] for name in names]) ** 2
    before = case.tail * scale**2 * (model.common**2 + spread)
    whole = float(run.slopes.sum())
    centre = centre_of(model, names, run, case.tail) / whole if abs(whole) > 1e-9 else 0.0
    if not posterior.runs:
        return np.full(len(names), centre), before
    scales = np.array([scale_of(model, one.novelty) for one in posterior.runs])
    slopes = np.array([one.slopes for one in posterior.runs])
    each = slopes * spread + model.common**2 * slopes.sum(axis=1, keepdims=True)
    seen = case.tail * scale * (each * scales[:, None]).T
    variance = before - np.einsum("mi,ij,mj->m", seen, case.precision, seen)
    return centre + seen @ case.pulls, variance


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
