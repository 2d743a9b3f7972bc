"""How far peaks of memory were from their predictions: coefficients of memory_errors.toml."""

from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass

FILE = ROOT / "memory_errors.toml"
"""Written by lab/validate/memory_errors.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogError:
    """ln(measured / predicted) of one number: a source's part and a row's, Student's t with 4 degrees."""

    source_scale: float
    """Scale of what all runs of a source have in common."""
    row_scale: float
    """Scale of what a run has beside it."""
    room_shift: float = 0.0
    """What is added to the logarithm for a chip that is all free."""
    room_scale: float = 0.0
    """Share by which the scales grow for a chip that is all free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryErrors:
    """Of both numbers of a step's memory."""

    allocated: LogError
    """What tensors take."""
    held: LogError
    """What the allocator reserves, and the process holds."""


@lru_cache(maxsize=64)
def memory_errors(software: str, gpus: int, weights: str) -> MemoryErrors:
    """The errors of a release of software on so many chips with weights of a dtype: measured by this project,
    or as of other sources."""
    level = "measured" if is_measured(software, gpus, weights) else "other"
    return _errors(read_table(FILE)["software"][level])


def is_measured(software: str, gpus: int, weights: str) -> bool:
    """Whether this project has measured a release of software on so many chips with weights of a dtype."""
    measured = read_table(FILE)["measured"]
    known = software in measured["software"] and weights in measured["weights"]
    return known and gpus <= measured["gpus"]


def _errors(entry: dict[str, Any]) -> MemoryErrors:
    return MemoryErrors(allocated=LogError(**entry["allocated"]), held=LogError(**entry["held"]))
