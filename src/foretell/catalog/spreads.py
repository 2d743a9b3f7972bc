"""How far published runs were from their predictions, with what they rest on held out (spreads.toml).

A step's residuals stand there four times, by what was held out of its prediction: its source, its family of
frameworks, its chip, or the name of its framework. Which of them an interval takes goes by what is known of a
question: `source` where this software was seen on this chip, `framework` where it was not, `chip` where the
chip was never seen, both together where neither was, `unnamed` where no framework is named.

A kind says what is known before a run: whether kernels of the chip were measured, experts, narrow formats,
what the step waits for. Sources of a kind count alike, the smallest less: their residuals are mixed, and the
ends of an interval are quantiles of the mixture, so that it holds what it promises of a source that is not
among them. Sources and chips can be left out; a kind of which too few are left takes the residuals of all.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass

FILE = ROOT / "spreads.toml"
"""Written by lab/validate/training_spreads.py."""
POST_TRAINING_FILE = ROOT / "posttraining_spreads.toml"
"""Written by lab/validate/post_training_spreads.py."""
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles that are kept of a source."""
ENDS: Mapping[str, tuple[float, float]] = {"p50": (0.23, 0.77), "p90": (0.045, 0.955)}
"""Quantiles of the mixture: a little beyond the level, since it has few sources."""
FAR_ENDS: Mapping[str, tuple[float, float]] = {"p50": (0.23, 0.77), "p90": (0.065, 0.935)}
"""The same where the chip was never seen: every residual has the error of kernels from another chip in it, so
that sources differ less from each other."""
WIDE_ENDS: Mapping[str, tuple[float, float]] = {"p50": (0.2, 0.8), "p90": (0.02, 0.98)}
"""The same where no framework is named: the mixture is of software as people run it, each of which is its own
cluster, and another may lie outside of those."""
ENOUGH = 3.0
"""Sources of ten rows that a kind needs."""
FEW = 6
"""Sources that a kind of post-training number needs."""
FULL = 10
"""Rows from which a source counts in full."""
STEPS = 40
"""Points that stand for one source."""

Known = Literal["together", "apart", "new_chip", "new", "unnamed"]
"""What is known of a software on a chip: seen together; not together, though the chip was seen; the chip not
seen; neither seen; no software named."""
HELD_OUT: Mapping[Known, tuple[str, ...]] = {
    "together": ("source",),
    "apart": ("framework",),
    "new_chip": ("chip",),
    "new": ("framework", "chip"),
    "unnamed": ("unnamed",),
}
"""Whose residuals an interval takes; of two, both errors come together."""


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
    held_out: str = ""
    """What was held out of the predictions."""
    framework: str = ""
    """Family of frameworks."""
    chip: str = ""
    """Chip."""

    @property
    def weight(self) -> float:
        """What the source counts."""
        return min(self.rows, FULL) / FULL


@lru_cache(maxsize=1)
def step_spreads() -> tuple[Spread, ...]:
    """All of the file of step times."""
    table = read_table(FILE)
    sources = table["sources"]
    return tuple(
        Spread(
            held_out=held_out,
            kind=kind,
            source=sources[key],
            framework=framework,
            chip=chip,
            rows=rows,
            quantiles=tuple(quantiles),
        )
        for held_out, kind, key, framework, chip, rows, quantiles in table["spreads"]
    )


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


@lru_cache(maxsize=512)
def known_of(
    framework: str, chip: str, sources: tuple[str, ...] = (), chips: tuple[str, ...] = ()
) -> Known:
    """What is known of a family of frameworks on a chip, without the sources and chips that are left out; no
    framework is an empty name."""
    if not framework:
        return "unnamed"
    seen = {(s.framework, s.chip) for s in _left(sources, chips) if s.held_out == "source"}
    if (framework, chip) in seen:
        return "together"
    if any(chip == where for _, where in seen):
        return "apart"
    return "new_chip" if any(framework == what for what, _ in seen) else "new"


@lru_cache(maxsize=512)
def interval_ends(
    kind: str, known: Known, sources: tuple[str, ...] = (), chips: tuple[str, ...] = ()
) -> Mapping[str, tuple[float, float]]:
    """Ends of the intervals of a kind in logarithm, around 0 and nested.

    Software or a chip without runs of its own is never surer than what was seen: residuals are few, and their
    quantiles may come out the other way round.
    """
    seen = _ends(kind, "source", sources, chips)
    found = [_no_narrower(_ends(kind, one, sources, chips), seen) for one in HELD_OUT[known]]
    return {
        level: (
            -math.hypot(*(ends[level][0] for ends in found)),
            math.hypot(*(ends[level][1] for ends in found)),
        )
        for level in ENDS
    }


def _no_narrower(
    ends: Mapping[str, tuple[float, float]], seen: Mapping[str, tuple[float, float]]
) -> Mapping[str, tuple[float, float]]:
    """Ends at least as far out as others."""
    return {
        level: (min(low, seen[level][0]), max(high, seen[level][1]))
        for level, (low, high) in ends.items()
    }


def _ends(
    kind: str, held_out: str, sources: tuple[str, ...], chips: tuple[str, ...]
) -> Mapping[str, tuple[float, float]]:
    """Ends of a kind by the residuals with something held out."""
    known = [s for s in _left(sources, chips) if s.held_out == held_out]
    mine = [s for s in known if s.kind == kind]
    if sum(s.weight for s in mine) < ENOUGH:
        mine = [*mine, *known]
    levels = {"unnamed": WIDE_ENDS, "chip": FAR_ENDS}.get(held_out, ENDS)
    return mixed_ends(mine, levels) if mine else dict.fromkeys(ENDS, (0.0, 0.0))


def _left(sources: tuple[str, ...], chips: tuple[str, ...]) -> list[Spread]:
    """What is left of the residuals of steps."""
    return [s for s in step_spreads() if s.source not in sources and s.chip not in chips]


@lru_cache(maxsize=1)
def post_training_spreads() -> tuple[Spread, ...]:
    """All of the file of post-training steps and phases."""
    return _read(POST_TRAINING_FILE)


@lru_cache(maxsize=512)
def post_training_ends(kind: str, left_out: str = "") -> Mapping[str, tuple[float, float]]:
    """Ends of the intervals of a step, a run, a phase, a memory or a synchronisation, in logarithm."""
    known = [s for s in post_training_spreads() if s.source != left_out]
    mine = [s for s in known if s.kind == kind]
    if len(mine) < FEW:
        mine = [*mine, *known]
    if not mine:
        return dict.fromkeys(ENDS, (-0.7, 0.7))
    # The next source is one more draw of few: as the quantile of n + 1 draws is wider than that of n.
    wider = 1.0 + 1.0 / len(mine)
    return {key: (wider * low, wider * high) for key, (low, high) in mixed_ends(mine).items()}


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
