"""Results of serving benchmarks: JSON of vLLM's `benchmark_serving` / `vllm bench serve` and SGLang's
`bench_serving`, which print the same names."""

from collections.abc import Mapping
from typing import Any

from foretell.specs.measurement import Measurement

VALUES: Mapping[str, str] = {
    "mean_ttft_ms": "ttft_ms",
    "mean_tpot_ms": "tpot_ms",
    "mean_itl_ms": "tpot_ms",
    "mean_e2e_latency_ms": "e2e_ms",
    "mean_e2el_ms": "e2e_ms",
    "output_throughput": "output_tokens_per_s",
    "request_throughput": "requests_per_s",
}
"""Key -> what it measures; of two keys for one, the first counts."""
LARGEST = 1e15
"""Beyond this nothing of a benchmark is a count or a time; "inf" is a rate without a limit."""


def benchmark_measurement(told: Mapping[str, Any], name: str) -> Measurement | None:
    """One benchmark's result; None where it is none."""
    if "mean_ttft_ms" not in told or "output_throughput" not in told:
        return None
    values: dict[str, float] = {}
    for key, ours in VALUES.items():
        if ours not in values and (value := _number(told.get(key))):
            values[ours] = value
    asked: dict[str, Any] = {}
    requests = _number(told.get("completed")) or _number(told.get("num_prompts"))
    for ours, total in (("isl", "total_input_tokens"), ("osl", "total_output_tokens")):
        if requests and (tokens := _number(told.get(total))):
            asked[ours] = tokens / requests
    lengths = [_number(told.get(f"random_{way}_len")) for way in ("input", "output")]
    if all(lengths):
        asked |= {"isl": lengths[0], "osl": lengths[1]}
    rate = _number(told.get("request_rate"))
    if concurrency := _number(told.get("max_concurrency")):
        asked["concurrency"] = concurrency
    elif rate and rate < 1e6:
        asked["rate"] = rate
    backend = str(told.get("backend") or "")
    if backend in ("vllm", "sglang"):
        asked["engine"] = backend
    model = told.get("model_id")
    stated = {"model": model} if isinstance(model, str) and model else {}
    return Measurement(
        asked=asked, values=values, stated=stated, source=f"{name} (serving benchmark)"
    )


def _number(value: object) -> float | None:
    """A number above 0 that counts something; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < LARGEST:
        return None
    return float(value)
