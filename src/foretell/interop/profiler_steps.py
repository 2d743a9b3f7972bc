"""Profiler traces as measured runs: the time of every `ProfilerStep#N` of Kineto's JSON.

`foretell characterize trace` breaks such a trace down; here only its steps count. A trace that Foretell wrote
is a prediction and is refused.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from foretell.errors import bad_input
from foretell.interop.step_series import steady_steps
from foretell.specs.measurement import Measurement

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
