"""Steps for a simulator: `StepTimes.seconds` sampled once, then read back for one load at a time.

A simulator asks for some hundred thousand single steps; arrays of one would take a hundred times as long.
Decode steps are sampled at every batch and read exactly where the context is straight between samples;
steps with prompts on a grid of sequences, tokens and prompts, with a slope for the context and an increment
for tokens that are in the cache already.
"""

from bisect import bisect_right
from functools import cache

import numpy as np

from foretell.serving.fullest_rank import StepLoad
from foretell.serving.steps import StepTimes
from foretell.serving.table_points import CONTEXTS
from foretell.specs.arrays import Array

FEW = (1, 2, 3, 4, 6, 8, 16, 32, 64)
"""Prompts of a step."""
TOKENS = np.unique(np.round(np.geomspace(1.0, 65536.0, 81)))
"""Prompt tokens of a step."""
PASTS = np.array([0.0, 512.0, 2048.0, 8192.0, 32768.0, 131072.0])
"""Tokens of a prompt that are in the cache already."""
SLOPE_TOKENS = 4096.0
"""Context of a sequence over which the slope of a step with prompts is taken."""


class SampledClock:
    """Seconds of steps of one instance, up to a largest batch.

    Sequences of a batch differ, and kernels wait for their longest ones: each counts as having
    `longer_tokens` more in the cache than it has.
    """

    def __init__(self, times: StepTimes, max_batch: int, longer_tokens: float = 0.0) -> None:
        self._longer = longer_tokens
        batches = np.arange(1.0, max_batch + 1.0)
        total = batches[:, None] * CONTEXTS
        seconds = times.seconds(StepLoad(decoding=batches[:, None], context_tokens=total))
        slopes = np.diff(seconds, axis=1) / np.diff(total, axis=1)
        starts = seconds[:, :-1] - slopes * total[:, :-1]
        # By place, of the batches and numbers of prompts that are asked for: all of them would take longer.
        self._lines = cache(
            lambda place: (total[place].tolist(), starts[place].tolist(), slopes[place].tolist())
        )
        self._batches = _grid(max_batch)
        self._tokens: list[float] = TOKENS.tolist()
        self._mixed = cache(lambda place: self._sampled(times, FEW[place]))
        self._past = cache(lambda place: self._increments(times, FEW[place]))
        self._pasts: list[float] = PASTS.tolist()

    def _increments(self, times: StepTimes, k: int) -> list[list[float]]:
        """What tokens in the cache add to a step of prompts; (tokens, tokens in the cache of each)."""
        new = np.maximum(TOKENS, float(k))[:, None]

        def at(past: Array | float) -> Array:
            return times.seconds(
                StepLoad(prefill_tokens=new, past_tokens=k * past, prompts=float(k))
            )

        found: list[list[float]] = np.maximum(at(PASTS) - at(0.0), 0.0).tolist()
        return found

    def _sampled(self, times: StepTimes, k: int) -> tuple[list[list[float]], list[list[float]]]:
        """Seconds without context, and seconds of a token of context; (batches, tokens)."""
        n = np.array(self._batches)[:, None]
        new = np.maximum(TOKENS, float(k))

        def at(context: float) -> Array:
            load = StepLoad(
                decoding=n, context_tokens=n * context, prefill_tokens=new, prompts=float(k)
            )
            return times.seconds(load)

        bare = at(0.0)
        slope = (at(SLOPE_TOKENS) - bare) / np.maximum(n * SLOPE_TOKENS, 1.0)
        return bare.tolist(), slope.tolist()

    def line(self, decoding: int, context_tokens: float) -> tuple[float, float, float]:
        """a, b and the context up to which a decode step takes a + b context."""
        totals, starts, slopes = self._lines(decoding - 1)
        last = len(totals) - 2
        longer = decoding * self._longer
        i = bisect_right(totals, context_tokens + longer) - 1
        i = 0 if i < 0 else last if i > last else i
        upto = totals[i + 1] - longer if i < last else float("inf")
        slope = slopes[i]
        return starts[i] + slope * longer, slope, upto

    def mixed(
        self, decoding: int, context_tokens: float, new: float, past: float, prompts: int
    ) -> float:
        """Seconds of a step with prompt tokens."""
        context_tokens += decoding * self._longer
        k = bisect_right(FEW, prompts) - 1
        seconds = self._one(self._mixed(k), decoding, context_tokens, new)
        if prompts > FEW[k] and k + 1 < len(FEW):
            share = (prompts - FEW[k]) / (FEW[k + 1] - FEW[k])
            more = self._one(self._mixed(k + 1), decoding, context_tokens, new)
            seconds += share * (more - seconds)
        if past > 0.0:
            # Between two numbers of prompts the nearer one below tells, for as many.
            seconds += (
                prompts
                / FEW[k]
                * self._increment(self._past(k), new * FEW[k] / prompts, past / prompts)
            )
        return seconds

    def _one(
        self,
        tables: tuple[list[list[float]], list[list[float]]],
        decoding: int,
        context_tokens: float,
        new: float,
    ) -> float:
        i, x = _place(self._batches, decoding)
        j, y = _place(self._tokens, new)
        bare, slope = tables
        return _between(bare, i, x, j, y) + _between(slope, i, x, j, y) * context_tokens

    def _increment(self, table: list[list[float]], new: float, past: float) -> float:
        """What tokens in the cache add to a step of prompts."""
        return _between(table, *_place(self._tokens, new), *_place(self._pasts, past))


def _between(table: list[list[float]], i: int, x: float, j: int, y: float) -> float:
    """A table at x between its rows i and i + 1 and y between its columns j and j + 1."""
    low, high = table[i], table[i + 1]
    below = low[j] + y * (low[j + 1] - low[j])
    above = high[j] + y * (high[j + 1] - high[j])
    return below + x * (above - below)


def _place(points: list[float], value: float) -> tuple[int, float]:
    """Lower point of a value, and how far it is to the next; straight on beyond the last."""
    i = bisect_right(points, value) - 1
    last = len(points) - 2
    i = 0 if i < 0 else last if i > last else i
    return i, (value - points[i]) / (points[i + 1] - points[i])


def _grid(most: int) -> list[float]:
    """Batches, dense where they are small."""
    found = np.unique(np.round(np.geomspace(1.0, max(most, 2), 25)))
    return [0.0, *found.tolist()]
