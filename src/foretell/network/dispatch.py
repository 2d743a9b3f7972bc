"""Dispatch and combine of mixtures of experts by families of kernels: tokens go to where their experts are.

A token's row is sent once to each of its experts (`expert`: low-latency kernels), once to each rank that has
one of them (`rank`: kernels inside a domain of fast links), or once to each node that has (`node`: it crosses
the slower links once, and is handed on inside the node). With T tokens on a rank, k experts a token, N ranks
in domains of n, Z = N / n of them, and rows falling on experts alike, copies of a row that leave the rank are

    expert   near k (n - 1) / N                          far k (N - n) / N
    rank     near d(N) (n - 1) / N                       far d(N) (N - n) / N
    node     near d(N) (n - 1) / n, handed on inside     far d(min(Z, limit)) (Z - 1) / Z

with d(P) = P (1 - (1 - 1/P)^k) distinct places of P, or min(P, k) where experts are dealt out in turn, as
some benchmarks do. One direction of an exchange takes

    t = launch + hop log2 N + far_hop (1 + log2 Z) [Z > 1] + expert E + row (bytes of a row)
        + (near^4 + far^4 + cores^4 + lanes^4)^(1/4)

with near and far bytes over shares of the links' rates, cores what the chip's units that the kernel occupies
can move, and lanes what as many receivers as there are experts can. Kernels that must agree on numbers of
tokens first take `notify` more for each doubling of the domains (exchange_seconds).
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array

FILE = ROOT / "dispatch.toml"
"""Coefficients of every family of kernels."""
JOINED = 4.0
"""Power of the norm that joins what runs side by side: the longest shows, nearly alone."""
ROW_BYTES: dict[str, float] = {
    "bf16": 2.0, "fp16": 2.0, "fp8": 1.0 + 4.0 / 128.0, "nvfp4": 0.5625, "mxfp4": 0.53125,
}  # fmt: skip
"""Bytes of one element of a row with its share of the scales."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPass:
    """Coefficients of one direction, as one family of kernels has it."""

    launch_s: float = 1.2e-5
    """Seconds with next to nothing to do."""
    hop_s: float = 0.0
    """Seconds for each doubling of the ranks."""
    far_hop_s: float = 8e-6
    """Seconds of leaving a domain, and again for each doubling of the domains."""
    expert_s: float = 0.0
    """Seconds for each expert: flags and counters that are looked at one by one."""
    row_s_per_byte: float = 0.0
    """Seconds for each byte of one row: a row passes one warp before the next begins."""
    near_share: float = 0.6
    """Share of the fast links' rate that is reached."""
    far_share: float = 0.9
    """Share of the rate between domains that is reached."""
    notify_s: float = 0.0
    """Seconds of agreeing on numbers of tokens, for each doubling of the domains; not part of a pass."""
    core_bytes_per_s: float = 0.0
    """What one of the chip's cores moves; 0: cores do not limit."""
    lane_bytes_per_s: float = 0.0
    """What the receiver of one expert moves; 0: receivers do not limit."""
    post_s: float = 0.0
    """Seconds of each row that leaves a domain, where a proxy posts one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchKernels:
    """A family of kernels: what it sends, and its two directions."""

    id: str
    """Its name."""
    unit: str
    """expert, rank or node: to how many places a token's row is sent."""
    dispatch: DispatchPass
    """Rows to the experts."""
    combine: DispatchPass
    """Their sums back."""
    prepare_s: float = 0.0
    """Seconds of sorting and counting before a dispatch, as a kernel of its own."""
    cores: float = 0.0
    """Cores of the chip that the kernels occupy by default; 0: none that anything else could use."""
    near_used: bool = True
    """Whether ranks of a domain are reached by its fast links; else by those between domains."""
    graph: bool = True
    """Whether a graph can hold it; else the host waits for the numbers of tokens."""
    combine_dtype: str = "bf16"
    """Format of the rows that come back."""
    source: str = ""
    """What the numbers were read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLoad:
    """What is exchanged, and where; numbers or arrays that broadcast."""

    tokens: Num
    """Tokens of one rank."""
    hidden: Num
    """Elements of a row."""
    row_bytes: Num
    """Bytes of an element, scales included."""
    top_k: Num
    """Experts of a token."""
    experts: Num
    """Experts of all ranks."""
    ranks: Num
    """Ranks that share the experts."""
    domain: Num
    """Ranks that one domain of fast links holds."""
    near_bytes_per_s: Num
    """Rate of one rank into the domain, one way."""
    far_bytes_per_s: Num
    """Rate of one rank between domains, one way."""
    limit: Num = np.inf
    """Domains that a token goes to at most (routing limited to groups)."""
    dealt: Num = 0.0
    """1: experts are dealt out in turn; 0: they are drawn."""
    cores: Num = 0.0
    """Cores that the kernels occupy; 0: their default."""


def pass_seconds(kernels: DispatchKernels, one: DispatchPass, load: DispatchLoad) -> Array:
    """Seconds of one direction."""
    near, far = copies_of(kernels, load)
    tokens, bytes_each = np.asarray(load.tokens, float), np.asarray(load.row_bytes) * load.hidden
    sent = tokens * bytes_each
    wires = [
        sent * near / (one.near_share * np.asarray(load.near_bytes_per_s)),
        sent * far / (one.far_share * np.asarray(load.far_bytes_per_s)),
    ]
    if one.post_s:
        wires.append(tokens * far * one.post_s)
    if one.core_bytes_per_s and kernels.cores:
        cores = np.where(np.asarray(load.cores) > 0.0, load.cores, kernels.cores)
        wires.append(sent * (near + far) / (one.core_bytes_per_s * cores))
    if one.lane_bytes_per_s:
        wires.append(sent * load.top_k / (one.lane_bytes_per_s * np.asarray(load.experts)))
    wire = np.asarray(sum(np.asarray(w, float) ** JOINED for w in wires)) ** (1.0 / JOINED)
    domains = np.maximum(np.asarray(load.ranks) / np.asarray(load.domain), 1.0)
    fixed = (
        one.launch_s
        + one.hop_s * np.log2(load.ranks)
        + one.far_hop_s * np.where(domains > 1.0, 1.0 + np.log2(domains), 0.0)
        + one.expert_s * np.asarray(load.experts)
        + one.row_s_per_byte * bytes_each
    )
    return np.asarray(np.where(tokens > 0.0, fixed * np.minimum(tokens, 1.0) + wire, 0.0))


def exchange_seconds(kernels: DispatchKernels, load: DispatchLoad) -> Array:
    """Seconds of a dispatch and its combine, with what agreeing on numbers of tokens takes."""
    back = replace(load, row_bytes=ROW_BYTES[kernels.combine_dtype])
    domains = np.maximum(np.asarray(load.ranks) / np.asarray(load.domain), 1.0)
    agreed = (kernels.dispatch.notify_s + kernels.combine.notify_s) * np.log2(domains)
    agreed = agreed + kernels.prepare_s
    some = np.minimum(np.asarray(load.tokens, float), 1.0)
    return np.asarray(
        pass_seconds(kernels, kernels.dispatch, load)
        + pass_seconds(kernels, kernels.combine, back)
        + agreed * some
    )


def copies_of(kernels: DispatchKernels, load: DispatchLoad) -> tuple[Array, Array]:
    """Copies of one row that leave the rank: on fast links, and between domains."""
    ranks = np.asarray(load.ranks, float)
    near = np.minimum(np.asarray(load.domain, float), ranks)
    domains = np.maximum(ranks / near, 1.0)
    if not kernels.near_used:
        whole = distinct(kernels.unit, ranks, load)
        return np.zeros_like(whole), np.asarray(whole * (ranks - 1.0) / ranks)
    if kernels.unit == "node":
        handed = distinct("rank", ranks, load) * (near - 1.0) / near
        places = np.minimum(domains, np.asarray(load.limit, float))
        far = distinct("rank", places, load) * (domains - 1.0) / domains
        return np.asarray(handed), np.asarray(far)
    whole = distinct(kernels.unit, ranks, load)
    return np.asarray(whole * (near - 1.0) / ranks), np.asarray(whole * (ranks - near) / ranks)


def distinct(unit: str, places: Num, load: DispatchLoad) -> Array:
    """Copies of a row: one for each expert, or for each place that has any of its experts."""
    k, places = np.asarray(load.top_k, float), np.asarray(places, float)
    if unit == "expert":
        return np.asarray(k + 0.0 * places)
    drawn = places * (1.0 - (1.0 - 1.0 / places) ** k)
    return np.asarray(np.where(np.asarray(load.dealt) > 0.0, np.minimum(places, k), drawn))


@lru_cache(maxsize=1)
def dispatch_kernels() -> dict[str, DispatchKernels]:
    """Every family of the catalogue by its name."""
    return {entry["id"]: kernels_from(entry) for entry in read_table(FILE)["kernels"]}


POST_S = 7.2e-7
"""Seconds in which a proxy on the host posts one row. pplx-kernels through the host (README of 2025-08-06)
takes as long for a row in fp8 as for one of twice the bytes: 7,392 at 9.2 GB/s, 14,336 at 18.4 GB/s, 0.79 us.
Steps of mixtures over EFA show 0.62 under UCCL-EP and 0.74 under NVSHMEM, for rows of 8 and of 14 kB."""


def posted_by_host(kernels: DispatchKernels) -> DispatchKernels:
    """The same kernels where a proxy on the host posts each row that leaves a domain, as pplx-kernels'."""
    proxy = dispatch_kernels()["pplx-proxy"]

    def posted(own: DispatchPass, other: DispatchPass) -> DispatchPass:
        return replace(own, far_hop_s=other.far_hop_s, post_s=POST_S)

    return replace(
        kernels,
        dispatch=posted(kernels.dispatch, proxy.dispatch),
        combine=posted(kernels.combine, proxy.combine),
    )


def kernels_from(table: dict[str, object]) -> DispatchKernels:
    """A family from its `[[kernels]]` table."""
    values = {name: value for name, value in table.items() if name != "fit"}
    for name in ("dispatch", "combine"):
        values[name] = DispatchPass(**values[name])  # type: ignore[arg-type]
    return DispatchKernels(**values)  # type: ignore[arg-type]
