"""A measured run or service: what was run, as far as it is stated, and what was measured of it."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from foretell.records import dataclass

TRAINED = (
    "step_s", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s", "tflops_per_gpu", "mfu",
    "peak_memory_bytes", "reserved_bytes", "allocated_bytes",
)  # fmt: skip
"""What can be measured of a training step."""
MEASURED_MEMORY = ("peak_memory_bytes", "reserved_bytes", "allocated_bytes")
"""Those of memory, what the process holds first."""
SERVED = (
    "ttft_ms", "tpot_ms", "e2e_ms", "output_tokens_per_s", "output_tokens_per_s_per_gpu",
    "requests_per_s",
)  # fmt: skip
"""What can be measured of a service."""
PART_NAMES: Mapping[str, str] = {
    "passes": "forward and backward passes",
    "forward_backward": "passes with their pipeline",
    "pipeline_waits": "sends and waits of the pipeline",
    "gradient_sync": "gradient and parameter communication",
    "optimizer_step": "updates of the optimizer",
}
"""Timed part -> what it is called."""
HELD = ("kv_cache_tokens", "kv_bytes", "weight_bytes")
"""What an engine's log says once it is up: tokens that the cache of an instance holds, and of one chip the
bytes of the cache and of the weights."""
DECODED = "decode_step_s"
"""The median time of a decode step: a benchmark's median TPOT, or an engine's sequences over its tokens a
second."""
WATCHED = ("power_watts", "idle_watts", "memory_used_bytes")
"""What is measured of a chip beside: power at work and idle, and the memory that the driver reports."""
TRAINED_PHASES = (
    "gemm", "attention", "elementwise", "norm", "loss", "tensor_parallel", "context_parallel",
    "expert_parallel", "pipeline_parallel", "data_parallel", "host", "optimizer",
    "gradient_sums",
)  # fmt: skip
"""Parts of a training step whose seconds can be measured: leaves of its breakdown."""
POST_TRAINED = (
    "gen", "generate", "old_logprob", "ref_logprob", "values", "reward", "adv", "update_actor",
    "update_critic", "weight_sync",
)  # fmt: skip
"""Phases of a post-training step whose seconds can be measured, by the names of logs."""
TIMED_PARTS = (
    "passes", "forward_backward", "pipeline_waits", "gradient_sync", "optimizer_step",
)  # fmt: skip
"""Parts of a training step as programs time them: several leaves of its breakdown each."""
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
    "prompts",
    "samples",
    "updates",
    "trainer_gpus",
    "rollout_gpus",
    "rollout_plan",
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
    stated: Mapping[str, Any] = field(default_factory=dict)
    """What a log says that a question may leave open: model (a name, or a table of its dimensions), system,
    gpus of a node, and tokens of a step (step_tokens, of one chip gpu_step_tokens)."""
    values: Mapping[str, float] = field(default_factory=dict)
    """What was measured, by the names of TRAINED, SERVED, HELD, WATCHED and DECODED."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds of parts of the step, by the names of TRAINED_PHASES, POST_TRAINED and TIMED_PARTS."""
    noise: float = 0.0
    """Relative standard deviation of the mean, from repeated steps."""
    steps_s: tuple[float, ...] = ()
    """Every step of a log, in its order: seconds, or what goes with them where only rates are printed; empty
    where a single number is stated."""
    source: str = ""
    """Where it is: a file and line, or the text."""
    notes: tuple[str, ...] = ()
    """What was left out or could not be read, a sentence each."""

    @property
    def post_training(self) -> bool:
        """Whether it is a step of post-training."""
        return any(name in POST_TRAINED for name in self.phases)
