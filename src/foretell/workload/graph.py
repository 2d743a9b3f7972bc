"""The graph of a model: layer kinds with their operations, saved tensors and tensor-parallel edges."""

from dataclasses import field
from typing import Literal, TypeVar

from foretell.records import dataclass
from foretell.specs._base import Num, with_fields
from foretell.workload.ops import Op
from foretell.workload.roles import EdgeRole, Region, SavedRole

Phase = Literal["training", "prefill", "decode"]
"""training: forward and backward over whole sequences; prefill: forward that fills the cache; decode:
one new token per sequence against a cache."""
Part = TypeVar("Part", bound="Op | Saved | Edge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """How many positions one micro-batch has; numbers or arrays over plans."""

    batch: Num
    """Sequences in the micro-batch."""
    q_len: Num
    """New positions per sequence."""
    kv_len: Num
    """Positions that attention can look at, the new ones included."""
    cross_len: Num = 0.0
    """Positions of the encoder's output, for cross-attention."""
    phase: Phase = "training"
    """Which of the three forms operations take."""
    flash: bool = True
    """Fused attention, or separate products with stored scores."""
    rotary: bool = True
    """Whether queries and keys are rotated by their positions; else a table of positions is added."""

    @property
    def count(self) -> Num:
        """Positions of the micro-batch."""
        return self.batch * self.q_len


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A tensor kept from forward to backward."""

    name: str
    """What it is."""
    elements: Num
    """Its size over the whole tensor-parallel group."""
    split: Literal["tokens", "width", "none"]
    """tokens: full width, cut only by sequence parallelism; width: cut by tensor parallelism; none."""
    core: bool = False
    """Whether it belongs to the attention core, which selective recomputation drops."""
    bytes_per_element: float | None = None
    """Where not the activation dtype: 4 for statistics, 1 for masks."""
    fused_away: bool = False
    """Whether fused element-wise kernels compute it again instead of keeping it."""
    role: SavedRole = SavedRole.OTHER
    """What formulas treat it by."""
    region: Region = Region.NONE
    """The part of the model that it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Where activations enter or leave a region that tensor parallelism cuts by width."""

    name: str
    """What people call the region."""
    elements: Num
    """Elements of the full activation."""
    leave: bool
    """True at the end of the region (partial sums are reduced), False at its start."""
    role: EdgeRole = EdgeRole.HIDDEN
    """What crosses it."""
    region: Region = Region.NONE
    """Which region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGraph:
    """One layer kind (or the embedding, or the head) for one micro-batch."""

    name: str
    """Its name in breakdowns."""
    ops: tuple[Op, ...] = ()
    """Operations in order."""
    saved: tuple[Saved, ...] = ()
    """Tensors kept for the backward pass."""
    edges: tuple[Edge, ...] = ()
    """Ends of tensor-parallel regions."""
    input_elements: Num = 0.0
    """Elements of the activation that enters (and leaves) the layer."""

    def __add__(self, other: "LayerGraph") -> "LayerGraph":
        """Both, one after the other, under the first one's name."""
        return LayerGraph(
            name=self.name,
            ops=self.ops + other.ops,
            saved=self.saved + other.saved,
            edges=self.edges + other.edges,
            input_elements=self.input_elements,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A model for one micro-batch: layer kinds, their order, and the two ends."""

    kinds: tuple[LayerGraph, ...]
    """Distinct layers."""
    order: tuple[int, ...]
    """Kind of each layer, first to last (a tower's or an encoder's layers before the decoder's)."""
    ahead: int = 0
    """Of these, layers of towers, which are on the first stage whatever it has besides."""
    embedding: LayerGraph
    """Before the first layer."""
    head: LayerGraph
    """After the last layer: final norm, scores and, in training, the loss."""
    prediction: LayerGraph | None = None
    """All multi-token-prediction blocks with their scores and losses (training only)."""
    extra_parameters: float = 0.0
    """Weights of the text model that no op holds."""
    notes: tuple[str, ...] = field(default=())
    """What is not timed, as sentences for the result."""


def with_region(graph: LayerGraph, region: Region) -> LayerGraph:
    """The graph with all that names no region of its own in this one: how a block is where it is used."""

    return with_fields(
        graph,
        ops=tuple(_placed(op, region) for op in graph.ops),
        saved=tuple(_placed(tensor, region) for tensor in graph.saved),
        edges=tuple(_placed(edge, region) for edge in graph.edges),
    )


def _placed(part: Part, region: Region) -> Part:
    return with_fields(part, region=region) if part.region is Region.NONE else part
