"""Flags of serving engines that no reader turns into words of a plan: those that bear on an answer, and those
that do not (interop/tools)."""

from functools import cache

from foretell.interop.tool_tables import table_of
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


TABLES = ("_config", "_kwargs", "cc", "sc", "ac", "dc")
"""Ends of flags that are tables: what stands in one that matters, matters."""


@cache
def other_flags(tool: str) -> OtherFlags:
    """The flags of an engine that its reader leaves."""
    table = table_of(tool)
    inside = {f"{name}.*" for name in table.bears | table.read if name.endswith(TABLES)}
    return OtherFlags(bears=table.bears | inside, quiet=table.quiet, source=table.source)
