"""Which mechanism a measured gap is likely due to: the parts of each run's ln(measured / predicted).

A run is the sum of its slopes times each mechanism's own log-factor, of what all mechanisms share, and of a
rest that no mechanism explains. Given what was measured, all of these are normal in each case of the
posterior; draws from them count in how many worlds each part is the largest.
"""

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.uncertainty.posterior import Posterior, covariance_of, doubt_of, own_variance

Array = NDArray[np.float64]

DRAWS, SEED = 4000, 0
SHARED, REST = "everything", "unexplained"
"""Parts beside the mechanisms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCauses:
    """The parts of one run's gap."""

    names: tuple[str, ...]
    """Mechanisms, then what they share, then the rest."""
    probability: Array
    """Of each part, that it is the largest in the gap's direction."""
    share: Array
    """Mean log-contribution of each part."""
    correlation: Array
    """Between the contributions of the parts: near -1, one could stand for the other."""


def causes_of(posterior: Posterior, place: int) -> RunCauses:
    """The parts of one of the posterior's runs."""
    prior, names, runs = posterior.prior, posterior.mechanisms, posterior.runs
    random = np.random.default_rng(SEED)
    slopes = np.array([run.slopes * doubt_of(prior, run) for run in runs])
    rest = np.array([r.log_ratio - prior.mean * float(r.slopes.sum()) for r in runs])
    own = np.array([own_variance(prior, names, run) for run in runs])
    common, _ = covariance_of(prior, names, runs, runs)
    spread = np.array([prior.spread[name] ** 2 for name in names])
    alike = common - (slopes * spread) @ slopes.T
    counts = random.multinomial(DRAWS, posterior.weights)
    drawn = []
    for case, count in zip(posterior.cases, counts, strict=True):
        if count == 0:
            continue
        wide = alike + np.diag(own * np.array(case.scales))
        size = len(names) + 1 + len(runs)
        before = np.zeros((size, size))
        before[: len(names), : len(names)] = np.diag(spread)
        before[len(names), len(names)] = case.shared
        before[len(names) + 1 :, len(names) + 1 :] = wide
        seen = np.hstack([slopes, slopes.sum(axis=1)[:, None], np.eye(len(runs))])
        noise = np.diag([max(run.noise, 1e-4) ** 2 for run in runs])
        gain = before @ seen.T @ np.linalg.inv(seen @ before @ seen.T + noise)
        mean, after = gain @ rest, before - gain @ seen @ before
        root = np.linalg.cholesky(after + 1e-10 * np.eye(len(after)))
        drawn.append(mean + random.standard_normal((count, len(mean))) @ root.T)
    draws = np.concatenate(drawn)
    many = len(names)
    parts = np.column_stack(
        [
            draws[:, :many] * slopes[place],
            draws[:, many] * slopes[place].sum(),
            draws[:, many + 1 + place],
        ]
    )
    sign = 1.0 if rest[place] >= 0.0 else -1.0
    largest = np.bincount((sign * parts).argmax(axis=1), minlength=many + 2) / len(parts)
    spreads = parts.std(axis=0)
    scaled = (parts - parts.mean(axis=0)) / np.maximum(spreads, 1e-12)
    return RunCauses(
        names=(*names, SHARED, REST),
        probability=largest,
        share=parts.mean(axis=0),
        correlation=scaled.T @ scaled / len(parts),
    )
