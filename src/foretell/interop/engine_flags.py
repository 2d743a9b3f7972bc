"""Flags of serving engines that no reader turns into words of a plan: those that bear on an answer, and those
that do not (engine_flags.toml)."""

import tomllib
from functools import cache
from importlib import resources

from foretell.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFlags:
    """Flags of one engine beyond those that are read."""

    bears: frozenset[str]
    """Flags that move latency, throughput or memory and are not modelled."""
    quiet: frozenset[str]
    """Flags that move none of them."""
    source: str
    """Releases and files that they were read from."""


@cache
def other_flags(tool: str) -> OtherFlags:
    """The flags of an engine that its reader leaves."""
    text = resources.files("foretell.interop").joinpath("engine_flags.toml").read_text("utf-8")
    table = tomllib.loads(text)[tool]
    return OtherFlags(
        bears=frozenset(table["bears"].split()),
        quiet=frozenset(table["quiet"].split()),
        source=table["source"],
    )
