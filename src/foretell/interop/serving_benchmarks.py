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


def benchmark_measurement(told: Mapping[str, Any], name: str) -> Measurement | None:
    """One benchmark's result; None where it is none."""
    if "mean_ttft_ms" not in told or "output_throughput" not in told:
        return None
    values: dict[str, float] = {}
    for key, ours in VALUES.items():
        if ours not in values and isinstance(told.get(key), int | float) and told[key] > 0:
            values[ours] = float(told[key])
    asked: dict[str, Any] = {}
    requests = told.get("completed") or told.get("num_prompts")
    for ours, total in (("isl", "total_input_tokens"), ("osl", "total_output_tokens")):
        if requests and told.get(total):
            asked[ours] = float(told[total]) / float(requests)
    if told.get("random_input_len"):
        asked |= {"isl": float(told["random_input_len"]), "osl": float(told["random_output_len"])}
    rate = told.get("request_rate")
    if told.get("max_concurrency"):
        asked["concurrency"] = float(told["max_concurrency"])
    elif isinstance(rate, int | float) and 0.0 < rate < 1e6:
        asked["rate"] = float(rate)
    backend = str(told.get("backend") or "")
    if backend in ("vllm", "sglang"):
        asked["engine"] = backend
    return Measurement(asked=asked, values=values, source=f"{name} (serving benchmark)")
