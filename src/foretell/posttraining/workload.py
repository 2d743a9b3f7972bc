"""What a step does: trajectories and their lengths, cut at a limit.

Lengths are quantiles, not draws: the i-th of n answers has the length that a share (i + 1/2) / n of all
answers does not exceed, so that the same question always has the same answer, and the longest of many is as
long as the longest of many is. With a limit, the distribution is moved until the mean after cutting is the
one that was given: logs print that mean.
"""

from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.specs.service import LengthShape

SIGMAS = (0.5, 1.1)
"""Least and largest spread of the logarithm of an answer's length: 0.4 to 1.0 cover what logs of
reinforcement learning print of means, longest answers and shares that are cut."""
LONGEST_Z = 3.67
"""Standard deviations of the longest of some 8,000 answers."""
POINTS = 4096
"""Quantiles from which means are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLengths:
    """The distribution of the lengths of answers."""

    mean: float
    """Mean after cutting, in tokens."""
    cap: float
    """The limit."""
    shape: LengthShape = "lognormal"
    """How they spread."""
    samples: tuple[float, ...] = ()
    """Lengths of a file, in the place of a shape."""

    def quantiles(self, shares: Array) -> Array:
        """Lengths that these shares of all answers do not exceed; at least one token, at most the limit."""
        if self.samples:
            ordered = np.sort(np.asarray(self.samples, float))
            found = np.interp(shares, (np.arange(len(ordered)) + 0.5) / len(ordered), ordered)
            return np.asarray(np.clip(found, 1.0, self.cap))
        sigma = spread_sigma(self.mean, self.cap)
        scale = _scale(self.mean, self.cap, self.shape, sigma)
        return np.asarray(np.clip(_spread(self.shape, shares, sigma) * scale, 1.0, self.cap))

    def of_many(self, many: int) -> Array:
        """Lengths of so many answers, the shortest first."""
        return self.quantiles((np.arange(many) + 0.5) / max(many, 1))

    def longest_of(self, many: float) -> float:
        """Mean length of the longest of so many answers."""
        shares = ((np.arange(POINTS) + 0.5) / POINTS) ** (1.0 / max(many, 1.0))
        return float(np.mean(self.quantiles(shares)))

    @property
    def cut_share(self) -> float:
        """Share of the answers that end at the limit."""
        return (
            float(np.mean(self.of_many(POINTS) >= self.cap - 0.5)) if self.shape != "fixed" else 0.0
        )

    @property
    def square_mean(self) -> float:
        """Mean of the squared lengths."""
        return float(np.mean(self.of_many(POINTS) ** 2))


def spread_sigma(mean: float, cap: float) -> float:
    """The spread by which the longest of a step's answers just reaches the limit: a limit is set where it
    cuts few, and the further it is from the mean, the longer the tail that it was set for."""
    ratio = np.log(max(cap / max(mean, 1e-9), 1.0))
    found = LONGEST_Z - np.sqrt(max(LONGEST_Z**2 - 2.0 * ratio, 0.0))
    return float(np.clip(found, *SIGMAS))


def _spread(shape: LengthShape, shares: Array, sigma: float) -> Array:
    """Quantiles of a distribution of mean one, before any limit."""
    match shape:
        case "fixed":
            return np.ones_like(shares)
        case "uniform":
            return 2.0 * shares
        case "exponential":
            return np.asarray(-np.log1p(-np.minimum(shares, 1.0 - 1e-9)))
        case _:
            normal = NormalDist()
            z = np.array([normal.inv_cdf(min(float(u), 1.0 - 1e-9)) for u in np.ravel(shares)])
            return np.asarray(np.exp(sigma * z - 0.5 * sigma**2)).reshape(np.shape(shares))


@lru_cache(maxsize=512)
def _scale(mean: float, cap: float, shape: LengthShape, sigma: float) -> float:
    """Mean before cutting by which the mean after cutting is the one given."""
    if shape == "fixed" or mean >= cap:
        return float(min(mean, cap)) if shape == "fixed" else 1e3 * cap
    spread = _spread(shape, (np.arange(POINTS) + 0.5) / POINTS, sigma)
    low, high = mean, 1e3 * cap
    for _ in range(60):
        middle = np.sqrt(low * high)
        cut = float(np.mean(np.minimum(spread * middle, cap)))
        low, high = (middle, high) if cut < mean else (low, middle)
    return float(np.sqrt(low * high))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryWorkload:
    """What one step does, whatever the chips."""

    prompts: int
    """Prompts of a step."""
    samples: int
    """Answers to each."""
    prompt_tokens: float
    """Mean tokens of a prompt."""
    answers: AnswerLengths
    """Lengths of the answers."""
    updates: int = 1
    """Optimizer updates of a step."""
    sequences: float = 1.0
    """Sequences that the trainer passes for each trajectory."""
    padded_to: float = 0.0
    """Tokens that every sequence is filled up to for the trainer; 0: packed, nothing is filled up."""
    together: bool = False
    """Whether the sequences of a micro-batch are filled up to its longest."""
    alike: bool = False
    """Whether they are nearly as long as each other."""
    filtered: float = 0.0
    """Share of the groups that are thrown away and generated anew (dynamic sampling)."""
    generated: bool = True
    """Whether trajectories are generated in the step; fine-tuning is given its sequences."""
    turns: int = 1
    """Turns of a trajectory, each with a call of a tool behind it but the last."""
    tool_median_s: float = 0.0
    """Median time of a tool call."""
    tool_p99_s: float = 0.0
    """The time that one call in a hundred exceeds."""

    @property
    def trajectories(self) -> int:
        """Trajectories of a step."""
        return self.prompts * self.samples

    def in_batches(self, many: int) -> "TrajectoryWorkload":
        """The same in micro-batches of so many sequences, filled up to the longest of each."""
        if not self.together or self.alike or self.padded_to:
            return self
        longest = self.answers.longest_of(float(many) * self.sequences)
        return replace(self, padded_to=self.prompt_tokens + longest)

    def longest(self) -> "TrajectoryWorkload":
        """The micro-batch that holds the longest sequence, of which the peak of the memory is; packed
        sequences have none."""
        if not self.together or self.padded_to:
            return self
        most = float(self.answers.quantiles(np.array([1.0]))[0])
        return replace(self, padded_to=self.prompt_tokens + most)

    @property
    def mean_tokens(self) -> float:
        """Mean tokens of a trajectory."""
        return self.prompt_tokens + self.answers.mean

    @property
    def tokens(self) -> float:
        """Tokens of all trajectories, as logs count them: both halves of a pair."""
        return self.sequences * self.trajectories * self.mean_tokens

    @property
    def passed_tokens(self) -> float:
        """Tokens that the trainer's passes go over."""
        each = self.padded_to or self.mean_tokens
        return self.sequences * self.trajectories * each

    @property
    def passed_length(self) -> float:
        """Length by which attention over packed sequences costs what it costs: E[l^2] / E[l]."""
        if self.padded_to:
            return self.padded_to
        prompt, mean = self.prompt_tokens, self.answers.mean
        square = prompt**2 + 2.0 * prompt * mean + self.answers.square_mean
        return square / self.mean_tokens

    @property
    def variation(self) -> float:
        """Standard deviation of a trajectory's tokens over their mean."""
        spread = max(self.answers.square_mean - self.answers.mean**2, 0.0)
        return float(np.sqrt(spread)) / self.mean_tokens
