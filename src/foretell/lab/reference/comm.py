"""Seconds of one communication on two flat tiers (ring algorithms, as published).

V is the full buffer, g the group, t of its members in each fast domain, nodes = floor(g/t);
c = (g-1)/g for ring collectives and 1 for broadcast and reduce.
"""

from typing import Literal

import numpy as np

from foretell.lab.reference.records import WIRED_DOMAIN, Floats, Ints, Quirks, StudyChip
from foretell.records import dataclass

Kind = Literal["all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce"]
"""Collectives of the model; broadcast and reduce are SUMMA's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLinks:
    """The two tiers as collectives see them: effective rates and latencies."""

    fast_bytes_per_s: float
    """NVLink rate of one GPU after the link efficiency."""
    slow_bytes_per_s: float
    """InfiniBand rate of one GPU after the link efficiency."""
    fast_latency_s: float
    """Latency of one hop inside the domain."""
    slow_latency_s: float
    """Latency of one hop between domains."""
    nics_per_gpu: float
    """NICs that each member of a mixed group brings."""
    fast_domain: int
    """GPUs of one fast domain."""
    quirks: Quirks
    """Which published quirks hold; (3) and (6) concern links."""


def links_of(chip: StudyChip, fast_domain: int, quirks: Quirks) -> TierLinks:
    """The chip's tiers with the link efficiency applied to both."""
    return TierLinks(
        fast_bytes_per_s=chip.fast_bytes_per_s * chip.link_efficiency,
        slow_bytes_per_s=chip.slow_bytes_per_s * chip.link_efficiency,
        fast_latency_s=chip.fast_latency_s,
        slow_latency_s=chip.slow_latency_s,
        nics_per_gpu=chip.nics_per_gpu,
        fast_domain=fast_domain,
        quirks=quirks,
    )


def collective_s(
    links: TierLinks, kind: Kind, volume_bytes: Floats, group: Ints, in_domain: Ints
) -> Floats:
    """Seconds of a collective; zero for a group of one or no volume.

    t = 1: slow latency (g-1) + cV/slow. nodes = 1: fast latency (g-1) + cV/fast. Mixed: F max(cV/(t
    nics slow), cV/fast) + slow latency (nodes-1) + fast latency (g-nodes): t rings run side by
    side, each with its own NIC. F = 2 for all-reduce, which the published code forgets within one
    tier (quirk 3). Bound: never below cV divided by the faster of the rates used.
    """
    nodes = group // in_domain
    moved = volume_bytes * ((group - 1) / group) if kind in _RING else volume_bytes
    factor = 2.0 if kind == "all_reduce" else 1.0
    single = 1.0 if links.quirks.single_tier_all_reduce else factor
    fast_rate = _fast_rate(links, in_domain)
    slow = links.slow_latency_s * (group - 1) + single * moved / links.slow_bytes_per_s
    fast = links.fast_latency_s * (group - 1) + single * moved / fast_rate
    rings = links.nics_per_gpu * in_domain * links.slow_bytes_per_s
    mixed = (
        factor * np.maximum(moved / rings, moved / fast_rate)
        + links.slow_latency_s * (nodes - 1)
        + links.fast_latency_s * (group - nodes)
    )
    seconds = np.where(in_domain == 1, slow, np.where(nodes == 1, fast, mixed))
    return np.where((group == 1) | (volume_bytes == 0), 0.0, seconds)


def stage_hop_s(links: TierLinks, volume_bytes: Floats, stages: Ints, in_domain: Ints) -> Floats:
    """Mean seconds of one hop between neighbouring stages, `in_domain` stages to a fast domain.

    One stage to a domain: a slow hop. Otherwise slow = pp/s - 1 hops of pp - 1 cross domains, which
    the published code charges nothing for (quirk 2), and the rest are fast.
    """
    slow_hop = links.slow_latency_s + volume_bytes / links.slow_bytes_per_s
    pair = np.minimum(in_domain, 2)
    fast_hop = links.fast_latency_s + volume_bytes / _fast_rate(links, pair)
    hops = np.maximum(stages - 1, 1)
    slow_hops = stages // in_domain - 1
    mean = (stages - 1 - slow_hops) / hops * fast_hop
    if not links.quirks.free_slow_p2p:
        mean = mean + slow_hops / hops * slow_hop
    seconds = np.where(in_domain == 1, slow_hop, mean)
    return np.where((stages == 1) | (volume_bytes == 0), 0.0, seconds)


_RING: frozenset[Kind] = frozenset(("all_gather", "reduce_scatter", "all_reduce"))


def _fast_rate(links: TierLinks, in_domain: Ints) -> Floats:
    """NVLink rate of one member among `in_domain` of them; constant as published (quirk 6)."""
    if links.quirks.constant_nvlink or links.fast_domain > WIRED_DOMAIN:
        return np.full(in_domain.shape, links.fast_bytes_per_s)
    wired = np.maximum(in_domain - 1, 1) / max(links.fast_domain - 1, 1)
    return links.fast_bytes_per_s * np.minimum(wired, 1.0)
