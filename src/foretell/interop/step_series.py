"""What the steps of a log show over time: slow steps, stalls at regular intervals, drift, unevenness."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretell.interop.training_logs import steady_steps

REGULAR = 0.1
"""Outliers whose distances differ by less than this share come at an interval."""
DRIFT = 0.01
"""Change of the step over the log from which it is told."""
UNEVEN = 0.05
"""Robust spread of steady steps from which they are uneven."""


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
        said.append(
            f"the step {'grows' if drift > 0 else 'shrinks'} by {abs(drift):.1%} from the first to the last "
            "third: heat, fragmentation, or longer samples"
        )
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
