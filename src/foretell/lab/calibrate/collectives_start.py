"""Where the fit of collectives starts, and what of it is free: the records of collectives_start.toml.

A link or fabric without rows keeps its start, and the weak prior is centred on it, so what is left out of a
fit is not wholly unseen by it.
"""

from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from foretell.interop.package_tables import packaged_table
from foretell.network.library_records import BetweenNodes, Custom, InsideNode
from foretell.records import dataclass

Record = TypeVar("Record")


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
    shares: tuple[float, ...] = ()
    """Of a field with several numbers, all of them as shares of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricRules:
    """What a fit does with a fabric's coefficients."""

    all: frozenset[str] = frozenset()
    """Shared by all its transports."""
    family: frozenset[str] = frozenset()
    """Shared by a family of them."""
    held: frozenset[str] = frozenset()
    """Not fitted."""
    scale_from: str = ""
    """The transport of which logs of 128 nodes tell what two nodes do not: it is NCCL's, not the fabric's."""
    kin: str = ""
    """The fabric whose fitted coefficients its own fit starts from: both are verbs to NCCL."""
    versions: tuple[str, ...] = ()
    """Library versions whose trees take another chunk."""


def _as_record(value: Any) -> Any:
    """A list of the file as the tuple of a record."""
    return tuple(value) if isinstance(value, list) else value


def _rows(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The fields of an entry, those of the one that it is like among them."""
    own = {key: _as_record(value) for key, value in table[name].items() if key != "like"}
    like = table[name].get("like")
    return own if like is None else {**_rows(table, like), **own}


def _records(kind: str, make: Callable[..., Record], *, named: bool) -> Mapping[str, Record]:
    """The records of a kind by name; `named`: they have their name as a field."""
    table = _TABLE[kind]
    return {n: make(**({"id": n} if named else {}), **_rows(table, n)) for n in sorted(table)}


def _free(kind: str) -> tuple[FreeCoefficient, ...]:
    """The free coefficients of a kind of record."""
    rows = _TABLE["free"][kind]
    return tuple(
        FreeCoefficient(**{key: _as_record(value) for key, value in row.items()}) for row in rows
    )


def _rules(row: Mapping[str, str]) -> FabricRules:
    """The rules of a fabric; lists of names are words."""
    words: dict[str, Any] = {key: frozenset(row.get(key, "").split()) for key in FABRIC_SETS}
    words["versions"] = tuple(row.get("versions", "").split())
    return FabricRules(**{**row, **words})


FABRIC_SETS = ("all", "family", "held")
_TABLE = packaged_table(Path(__file__).with_suffix(".toml"))
INSIDE_START = _records("inside", InsideNode, named=True)
CUSTOM_START = _records("custom", Custom, named=False)
TRANSPORT_START = _records("between", BetweenNodes, named=True)
INSIDE_FREE, CUSTOM_FREE, BETWEEN_FREE = map(_free, ("inside", "custom", "between"))
IN_NETWORK_HELD = ("nvlink5",)
"""Links whose reduction in the switches is not fitted: tables end at 512 MiB, where it begins to win. Logs in
print have 482 GB/s of 900 on eight B200 (16 GiB) and 425 on 72 GB200 (4 GiB)."""
FAMILIES = {
    "ofi": "ofi",
    "ofi-tuned": "ofi",
    "ofi-rendezvous": "ofi",
    "sockets": "sockets",
    "sockets-both": "sockets",
}
"""Transport -> the family that it shares some coefficients with."""
FABRICS = {name: _rules(row) for name, row in _TABLE["fabric"].items()}
"""Fabric -> what a fit does with its coefficients."""
