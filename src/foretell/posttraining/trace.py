"""A step as a Chrome trace that ui.perfetto.dev opens: pools as processes, phases as slices.

`pid` is a pool, `tid` what runs there; `X` events are phases in microseconds; a counter has the bytes that a
chip of the pool holds. Of two pools at once the generation of the next step runs beside the trainer's phases.
"""

import gzip
import json
from pathlib import Path
from typing import Any

from foretell.errors import bad_input
from foretell.interop.user_files import write_whole
from foretell.specs.post_training import PostTrainingEstimate

POOLS = {"trainer": 1, "rollout": 2, "host": 3}
"""Pools and their process ids."""
MEMORY = {
    "generate": "generate",
    "weight_sync": "weight_sync",
    "old_logprob": "logprob",
    "ref_logprob": "logprob",
    "values": "logprob",
    "update_actor": "update_actor",
    "update_critic": "update_actor",
}
"""Phase -> the phase whose memory it has."""


def trace_events(found: PostTrainingEstimate) -> list[dict[str, Any]]:
    """The events of one step."""
    colocated = found.placement == "colocated" or not found.rollout_plan
    names = {
        "trainer": "all chips" if colocated else "trainer",
        "rollout": "rollout",
        "host": "host and environment",
    }
    used = [pool for pool in POOLS if not (colocated and pool == "rollout")]
    events: list[dict[str, Any]] = [
        {
            "name": "process_name",
            "ph": "M",
            "pid": POOLS[pool],
            "tid": 0,
            "args": {"name": _title(found, pool, names[pool])},
        }
        for pool in used
    ]
    held = {(one.phase): one.total_bytes for one in found.memory}
    at_s, beside_s = 0.0, 0.0
    for phase in found.phases:
        ahead = found.placement == "async" and phase.name in ("generate", "environment")
        start = beside_s if ahead else at_s
        for pid in _places(phase.pool, colocated):
            events.append(
                {
                    "name": phase.name, "cat": "phase", "ph": "X", "pid": pid, "tid": 1,
                    "ts": 1e6 * start, "dur": 1e6 * phase.seconds,
                    "args": {"seconds": phase.seconds, "exposed": phase.exposed, "pool": phase.pool},
                }
            )  # fmt: skip
            if phase.name in MEMORY and MEMORY[phase.name] in held:
                events.append(
                    {"name": "memory", "ph": "C", "pid": pid, "tid": 0, "ts": 1e6 * start,
                     "args": {"bytes": held[MEMORY[phase.name]]}}
                )  # fmt: skip
        if phase.name == "generate" and found.tail_share:
            tail = found.tail_share * phase.seconds
            pid = _places(phase.pool, colocated)[-1]
            events.append(
                {
                    "name": f"tail of {found.tail_requests} answers", "cat": "tail", "ph": "X", "pid": pid,
                    "tid": 2, "ts": 1e6 * (start + phase.seconds - tail), "dur": 1e6 * tail,
                }
            )  # fmt: skip
        if ahead:
            beside_s += phase.seconds
        else:
            at_s += phase.seconds
    return events


def _title(found: PostTrainingEstimate, pool: str, name: str) -> str:
    chips = {"trainer": found.trainer_gpus, "rollout": found.rollout_gpus}.get(pool)
    return name if chips is None else f"{name} ({chips} chips)"


def _places(pool: str, colocated: bool) -> list[int]:
    """Processes that show a phase."""
    if pool == "host":
        return [POOLS["host"]]
    if colocated:
        return [POOLS["trainer"]]
    return [POOLS["trainer"], POOLS["rollout"]] if pool == "all" else [POOLS[pool]]


def write_step(found: PostTrainingEstimate, path: str | Path) -> Path:
    """Write the trace; gzipped where the name ends in .gz."""
    file = Path(path)
    text = json.dumps({"traceEvents": trace_events(found), "displayTimeUnit": "ms"})
    try:
        packed = file.suffix == ".gz"
        write_whole(file, gzip.compress(text.encode(), 5, mtime=0) if packed else text)
    except OSError as error:
        raise bad_input("trace", str(path), f"cannot be written: {error}") from None
    return file
