"""When the compiled simulator pays, and the way into it and out of it."""

import math
import sys
from pathlib import Path

import numpy as np

from foretell.serving.clock import SampledClock
from foretell.serving.requests.compiled.jit import INSTALLED
from foretell.serving.requests.records import Clock, Fleet, RequestOutcomes, Requests, Series

PAYS, PAYS_TO_COMPILE = 150_000, 2_000_000
"""Requests from which loading compiled code (about a second) saves time, and compiling it (some twenty)."""
LARGEST = 50_000_000
"""Places in all batches, beyond which the arrays of a fleet are too large."""
LOOP = "foretell.serving.requests.compiled.loop"


def is_plain(requests: Requests, fleet: Fleet, clock: Clock) -> bool:
    """Whether the arrays know all that is asked for: no caches of prompts, classes, sessions or two pools."""
    rules = fleet.rules
    return (
        isinstance(clock, SampledClock)
        and fleet.prefill is None
        and fleet.autoscale is None
        and not fleet.queue_limit
        and fleet.fails_s == math.inf
        and fleet.routing in ("round-robin", "least-loaded")
        and not (rules.prefix_caching or rules.decode_only or rules.prefill_only)
        and requests.priority is None
        and requests.after is None
        and fleet.replicas * (min(rules.max_batch, len(requests)) + 1) <= LARGEST
    )


def pays(requests: Requests) -> bool:
    """Whether compiled code is loaded already, or is worth loading or compiling."""
    if not INSTALLED or LOOP in sys.modules:
        return INSTALLED
    kept = any(Path(__file__).parent.glob("__pycache__/loop.*.nbi"))
    return len(requests) >= (PAYS if kept else PAYS_TO_COMPILE)


def play_compiled(requests: Requests, fleet: Fleet, clock: SampledClock) -> RequestOutcomes:
    """Every request from its arrival to its last token, as `run.play` gives them for what `is_plain`."""
    from foretell.serving.requests.compiled.clock import clock_tables
    from foretell.serving.requests.compiled.loop import loop
    from foretell.serving.requests.compiled.state import rules_of, state_of

    asked, engines, ends, ids, heaps = state_of(requests, fleet)
    rules, closed = rules_of(fleet), requests.at_s is None
    size = min(requests.concurrency, len(requests)) if closed else len(requests)
    sent = np.zeros(size) if requests.at_s is None else np.array(requests.at_s, np.float64)
    asked.arrival[:size] = sent
    reaches = sent + rules.latency_s + rules.latency_s_per_token * asked.isl[:size]
    order = np.argsort(reaches, kind="stable")
    heaps.coming_s[:size], heaps.coming[:size] = reaches[order], order
    by_load = fleet.routing == "least-loaded" and fleet.replicas > 1
    state = (asked, engines, ends, ids, heaps, rules, clock_tables(clock))
    notes, count = loop(*state, size, (closed, by_load))
    noted = notes[:count][np.argsort(notes[:count, 0], kind="stable")]
    return RequestOutcomes(
        arrival_s=np.array(asked.arrival),
        first_s=np.array(asked.first),
        done_s=np.array(asked.done),
        isl=asked.isl.astype(np.float64),
        osl=asked.osl.astype(np.float64),
        replica=asked["where"].astype(np.intp),
        refused=asked.refused > 0,
        preempted=int(engines.preempted.sum()),
        prefix_hits=0.0,
        tier_hits={},
        end_s=float(engines.now.max()),
        busy_s=np.array(engines.busy),
        series=Series(
            at_s=noted[:, 0].tolist(),
            replica=noted[:, 1].astype(int).tolist(),
            decoding=noted[:, 2].astype(int).tolist(),
            waiting=noted[:, 3].astype(int).tolist(),
            held_tokens=noted[:, 4].tolist(),
        ),
    )
