"""How far peaks of memory that frameworks print were from their predictions (memory_spreads.toml).

Sources count alike, the smallest less: their residuals are mixed, and the ends of an interval are quantiles
of the mixture, so that it holds what it promises of a source that is not among them. Sources can be left out.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass

MEMORY_FILE = ROOT / "memory_spreads.toml"
"""Written by lab/validate/memory_spreads.py."""
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles that are kept of a source."""
ENDS: Mapping[str, tuple[float, float]] = {"p50": (0.23, 0.77), "p90": (0.045, 0.955)}
"""Quantiles of the mixture: a little beyond the level, since it has few sources."""
FULL = 10
"""Rows from which a source counts in full."""
STEPS = 40
"""Points that stand for one source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Residuals of the runs of one source that are of one kind."""

    kind: str
    """The kind."""
    source: str
    """Where they are published."""
    rows: int
    """How many."""
    quantiles: tuple[float, ...]
    """Of ln(measured / predicted), at LEVELS."""

    @property
    def weight(self) -> float:
        """What the source counts."""
        return min(self.rows, FULL) / FULL


@lru_cache(maxsize=1)
def memory_spreads() -> tuple[Spread, ...]:
    """All of the file of peaks of memory."""
    return _read(MEMORY_FILE)


def _read(file: Path) -> tuple[Spread, ...]:
    """Residuals of sources by kind alone."""
    return tuple(
        Spread(
            kind=entry["kind"],
            source=entry["source"],
            rows=entry["rows"],
            quantiles=tuple(entry["quantiles"]),
        )
        for entry in read_table(file)["spread"]
    )


@lru_cache(maxsize=64)
def memory_ends(sources: tuple[str, ...] = ()) -> Mapping[str, tuple[float, float]]:
    """Ends of the intervals of what the allocator reserves at its peak, in logarithm, around 0 and nested."""
    known = [s for s in memory_spreads() if s.source not in sources]
    return mixed_ends(known) if known else dict.fromkeys(ENDS, (0.0, 0.0))


def mixed_ends(
    sources: Sequence[Spread], levels: Mapping[str, tuple[float, float]] = ENDS
) -> Mapping[str, tuple[float, float]]:
    """Quantiles of the mixture of some sources; each level contains 0 and the one below it."""
    points = np.concatenate([_points(s.quantiles) for s in sources])
    weights = np.repeat([s.weight / STEPS for s in sources], STEPS)
    order = np.argsort(points)
    share = np.cumsum(weights[order])
    share = (share - 0.5 * weights[order]) / share[-1]
    found: dict[str, tuple[float, float]] = {}
    low = high = 0.0
    for key, wanted in levels.items():
        ends = np.interp(wanted, share, points[order])
        low, high = min(low, float(ends[0])), max(high, float(ends[1]))
        found[key] = (low, high)
    return found


def _points(quantiles: tuple[float, ...]) -> np.ndarray:
    """Equally likely values of a source, its tails going on half as far as from the quartile."""
    q = quantiles
    ends = (q[0] - 0.5 * (q[1] - q[0]), *q, q[-1] + 0.5 * (q[-1] - q[-2]))
    return np.interp((np.arange(STEPS) + 0.5) / STEPS, (0.0, *LEVELS, 1.0), ends)
