"""Requests by chance: lengths and arrivals from a seed."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.serving.requests.records import Requests
from foretell.specs.lengths import LengthShape

Array = NDArray[np.float64]
Kind = Literal["closed", "poisson", "gamma", "burst"]
KINDS: tuple[Kind, ...] = ("closed", "poisson", "gamma", "burst")
LOGNORMAL_SIGMA = 1.0
"""Spread of the logarithm of a lognormal length: answers of public chat logs have 0.9 to 1.2."""
GAMMA_CV = 2.0
"""Standard deviation of a gamma gap over its mean: bursty, as public service logs are."""
BURST_SIZE, BURST_SHARE = 32, 0.05
"""Requests that come at once in bursts, and the spread of a burst over the gap between bursts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of prompts or answers."""

    mean: float
    """Mean, or the whole length of a uniform one."""
    shape: LengthShape = "fixed"
    """fixed; uniform between `least` x mean and mean; exponential; lognormal."""
    least: float = 0.8
    """Smallest share of a uniform length."""
    samples: tuple[float, ...] = ()
    """Lengths of a file, in the place of mean and shape; dealt evenly, in an order by chance."""

    def draw(self, rng: np.random.Generator, many: int) -> list[int]:
        """So many whole lengths, each at least 1."""
        if self.samples:
            order = rng.permutation(np.arange(many) * len(self.samples) // max(many, 1))
            return [max(round(self.samples[i]), 1) for i in order]
        found = np.full(many, self.mean)
        match self.shape:
            case "uniform":
                found = rng.uniform(self.least * self.mean, self.mean, many)
            case "exponential":
                found = rng.exponential(self.mean, many)
            case "lognormal":
                middle = np.log(self.mean) - 0.5 * LOGNORMAL_SIGMA**2
                found = rng.lognormal(middle, LOGNORMAL_SIGMA, many)
        return [int(n) for n in np.maximum(np.rint(found), 1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """How requests come."""

    kind: Kind = "closed"
    """closed: an answer brings the next; poisson: independent; gamma: bursty; burst: many at once."""
    concurrency: int = 1
    """Requests in flight of a closed loop."""
    rate: float = 1.0
    """Requests a second of the others."""


def draw_requests(arrivals: Arrivals, isl: Lengths, osl: Lengths, many: int, seed: int) -> Requests:
    """So many requests; the same for the same seed."""
    rng = np.random.default_rng(seed)
    if isl.samples and osl.samples:
        # Prompt and answer of one request of a file stay together.
        prompts, answers = (one.draw(np.random.default_rng(seed), many) for one in (isl, osl))
    else:
        prompts, answers = isl.draw(rng, many), osl.draw(rng, many)
    if arrivals.kind == "closed":
        return Requests(isl=prompts, osl=answers, concurrency=arrivals.concurrency)
    gaps = _gaps(arrivals, rng, many)
    return Requests(isl=prompts, osl=answers, at_s=np.cumsum(gaps).tolist())


def _gaps(arrivals: Arrivals, rng: np.random.Generator, many: int) -> Array:
    """Seconds from one request to the next, 1 / rate on the mean."""
    mean = 1.0 / arrivals.rate
    if arrivals.kind == "burst":
        inside = BURST_SHARE * mean
        gaps = np.full(many, inside)
        gaps[::BURST_SIZE] = BURST_SIZE * mean - (BURST_SIZE - 1) * inside
        gaps[0] = 0.0
        return gaps
    shape = 1.0 / GAMMA_CV**2 if arrivals.kind == "gamma" else 1.0
    gaps = rng.gamma(shape, mean / shape, many)
    # Few draws miss their mean by some percent, and another load would be simulated than was asked about.
    return np.asarray(gaps * (many * mean / gaps.sum()))
