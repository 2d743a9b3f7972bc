"""A measured run or service: what was run, as far as it is told, and what was measured of it."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from foretell.records import dataclass

TRAINED = (
    "step_s", "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "peak_memory_bytes",
)  # fmt: skip
"""What can be measured of a training step."""
SERVED = (
    "ttft_ms", "tpot_ms", "e2e_ms", "output_tokens_per_s", "output_tokens_per_s_per_gpu",
    "requests_per_s",
)  # fmt: skip
"""What can be measured of a service."""
POST_TRAINED = (
    "gen_s", "old_logprob_s", "ref_logprob_s", "values_s", "reward_s", "adv_s", "update_actor_s",
    "update_critic_s", "weight_sync_s",
)  # fmt: skip
"""What can be measured of a step of reinforcement learning beside TRAINED: its phases."""
ASKED = (
    "model",
    "system",
    "gpus",
    "global_batch",
    "seq_len",
    "isl",
    "osl",
    "concurrency",
    "rate",
    "engine",
    "max_osl",
    "trajectories",
)
"""What a measurement may tell of its job; the rest is the question's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured run."""

    plan: str = ""
    """Words of its plan or deployment; empty: the question's."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """What it tells of its job, by the names of ASKED."""
    values: Mapping[str, float] = field(default_factory=dict)
    """What was measured, by the names of TRAINED, POST_TRAINED and SERVED."""
    noise: float = 0.0
    """Relative standard deviation of the mean, from repeated steps."""
    steps_s: tuple[float, ...] = ()
    """Every step of a log, in its order; empty where a single number is told."""
    source: str = ""
    """Where it stands: a file and line, or the text."""
    notes: tuple[str, ...] = ()
    """What was left out or could not be read, a sentence each."""
