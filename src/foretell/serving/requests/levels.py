"""What users saw of a run: times to tokens as percentiles, rates, and how many were served well."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.serving.requests.records import RequestOutcomes

Array = NDArray[np.float64]
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevels:
    """A run in figures; the times in milliseconds, each with mean and percentiles."""

    ttft_ms: Mapping[str, float]
    """From arrival to the first token."""
    tpot_ms: Mapping[str, float]
    """Time per output token, the first excluded: (last - first) / (osl - 1)."""
    tpot_with_first_ms: Mapping[str, float]
    """Time per output token, the first included: (last - arrival) / osl."""
    e2e_ms: Mapping[str, float]
    """From arrival to the last token."""
    requests_per_s: float
    """Answered requests over the time from the first arrival to the last answer."""
    output_tokens_per_s: float
    """Tokens of answers over the same time."""
    goodput_per_s: float | None
    """Requests within every level asked for, over the same time; None where none was asked for."""
    utilisation: float
    """Share of the time that replicas are in a step."""
    answered: int
    """Requests."""
    refused: int
    """Requests that are longer than a cache."""


def levels(
    played: RequestOutcomes, ttft_ms: float | None = None, tpot_ms: float | None = None
) -> ServiceLevels:
    """Figures of a run, with the share served within the levels asked for."""
    ok = np.isfinite(played.done_s)
    ttft = 1e3 * (played.first_s - played.arrival_s)[ok]
    e2e = 1e3 * (played.done_s - played.arrival_s)[ok]
    osl = played.osl[ok]
    more = osl > 1.0
    tpot = (e2e - ttft)[more] / (osl[more] - 1.0)
    span = _span_s(played, ok)
    good = np.ones(len(ttft), bool)
    if ttft_ms is not None:
        good &= ttft <= ttft_ms
    if tpot_ms is not None:
        good[more] &= tpot <= tpot_ms
    asked = ttft_ms is not None or tpot_ms is not None
    return ServiceLevels(
        ttft_ms=spread(ttft),
        tpot_ms=spread(tpot),
        tpot_with_first_ms=spread(e2e / osl),
        e2e_ms=spread(e2e),
        requests_per_s=len(ttft) / span,
        output_tokens_per_s=float(osl.sum()) / span,
        goodput_per_s=float(good.sum()) / span if asked else None,
        utilisation=float(np.mean(played.busy_s)) / span,
        answered=int(ok.sum()),
        refused=int(played.refused.sum()),
    )


def _span_s(played: RequestOutcomes, ok: NDArray[np.bool_]) -> float:
    if not ok.any():
        return 1.0
    return max(float(played.done_s[ok].max() - np.nanmin(played.arrival_s)), 1e-9)


def spread(values: Array) -> dict[str, float]:
    """Mean and percentiles; none of nothing."""
    if not len(values):
        return {}
    found = {"mean": float(np.mean(values))}
    marks = np.percentile(values, PERCENTILES)
    return found | {f"p{p}": float(mark) for p, mark in zip(PERCENTILES, marks, strict=True)}
