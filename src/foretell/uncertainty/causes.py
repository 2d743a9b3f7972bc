"""Which mechanism a measured gap is likely due to: the parts of each run's ln(measured / predicted).

A run is the sum of its slopes times each mechanism's own log-factor, of what all mechanisms share, and of a
rest that no mechanism explains. Given what was measured, all of these are normal in each case of the
posterior; draws from them count in how many worlds each part is the largest.
"""

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.uncertainty.posterior import Posterior, doubt_of, nearness, same_runs

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
    if_largest: Array
    """Mean log-contribution of each part in the worlds in which it is the largest; 0 where there are none."""
    deviation: Array
    """Standard deviation of it there."""
    correlation: Array
    """Between the contributions of the parts: near -1, one could stand for the other."""


def causes_of(posterior: Posterior, number: int) -> RunCauses:
    """The parts of one of the posterior's runs."""
    prior, names, runs = posterior.prior, posterior.mechanisms, posterior.runs
    random = np.random.default_rng(SEED)
    run = runs[number]
    doubts = np.array([doubt_of(prior, one) for one in runs])
    slopes = np.array([one.slopes for one in runs]) * doubts[:, None] ** prior.doubt_power
    near = nearness(prior, [run], runs)[0]
    alike = prior.likeness**2 * doubts[number] * doubts * near
    again = same_runs([run], runs)[0]
    again[number] = 1.0
    here, every = slopes[number], slopes.sum(axis=1)
    # What is this run's own of each mechanism is the mechanism's, too.
    row_own = (here * np.array([prior.row_spread[name] for name in names])) ** 2
    drawn = []
    counts = random.multinomial(DRAWS, posterior.weights)
    for case, count in zip(posterior.cases, counts, strict=True):
        if count == 0:
            continue
        place = case.place
        own = place.scale * row_own
        single = place.scale * prior.noise**2 * doubts[number] ** 2 + case.outliers[number]
        each = place.part + np.outer(near, place.spread - place.part)
        before = np.append(here**2 * place.spread + own, every[number] ** 2 * place.shared)
        likeness = place.scale * prior.likeness**2
        before = np.append(before, likeness * doubts[number] ** 2 + single)
        rest = place.scale * alike + single * again
        parts_seen = (here * each * slopes).T + np.outer(own, again)
        seen = np.vstack([parts_seen, every[number] * place.shared * every, rest])
        after = np.diag(before) - seen @ case.precision @ seen.T
        root = np.linalg.cholesky(after + 1e-10 * np.eye(len(after)))
        drawn.append(seen @ case.pulls + random.standard_normal((count, len(after))) @ root.T)
    parts, many = np.concatenate(drawn), len(names)
    gap = run.log_ratio - prior.mean * float(run.slopes.sum())
    sign = 1.0 if gap >= 0.0 else -1.0
    first = (sign * parts).argmax(axis=1)
    largest = np.bincount(first, minlength=many + 2) / len(parts)
    there = [parts[first == i, i] for i in range(many + 2)]
    spreads = parts.std(axis=0)
    scaled = (parts - parts.mean(axis=0)) / np.maximum(spreads, 1e-12)
    return RunCauses(
        names=(*names, SHARED, REST),
        probability=largest,
        share=parts.mean(axis=0),
        if_largest=np.array([one.mean() if len(one) else 0.0 for one in there]),
        deviation=np.array([one.std() if len(one) else 0.0 for one in there]),
        correlation=scaled.T @ scaled / len(parts),
    )
