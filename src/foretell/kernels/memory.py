"""Bytes held on one rank of a stage: weights, gradients, states, activations, and what is lost.

    weights     W w / (weight parts)          W weights of the stage on this rank, w bytes each
    gradients   W g / (gradient parts)
    states      W (master + n states) / (state parts)
    activations in-flight micro-batches x what the layers keep (by recomputation)
    buffers     the larger of the scores and of one layer computed again; gathered weights, messages, the
                libraries' workspaces
    allocated   the sum of these: what tensors take
    allocator   what it reserves beyond them, by rounding and fragmentation: `catalog/allocators.toml`
    reserved    allocated and allocator: what the framework has taken of the device
    framework   what it never sees: driver context, buffers of the communicators

Every sum is the largest over a step: `simulation/memory_timeline.py` simulates the step,
tests/properties/test_timeline.py holds one to the other. A stage i of pp has min(micro-batches, pp - i)
micro-batches in flight with 1F1B; interleaving keeps min(mu v, 2 (pp - i - 1) + (v - 1) pp + 1) chunks of
1/v of the stage each (Narayanan et al. 2021).
"""

from collections.abc import Callable, Mapping

import numpy as np

from foretell.kernels.optimizer import held_bytes
from foretell.records import dataclass
from foretell.sharding.recompute import bytes_16bit
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.specs.software import Software
from foretell.workload.graph import LayerGraph, Saved
from foretell.workload.roles import SavedRole

CONTEXT_BYTES = 0.5 * 2**30
"""Driver context and loaded kernels of one process; some 0.5 GiB on data-centre GPUs (recalled)."""
COMMUNICATOR_BYTES = 0.2 * 2**30
"""Buffers of one communicator: 24 channels of 4 MiB (NCCL_BUFFSIZE) to each of two neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBytes:
    """What one layer keeps for one micro-batch, by recomputation choice."""

    whole: Num
    """Everything that the backward pass reads."""
    selective: Num
    """Without the attention core's scores."""
    input: Num
    """The layer's input alone."""
    scores: Num
    """Scores of the head, which a fused loss keeps in less; elements."""
    gradient: Num
    """Gradient of the largest tensor: what the backward pass of the layer holds besides."""


def kept_bytes(
    graph: LayerGraph,
    input_parts: Num,
    width: Callable[[Saved], float] = bytes_16bit,
    passing: Callable[[Saved], float] = bytes_16bit,
    stream_bytes: float = 2.0,
) -> KeptBytes:
    """Sizes of the saved tensors of a layer on one rank; `input_parts` ranks share its input, `width` and
    `passing` are bytes per element of a tensor and of what its backward pass holds, `stream_bytes` those of
    the layer's input."""
    whole: Num = 0.0
    core: Num = 0.0
    scores: Num = 0.0
    gradient: Num = 0.0
    for tensor in graph.saved:
        size = tensor.elements * width(tensor)
        whole = whole + size
        core = core + (size if tensor.core else 0.0)
        scores = scores + (tensor.elements if tensor.role is SavedRole.LOSS else 0.0)
        gradient = np.maximum(gradient, passing(tensor) * tensor.elements)
    return KeptBytes(
        whole=whole,
        selective=whole - core,
        input=graph.input_elements * stream_bytes / input_parts,
        scores=scores,
        gradient=gradient,
    )


def in_flight(micro_batches: Num, pp: Num, vpp: Num, position: Num) -> Array:
    """Micro-batches (in units of the whole stage) whose activations are held at the peak."""
    plain = np.minimum(micro_batches, pp - position)
    chunks = np.minimum(micro_batches * vpp, 2.0 * (pp - position - 1.0) + (vpp - 1.0) * pp + 1.0)
    return np.where(np.asarray(vpp) > 1, chunks / vpp, plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes on one rank of each stage; arrays are (plans, stages)."""

    weights: Array
    """Working weights."""
    gradients: Array
    """Gradients."""
    states: Array
    """Master copy and optimizer states."""
    activations: Array
    """Activations kept for the backward pass."""
    buffers: Array
    """Scores of the head or a recomputed layer, gathered weights, messages, workspaces."""
    allocator: Array
    """Allocator rounding and fragmentation."""
    framework: Array
    """Driver context and communicators, which no allocator counts."""

    @property
    def allocated(self) -> Array:
        """What tensors take."""
        held = self.weights + self.gradients + self.states
        return np.asarray(held + self.activations + self.buffers)

    @property
    def reserved(self) -> Array:
        """What the framework's allocator has taken of the device."""
        return np.asarray(self.allocated + self.allocator)

    @property
    def lost(self) -> Array:
        """What no tensor takes."""
        return np.asarray(self.allocator + self.framework)

    @property
    def total(self) -> Array:
        """All of it: what the device must have."""
        return np.asarray(self.reserved + self.framework)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBytes:
    """What plans hold at their peaks on their fullest stages: numbers, or arrays over plans."""

    allocated_bytes: Num
    """Tensors (`torch.cuda.max_memory_allocated`)."""
    reserved_bytes: Num
    """What the framework's allocator has taken of the device (`max_memory_reserved`)."""
    peak_bytes: Num
    """What the process holds: reserved, driver context and communicators."""

    @property
    def least_bytes(self) -> Num:
        """Tensors with driver context and communicators: what remains where the allocator reuses all."""
        return self.allocated_bytes + (self.peak_bytes - self.reserved_bytes)


def held_of_parts(parts: Mapping[str, float]) -> HeldBytes:
    """What one process holds, by the names of its parts."""
    total, own = sum(parts.values()), parts.get("framework", 0.0)
    reserved = total - own
    allocated = reserved - parts.get("allocator", 0.0)
    return HeldBytes(allocated_bytes=allocated, reserved_bytes=reserved, peak_bytes=total)


def weight_bytes(plan: Plan) -> tuple[float, float, float]:
    """Bytes per weight of working copy, gradient, and master copy with states."""
    return DTYPE_BYTES[plan.weights], DTYPE_BYTES[plan.gradients], held_bytes(plan)


def allocator_share(plan: Plan, software: Software) -> float:
    """What the allocator reserves beyond what tensors take, as a share of that."""
    own = software.allocator
    return float(own.fused_share if plan.fused else own.plain_share)


def framework_bytes(groups: Num) -> Array:
    """What a process takes beside its allocator, with communicators over so many groups."""
    return np.asarray(CONTEXT_BYTES + COMMUNICATOR_BYTES * groups)
