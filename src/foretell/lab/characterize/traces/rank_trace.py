"""One rank of a trace: what it computed, copied and sent, when its host was at work, and its steps."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from foretell.specs.arrays import Index, Ints, Mask

Times = Ints
"""Moments or durations in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """A set of moments, as half-open spans that neither touch nor overlap, the first first."""

    starts: Times
    """Where each begins."""
    ends: Times
    """Where each ends."""

    @property
    def total_ns(self) -> int:
        """How long they are together."""
        return int((self.ends - self.starts).sum())


NOTHING = Spans(starts=np.empty(0, np.int64), ends=np.empty(0, np.int64))
"""No moment."""


def union(starts: Times, ends: Times) -> Spans:
    """All moments that are in some span; spans without length hold none."""
    some = ends > starts
    starts, ends = starts[some], ends[some]
    if not len(starts):
        return NOTHING
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate(([True], starts[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Spans(starts=starts[first], ends=reach[last])


def union_of(*sets: Spans) -> Spans:
    """All moments that are in some of the sets."""
    return union(
        np.concatenate([one.starts for one in sets]), np.concatenate([one.ends for one in sets])
    )


def covered_ns(spans: Spans, moments: Times) -> Times:
    """How much of the set lies before each moment."""
    if not len(spans.starts):
        return np.zeros(len(moments), np.int64)
    before = np.concatenate(([0], np.cumsum(spans.ends - spans.starts)))
    place = np.searchsorted(spans.starts, moments, side="right")
    inside = np.minimum(moments, spans.ends[np.maximum(place - 1, 0)])
    partly = inside - spans.starts[np.maximum(place - 1, 0)]
    return np.where(place > 0, before[np.maximum(place - 1, 0)] + partly, 0)


def overlap_ns(spans: Spans, starts: Times, ends: Times) -> Times:
    """How much of the set lies in each of some spans, which may overlap each other."""
    return covered_ns(spans, np.maximum(starts, ends)) - covered_ns(spans, starts)


def intersection(a: Spans, b: Spans) -> Spans:
    """Moments in both."""
    if not len(a.starts) or not len(b.starts):
        return NOTHING
    # Of each span of a, those of b that reach into it stand together.
    low = np.searchsorted(b.ends, a.starts, side="right")
    many = np.maximum(np.searchsorted(b.starts, a.ends, side="left") - low, 0)
    mine = np.repeat(np.arange(len(a.starts)), many)
    theirs = np.arange(len(mine)) - np.repeat(np.cumsum(many) - many, many) + low[mine]
    return Spans(
        starts=np.maximum(a.starts[mine], b.starts[theirs]),
        ends=np.minimum(a.ends[mine], b.ends[theirs]),
    )


def difference(a: Spans, b: Spans) -> Spans:
    """Moments in the first and not in the second."""
    if not len(a.starts) or not len(b.starts):
        return a
    low, high = min(int(a.starts[0]), int(b.starts[0])), max(int(a.ends[-1]), int(b.ends[-1]))
    rest = Spans(starts=np.concatenate(([low], b.ends)), ends=np.concatenate((b.starts, [high])))
    some = rest.ends > rest.starts
    return intersection(a, Spans(starts=rest.starts[some], ends=rest.ends[some]))


def first_come(starts: Times, ends: Times) -> tuple[Index, Times, Times]:
    """Spans that overlap as spans that do not: a moment belongs to the one that began first.

    An order of the spans, and beginning and end of what each keeps in it; their union is that of the spans.
    """
    order = np.lexsort((ends, starts))
    starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    begins = starts.copy()
    begins[1:] = np.maximum(starts[1:], reach[:-1])
    return order, begins, np.maximum(ends, begins)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveSpans:
    """Spans in the order of their beginnings, with what each keeps of moments that others are in too."""

    order: Index
    """Places of the spans."""
    starts: Times
    """Their beginnings, ascending."""
    begins: Times
    """Where what each keeps begins."""
    finishes: Times
    """Where it ends; ascending."""

    def cut(self, start: int, end: int) -> tuple[Index, Times, Times]:
        """Places of spans that reach into a window, and beginnings and ends of what they keep of it."""
        low = int(np.searchsorted(self.finishes, start, side="left"))
        high = int(np.searchsorted(self.starts, end, side="left"))
        chosen = slice(low, max(high, low))
        begins = np.clip(self.begins[chosen], start, end)
        return self.order[chosen], begins, np.clip(self.finishes[chosen], begins, end)


def exclusive_spans(starts: Times, ends: Times) -> ExclusiveSpans:
    """What spans keep, found once for any number of windows."""
    order, begins, finishes = first_come(starts, ends)
    return ExclusiveSpans(order=order, starts=starts[order], begins=begins, finishes=finishes)


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
    family: Index
    """Which it is of."""
    phase: Index
    """Its place in PHASES."""
    ops: tuple[str, ...]
    """Operations that are known by name or by the shape of a product."""
    op: Index
    """Which it is; -1 where it is not known."""
    first: Mask
    """Whether it is the first span of its event: one with others inside it has several."""

    def some(self, chosen: Mask) -> "KernelEvents":
        """Some of the entries; families and operations keep their places."""
        names = ("starts", "ends", "family", "phase", "op", "first")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommEvents:
    """Collectives and sends; one entry each."""

    starts: Times
    """When it began."""
    ends: Times
    """When it ended."""
    kinds: tuple[str, ...]
    """Collectives that occur: kind, and group or stream."""
    kind: Index
    """Which it is."""
    members: Ints
    """Ranks of its group; 0 where that is not known."""
    size_bytes: Ints
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
