"""Where a measured collective ran: the network, link and fabric that its row names or implies."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.names import exists
from foretell.catalog.systems import named_system
from foretell.lab.calibrate.collectives_rows import CollectiveRow
from foretell.network.library import empty_s, prepare, seconds
from foretell.network.library_catalog import (
    DEFAULT_FABRIC,
    Fabric,
    custom_kernels,
    empty_call_s,
    fabric_named,
    fabric_of,
    fabrics,
    inner_tiers,
    inside_link,
    links_by_chip,
    transport_named,
)
from foretell.network.library_records import BetweenNodes, Custom, InsideNode, Kind, Library
from foretell.records import dataclass
from foretell.specs.system import System, Tier

PORTS = {
    "xdr": 100e9,
    "ndr200": 25e9,
    "ndr": 50e9,
    "hdr100": 12.5e9,
    "hdr": 25e9,
    "edr": 12.5e9,
    "fdr": 6.8e9,
    "slingshot-11": 25e9,
    "slingshot-10": 12.5e9,
}
"""Bytes/s of one port, one direction, by the words that name it (nominal rates of the standards)."""
CHIP_BY_PORT = {
    "xdr": "b200-sxm",
    "ndr": "h100-sxm",
    "hdr": "a100-sxm-80gb",
    "edr": "v100-sxm-32gb",
}
"""Chip of a system of which only the fabric is known: what was sold with it."""
CHIP_WORDS = ("gb300", "gb200", "b300", "b200", "gh200", "h200", "h100", "h800", "h20", "a100", "v100",
              "mi355x", "mi325x", "mi300x", "mi250x", "l40s", "l4", "a10g")  # fmt: skip
"""Chip names that a system's name may hold, the longest spellings first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What the rows of one installation share."""

    tiers: tuple[Tier, ...]
    """The network's tiers."""
    inner: int
    """How many of them lie inside a node."""
    link: str
    """Link generation inside the node."""
    fabric: str
    """Fabric between nodes; empty where rows stay inside one."""
    transport: str
    """Its transport."""
    version: str
    """Library version."""
    custom: bool
    """Whether the serving engine's own all-reduce is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Coefficients by link and by fabric/transport."""

    inside: Mapping[str, InsideNode]
    """By link generation."""
    custom: Mapping[str, Custom]
    """By link generation."""
    between: Mapping[str, BetweenNodes]
    """By `fabric/transport`."""
    hop_factor: Mapping[str, Mapping[str, float]]
    """Fabric -> library version -> factor on the tree's Simple hop."""


@lru_cache(maxsize=1)
def catalogue_coefficients() -> Coefficients:
    """What the catalogue holds."""
    links = sorted(set(links_by_chip().values()))
    own = {link: custom_kernels(link) for link in links}
    return Coefficients(
        inside={link: inside_link(link) for link in links},
        custom={link: kernels for link, kernels in own.items() if kernels is not None},
        between={
            f"{fabric.id}/{name}": coefficients
            for fabric in fabrics().values()
            for name, coefficients in fabric.transports.items()
        },
        hop_factor={fabric.id: fabric.hop_factor for fabric in fabrics().values()},
    )


def site_of(row: CollectiveRow) -> Installation | str:
    """The row's site, or why it is unknown."""
    if row.problem:
        return row.problem
    key = (row.system, row.chip, row.fabric, row.software, row.version, row.env_setup, row.per_node)
    return _site(*key, row.nodes > 1)


@lru_cache(maxsize=512)
def _site(
    system: str,
    chip: str,
    fabric: str,
    software: str,
    version: str,
    setup: str,
    size: int,
    far: bool,
) -> Installation | str:
    if far and not fabric and not system:
        return "the table does not say what joins the nodes"
    wanted = fabric_named(fabric) if fabric else None
    known = _catalogue_system(system, wanted)
    if known is not None and not chip:
        home, mesh = known, wanted or fabric_of(known.id)
        tiers = home.network.tiers
        if mesh is not fabric_of(known.id):  # the same nodes on another fabric
            tiers = _outer(tiers, _port_rate(fabric, size, tiers))
    else:
        name = chip or _guessed_chip(system, fabric)
        if not exists(name):
            return f"the chip {name!r} is not in the catalogue"
        mesh = wanted or fabrics()[DEFAULT_FABRIC]
        home = _on_fabric(named_system(name), mesh)
        tiers = home.network.tiers
        if fabric:
            tiers = _outer(tiers, _port_rate(fabric, size, tiers))
    link = links_by_chip().get(home.chip.id)
    if link is None:
        return f"no collective library is known for the chip {home.chip.id}"
    inner = inner_tiers(tuple(tier.name for tier in tiers))
    room = prod(float(tier.size) for tier in tiers[:inner])
    if not chip and known is None:
        room = max(room, size)
    if size > room:
        return f"{size} members do not fit the node of {home.id}, which holds {room:g}"
    return Installation(
        tiers=tiers,
        inner=inner,
        link=link,
        fabric=mesh.id,
        transport=transport_named(mesh, system, setup, version),
        version=version,
        custom=software.startswith("trtllm"),
    )


def _catalogue_system(name: str, fabric: Fabric | None) -> System | None:
    """The catalogue's system of a name, that on the fabric where there are several; None: not there."""
    if not name:
        return None
    if fabric is not None:
        for other in fabric.systems:
            if other.startswith(name) and other != name and not exists(name + "-80gb"):
                return named_system(other)
    return named_system(name) if exists(name) else None


def _on_fabric(home: System, fabric: Fabric) -> System:
    """The catalogue's system of a chip on a fabric that only some systems have; its reference system where
    none of them has the chip."""
    there = (named_system(name) for name in fabric.systems)
    return next((one for one in there if one.chip.id == home.chip.id), home)


def _guessed_chip(system: str, fabric: str) -> str:
    """The chip of an unknown system: in its name, or what was sold with its fabric."""
    text = f"{system} {fabric}".lower()
    for word in CHIP_WORDS:
        if word in text:
            return word
    for word, chip in CHIP_BY_PORT.items():
        if word in text:
            return chip
    return "a100-sxm-40gb" if "slingshot" in text else "h100-sxm"


def _port_rate(fabric: str, per_node: int, tiers: tuple[Tier, ...]) -> float:
    """Bytes/s of one member between nodes: what the text says, or the reference system's."""
    text = re.sub(r"[\s_]+", "-", fabric.lower())
    count = re.search(r"(\d+)-?x-?", text)
    said = re.search(r"(\d+(?:\.\d+)?)-?(?:gb(?:it|ps|e)?|g)\b(?!/s)", text)
    rate = next((rate for word, rate in PORTS.items() if word in text), 0.0)
    if said:
        rate = float(said[1]) / 8.0 * 1e9
    if not rate:
        return float(tiers[-1].bandwidth_bytes_per_s)
    return rate * (int(count[1]) / per_node if count else 1.0)


def _outer(tiers: tuple[Tier, ...], rate: float) -> tuple[Tier, ...]:
    """The tiers with another rate between nodes."""
    inner = inner_tiers(tuple(tier.name for tier in tiers))
    far = tuple(replace(tier, bandwidth_bytes_per_s=rate) for tier in tiers[inner:])
    return (*tiers[:inner], *far)


def library_at(site: Installation, coefficients: Coefficients, spans: bool) -> Library:
    """The library of a site under some coefficients."""
    between = None
    if spans:
        between = coefficients.between[f"{site.fabric}/{site.transport}"]
        short = ".".join(site.version.split(".")[:2])
        factor = coefficients.hop_factor.get(site.fabric, {}).get(short, 1.0)
        low, middle, simple = between.hop_s
        between = replace(between, hop_s=(low, middle, simple * factor))
    return Library(
        id=f"nccl-{site.version}",
        inner_tiers=site.inner,
        inside=coefficients.inside[site.link],
        between=between,
        empty_call_s=empty_call_s(site.version),
        custom=coefficients.custom.get(site.link) if site.custom else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRows:
    """Rows of one site and kind, as arrays."""

    site: Installation
    """The site."""
    kind: Kind
    """The collective."""
    index: NDArray[np.int64]
    """Places of the rows in the list they came from."""
    counts: NDArray[np.float64]
    """(tiers, rows): members per tier."""
    size_bytes: NDArray[np.float64]
    """Message sizes."""
    measured_s: NDArray[np.float64]
    """Seconds measured."""
    spans: bool
    """Whether any row leaves its node."""


def batches(rows: Iterable[tuple[int, CollectiveRow, Installation]]) -> list[SiteRows]:
    """Rows put together by site and kind."""
    groups: dict[tuple[Installation, Kind, bool], list[tuple[int, CollectiveRow]]] = {}
    for place, row, site in rows:
        assert row.kind is not None
        groups.setdefault((site, row.kind, row.nodes > 1), []).append((place, row))
    return [
        SiteRows(
            site=site,
            kind=kind,
            index=np.array([place for place, _ in group]),
            counts=np.array([_counts(row, site, spans) for _, row in group]).T,
            size_bytes=np.array([row.size_bytes for _, row in group]),
            measured_s=np.array([row.measured_s for _, row in group]),
            spans=spans,
        )
        for (site, kind, spans), group in groups.items()
    ]


def _counts(row: CollectiveRow, site: Installation, spans: bool) -> list[float]:
    """Members per tier: each tier filled before the next; the last takes what is left."""
    found: list[float] = []
    for first, last, left in (
        (0, site.inner, row.per_node),
        (site.inner, len(site.tiers), row.nodes),
    ):
        rest = float(left)
        for tier in site.tiers[first:last]:
            here = min(rest, float(tier.size))
            found.append(here)
            rest = rest / here
        if last > first:
            found[last - 1] *= rest
    return found if spans else found[: site.inner]


def predict(batch: SiteRows, coefficients: Coefficients) -> NDArray[np.float64]:
    """Seconds of a batch's rows; of rows with nothing to send, the latency of the call."""
    library = library_at(batch.site, coefficients, batch.spans)
    tiers = batch.site.tiers if batch.spans else batch.site.tiers[: batch.site.inner]
    prepared = prepare(library, tiers, batch.counts, (batch.kind,))
    times = seconds(batch.kind, batch.size_bytes, prepared)
    if not np.any(batch.size_bytes == 0.0):
        return times
    return np.where(batch.size_bytes > 0.0, times, empty_s(batch.kind, library, prepared))
