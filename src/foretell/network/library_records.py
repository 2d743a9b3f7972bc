"""Records of the collective library model: coefficients, and curves ready to be evaluated."""

import math
from collections.abc import Mapping
from typing import Literal

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array

Kind = Literal[
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "send"
]
Three = tuple[float, float, float]
"""One number for each protocol: LL, LL128, Simple; inf (seconds) where it is not offered."""

KINDS: tuple[Kind, ...] = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "broadcast",
    "reduce",
    "send",
)
PROTOCOLS = ("ll", "ll128", "simple")


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideNode:
    """Coefficients inside a node: a link generation under a library."""

    id: str
    """Name of the link generation: nvlink3, nvlink4, nvlink5, pcie, xgmi, ..."""
    reference_latency_s: float
    """The tier latency that the steps below were fitted with; another scales them."""
    base_s: Three
    """Start of a collective, by protocol."""
    step_s: Three
    """One step of a ring, by protocol."""
    efficiency: float
    """Share of the nominal bandwidth that Simple reaches on a large message."""
    protocol_share: Three
    """Share of that by protocol; 1 for Simple."""
    ramp_s_per_root_byte: float
    """Slow approach to the full bandwidth under Simple: seconds per square root of the bytes moved."""
    overlap: float
    """Share of the shorter of latency and wire time that shows."""
    copy_share: float
    """Speed of copying the own block, as a multiple of the ring's bandwidth."""
    reduce_copy_share: float
    """Speed of copying the own block where it is written by the last addition: all-reduce, reduce-scatter."""
    in_network_base_s: float
    """Start of an in-network reduction; inf where the switches have none."""
    in_network_share: float
    """Share of the nominal bandwidth, as S / time, that an in-network all-reduce reaches."""
    peer_base_s: tuple[float, float]
    """Start of an exchange or a send: LL, Simple."""
    peer_step_s: float
    """Each further peer of an exchange."""
    peer_chunk_bytes_per_s: float
    """Speed of one peer's block under LL."""
    exchange_efficiency: float
    """Share of the nominal bandwidth that an all-to-all reaches."""
    topology: str = "switch"
    """The topology that they were fitted on; links between every two chips count as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BetweenNodes:
    """Coefficients between nodes: a fabric under a library and its transport."""

    id: str
    """Fabric and transport: slingshot-11/ofi-tuned, infiniband/verbs, ..."""
    reference_latency_s: float
    """The tier latency that the steps below were fitted with; another scales them."""
    step_s: Three
    """One step of a ring from node to node, by protocol."""
    inner_step_s: Three
    """One step inside a node of a ring that also leaves it, by protocol."""
    hop_s: Three
    """One hop of a tree from node to node, by protocol."""
    chunk_share: Three
    """Speed of one chunk through a ring's step, as a share of a member's nominal rate, by protocol."""
    hop_chunk_share: Three
    """The same for a tree's hop; inf where the hop's time holds its chunk already."""
    chunk_bytes: Three
    """Largest chunk, by protocol; a ring's LL and LL128 send each block whole."""
    efficiency: float | None
    """Share of the nominal bandwidth that Simple reaches on a large message; None: the tier's own."""
    tree_efficiency: Three
    """Share of the ring's bandwidth that a tree reaches, by protocol."""
    overlap: Three
    """Share of the shorter of latency and wire time that shows, by protocol."""
    alone_share: float
    """Share of the bandwidth left where one member of a node drives the port alone."""
    peer_base_s: float
    """Start of an exchange that leaves the node."""
    peer_step_s: tuple[float, float]
    """Each peer in another node: LL, Simple."""
    peer_chunk_share: float
    """Speed of one peer's block under LL, as a share of a member's nominal rate."""
    exchange_efficiency: float
    """Share of the nominal bandwidth that an all-to-all reaches."""
    empty_peer_s: float
    """Each peer of an exchange of nothing."""
    exchange_bytes_per_s: float = math.inf
    """What a member's all-to-all reaches between nodes however fast its ports are."""
    near_pass: float = 1.0
    """Share of a port's time that a chunk of a Simple ring takes at a step inside a node: 1 where the port
    sets the pace of every step, 0 where such a step goes at the rate of the node's own links."""
    start_s: float = 0.0
    """Start of a Simple ring that leaves its nodes, beyond that of one inside a node."""
    topology: str = "fat-tree"
    """The topology of the outermost tier that they were fitted on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """Coefficients of a serving engine's own all-reduce kernels inside a node."""

    base_s: tuple[float, float]
    """Start: one-shot, two-shot."""
    step_s: float
    """Each further member."""
    share: tuple[float, float]
    """Share of the nominal bandwidth: one-shot, two-shot."""
    largest_bytes: float
    """Longer messages are left to the library below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pat:
    """Coefficients of parallel aggregated trees."""

    base_s: float
    """Start."""
    step_share: float
    """One of its hops over one step of a ring."""
    rank_s: float
    """What each rank adds."""
    bandwidth_share: float
    """Share of a ring's bandwidth that it reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollNet:
    """Coefficients of sums in the switches between nodes."""

    latency_s: float
    """Once up and down the switches, at the fabric's reference latency."""
    bandwidth_share: float
    """Share of a ring's bandwidth that each direction of a port reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A collective library on one system's links."""

    id: str
    """Name and version, such as nccl-2.21."""
    inner_tiers: int
    """How many tiers, from the innermost, lie inside a node."""
    inside: InsideNode
    """Coefficients of those."""
    between: BetweenNodes | None
    """Coefficients of the others; None where there are none."""
    empty_call_s: float
    """A collective of nothing."""
    custom: Custom | None = None
    """The engine's own all-reduce, where it has one."""
    pat: Pat | None = None
    """Parallel aggregated trees, where this release has them."""
    collnet: CollNet | None = None
    """Sums in the switches between nodes, where any tier has such switches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCurve:
    """Candidates (first axis) for groups (second axis): time as a function of the message."""

    names: tuple[str, ...]
    """Algorithm and protocol of each candidate."""
    base_s: Array
    """Start."""
    latency_s: Array
    """Steps and hops."""
    chunk_s_per_byte: Array
    """Time of the first chunk on its way, per byte of the message."""
    chunk_limit_s: Array
    """The most of it: a chunk has a largest size."""
    wire_s_per_byte: Array
    """Time on the narrowest link, per byte of the message."""
    overlap: Array
    """Share of the shorter of latency and wire time that shows."""
    ramp_s_per_root_byte: Array | None = None
    """Part of the wire time that grows as the root of the message; None where there is none."""
    largest_bytes: Array | None = None
    """Longest message of each candidate; None where there is no such limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedGroups:
    """Groups placed on a network under a library, ready for any message."""

    members: Array
    """Members of each group."""
    curves: Mapping[Kind, LibraryCurve]
    """Candidates of each kind of collective asked for."""
    hop_weight: Array
    """(tiers, groups): share of a chain's hops that each tier carries; for sends."""
    slower: Num = 1.0
    """Factor on the time of every message; a number, or (groups,)."""
