"""One rank of a trace: what it computed, copied and sent, when its host was at work, and its steps."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.lab.characterize.traces.intervals import Spans, Times

Phase = Literal["forward", "backward", "optimizer", ""]
PHASES: tuple[Phase, ...] = ("", "forward", "backward", "optimizer")
"""Passes of a step; the first where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvents:
    """Kernels, or operations of a host without accelerator; one entry each."""

    starts: Times
    """When it began."""
    ends: Times
    """When it ended."""
    families: tuple[str, ...]
    """Families that occur."""
    family: NDArray[np.intp]
    """Which it is of."""
    phase: NDArray[np.intp]
    """Its place in PHASES."""
    ops: tuple[str, ...]
    """Operations that are known by name or by the shape of a product."""
    op: NDArray[np.intp]
    """Which it is; -1 where it is not known."""
    first: NDArray[np.bool_]
    """Whether it is the first span of its event: one with others inside it has several."""

    def some(self, chosen: NDArray[np.bool_]) -> "KernelEvents":
        """Some of the entries; families and operations keep their places."""
        return replace(
            self,
            starts=self.starts[chosen],
            ends=self.ends[chosen],
            family=self.family[chosen],
            phase=self.phase[chosen],
            op=self.op[chosen],
            first=self.first[chosen],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommEvents:
    """Collectives and sends; one entry each."""

    starts: Times
    """When it began."""
    ends: Times
    """When it ended."""
    kinds: tuple[str, ...]
    """Collectives that occur: kind, and group or stream."""
    kind: NDArray[np.intp]
    """Which it is."""
    members: NDArray[np.int64]
    """Ranks of its group; 0 where that is not known."""
    size_bytes: NDArray[np.int64]
    """Its full buffer, as nccl-tests counts it; -1 where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """One step of one rank."""

    name: str
    """The profiler's number, or "whole"."""
    start_ns: int
    """When it began."""
    end_ns: int
    """When it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """Everything that is known of one rank."""

    file: str
    """Where it was read."""
    rank: int
    """Its number in the job."""
    device: Literal["gpu", "cpu", "simulated"]
    """What ran its work."""
    work: KernelEvents
    """Computation."""
    copies: KernelEvents
    """Copies and fills of memory."""
    sent: CommEvents
    """Communication."""
    ranges: Mapping[str, Spans]
    """Annotations of one's own (`record_function`), by name: when each was open where its work ran."""
    host: Spans
    """When its host was at work."""
    steps: tuple[TracedStep, ...]
    """Its steps, the first first."""
