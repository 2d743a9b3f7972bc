"""Seconds of steps from the tables of a `SampledClock`; the arithmetic is that class's."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.serving.clock import FEW, SampledClock
from foretell.serving.requests.compiled.jit import jit

Floats = NDArray[np.float64]


class ClockTables(NamedTuple):
    """A clock's tables as arrays."""

    totals: Floats
    """Context of decode steps; (batch, sample)."""
    starts: Floats
    """Seconds of a line at no context; (batch, sample)."""
    slopes: Floats
    """Seconds of a token of context on it; (batch, sample)."""
    few: Floats
    """Prompts of a step that were sampled."""
    batches: Floats
    """Batches of steps with prompts."""
    tokens: Floats
    """Prompt tokens of a step."""
    pasts: Floats
    """Tokens in the cache of each prompt."""
    bare: Floats
    """Seconds without context; (prompts, batch, tokens)."""
    slope: Floats
    """Seconds of a token of context; (prompts, batch, tokens)."""
    past: Floats
    """Seconds that tokens in the cache add; (prompts, tokens, tokens in the cache)."""
    longer: float
    """Tokens that each sequence counts as longer."""


@lru_cache(maxsize=64)
def clock_tables(clock: SampledClock) -> ClockTables:
    """The tables of a clock."""
    of = {name: np.ascontiguousarray(v, np.float64) for name, v in clock.tables().items()}
    return ClockTables(few=np.array(FEW, np.float64), longer=clock.longer_tokens, **of)


@jit
def place(points: Any, value: float) -> int:
    """Lower point of a value, of the last but one at most."""
    i = int(np.searchsorted(points, value, side="right")) - 1
    last = len(points) - 2
    return 0 if i < 0 else last if i > last else i


@jit
def line(t: Any, decoding: int, context: float) -> tuple[float, float, float]:
    """a, b and the context up to which a decode step takes a + b context."""
    totals = t.totals[decoding - 1]
    longer = decoding * t.longer
    i = place(totals, context + longer)
    upto = totals[i + 1] - longer if i < len(totals) - 2 else np.inf
    slope = t.slopes[decoding - 1, i]
    return t.starts[decoding - 1, i] + slope * longer, slope, upto


@jit
def interpolate(table: Any, i: int, x: float, j: int, y: float) -> float:
    """A value between four of a table."""
    below = table[i, j] + y * (table[i, j + 1] - table[i, j])
    above = table[i + 1, j] + y * (table[i + 1, j + 1] - table[i + 1, j])
    return float(below + x * (above - below))


@jit
def share(points: Any, i: int, value: float) -> float:
    """How far a value is from a point to the next."""
    return float((value - points[i]) / (points[i + 1] - points[i]))


@jit
def one(t: Any, k: int, decoding: int, context: float, new: float) -> float:
    """Seconds of a step with a sampled number of prompts."""
    i, j = place(t.batches, decoding), place(t.tokens, new)
    x, y = share(t.batches, i, decoding), share(t.tokens, j, new)
    return interpolate(t.bare[k], i, x, j, y) + interpolate(t.slope[k], i, x, j, y) * context


@jit
def prompt_step(
    t: Any, decoding: int, context: float, new: float, past: float, prompts: int
) -> float:
    """Seconds of a step with prompt tokens."""
    context += decoding * t.longer
    k = int(np.searchsorted(t.few, prompts, side="right")) - 1
    seconds = one(t, k, decoding, context, new)
    if prompts > t.few[k] and k + 1 < len(t.few):
        part = (prompts - t.few[k]) / (t.few[k + 1] - t.few[k])
        seconds += part * (one(t, k + 1, decoding, context, new) - seconds)
    if past > 0.0:
        fewer, each = new * t.few[k] / prompts, past / prompts
        i, j = place(t.tokens, fewer), place(t.pasts, each)
        x, y = share(t.tokens, i, fewer), share(t.pasts, j, each)
        seconds += prompts / t.few[k] * interpolate(t.past[k], i, x, j, y)
    return seconds
