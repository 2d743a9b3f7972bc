"""Two pools at once: how often a step of an asynchronous pipeline ends, who waits, and how stale data is.

The trainer takes t seconds for a batch, the rollout pool g for one batch with its tail and g' < g for as many
trajectories out of a queue that never drains. With staleness k whole batches may be ahead of the trainer:

    k <= 1, whole batches   S = max(g, t)            one step off: a batch is generated while one is trained
    k > 1, whole batches    S = max(g', g / k, t)    several batches are in flight, and hide each other's tail
    partial rollouts        S = max(g', g / (1 + c k), t)    long answers go on under the next weights;
                            k may be a share of a batch, and 0 streams: S = max(g, t) + the last part

Pools that meet trajectory by trajectory wait for each other by chance: the two are joined by a norm, which
adds two fifths where they are equal and at most one batch is between them, and less the more batches the
queue holds; batch by batch the longer one decides. The staleness of a trajectory is
how many weights were published between its first token and its use: the time that it was written and that it
waited, over S.
"""

from foretell.records import dataclass

MEETING, WHOLE = 2.0, 8.0
"""Powers of the norm that joins the two pools: trajectory by trajectory, and batch by batch."""
PARTS = 4.0
"""Parts in which a streaming trainer takes a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTimes:
    """What both pools take for one batch by themselves; seconds."""

    trainer_s: float
    """The trainer's phases."""
    generate_s: float
    """Generation of one batch, tail and environment included."""
    steady_s: float
    """As many trajectories out of a queue that never drains."""
    latency_s: float
    """Mean time that a trajectory is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """An asynchronous step."""

    step_s: float
    """Seconds from one update of the weights to the next."""
    waits: str
    """The pool that waits: trainer or rollout."""
    staleness: float
    """Versions between a trajectory's first token and its use, on the mean."""


def pipeline_of(
    pools: PoolTimes, staleness: float, partial: bool, partial_hides: float
) -> Pipeline:
    """A step of two pools that work at once; `partial_hides` as in catalog/posttraining.toml."""
    hidden = pools.generate_s / (
        1.0 + partial_hides * staleness if partial else max(staleness, 1.0)
    )
    rollout_s = max(pools.steady_s, hidden) if staleness > 0 else pools.generate_s
    trainer_s = pools.trainer_s
    power = MEETING * max(staleness, 1.0) if partial or staleness > 1.0 else WHOLE
    joined = (trainer_s**power + rollout_s**power) ** (1.0 / power)
    if staleness <= 0:
        joined = max(trainer_s, rollout_s) + trainer_s / PARTS
    ahead = pools.latency_s / max(joined, 1e-9) + 0.5 * min(staleness, 1.0)
    return Pipeline(
        step_s=joined,
        waits="trainer" if rollout_s > trainer_s else "rollout",
        staleness=min(ahead, staleness) if staleness > 0 else 0.0,
    )
