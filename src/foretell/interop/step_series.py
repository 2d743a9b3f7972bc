"""Steps of a log in their order: which of them are steady, and what they show over time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretell.records import dataclass

OUTLIER = 5.0
"""Steps so many robust deviations above the median are distinguished."""
LEAST_SPREAD = 0.002
"""No log is steadier than this share of its step."""
WARM = 1.1
"""A leading step that differs from the median by this factor belongs to the warm-up: compilation makes it
long, and a program that does not wait for its device short."""
FEW = 3
"""Up to so many steps the last one stands for all."""
MOST_WARM = 0.3
"""At most this share of a longer log is warm-up, and two steps of any."""
REGULAR = 0.1
"""Outliers whose distances differ by less than this share come at an interval."""
DRIFT = 0.01
"""Change of the step over the log from which it is stated."""
UNEVEN = 0.05
"""Robust spread of steady steps from which they are uneven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadySteps:
    """The steps of a log without its warm-up and outliers."""

    median_s: float
    """Median of the steady steps."""
    noise: float
    """Relative standard deviation of that median."""
    warm: int
    """Steps of the warm-up."""
    slow: tuple[int, ...]
    """Outliers, by their place in the log."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, as sentences."""
        said = []
        if self.warm:
            many = "step" if self.warm == 1 else f"{self.warm} steps"
            said.append(f"warm-up skipped: the first {many}")
        if self.slow:
            many = "1 step" if len(self.slow) == 1 else f"{len(self.slow)} steps"
            said.append(f"outliers skipped: {many} far from the median")
        return tuple(said)


def steady_steps(times: list[float]) -> SteadySteps:
    """Warm-up and outliers of a series of step times, and the median of the rest."""
    if not times:
        return SteadySteps(median_s=0.0, noise=0.0, warm=0, slow=())
    series = np.array(times)
    many = len(series)
    middle = float(np.median(series[many // 3 :])) if many > FEW else float(series[-1])
    warm, most = 0, max(int(MOST_WARM * many), min(FEW, many) - 1)
    while warm < most and not middle / WARM <= series[warm] <= WARM * middle:
        warm += 1
    rest = series[warm:]
    median = float(np.median(rest))
    spread = max(1.4826 * float(np.median(np.abs(rest - median))), LEAST_SPREAD * median)
    out = np.abs(rest - median) > OUTLIER * spread
    kept = rest[~out] if (~out).any() else rest
    noise = 1.253 * float(kept.std()) / (median * np.sqrt(len(kept)))
    return SteadySteps(
        median_s=float(np.median(kept)),
        noise=noise if len(kept) > 1 else 0.02,
        warm=warm,
        slow=tuple((np.flatnonzero(out) + warm).tolist()),
    )


def series_findings(times: Sequence[float]) -> dict[str, Any]:
    """Warm-up, slow steps and what they cost, their interval, drift and spread; sentences under `said`."""
    steady = steady_steps(list(times))
    series = np.array(times)
    kept = np.delete(series, [*range(steady.warm), *steady.slow])
    lost = float((series[list(steady.slow)] - steady.median_s).sum()) if steady.slow else 0.0
    gaps = np.diff(steady.slow)
    regular = (
        len(gaps) >= 2
        and float(np.std(gaps)) <= REGULAR * float(np.mean(gaps))
        and np.mean(gaps) > 1
    )
    third = max(len(kept) // 3, 1)
    drift = float(np.median(kept[-third:]) / np.median(kept[:third]) - 1.0) if len(kept) else 0.0
    spread = 1.4826 * float(np.median(np.abs(kept - np.median(kept)))) / steady.median_s
    said = list(steady.notes)
    share = lost / float(series.sum())
    if steady.slow:
        each = lost / len(steady.slow)
        said.append(
            f"slow steps: {len(steady.slow)}, {each:.3g} s more each, {share:.1%} of the time"
        )
    if regular:
        said.append(
            f"they come every {np.mean(gaps):.0f} steps: checkpoints, evaluation or logging; write "
            "checkpoints asynchronously"
        )
    if abs(drift) >= DRIFT:
        way, why = (
            ("grows", "heat, fragmentation, or longer samples")
            if drift > 0
            else ("shrinks", "a long warm-up, or shorter samples")
        )
        said.append(f"the step {way} by {abs(drift):.1%} from the first to the last third: {why}")
    if spread >= UNEVEN:
        said.append(
            f"steps are uneven ({spread:.1%}): stragglers, other jobs on the links, or data loading"
        )
    return {
        "steps": len(series),
        "median_s": steady.median_s,
        "warm_up_steps": steady.warm,
        "slow_steps": len(steady.slow),
        "slow_share": share,
        "slow_every_steps": float(np.mean(gaps)) if regular else None,
        "drift": drift,
        "spread": spread,
        "said": said,
    }
