"""What measured runs changed in an answer: before and after, and how far each mechanism moved."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretell.report.console import table
from foretell.specs.result import StepEstimate

if TYPE_CHECKING:
    from rich.table import Table

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
SHOWN = 0.01
"""Smallest log-factor that is shown."""


def measured_table(result: StepEstimate) -> "Table":
    """Step time before and after, then the mechanisms that moved, furthest first."""
    made = table("Given the measured runs", "before", "now", "90%", right=("before", "now", "90%"))
    prior, interval = result.prior or {}, result.interval or {}
    low, high = interval.get("p90", (result.step_s, result.step_s))
    made.add_row(
        "step time, ms",
        f"{prior.get('step_s', 0.0) * 1e3:,.1f}",
        f"{result.step_s * 1e3:,.1f}",
        f"{low * 1e3:,.1f} to {high * 1e3:,.1f}",
    )
    for row in factor_rows(result.posterior_factors or {}):
        made.add_row(*row)
    return made


def factor_rows(factors: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Mechanisms with their factors, furthest from 1 first."""
    moved = sorted(factors.items(), key=lambda item: -abs(math.log(item[1]["factor"])))
    rows = []
    for name, told in moved:
        if abs(math.log(told["factor"])) < SHOWN:
            continue
        ends = told["interval"]
        wide = f"{ends['p90'][0]:.2f} to {ends['p90'][1]:.2f}" if ends else ""
        rows.append((WORDS.get(name, name), "x 1.00", f"x {told['factor']:.2f}", wide))
    return rows


def compared_table(systems: Sequence[Mapping[str, Any]]) -> "Table | None":
    """What measured runs changed on each system; None where nothing was measured."""
    made = table("Given the measured runs", "figure", "before", "now", right=("before", "now"))
    for one in systems:
        for facts in one["workloads"].values():
            prior = facts.get("prior") or {}
            if "step_s" in prior:
                before, now = 1e3 * prior["step_s"], 1e3 * facts["step_s"]
                made.add_row(one["system"], "step time, ms", f"{before:,.1f}", f"{now:,.1f}")
            for name, called in (("ttft_ms", "TTFT, ms"), ("tpot_ms", "TPOT, ms")):
                if name in prior:
                    before = prior[name]["mean"]
                    made.add_row(one["system"], called, f"{before:,.1f}", f"{facts[name]:,.1f}")
    return made if made.row_count else None
