"""Seconds of a collective as a library runs it: protocols, algorithms, chunks, and its automatic choice.

A library (NCCL, RCCL, a serving engine's own kernels) offers candidates: an algorithm (ring, double
binary tree, in-network reduction, direct exchange, one-shot and two-shot kernels) with a protocol (LL,
LL128, Simple). Each candidate k costs, for a message of S bytes,

    L_k = latency_k + min(S x chunk_s_per_byte_k, chunk_limit_s_k)    what the first chunk meets on its way
    W_k = S x wire_s_per_byte_k + sqrt(S) x ramp_k                    what the narrowest link needs
    t_k = base_k + max(L_k, W_k) + overlap_k x min(L_k, W_k)

and the library takes the least. L and W run side by side where chunks are pipelined: `overlap` is the
share of the shorter one that still shows (1: the textbook sum; 0: fully hidden). The candidates:

    ring      latency = passes x (steps between nodes x step + steps inside x inner step), a chunk of S/N
              per step, wire = passes x (N-1)/N / (bandwidth x rings side by side) on the slowest tier,
              and the copy of the own block, 1/N
    tree      latency = 2 x (ceil(lg nodes) x hop + (n-1) x inner step), a chunk of S per hop, wire 2 S / B
    in-net    latency as the tree's above the node, wire = S / (bandwidth x share); from 5 members on
    pat       gathers and scatters over one rank a node in lg N hops (library_curves.py)
    collnet   sums in the switches between nodes, where they add up (library_curves.py)
    exchange  latency = peers x step, wire = what leaves each tier / its bandwidth
    custom    one-shot: wire (N-1) S / B; two-shot: 2 (N-1)/N S / B

(after the cost model in NCCL's tuning source, with chunks pipelined). `size_bytes` is the size column of
nccl-tests, the full buffer of one rank: the gathered output of an all-gather, the input of a
reduce-scatter, all that one rank sends in an all-to-all (own block included), the whole vector of
all-reduce, broadcast and reduce, and one message of a send.
Bounds: never less than the wire time of the narrowest tier at the candidate's bandwidth; monotone in S.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.network.library_curves import curve_of
from foretell.network.library_records import (
    KINDS,
    Kind,
    Library,
    PlacedGroups,
)
from foretell.network.library_shapes import measure
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.system import Network, Tier


def prepare(
    library: Library,
    network: Network | Sequence[Tier],
    counts: Array,
    kinds: Sequence[Kind] = KINDS,
) -> PlacedGroups:
    """Groups whose members are placed as `counts` (tiers, groups) says, for the kinds to be asked for."""
    tiers = network.tiers if isinstance(network, Network) else tuple(network)
    shape = measure(library, tiers, np.asarray(counts, float))
    return PlacedGroups(
        members=shape.members,
        curves={kind: curve_of(kind, library, shape) for kind in kinds},
        hop_weight=shape.hop_weight,
    )


def seconds(kind: Kind, size_bytes: Num, prepared: PlacedGroups) -> Array:
    """Seconds of one collective; sizes may have axes before the groups'. A group of one is free."""
    times, size = _candidates(kind, size_bytes, prepared)
    least = times.min(axis=-2) if kind != "send" else _chain(times, prepared)
    return np.asarray(least * ((size > 0.0) & (prepared.members > 1.0)))


def choice(kind: Kind, size_bytes: Num, prepared: PlacedGroups) -> NDArray[np.str_]:
    """Name of the candidate that `seconds` takes; for a send, of the hop on the outermost tier."""
    times, _ = _candidates(kind, size_bytes, prepared)
    names: NDArray[np.str_] = np.array(prepared.curves[kind].names)
    chosen: NDArray[np.str_] = names[np.argmin(times, axis=-2)]
    return chosen


def candidates(kind: Kind, size_bytes: Num, prepared: PlacedGroups) -> Mapping[str, Array]:
    """Seconds of every candidate by name; inf where it is not offered."""
    times, _ = _candidates(kind, size_bytes, prepared)
    return {name: times[..., i, :] for i, name in enumerate(prepared.curves[kind].names)}


def empty_s(kind: Kind, library: Library, prepared: PlacedGroups) -> Array:
    """Seconds of a call with nothing to send: a return, or an empty kernel that still meets its peers."""
    flat = np.full_like(prepared.members, library.empty_call_s)
    if kind != "all-to-all":
        return flat
    peer = library.between.empty_peer_s if library.between else library.inside.peer_step_s
    return np.asarray(library.inside.base_s[0] + peer * (prepared.members - 1.0))


def _candidates(kind: Kind, size_bytes: Num, prepared: PlacedGroups) -> tuple[Array, Array]:
    """Times (..., candidates, groups), and the sizes (..., groups)."""
    curve = prepared.curves[kind]
    size = np.asarray(size_bytes, float)
    tall = size[..., None, :] if size.ndim else size
    latency = curve.latency_s + np.minimum(tall * curve.chunk_s_per_byte, curve.chunk_limit_s)
    wire = tall * curve.wire_s_per_byte
    if curve.ramp_s_per_root_byte is not None:
        wire += np.sqrt(tall) * curve.ramp_s_per_root_byte
    times = np.maximum(latency, wire)
    times += curve.overlap * np.minimum(latency, wire)
    times += curve.base_s
    if curve.largest_bytes is not None:
        times = np.where(tall <= curve.largest_bytes, times, np.inf)
    return times, size


def _chain(times: Array, prepared: PlacedGroups) -> Array:
    """The mean hop of a chain: candidates come as LL and Simple of each tier in turn."""
    tiers = prepared.hop_weight.shape[0]
    by_tier = times.reshape(*times.shape[:-2], tiers, 2, times.shape[-1]).min(axis=-2)
    weighted: Array = (by_tier * prepared.hop_weight).sum(axis=-2)
    return weighted
