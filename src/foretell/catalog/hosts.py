"""The host of a system: its own, or the measured one of hosts.toml."""

from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, Table, read_table
from foretell.specs.host import Host
from foretell.specs.system import System

FILE = ROOT / "hosts.toml"
"""Seconds of the measured machine, with their sources."""


def values_of(table: Table) -> dict[str, Any]:
    """The values of a table whose entries have a source and a sentence."""
    return {name: raw["value"] if isinstance(raw, dict) else raw for name, raw in table.items()}


@lru_cache(maxsize=1)
def usual_host() -> Host:
    """The host of a machine of which nothing is stated."""
    return Host(**values_of(read_table(FILE)["host"]))


def host_of(system: System) -> Host:
    """The host of a system."""
    return system.host or usual_host()
