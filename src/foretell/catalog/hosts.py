"""What a step runs with beside its software: hosts (hosts.toml), and optimizers by their word in a plan."""

from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, Table, read_table
from foretell.specs.software import Host, Optimizer
from foretell.specs.system import System

HOSTS_FILE = ROOT / "hosts.toml"
"""Seconds of the measured machine, with their sources."""
OPTIMIZERS_FILE = ROOT / "optimizers.toml"
"""What each keeps and does, with sources."""


def values_of(table: Table) -> dict[str, Any]:
    """The values of a table whose entries have a source and a sentence."""
    return {name: raw["value"] if isinstance(raw, dict) else raw for name, raw in table.items()}


@lru_cache(maxsize=1)
def usual_host() -> Host:
    """The host of a machine of which nothing is stated."""
    return Host(**values_of(read_table(HOSTS_FILE)["host"]))


def host_of(system: System) -> Host:
    """The host of a system."""
    return system.host or usual_host()


@lru_cache(maxsize=1)
def optimizers() -> dict[str, Optimizer]:
    """Every optimizer by its word."""
    return {
        raw["id"]: Optimizer(**values_of(raw)) for raw in read_table(OPTIMIZERS_FILE)["optimizer"]
    }


def optimizer_of(word: str) -> Optimizer:
    """The optimizer of a plan's word."""
    return optimizers()[word]
