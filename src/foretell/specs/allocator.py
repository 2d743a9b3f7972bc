"""What memory management takes of a chip beside tensors: the allocator of a framework, as one record."""

from typing import Annotated

from foretell.records import dataclass
from foretell.specs.ranges import Ge, Le

Amount = Annotated[float, Ge(0), Le(1e12)]
"""A number not below zero."""
Share = Annotated[float, Ge(0), Le(1)]
"""A part of a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAllocator:
    """One allocator of a chip's memory."""

    fused_share: Share
    """Reserved beyond what tensors take, as a share of that, where modules are fused."""
    plain_share: Share
    """That share where modules are plain: every operation takes a tensor, gives it back and leaves holes."""
    workspace_bytes: Amount
    """Workspaces that matrix and attention libraries keep allocated."""
