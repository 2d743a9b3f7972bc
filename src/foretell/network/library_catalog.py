"""Which coefficients a system's collectives run with: from the files of catalog/fabrics to a library.

A file of kind `inside` holds a link generation and the chips it joins; one of kind `between` a fabric, the
systems on it and its transports (what the library sends through: verbs, a libfabric plug-in, sockets);
one of kind `library` what belongs to a library alone. Coefficients never belong to a run or a source.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from functools import lru_cache
from math import log2, prod
from typing import Any

from foretell.catalog.files import ROOT, Table, read_table
from foretell.errors import bad_input, nearest_name
from foretell.network.library_records import (
    BetweenNodes,
    CollNet,
    Custom,
    InsideNode,
    Library,
    Pat,
)
from foretell.network.placement import INNER_TIERS
from foretell.records import dataclass
from foretell.specs._base import release_numbers
from foretell.specs.result import Evidence
from foretell.specs.system import System

DEFAULT_FABRIC = "infiniband"
"""Between nodes of which nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A run's set-up as logs name it, and the transport it means."""

    systems: tuple[str, ...]
    """Systems whose logs name it so."""
    env_setup: tuple[str, ...]
    """Names in the logs."""
    versions: tuple[str, ...]
    """Library versions; empty: all."""
    transport: str
    """The transport."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A fabric with its transports."""

    id: str
    """Its name."""
    words: tuple[str, ...]
    """What texts call it, lower case."""
    systems: tuple[str, ...]
    """Systems of the catalogue that have it."""
    default_transport: str
    """The transport of a tuned installation."""
    transports: Mapping[str, BetweenNodes]
    """Coefficients by transport."""
    hop_factor: Mapping[str, float]
    """Library version -> factor on the tree's Simple hop: its choice of chunk."""
    setups: tuple[Setup, ...]
    """Names of set-ups in logs."""
    most_nodes: float = 2.0
    """Nodes of the largest runs that its coefficients were held to: logs of collectives, or training."""
    gpu_initiated: bool = True
    """Whether kernels post messages themselves (NVSHMEM's IBGDA); else a proxy on the host does."""


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Table]:
    """Every file of catalog/fabrics by id."""
    return {path.stem: read_table(path) for path in sorted((ROOT / "fabrics").glob("*.toml"))}


@lru_cache(maxsize=64)
def inside_link(link_id: str) -> InsideNode:
    """The coefficients of a link generation."""
    link: InsideNode = _record(InsideNode, {"id": link_id, **_tables()[link_id]["inside"]})
    return link


@lru_cache(maxsize=64)
def custom_kernels(link_id: str) -> Custom | None:
    """The coefficients of a serving engine's own all-reduce on a link generation, or None."""
    table = _tables()[link_id].get("custom")
    return None if table is None else _record(Custom, table)


@lru_cache(maxsize=1)
def links_by_chip() -> Mapping[str, str]:
    """Chip id -> link generation."""
    tables = _tables().items()
    return {chip: name for name, table in tables for chip in table.get("chips", ())}


@lru_cache(maxsize=1)
def fabrics() -> Mapping[str, Fabric]:
    """Every fabric by id."""
    return {
        name: _fabric(name, table)
        for name, table in _tables().items()
        if table["kind"] == "between"
    }


def fabric_named(text: str) -> Fabric | None:
    """The fabric that a text means, by the longest word of one in it; None where it means none."""
    plain = re.sub(r"[\s_]+", "-", text.strip().lower())
    found = [
        (len(word), name)
        for name, fabric in fabrics().items()
        for word in fabric.words
        if word in plain
    ]
    return fabrics()[max(found)[1]] if found else None


@lru_cache(maxsize=1)
def fabrics_by_system() -> Mapping[str, Fabric]:
    """System id -> fabric."""
    return {name: fabric for fabric in fabrics().values() for name in fabric.systems}


@lru_cache(maxsize=1024)
def fabric_of(system_id: str) -> Fabric:
    """The fabric of a system of the catalogue; of another the one that its id names, else the default."""
    known = fabrics_by_system().get(system_id)
    return known or fabric_named(system_id) or fabrics()[DEFAULT_FABRIC]


def inner_tiers(names: tuple[str, ...]) -> int:
    """How many tiers, from the innermost, lie inside a node: at least the first."""
    for i, name in enumerate(names):
        if name not in INNER_TIERS:
            return max(i, 1)
    return len(names)


def library_for(
    system: System,
    *,
    software: str = "",
    version: str = "",
    fabric: Fabric | None = None,
    transport: str = "",
) -> Library | None:
    """The library of a system's collectives; None for chips that run no such library (TPUs and the like).

    `software` is nccl, rccl or trtllm, by default what the chip runs, `version` its release, by default the
    system's; an unknown transport is BadInput.
    """
    tiers = system.network.tiers
    names = tuple(tier.name for tier in tiers)
    inner = inner_tiers(names)
    reduces = tuple(
        any(tier.in_network_reduction for tier in some) for some in (tiers[:inner], tiers[inner:])
    )
    mesh = fabric.id if fabric is not None else fabric_of(system.id).id
    release = version or system.nccl
    return _library(system.chip.id, names, reduces, mesh, software, release, transport)


@lru_cache(maxsize=256)
def _library(
    chip: str,
    names: tuple[str, ...],
    reduces: tuple[bool, ...],
    fabric: str,
    software: str,
    version: str,
    transport: str,
) -> Library | None:
    link = links_by_chip().get(chip)
    if link is None:
        return None
    inner = inner_tiers(names)
    between = None
    if inner < len(names):
        between = transport_of(fabrics()[fabric], transport, version)
    inside = inside_link(link)
    if not reduces[0]:
        inside = replace(inside, in_network_base_s=float("inf"))
    own = custom_kernels(link) if software.startswith("trtllm") else None
    label = software or _tables()[link].get("library", "nccl")
    return Library(
        id=f"{label}-{version}" if version else label,
        inner_tiers=inner,
        inside=inside,
        between=between,
        empty_call_s=empty_call_s(version),
        custom=own,
        pat=pat_of(label, version),
        collnet=_record(CollNet, _tables()["nccl"]["collnet"]) if reduces[1] else None,
    )


def pat_of(label: str, version: str) -> Pat | None:
    """Parallel aggregated trees of a library's release; None where it has none, or leaves them off."""
    table = _tables()["nccl"]["pat"]
    if label not in table["libraries"] or (
        version and release_numbers(version) < release_numbers(table["since"])
    ):
        return None
    found: Pat = _record(Pat, table)
    return found


def evidence_of(system: System) -> Evidence:
    """What the times of a system's collectives rest on: its link's and its fabric's fits, the weaker."""
    link = links_by_chip().get(system.chip.id)
    if link is None:
        return "datasheet"
    names = [link]
    if inner_tiers(tuple(tier.name for tier in system.network.tiers)) < len(system.network.tiers):
        names.append(fabric_of(system.id).id)
    measured = all(_tables()[name]["status"] == "measured" for name in names)
    return "fitted" if measured else "transferred"


def doublings_beyond(system: System, gpus: float) -> float:
    """How often the nodes of a job double those that the system's fabric was held to; 0 within them."""
    tiers = system.network.tiers
    inner = inner_tiers(tuple(tier.name for tier in tiers))
    if links_by_chip().get(system.chip.id) is None or inner >= len(tiers):
        return 0.0
    nodes = gpus / prod(float(tier.size) for tier in tiers[:inner])
    return max(log2(max(nodes, 1.0) / fabric_of(system.id).most_nodes), 0.0)


def transport_of(fabric: Fabric, transport: str = "", version: str = "") -> BetweenNodes:
    """The coefficients of a fabric's transport under a library version."""
    name = transport or fabric.default_transport
    if name not in fabric.transports:
        known = ", ".join(fabric.transports)
        near = nearest_name(name, fabric.transports)
        path = f"network.{fabric.id}.transport"
        raise bad_input(path, name, "is no transport of this fabric", known, near)
    between = fabric.transports[name]
    factor = fabric.hop_factor.get(".".join(version.split(".")[:2]), 1.0)
    low, middle, simple = between.hop_s
    return between if factor == 1.0 else replace(between, hop_s=(low, middle, simple * factor))


def transport_named(fabric: Fabric, system: str, env_setup: str, version: str) -> str:
    """The transport that a log's set-up means on a system; the fabric's default where none is stated."""
    for setup in fabric.setups:
        told = system in setup.systems and env_setup in setup.env_setup
        if told and (not setup.versions or version in setup.versions):
            return setup.transport
    return fabric.default_transport


def empty_call_s(version: str) -> float:
    """A collective of nothing: an empty kernel, or since some version nothing at all."""
    table = _tables()["nccl"]["empty_call_s"]
    key = ".".join(version.split(".")[:2])
    return float(table.get(key, table["default"]))


def _fabric(name: str, table: Table) -> Fabric:
    topology = {"topology": table["topology"]} if "topology" in table else {}
    setups = tuple(
        Setup(
            systems=tuple(setup["systems"]),
            env_setup=tuple(setup["env_setup"]),
            versions=tuple(setup.get("versions", ())),
            transport=setup["transport"],
        )
        for setup in table.get("setup", ())
    )
    return Fabric(
        id=name,
        words=tuple(table["words"]),
        systems=tuple(table.get("systems", ())),
        default_transport=table["default_transport"],
        transports={
            key: _record(BetweenNodes, {"id": f"{name}/{key}", **topology, **values})
            for key, values in table["transports"].items()
        },
        hop_factor=table.get("hop_factor", {}),
        setups=setups,
        most_nodes=float(table.get("most_nodes", 2.0)),
        gpu_initiated=bool(table.get("gpu_initiated", True)),
    )


def _record(record: type[Any], table: Mapping[str, Any]) -> Any:
    """A record of coefficients from its table; other keys, such as the fit's figures, are left."""
    values = {}
    for field in fields(record):
        if field.name not in table and field.default is not MISSING:
            continue
        value = table.get(field.name)
        values[field.name] = tuple(map(float, value)) if isinstance(value, list) else value
    return record(**values)
