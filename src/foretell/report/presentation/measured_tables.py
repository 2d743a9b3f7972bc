"""What measured runs changed in an answer: before and after, and how far each mechanism moved."""

import math
from collections.abc import Mapping
from typing import Any

from foretell.report.presentation.labels import words_of
from foretell.report.presentation.numbers import ShownTable, Told, table_of, value_text

WORDS = {
    "gemm": "matrix multiplications",
    "experts": "expert matrix multiplications",
    "attention": "attention",
    "memory_bound": "memory-bound work",
    "tensor_parallel": "tensor-parallel communication",
    "context_parallel": "context-parallel communication",
    "expert_parallel": "expert-parallel communication",
    "pipeline_parallel": "sends between stages",
    "data_parallel": "data-parallel communication",
    "host": "host",
    "fixed": "fixed time of a step",
    "unexplained": "not explained by a mechanism",
    "activations": "bytes of activations",
    "overhead": "bytes of allocator and framework",
    "prefill": "prefill",
    "decode_weights": "decode: weights",
    "decode_cache": "decode: cached keys and values",
    "step_overhead": "engine overhead of a step",
    "queueing": "queueing",
    "cache_capacity": "tokens that the cache holds",
    "generation": "generation",
    "forward": "log-probabilities",
    "update": "updates",
    "synchronisation": "weight synchronisation, wake and sleep",
    "loop": "rewards and the loop's host",
}
"""Mechanism -> what it is called."""
LEAST = 0.01
"""Smallest log-factor that is shown."""
TITLE = "Given the measured runs"


def measured_table(told: Told, *names: str) -> tuple[ShownTable, ...]:
    """Numbers before and after, then the mechanisms that moved, furthest first."""
    prior = told.get("prior")
    if not prior:
        return ()
    rows: list[Mapping[str, Any]] = []
    for name in names:
        ends = ((told.get("intervals") or {}).get(name) or told.get("interval") or {}).get("p90")
        before, now = (value_text(name, _middle(one[name])) for one in (prior, told))
        row = {"figure": words_of(name), "before": before, "now": now}
        rows.append(row | {"90 %": value_text(name, ends)} if ends else row)
    moved = (told.get("posterior_factors") or {}).items()
    for name, one in sorted(moved, key=lambda item: -abs(math.log(item[1]["factor"]))):
        if abs(math.log(one["factor"])) >= LEAST:
            ends = (one["interval"] or {}).get("p90")
            wide = f"{ends[0]:.2f} to {ends[1]:.2f}" if ends else ""
            row = {"figure": WORDS.get(name, name), "before": "x 1.00"}
            rows.append(row | {"now": f"x {one['factor']:.2f}", "90 %": wide})
    labels = {name: name for name in ("figure", "before", "now", "90 %")}
    return table_of(rows, *labels, title=TITLE, labels=labels)


def measured_systems(systems: list[Told]) -> tuple[ShownTable, ...]:
    """What measured runs changed on each system."""
    rows = [
        {
            "system": one["system"], "figure": words_of(name),
            "before": value_text(name, _middle(facts["prior"][name])),
            "now": value_text(name, _middle(facts[name])),
        }
        for one in systems
        for facts in one["workloads"].values()
        for name in ("step_s", "ttft_ms", "tpot_ms")
        if name in (facts.get("prior") or {})
    ]  # fmt: skip
    labels = {name: name for name in ("figure", "before", "now")}
    return table_of(rows, "system", *labels, title=TITLE, labels=labels)


def _middle(value: Any) -> Any:
    """The mean of a latency's percentiles."""
    return value["mean"] if isinstance(value, Mapping) else value
