"""Results that programs write as JSON, as measured runs.

`vllm bench serve` (`benchmark_serving`) and SGLang's `bench_serving` print the same names; `foretell
characterize run` writes `--json` and `points/`; of Kineto's traces the time of every `ProfilerStep#N` counts,
and one that Foretell wrote is a prediction and is refused.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from foretell.errors import bad_input
from foretell.interop.step_series import steady_steps
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


def characterize_measurements(told: Mapping[str, Any], name: str) -> list[Measurement] | None:
    """Measured steps of a result; None where it is none."""
    if isinstance(told.get("ranks"), Sequence) and isinstance(told.get("point"), Mapping):
        return [_point(told, name)]
    rows = told.get("points", told.get("rows"))
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return None
    done = [
        row for row in rows if isinstance(row, Mapping) and isinstance(row.get("measured"), Mapping)
    ]
    if not done:
        return None
    left = len(rows) - len(done)
    notes = (f"points without a measured step: {left}",) if left else ()
    return [_summary(row, name, notes) for row in done]


def _summary(row: Mapping[str, Any], name: str, notes: tuple[str, ...]) -> Measurement:
    """A row of `--json`: its median step, and how far its steps were apart."""
    measured = row["measured"]
    values = {"step_s": float(measured["step_s"])}
    if measured.get("max_allocated_bytes"):
        values["allocated_bytes"] = float(measured["max_allocated_bytes"])
    spread = float(measured.get("spread") or 0.0) / 4.0
    return Measurement(
        plan=str(row.get("plan", "")),
        asked=_job(row),
        values=values,
        noise=spread / max(int(measured.get("steps") or 1), 1) ** 0.5,
        source=f"{name} ({row.get('key', 'characterize')})",
        notes=notes,
    )


def _point(told: Mapping[str, Any], name: str) -> Measurement:
    """A file of one point: every step of its slowest rank."""
    series = [[sum(step["shares_s"].values()) for step in rank["steps"]] for rank in told["ranks"]]
    times = max(series, key=median)
    steady = steady_steps(times)
    peaks = [rank.get("held_bytes", {}).get("max_allocated") for rank in told["ranks"]]
    values = {"step_s": steady.median_s}
    if peaks and all(peaks):
        values["allocated_bytes"] = float(max(peaks))
    return Measurement(
        plan=str(told["point"].get("plan", "")),
        asked=_job(told["point"]),
        values=values,
        noise=steady.noise,
        steps_s=tuple(times),
        source=f"{name} (characterize)",
        notes=steady.notes,
    )


def _job(told: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: told[key] for key in ("model", "global_batch", "seq_len") if told.get(key)}
    if told.get("processes"):
        found["gpus"] = int(told["processes"])
    return found


STEP = re.compile(r"ProfilerStep#([0-9]+)")
"""What `prof.step()` leaves."""
MICROSECOND = 1e-6


def trace_measurement(told: Mapping[str, Any], name: str) -> Measurement | None:
    """The steps of a trace; None where it is none."""
    events = told.get("traceEvents")
    if not isinstance(events, list):
        return None
    if {"plan", "step_s"} <= set(told.get("otherData") or {}):  # as simulation/trace.py writes
        message = "is a trace that Foretell wrote: a prediction, not a measurement"
        raise bad_input("measured", name, message)
    starts: dict[str, dict[int, float]] = defaultdict(dict)
    lengths: dict[str, dict[int, float]] = defaultdict(dict)
    for event in events:
        if not isinstance(event, Mapping) or event.get("ph") != "X":
            continue
        match = STEP.match(str(event.get("name", "")))
        if match is not None:
            kind, number = str(event.get("cat", "")), int(match[1])
            starts[kind][number] = float(event["ts"])
            lengths[kind][number] = float(event.get("dur", 0.0))
    if not starts:
        message = "has no ProfilerStep#N: call prof.step() after every training step"
        raise bad_input("measured", name, message)
    kind = "gpu_user_annotation" if "gpu_user_annotation" in starts else next(iter(starts))
    times = _times(starts[kind], lengths[kind])
    steady = steady_steps(times)
    return Measurement(
        values={"step_s": steady.median_s},
        noise=max(steady.noise, 0.01),
        steps_s=tuple(times),
        source=f"{name} (profiler trace)",
        notes=("a profiler slows the host: short steps read too long", *steady.notes),
    )


def _times(starts: Mapping[int, float], lengths: Mapping[int, float]) -> list[float]:
    """Seconds from each step to the next, and the length of the last."""
    numbers = sorted(starts)
    gaps = [starts[b] - starts[a] for a, b in pairwise(numbers)]
    return [MICROSECOND * value for value in (*gaps, lengths[numbers[-1]]) if value > 0.0]
