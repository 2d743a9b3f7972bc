"""A whole training run: what is asked of it, and what it comes to."""

from dataclasses import field
from typing import Literal

from foretell.records import as_json, dataclass

CheckpointWay = Literal["async", "sync"]
"""Written behind the steps that follow, or while all chips wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """Conditions of a long run, each with a default that is reported."""

    tokens: float
    """Tokens to train on."""
    failures_per_gpu_day: float
    """Unplanned interruptions of the job, for each chip and day."""
    restart_s: float
    """From a failure to the reading of the checkpoint: found, replaced, started."""
    checkpoint: CheckpointWay
    """How checkpoints are written."""
    checkpoint_interval_s: float
    """Seconds of steps between checkpoints; 0: those that give the most goodput."""
    checkpoint_wait_s: float | None
    """What all chips wait for each; None: for its bytes, and what it takes to start."""
    storage_bytes_per_s: float
    """What the storage takes and gives, all chips together."""
    copy_bytes_per_s: float
    """What one chip copies to its host, for a checkpoint that is written later."""
    failures_spread: tuple[float, float] = (1.0, 1.0)
    """Factors on the rate that nine in ten clusters lie between; 1 where the rate was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A long run; times are expected values."""

    tokens: float
    """Tokens trained on."""
    tokens_per_parameter: float
    """Of the weights that one token uses."""
    steps: float
    """Optimizer steps."""
    days: float
    """From the first step to the last, failures and checkpoints included."""
    days_without_failures: float
    """Steps alone."""
    gpu_hours: float
    """Chips times hours."""
    energy_joules: float | None
    """Of all chips: steps at their mean power, waiting at rest."""
    goodput: float
    """Share of the time in steps whose work is kept."""
    checkpoint_share: float
    """Factor of it that waiting for checkpoints leaves."""
    rework_share: float
    """Factor of it that is left after steps repeated because of failures."""
    restart_share: float
    """Factor of it that restarts leave."""
    failures: float
    """Failures to expect."""
    failures_per_gpu_day: float
    """Their rate."""
    mean_time_between_failures_s: float | None
    """Of the whole job; none without failures."""
    restart_s: float
    """From a failure to the next step, the checkpoint read."""
    checkpoint: CheckpointWay
    """How checkpoints are written."""
    checkpoint_bytes: float
    """One checkpoint: weights, master copy and states."""
    checkpoint_interval_s: float | None
    """Seconds of steps between two; none where none is needed."""
    checkpoint_interval_steps: float | None
    """The same in steps."""
    checkpoint_interval_chosen: bool
    """Whether the interval is the best one, rather than given."""
    checkpoint_wait_s: float
    """What all chips wait for each."""
    checkpoint_write_s: float
    """Until it is on the storage."""
    storage_bytes_per_s: float
    """Of the storage."""
    interval: dict[str, tuple[float, float]] | None
    """Of days: p50 and p90, each (low, high)."""
    intervals: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """p50 and p90 of days, chip-hours and energy, by their names (foretell/intervals.py)."""

    to_dict = as_json()
