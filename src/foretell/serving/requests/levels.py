"""What users saw of a run: times to tokens as percentiles, rates, and how many were served well."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.serving.requests.records import RequestOutcomes

Array = NDArray[np.float64]
PERCENTILES = (50, 90, 95, 99)
EDGE, FEW, LEAST_SHARE = 0.1, 50, 0.25
"""Share of the answers that are a run's beginning; requests, and the share of the time between beginning and
drain, from which a run has a middle."""


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
    """Requests answered a second in the middle of the run, between its beginning and its drain (`middle`)."""
    output_tokens_per_s: float
    """Tokens of their answers a second."""
    whole_run_output_tokens_per_s: float
    """Tokens of all answers over the time from the first arrival to the last answer, beginning and drain
    included: what benchmark tools print."""
    goodput_per_s: float | None
    """Requests within every level asked for: their share of the rate; None where none was asked for."""
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
    times = latencies_ms(played, ok)
    ttft, tpot = times["ttft_ms"], times["tpot_ms"]
    osl = played.osl[ok]
    more = osl > 1.0
    span = _span_s(played, ok)
    good = np.ones(len(ttft), bool)
    if ttft_ms is not None:
        good &= ttft <= ttft_ms
    if tpot_ms is not None:
        good[more] &= tpot <= tpot_ms
    asked = ttft_ms is not None or tpot_ms is not None
    rate, tokens = middle(played, ok, span)
    return ServiceLevels(
        **{name: spread(values) for name, values in times.items()},
        requests_per_s=rate,
        output_tokens_per_s=tokens,
        whole_run_output_tokens_per_s=float(osl.sum()) / span,
        goodput_per_s=rate * float(good.mean()) if asked and len(good) else 0.0 if asked else None,
        utilisation=float(np.mean(played.busy_s)) / span,
        answered=int(ok.sum()),
        refused=int(played.refused.sum()),
    )


def latencies_ms(played: RequestOutcomes, counted: NDArray[np.bool_]) -> dict[str, Array]:
    """Latency -> those of the requests that are counted and were answered; time per token of those that
    have more than one."""
    ok = counted & np.isfinite(played.done_s)
    ttft = 1e3 * (played.first_s - played.arrival_s)[ok]
    e2e = 1e3 * (played.done_s - played.arrival_s)[ok]
    osl = played.osl[ok]
    more = osl > 1.0
    tpot = (e2e - ttft)[more] / (osl[more] - 1.0)
    return {"ttft_ms": ttft, "tpot_ms": tpot, "tpot_with_first_ms": e2e / osl, "e2e_ms": e2e}


def middle(played: RequestOutcomes, ok: NDArray[np.bool_], span_s: float) -> tuple[float, float]:
    """Requests and tokens a second between the answers of the first tenth and the last arrival.

    Before, batches fill; behind, they drain. An answer gives its tokens evenly from its first to its last.
    Of few requests, or where hardly any time is between, the whole run.
    """
    first, done, osl = played.first_s[ok], played.done_s[ok], played.osl[ok]
    begin, end = 0.0, 0.0
    if len(done) >= FEW:
        begin, end = float(np.quantile(done, EDGE)), float(np.nanmax(played.arrival_s))
    if end - begin < LEAST_SHARE * span_s:
        return len(done) / span_s, float(osl.sum()) / span_s
    inside = np.clip(done, begin, end) - np.clip(first, begin, end)
    share = np.where(
        done > first, inside / np.maximum(done - first, 1e-12), (done > begin) & (done <= end)
    )
    tokens = float((osl * share).sum()) / (end - begin)
    return tokens / float(osl.mean()), tokens


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
