"""Operations: what one rank does for one micro-batch, as dims, floating-point work and moved
elements.

Every dim may be a number or an array over plans. An op knows its own forward and backward work and
how to be cut for tensor parallelism; it knows no chip, no plan and no dtype. Work is a lower bound:
each input is read once and each output written once.
"""

from typing import Literal, Protocol, Self

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Num, with_fields
from foretell.workload.roles import OpRole, Region

Split = Literal["none", "col", "row", "heads", "width", "tokens"]
"""Which dim tensor parallelism cuts. col, row: outputs or inputs of a matrix; heads: attention
heads, or the groups of a matrix that has one per head; width: a hidden dim inside a cut region;
tokens: outside it, cut only by sequence parallelism; none: every rank does all of it, and `cut`
changes nothing."""

Family = Literal[
    "gemm",
    "grouped-gemm",
    "attention",
    "scan",
    "norm",
    "elementwise",
    "embedding",
    "routing",
    "loss",
]
"""Kernel family: what a measured surface is fitted for and what a breakdown groups by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Floating-point operations and elements moved through device memory."""

    matrix_flop: Num = 0.0
    """Operations of the matrix units (a multiply-add is two)."""
    vector_flop: Num = 0.0
    """Operations of the vector units."""
    activation_elements: Num = 0.0
    """Activation elements read and written."""
    weight_elements: Num = 0.0
    """Weight elements read, and weight-gradient elements written."""


class Op(Protocol):
    """What every operation offers."""

    @property
    def name(self) -> str:
        """What people call it, such as `attention.qkv`; no formula reads it."""

    @property
    def role(self) -> OpRole:
        """What it does: what formulas treat it by."""

    @property
    def region(self) -> Region:
        """The part of the model that it belongs to."""

    @property
    def family(self) -> Family:
        """Its kernel family."""

    @property
    def split(self) -> Split:
        """The dim that tensor parallelism cuts."""

    @property
    def parameters(self) -> Num:
        """Weights it holds on this rank."""

    def forward(self) -> Work:
        """Work of the forward pass."""

    def backward(self) -> Work:
        """Work of the backward pass, without recomputation."""

    def cut(self, parts: Num) -> Self:
        """The same op on one of `parts` ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """groups x (m,k)(k,n) with weights (k,n): forward, then data and weight gradients."""

    name: str
    """Its place in the layer."""
    m: Num
    """Rows of one group (tokens)."""
    n: Num
    """Outputs."""
    k: Num
    """Inputs."""
    groups: Num = 1.0
    """Independent products of this shape (experts, block-diagonal parts)."""
    bias: bool = False
    """Whether a bias of n weights per group is added."""
    tied: bool = False
    """Whether its weights belong to another op (a head that is the token table)."""
    split: Split = "none"
    """col cuts n, row cuts k, heads cuts groups, tokens cuts m."""
    n_kv: Num = 0.0
    """Of the n outputs, those of key and value heads."""
    n_kv_min: Num = 0.0
    """Outputs of one key and value head: what every rank keeps when there are more ranks than
    heads."""
    family: Family = "gemm"
    """grouped-gemm for experts."""
    weight_parts: Num = 1.0
    """Ranks that hold the (k,n) weights together and lend each other theirs (SUMMA)."""
    panels: Num = 1.0
    """Parts of k that are multiplied one after the other: outputs are moved once for each."""
    role: OpRole = OpRole.OTHER
    """What it does."""
    region: Region = Region.NONE
    """The part of the model that it belongs to."""
    gated: bool = False
    """Whether its outputs are a gate and what it multiplies, side by side."""

    @property
    def parameters(self) -> Num:
        """groups (k n + bias n) over the ranks that hold them, none where tied."""
        if self.tied:
            return 0.0
        held = self.groups * (self.k * self.n + (self.n if self.bias else 0.0))
        return held / self.weight_parts

    def forward(self) -> Work:
        """2 g m n k; reads (m,k) and (k,n), writes (m,n).

        With less than one row per group (experts in decode) only min(m, 1) of the groups are
        touched, at balanced load: the weights of the others are not read.
        """
        g = self.groups
        return Work(
            matrix_flop=2.0 * g * self.m * self.n * self.k,
            activation_elements=g * self.m * (self.k + self.panels * self.n),
            weight_elements=g * np.minimum(self.m, 1.0) * self.k * self.n,
        )

    def backward(self) -> Work:
        """Data gradient (m,n)(n,k) and weight gradient (k,m)(m,n): twice the forward."""
        f = self.forward()
        return Work(
            matrix_flop=2.0 * f.matrix_flop,
            activation_elements=2.0 * f.activation_elements,
            weight_elements=2.0 * f.weight_elements,
        )

    def cut(self, parts: Num) -> "Gemm":
        """col: n/parts, where key and value heads stop dividing at one per rank; row: k/parts;
        heads: groups/parts; tokens: m/parts with all weights."""
        if self.split == "col":
            kv = np.maximum(self.n_kv / parts, self.n_kv_min)
            return with_fields(self, n=(self.n - self.n_kv) / parts + kv, n_kv=kv)
        if self.split == "row":
            return with_fields(self, k=self.k / parts)
        if self.split == "heads":
            return with_fields(self, groups=self.groups / parts)
        if self.split == "tokens":
            return with_fields(self, m=self.m / parts)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCore:
    """softmax(q k^T) v of heads that share keys and values in groups; no weights."""

    name: str
    """Its place in the layer."""
    batch: Num
    """Sequences."""
    heads: Num
    """Query heads."""
    kv_heads: Num
    """Key and value heads."""
    q_len: Num
    """Queries per sequence."""
    kv_len: Num
    """Keys that are read per sequence."""
    pairs: Num
    """(query, key) pairs per sequence and head that the mask leaves."""
    qk_dim: float
    """Width of queries and keys."""
    v_dim: float
    """Width of values."""
    flash: bool = True
    """One fused kernel that skips masked tiles and stores no scores; else the whole square,
    stored."""
    counted: Num | None = None
    """Pairs by the usual model-FLOP convention: the window's; none: the whole square."""
    masked: Num = 0.0
    """1 where fused attention reads its mask as a tensor, which skips no tile; 0: it knows the mask."""
    calls: Num = 1.0
    """Kernels one after another that share the sequences: the steps of a ring of context ranks."""
    apart: bool = False
    """Whether its sequences are images or stretches of audio: context ranks share out whole ones."""
    kv_rank: float = 0.0
    """Width per key and value that is read where heads share a latent (absorbed decode); 0: k and
    v."""
    split: Split = "heads"
    """heads: query heads are cut; key and value heads too, down to one; none: every rank has
    all."""
    family: Family = "attention"
    """attention."""
    role: OpRole = OpRole.CORE
    """What it does."""
    region: Region = Region.NONE
    """The part of the model that it belongs to."""

    @property
    def parameters(self) -> Num:
        """None."""
        return 0.0

    @property
    def scores(self) -> Num:
        """Scores computed: the pairs of the mask when fused, the whole square otherwise."""
        whole = self.q_len * self.kv_len
        return self.batch * self.heads * (self.pairs if self.flash else whole)

    def _moved(self) -> tuple[Num, Num]:
        """Elements of q and out, and of k and v."""
        q = self.batch * self.heads * self.q_len * (self.qk_dim + self.v_dim)
        width = self.kv_rank or (self.qk_dim + self.v_dim)
        return q, self.batch * self.kv_heads * self.kv_len * width

    def forward(self) -> Work:
        """2 scores (qk + v); softmax of 5 operations per score; scores move four times unless
        fused."""
        q, kv = self._moved()
        return Work(
            matrix_flop=2.0 * self.scores * (self.qk_dim + self.v_dim),
            vector_flop=5.0 * self.scores,
            activation_elements=q + kv + (0.0 if self.flash else 4.0 * self.scores),
        )

    def backward(self) -> Work:
        """Five products when fused (scores again, then dP, dV, dQ, dK), four otherwise."""
        q, kv = self._moved()
        products = (3.0 if self.flash else 2.0) * self.qk_dim + 2.0 * self.v_dim
        return Work(
            matrix_flop=2.0 * self.scores * products,
            vector_flop=8.0 * self.scores,
            activation_elements=2.0 * (q + kv) + (0.0 if self.flash else 5.0 * self.scores),
        )

    def cut(self, parts: Num) -> "AttentionCore":
        """heads/parts; key and value heads are copied once there are more parts than heads."""
        if self.split == "none":
            return self
        kv = np.maximum(self.kv_heads / parts, 1.0)
        return with_fields(self, heads=self.heads / parts, kv_heads=kv)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointwise:
    """Element-wise work, norms, routing, loss: bound by the elements it moves."""

    name: str
    """Its place in the layer."""
    elements: Num
    """Elements it runs over."""
    reads: float = 1.0
    """Elements read per element, forward."""
    writes: float = 1.0
    """Elements written per element, forward."""
    flop: float = 1.0
    """Plain operations per element, forward."""
    back_moves: float = 3.0
    """Elements read and written per element, backward."""
    back_flop: float = 2.0
    """Plain operations per element, backward."""
    weights: Num = 0.0
    """Weights it holds (scale and shift of a norm, taps of a convolution)."""
    split: Split = "tokens"
    """tokens: outside a cut region; width: inside one; none: the same on every rank."""
    cut_weights: bool = False
    """Whether its weights are cut with its elements."""
    family: Family = "elementwise"
    """elementwise, norm, routing or loss."""
    role: OpRole = OpRole.OTHER
    """What it does."""
    region: Region = Region.NONE
    """The part of the model that it belongs to."""
    repeats: float = 1.0
    """Equal operations that it stands for."""
    launches: Num = 1.0
    """How often kernels are launched for it: once for each expert, where experts follow each other; some at
    each step of a ring."""
    copies: float = 1.0
    """Elements for each of its inputs: tokens that several experts take."""
    beside: OpRole = OpRole.OTHER
    """Of an adapter's sums, what the map does that the adapter is beside."""

    @property
    def parameters(self) -> Num:
        """Its weights."""
        return self.weights

    def forward(self) -> Work:
        """(reads + writes) elements."""
        return Work(
            vector_flop=self.flop * self.elements,
            activation_elements=(self.reads + self.writes) * self.elements,
            weight_elements=np.sign(self.elements) * self.weights,
        )

    def backward(self) -> Work:
        """back_moves elements, and the gradient of its weights."""
        return Work(
            vector_flop=self.back_flop * self.elements,
            activation_elements=self.back_moves * self.elements,
            weight_elements=2.0 * np.sign(self.elements) * self.weights,
        )

    def cut(self, parts: Num) -> "Pointwise":
        """elements/parts, and the weights where they belong to the cut dim."""
        if self.split == "none":
            return self
        weights = self.weights / parts if self.cut_weights else self.weights
        return with_fields(self, elements=self.elements / parts, weights=weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Rows of a table by index."""

    name: str
    """Its place."""
    tokens: Num
    """Rows looked up."""
    rows: Num
    """Rows of the table."""
    width: Num
    """Width of a row."""
    split: Split = "row"
    """row: the table's rows are cut (vocabulary parallel)."""
    family: Family = "embedding"
    """embedding."""
    role: OpRole = OpRole.OTHER
    """What it does."""
    region: Region = Region.NONE
    """The part of the model that it belongs to."""

    @property
    def parameters(self) -> Num:
        """rows x width."""
        return self.rows * self.width

    def forward(self) -> Work:
        """Each row is read and written once."""
        return Work(activation_elements=2.0 * self.tokens * self.width)

    def backward(self) -> Work:
        """Gradients are read and added to their rows; the table's gradient is cleared first."""
        return Work(
            activation_elements=3.0 * self.tokens * self.width,
            weight_elements=np.sign(self.tokens) * self.rows * self.width,
        )

    def cut(self, parts: Num) -> "Lookup":
        """rows/parts; every rank writes all tokens."""
        return with_fields(self, rows=self.rows / parts) if self.split == "row" else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A recurrence over positions in chunked (matrix) form, or one step of it."""

    name: str
    """Its place in the layer."""
    tokens: Num
    """Positions of all sequences."""
    heads: Num
    """Heads."""
    matrix_flop_per_token_head: Num
    """Matrix operations per position and head, forward."""
    vector_flop_per_token_head: Num
    """Plain operations per position and head, forward."""
    moved_per_token_head: Num
    """Elements read and written per position and head, forward."""
    groups: Num = 0.0
    """Groups of heads that share some of the work (B and C of a state-space mixer)."""
    matrix_flop_per_token_group: Num = 0.0
    """Matrix operations per position and group, forward."""
    moved_per_token_group: Num = 0.0
    """Elements read per position and group, forward."""
    back_factor: Num = 2.5
    """Backward over forward, in operations and in elements (the scan is run again)."""
    weights: Num = 0.0
    """Weights per rank (decay, skip, time-step bias)."""
    split: Split = "heads"
    """heads; groups are cut with them, down to one."""
    family: Family = "scan"
    """scan."""
    role: OpRole = OpRole.CORE
    """What it does."""
    region: Region = Region.NONE
    """The part of the model that it belongs to."""

    @property
    def parameters(self) -> Num:
        """Its weights."""
        return self.weights

    def _scaled(self, factor: Num) -> Work:
        heads, groups = self.tokens * self.heads, self.tokens * self.groups
        matrix = self.matrix_flop_per_token_head * heads + self.matrix_flop_per_token_group * groups
        moved = self.moved_per_token_head * heads + self.moved_per_token_group * groups
        return Work(
            matrix_flop=factor * matrix,
            vector_flop=factor * self.vector_flop_per_token_head * heads,
            activation_elements=factor * moved,
            weight_elements=np.sign(self.tokens) * self.weights,
        )

    def forward(self) -> Work:
        """Per position and head, and per position and group, as given."""
        return self._scaled(1.0)

    def backward(self) -> Work:
        """back_factor x forward."""
        return self._scaled(self.back_factor)

    def cut(self, parts: Num) -> "Scan":
        """heads/parts with their weights; groups/parts, but no less than one where there are
        any."""
        groups = np.maximum(self.groups / parts, np.minimum(self.groups, 1.0))
        return with_fields(
            self, heads=self.heads / parts, groups=groups, weights=self.weights / parts
        )
