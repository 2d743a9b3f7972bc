"""Chance: tasks that take a little longer or shorter each time, and chips that are slow for a whole step.

    jitter      every rank's task takes a log-normal multiple of its time, mean 1, standard deviation `jitter`
    stragglers  every chip is slow by `slowdown` with probability `stragglers`, for the whole step

A stage's ranks meet in every pass (tensor and context groups; with ZeRO 3 the replicas too), so a task takes
as long as on the slowest of them: the largest of n draws, drawn at once as the U^(1/n) quantile. Replicas
meet at the end of a step: the slowest of their pipelines counts. One is simulated per repeat, the one with
most slow stages; the largest of many that jitter alone tells apart is that of as many normal draws with the
spread that the repeats show.
"""

from functools import lru_cache
from math import erfc, sqrt

import numpy as np

from foretell.errors import Problem, wrong
from foretell.records import dataclass
from foretell.specs.arrays import Array, Ints, Mask

PERCENTILES = (10, 50, 90, 99)
"""What is stated of a distribution."""
DRAWS = 20_000
"""Draws of a whole job's step from what the repeats show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What is left to chance in a step."""

    jitter: float = 0.0
    """Standard deviation of a task's time over its mean, on one rank."""
    stragglers: float = 0.0
    """Probability that a chip is slow in a step."""
    slowdown: float = 1.3
    """How much longer a slow chip takes."""
    repeats: int = 20
    """Steps that are simulated."""
    seed: int = 0
    """Seed of the draws: equal seeds, equal steps."""

    @property
    def some(self) -> bool:
        """Whether anything is left to chance."""
        return self.jitter > 0.0 or self.stragglers > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroups:
    """Who waits for whom."""

    ranks: int
    """Ranks of a stage that meet in every pass."""
    replicas: int
    """Pipelines that meet at the end of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What chance does to one simulated pipeline."""

    factors: tuple[Array, ...]
    """Rank -> factor on each of its tasks."""
    slow_stages: int
    """Stages with a slow chip."""


def chance_problems(shares: dict[str, object], counts: dict[str, object]) -> list[Problem]:
    """What is wrong with numbers given for a `Chance`, all at once."""
    limits = {
        "jitter": (0.0, 1.0),
        "stragglers": (0.0, 1.0),
        "slowdown": (1.0, 100.0),
        "repeats": (1, 10_000),
        "seed": (0, 2**32 - 1),
    }
    found = []
    for name, value in {**shares, **counts}.items():
        low, high = limits[name]
        whole = name in counts
        is_number = type(value) is int or (not whole and isinstance(value, float))
        if not (is_number and low <= value <= high):  # type: ignore[operator]
            kind = "a whole number" if whole else "a number"
            allowed = f"{kind} from {low:g} to {high:g}"
            message = "not a usable number"
            found.append(wrong(name, value, message, allowed))
    return found


def largest_normal(rng: np.random.Generator, of: float, size: int) -> Array:
    """The largest of `of` standard normal draws, `size` times."""
    tail = -np.expm1(np.log(rng.random(size)) / max(of, 1.0))
    depths, places = _upper_tail()
    return np.asarray(np.interp(-np.log(np.maximum(tail, 1e-18)), depths, places))


@lru_cache(maxsize=1)
def _upper_tail() -> tuple[Array, Array]:
    """-ln of the normal distribution's upper tail, and where it is so deep."""
    places = np.linspace(-9.0, 9.0, 3601)
    return -np.log([0.5 * erfc(float(x) / sqrt(2.0)) for x in places]), places


def draw(
    chance: Chance, meeting: SyncGroups, tasks: tuple[int, ...], rng: np.random.Generator
) -> Draw:
    """Factors of one repeat; `tasks` are the tasks of every rank."""
    spread = sqrt(np.log1p(chance.jitter**2))
    slow = slow_stages(chance, meeting, len(tasks), rng)
    factors = []
    for many, is_slow in zip(tasks, slow, strict=True):
        largest = largest_normal(rng, meeting.ranks, many) if spread > 0.0 else np.zeros(many)
        factors.append(
            np.exp(spread * largest - 0.5 * spread**2) * (chance.slowdown if is_slow else 1.0)
        )
    return Draw(factors=tuple(factors), slow_stages=int(slow.sum()))


def slow_stages(chance: Chance, meeting: SyncGroups, stages: int, rng: np.random.Generator) -> Mask:
    """The stages with a slow chip in the replica that has most of them."""
    if chance.stragglers <= 0.0:
        return np.zeros(stages, bool)
    some = -np.expm1(meeting.ranks * np.log1p(-min(chance.stragglers, 1.0 - 1e-12)))
    slow = rng.random((meeting.replicas, stages)) < some
    return np.asarray(slow[int(slow.sum(axis=1).argmax())])


def job_steps(steps: Array, groups: Ints, replicas: int, rng: np.random.Generator) -> Array:
    """Steps of the whole job, drawn from those of single pipelines.

    `groups` tells apart what stragglers did; inside a group jitter alone makes the difference, and the
    largest of `replicas` such draws counts.
    """
    means = {int(g): float(steps[groups == g].mean()) for g in np.unique(groups)}
    centre = np.array([means[int(g)] for g in groups])
    freedom = max(len(steps) - len(means), 1)
    spread = float(np.sqrt(((steps - centre) ** 2).sum() / freedom))
    chosen = centre[rng.integers(0, len(steps), DRAWS)]
    return np.asarray(chosen + spread * largest_normal(rng, replicas, DRAWS))
