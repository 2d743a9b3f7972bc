"""Where the fit of collectives starts, and what of it is free.

Starts have the order of NCCL's own tuning constants, rounded after a first look at all the measurements:
they are not blind. A link or fabric without rows keeps them, and the weak prior is centred on them, so what
is left out of a fit is not wholly unseen by it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf

from foretell.network.library import BetweenNodes, Custom, InsideNode
from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCoefficient:
    """One free coefficient."""

    name: str
    """What it is called in this file."""
    field: str
    """Field of the record."""
    place: int | None = None
    """Place in the field, where that holds several."""
    most: float = inf
    """Largest value that makes sense."""
    start: float = 1.0
    """Where it starts, if the record does not say."""
    also: Callable[[float], dict[str, object]] | None = None
    """Fields that follow from it."""


_NVLINK = InsideNode(
    id="nvlink",
    reference_latency_s=2.5e-6,
    base_s=(4.5e-6, 5e-6, 8.4e-6),
    step_s=(0.8e-6, 1.2e-6, 3.4e-6),
    efficiency=0.78,
    protocol_share=(0.1, 0.6, 1.0),
    ramp_s_per_root_byte=4e-9,
    overlap=0.9,
    copy_share=1.6,
    reduce_copy_share=1.6,
    in_network_base_s=inf,
    in_network_share=0.42,
    peer_base_s=(6e-6, 12e-6),
    peer_step_s=0.3e-6,
    peer_chunk_bytes_per_s=6e9,
    exchange_efficiency=0.75,
)
INSIDE_START: Mapping[str, InsideNode] = {
    "nvlink3": replace(_NVLINK, id="nvlink3"),
    "nvlink4": replace(_NVLINK, id="nvlink4", in_network_base_s=25e-6),
    "nvlink5": replace(_NVLINK, id="nvlink5", in_network_base_s=90e-6, in_network_share=0.49),
    "pcie3": replace(_NVLINK, id="pcie3", reference_latency_s=5e-6, efficiency=0.5),
}
IN_NETWORK_HELD = ("nvlink5",)
"""Links whose reduction in the switches is not fitted: tables end at 512 MiB, where it begins to win. Logs in
print have 482 GB/s of 900 on eight B200 (16 GiB) and 425 on 72 GB200 (4 GiB)."""
INSIDE_FREE = (
    FreeCoefficient(name="base_ll", field="base_s", place=0),
    FreeCoefficient(name="base_ll128", field="base_s", place=1),
    FreeCoefficient(name="base_simple", field="base_s", place=2),
    FreeCoefficient(name="step_ll", field="step_s", place=0),
    FreeCoefficient(name="step_ll128", field="step_s", place=1),
    FreeCoefficient(name="step_simple", field="step_s", place=2),
    FreeCoefficient(name="efficiency", field="efficiency", most=1.0),
    FreeCoefficient(name="share_ll", field="protocol_share", place=0, most=1.0),
    FreeCoefficient(name="share_ll128", field="protocol_share", place=1, most=1.0),
    FreeCoefficient(name="ramp", field="ramp_s_per_root_byte"),
    FreeCoefficient(name="overlap", field="overlap", most=1.0),
    FreeCoefficient(name="copy_share", field="copy_share"),
    FreeCoefficient(name="reduce_copy_share", field="reduce_copy_share"),
    FreeCoefficient(name="in_network_base", field="in_network_base_s"),
    FreeCoefficient(name="in_network_share", field="in_network_share", most=1.0),
    FreeCoefficient(name="peer_base_ll", field="peer_base_s", place=0),
    FreeCoefficient(name="peer_base_simple", field="peer_base_s", place=1),
    FreeCoefficient(name="peer_step", field="peer_step_s"),
    FreeCoefficient(name="peer_chunk", field="peer_chunk_bytes_per_s"),
    FreeCoefficient(name="exchange_efficiency", field="exchange_efficiency", most=1.0),
)
_CUSTOM = Custom(base_s=(2.5e-6, 6e-6), step_s=0.1e-6, share=(0.6, 0.6), largest_bytes=64.0 * 2**20)
CUSTOM_START: Mapping[str, Custom] = {
    # The older engine leaves messages from 2 MiB on to NCCL: its time is NCCL's from there, exactly.
    "nvlink3": replace(_CUSTOM, largest_bytes=1.0 * 2**20),
    "nvlink4": _CUSTOM,
    "nvlink5": _CUSTOM,
}
CUSTOM_FREE = (
    FreeCoefficient(name="base_one", field="base_s", place=0),
    FreeCoefficient(name="base_two", field="base_s", place=1),
    FreeCoefficient(name="step", field="step_s"),
    FreeCoefficient(name="share_one", field="share", place=0, most=1.0),
    FreeCoefficient(name="share_two", field="share", place=1, most=1.0),
)

_OFI = BetweenNodes(
    id="slingshot-11/ofi-tuned",
    reference_latency_s=5e-6,
    step_s=(6e-6, inf, 25e-6),
    inner_step_s=(0.6e-6, inf, 5e-6),
    hop_s=(8e-6, inf, 40e-6),
    chunk_share=(0.25, inf, 0.6),
    hop_chunk_share=(0.3, inf, inf),
    chunk_bytes=(256e3, inf, 256e3),
    efficiency=0.72,
    tree_efficiency=(0.2, inf, 0.8),
    overlap=(1.0, 1.0, 0.4),
    alone_share=0.8,
    peer_base_s=20e-6,
    peer_step_s=(6e-6, 6e-6),
    peer_chunk_share=0.1,
    exchange_efficiency=0.4,
    empty_peer_s=2e-6,
)
_SOCKETS = replace(
    _OFI,
    step_s=(25e-6, inf, 60e-6),
    inner_step_s=(0.6e-6, inf, 10e-6),
    hop_s=(16e-6, inf, 50e-6),
    chunk_share=(0.08, inf, 0.6),
    efficiency=0.1,
    peer_step_s=(14e-6, 20e-6),
    exchange_efficiency=0.11,
    empty_peer_s=10e-6,
)
_VERBS = BetweenNodes(
    id="infiniband/verbs",
    reference_latency_s=5e-6,
    step_s=(2.7e-6, 4e-6, 14e-6),
    inner_step_s=(1e-6, 2e-6, 3.4e-6),
    hop_s=(5e-6, 8.5e-6, 14e-6),
    chunk_share=(0.25, 0.6, 0.6),
    hop_chunk_share=(0.3, 0.6, 0.6),
    chunk_bytes=(160e3, 320e3, 170e3),
    efficiency=0.89,
    tree_efficiency=(0.23, 0.85, 0.92),
    overlap=(1.0, 1.0, 0.5),
    alone_share=0.85,
    peer_base_s=15e-6,
    peer_step_s=(2e-6, 2e-6),
    peer_chunk_share=0.3,
    exchange_efficiency=0.7,
    empty_peer_s=1e-6,
    start_s=20e-6,
    near_pass=0.0,
)
TRANSPORT_START: Mapping[str, BetweenNodes] = {
    "infiniband/verbs": _VERBS,
    "roce/verbs": replace(_VERBS, id="roce/verbs", efficiency=0.83),
    "efa/ofi": replace(
        _VERBS,
        id="efa/ofi",
        start_s=0.0,
        near_pass=1.0,
        step_s=(12e-6, inf, 30e-6),
        hop_s=(14e-6, inf, 40e-6),
        chunk_share=(0.2, inf, 0.6),
        hop_chunk_share=(0.25, inf, inf),
        efficiency=0.75,
    ),
    "tcpxo/fastrak": replace(
        _VERBS,
        id="tcpxo/fastrak",
        start_s=0.0,
        near_pass=1.0,
        step_s=(40e-6, inf, 60e-6),
        hop_s=(40e-6, inf, 60e-6),
        chunk_share=(0.2, inf, 0.6),
        hop_chunk_share=(0.25, inf, inf),
    ),
    "slingshot-11/ofi": replace(_OFI, id="slingshot-11/ofi"),
    "slingshot-11/ofi-tuned": _OFI,
    "slingshot-11/ofi-rendezvous": replace(_OFI, id="slingshot-11/ofi-rendezvous"),
    "slingshot-11/sockets": replace(_SOCKETS, id="slingshot-11/sockets"),
    "slingshot-11/sockets-both": replace(_SOCKETS, id="slingshot-11/sockets-both"),
    "slingshot-10/sockets": replace(
        _SOCKETS, id="slingshot-10/sockets", step_s=(10e-6, inf, 33e-6), efficiency=0.4
    ),
}
FAMILIES = {
    "ofi": "ofi",
    "ofi-tuned": "ofi",
    "ofi-rendezvous": "ofi",
    "sockets": "sockets",
    "sockets-both": "sockets",
}
"""Transport -> the family that it shares some coefficients with."""
BETWEEN_FREE = (
    FreeCoefficient(name="step_ll", field="step_s", place=0),
    FreeCoefficient(name="step_simple", field="step_s", place=2),
    FreeCoefficient(name="start", field="start_s"),
    FreeCoefficient(name="inner_ll", field="inner_step_s", place=0),
    FreeCoefficient(name="inner_simple", field="inner_step_s", place=2),
    FreeCoefficient(name="hop_ll", field="hop_s", place=0),
    FreeCoefficient(name="hop_simple", field="hop_s", place=2),
    FreeCoefficient(name="chunk_ll", field="chunk_share", place=0),
    FreeCoefficient(name="chunk_simple", field="chunk_share", place=2),
    FreeCoefficient(name="hop_chunk", field="hop_chunk_share", place=0),
    FreeCoefficient(name="largest_ll", field="chunk_bytes", place=0),
    FreeCoefficient(name="largest_simple", field="chunk_bytes", place=2),
    FreeCoefficient(name="efficiency", field="efficiency", most=1.0),
    FreeCoefficient(
        name="tree_efficiency",
        field="tree_efficiency",
        place=2,
        most=1.0,
        # LL sends four bytes for one between nodes, LL128 a flag for fifteen words (NCCL's tuning source).
        also=lambda value: {"tree_efficiency": (value / 4.0, 0.92 * value, value)},
    ),
    FreeCoefficient(name="overlap", field="overlap", place=2, most=1.0),
    FreeCoefficient(name="alone_share", field="alone_share", most=1.0),
    FreeCoefficient(name="peer_base", field="peer_base_s"),
    FreeCoefficient(name="peer_step_ll", field="peer_step_s", place=0),
    FreeCoefficient(name="peer_step_simple", field="peer_step_s", place=1),
    FreeCoefficient(name="peer_chunk", field="peer_chunk_share"),
    FreeCoefficient(name="exchange_efficiency", field="exchange_efficiency", most=1.0),
)
FEW_NODES = frozenset("overlap step_simple inner_simple chunk_simple largest_simple".split())
"""What two nodes do not tell: the steps of a long ring, and how its chunks follow each other. Steps and the
passing of a chunk through a port stay at NCCL's constants for verbs, and no port is paid for inside a node;
the rest is as `SCALE_FROM` has it."""
SCALE_FROM = {"infiniband": "slingshot-11/ofi-tuned", "roce": "slingshot-11/ofi-tuned"}
"""Fabric -> the transport of which logs of 128 nodes tell that: it is NCCL's, not the fabric's."""
SHARED: Mapping[str, tuple[frozenset[str], frozenset[str], frozenset[str]]] = {
    "slingshot-11": (
        frozenset("largest_ll largest_simple inner_ll alone_share chunk_simple hop_chunk".split()),
        frozenset("overlap tree_efficiency inner_simple chunk_ll peer_chunk".split()),
        frozenset(["start"]),
    ),
    "slingshot-10": (
        frozenset(),
        frozenset(),
        frozenset(
            "inner_ll inner_simple largest_ll largest_simple alone_share chunk_simple hop_chunk overlap "
            "start peer_base peer_step_ll peer_step_simple peer_chunk exchange_efficiency".split()
        ),
    ),
    # Large messages by 178 of 200 GB/s on two DGX A100 (alcf-nccl-tests): rings of the B200 cluster reach
    # 0.77 of their ports, its reduction in the switches 0.94.
    "infiniband": (frozenset(), frozenset(), FEW_NODES | {"alone_share", "efficiency"}),
    # Large messages reach 0.81 of the ports on a3-ultragpu-8g and 0.85 on nodes of MI300X.
    "roce": (frozenset(), frozenset(), FEW_NODES | {"alone_share", "efficiency"}),
    "efa": (frozenset(), frozenset(), frozenset(["alone_share", "start"])),
    "tcpxo": (frozenset(), frozenset(), frozenset(["alone_share", "start"])),
}
"""Fabric -> coefficients shared by all its transports, by a family of them, and not fitted at all."""
KIN = {"roce": "infiniband"}
"""Fabric -> the one whose fitted coefficients its own fit starts from: both are verbs to NCCL."""
VERSIONED: Mapping[str, tuple[str, ...]] = {"slingshot-11": ("2.21",)}
"""Fabric -> library versions whose trees take another chunk."""
