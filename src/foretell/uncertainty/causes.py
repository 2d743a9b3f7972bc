"""Which mechanism a measured gap is likely due to: the parts of each run's ln(measured / predicted).

A run is the sum of its slopes times each mechanism's own log-factor, of what all mechanisms share, and of a
rest that no mechanism explains. Given what was measured, all of these are normal in each case of the
posterior; draws from them count in how many worlds each part is the largest.
"""

import numpy as np

from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.uncertainty.posterior import Posterior, nearness, same_runs, scale_of

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
    model, names, runs = posterior.model, posterior.mechanisms, posterior.runs
    random = np.random.default_rng(SEED)
    run = runs[number]
    scales = np.array([scale_of(model, one.novelty) for one in runs])
    slopes = np.array([one.slopes for one in runs]) * scales[:, None]
    here, every = slopes[number], slopes.sum(axis=1)
    spread = np.array([model.mechanisms[name] for name in names]) ** 2
    near = model.alike**2 * nearness(model, [run], runs)[0] * every[number] * every
    again = same_runs([run], runs)[0]
    again[number] = 1.0
    drawn = []
    counts = random.multinomial(DRAWS, posterior.weights)
    for case, count in zip(posterior.cases, counts, strict=True):
        if count == 0:
            continue
        own = float(case.own[number])
        shared = case.tail * model.common**2 * every[number] * every
        rest = case.tail * near + np.sqrt(own * case.own) * again
        seen = np.vstack([case.tail * (here * spread * slopes).T, shared, rest])
        before = np.append(
            case.tail * here**2 * spread, [shared[number], case.tail * near[number] + own]
        )
        after = np.diag(before) - seen @ case.precision @ seen.T
        root = np.linalg.cholesky(after + 1e-10 * np.eye(len(after)))
        drawn.append(seen @ case.pulls + random.standard_normal((count, len(after))) @ root.T)
    parts, many = np.concatenate(drawn), len(names)
    gap = run.log_ratio - model.mean * float(run.slopes.sum())
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
