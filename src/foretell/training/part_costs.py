"""What the parts of a model cost on one rank: the records."""

from collections.abc import Mapping, Sequence

import numpy as np

from foretell.kernels.call_records import table_of
from foretell.kernels.op_times import OpTimes
from foretell.kernels.optimizer import Matrices
from foretell.records import dataclass
from foretell.sharding.context import ContextTraffic
from foretell.sharding.expert import ExpertTraffic
from foretell.sharding.tensor import TensorTraffic
from foretell.sharding.tensor2d import GridTraffic
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index
from foretell.training.shapes import Shape
from foretell.workload.graph import Edge, Saved
from foretell.workload.ops import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class BothPasses:
    """Seconds of the forward and of the backward pass."""

    forward_s: Array
    """Of the forward pass."""
    backward_s: Array
    """Of the backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeconds:
    """One pass through every part, at the clock of short bursts; arrays are (shapes, parts)."""

    seconds: Array
    """Time of the chip's kernels."""
    host_s: Array
    """Time that the host takes to start them, beside it."""
    clocked_s: Array
    """What of the chip's time stretches when the clock falls."""
    core_joules: Array
    """What the cores spend."""
    memory_joules: Array
    """What the device memory spends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Costs of every part for every shape; arrays are (shapes, parts) unless stated otherwise."""

    names: tuple[str, ...]
    """Layer kinds, then embedding, then head."""
    order: tuple[int, ...]
    """Kind of each layer of the model."""
    ahead: int
    """Of these, layers of towers, which are on the first stage."""
    counts: Array
    """How often each part is there in the whole model; (parts,)."""
    ops: tuple[tuple[Op, ...], ...]
    """Operations of each part on one rank."""
    times: OpTimes
    """Times of all operations, forward and then backward; (2 x operations, shapes)."""
    forward: PassSeconds
    """Forward pass."""
    backward: PassSeconds
    """Backward pass, without recomputation."""
    core_s: Array
    """Forward time of attention cores and scans: what selective recomputes."""
    stop: PassSeconds
    """Of a layer's forward pass what computing it again leaves out."""
    rerun_ops: Array
    """Share of each operation that computing whole layers again runs; (operations,)."""
    attention_s: tuple[Array, Array]
    """Forward and backward time of all attention cores; empty without context parallelism."""
    parameters: Array
    """Weights on one rank."""
    trained: Array
    """Of these, weights with gradients: all (the same array), all but frozen towers, or adapters."""
    tensors: Array
    """Trained tensors that hold them; (parts,)."""
    matrices: Matrices | None
    """Matrices that the optimizer treats apart; None where it treats none."""
    products_s: Array | None
    """Matrix products of the update; None where it treats none."""
    weight_s: tuple[Array, Array] | None
    """Backward products for the gradients of weights, and what of it stretches when the clock falls; None
    where the schedule does not run them apart."""
    again_ops: Array
    """Share of each operation that recomputing the plan's modules runs again; empty where it names none."""
    again: PassSeconds | None
    """What recomputing the plan's modules runs again; None where it names none."""
    kept_modules: Array
    """Bytes kept per micro-batch when the plan's modules are computed again."""
    dropped: Array
    """Bytes that these drop."""
    waits_again: Mapping[str, Array]
    """Exchange -> share of it that each part repeats; (parts,)."""
    routed: Array
    """Of these, weights of routed experts that expert parallelism spreads."""
    tied: Array
    """Weights that the head borrows from the token table: a copy where that is elsewhere; (shapes,)."""
    kept_whole: Array
    """Bytes kept per micro-batch without recomputation."""
    kept_selective: Array
    """Bytes kept when the attention core is computed again."""
    kept_input: Array
    """Bytes kept when the whole part is computed again."""
    scores: Array
    """Scores of the head; (shapes,)."""
    gradient: Array
    """Bytes of the gradient that a part's backward pass holds."""
    saved: tuple[tuple[Saved, ...], ...]
    """Tensors that each part keeps on one rank; sizes are (shapes,) or numbers."""
    linear: Array
    """Weights of linear maps outside the routed experts."""
    narrow: Array | None
    """Weights of which there are copies in a narrow format; None where there are none."""
    quantised: Array | None
    """Frozen weights that are stored in 4 bits; None where there are none."""
    widened: Array
    """Weights of the largest matrix that is stored in 4 bits, which a product widens; (shapes,)."""
    send_bytes: Array
    """What one rank passes to the next stage: its share of the activation; (shapes,)."""
    traffic: tuple[TensorTraffic, ...]
    """Tensor-parallel messages of each part."""
    edges: tuple[tuple[Edge, ...], ...]
    """Ends of the tensor-parallel regions of each part."""
    spread_traffic: tuple[TensorTraffic, ...]
    """Those messages where expert parallelism spreads the experts; empty where it never does."""
    context: tuple[ContextTraffic, ...]
    """Context-parallel messages of each part; empty where there is none."""
    experts: tuple[ExpertTraffic, ...]
    """Dispatches of each part; empty where expert parallelism never spreads experts."""
    grid: tuple[GridTraffic, ...]
    """Messages of each part on a grid of tensor-parallel ranks; empty where they are no grid."""
    panel_bytes: Array
    """Panels that a product on a grid holds of other ranks; (shapes,)."""
    shape: Shape
    """The shapes, as arrays; (shapes,)."""
    element_bytes: float
    """Bytes of an activation."""
    notes: tuple[str, ...]
    """What is not timed."""

    @property
    def kinds(self) -> int:
        """Number of layer kinds."""
        return len(self.names) - 2


def activation_bytes_of(elements: Sequence[Num], parts: Parts, shape: Index) -> Array:
    """Bytes of activations; (groups, parts)."""
    return np.asarray(table_of(elements, np.size(parts.shape.tp)).T[shape] * parts.element_bytes)
