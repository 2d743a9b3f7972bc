"""Factors on what each mechanism takes: 1 as predicted, 2 twice as long. Measured runs move them."""

from dataclasses import fields
from typing import Any

from foretell.records import dataclass
from foretell.specs._base import Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrections:
    """What a system takes over what is predicted, by mechanism; numbers, or arrays over a batch of plans."""

    gemm: Positive = 1.0
    """Seconds of dense matrix multiplications."""
    experts: Positive = 1.0
    """Seconds of grouped matrix multiplications of experts."""
    attention: Positive = 1.0
    """Seconds of attention kernels."""
    memory_bound: Positive = 1.0
    """Seconds of passes over memory: norms, element-wise work, loss, sums of gradients, optimizer."""
    tensor_parallel: Positive = 1.0
    """Seconds of tensor-parallel communication, before any of it is hidden."""
    context_parallel: Positive = 1.0
    """The same of context parallelism."""
    expert_parallel: Positive = 1.0
    """The same of expert parallelism."""
    pipeline_parallel: Positive = 1.0
    """The same of sends between stages."""
    data_parallel: Positive = 1.0
    """The same of data parallelism."""
    inside_nodes: Positive = 1.0
    """Further factor on all communication that stays inside a node."""
    between_nodes: Positive = 1.0
    """Further factor on all communication that leaves a node."""
    host: Positive = 1.0
    """Seconds that the host takes to start kernels."""
    fixed: Positive = 1.0
    """Seconds of a step beside its work."""
    activations: Positive = 1.0
    """Bytes of activations and buffers."""
    overhead: Positive = 1.0
    """Bytes that the allocator and the framework hold beside tensors."""
    prefill: Positive = 1.0
    """Seconds of a serving engine's prefill steps."""
    decode_weights: Positive = 1.0
    """Seconds of a decode step that go with the model's weights."""
    decode_cache: Positive = 1.0
    """Seconds of a decode step that go with the cached keys and values."""
    step_overhead: Positive = 1.0
    """Seconds of an engine's step beside its kernels."""
    queueing: Positive = 1.0
    """Seconds that requests wait before their prefill."""
    cache_capacity: Positive = 1.0
    """Tokens that a serving engine's cache holds."""

    @property
    def changed(self) -> dict[str, float]:
        """The factors that are not 1, by mechanism."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in found.items() if value != 1.0}

    def times(self, other: "Corrections") -> "Corrections":
        """Both together."""
        made: dict[str, Any] = {
            f.name: getattr(self, f.name) * getattr(other, f.name) for f in fields(self)
        }
        return Corrections(**made)

    def to_dict(self) -> dict[str, float]:
        """Every factor by its mechanism."""
        return {f.name: float(getattr(self, f.name)) for f in fields(self)}


AS_PREDICTED = Corrections()
"""Nothing is measured."""
TRAINING = (
    "gemm", "experts", "attention", "memory_bound", "tensor_parallel", "context_parallel",
    "expert_parallel", "pipeline_parallel", "data_parallel", "host", "fixed",
)  # fmt: skip
"""Mechanisms of the time of a training step."""
TRAINING_MEMORY = ("activations", "overhead")
"""Mechanisms of its memory."""
SERVING = (
    "prefill", "decode_weights", "decode_cache", "step_overhead", "queueing", "cache_capacity",
)  # fmt: skip
"""Mechanisms of a service."""
POST_TRAINING = ("generation", "forward", "update", "synchronisation", "loop")
"""Mechanisms of a post-training step: each is a group of its phases."""
