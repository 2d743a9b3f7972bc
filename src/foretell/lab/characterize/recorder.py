"""Where the time of steps goes on one rank: marks that cut it without gaps, and every message's own time.

Marks are CUDA events on the stream that computes, or readings of the host's clock on a CPU. What lies between
two marks belongs to the label of the first, so that the shares of a step add up to it. A message runs on a
stream (or thread) of its own: `busy` is from its start to its end, `exposed` what the computing stream waits
for it; what is left is hidden.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from foretell.specs.plan import Plan

Stamp = Any
"""A CUDA event, or seconds of the host's clock."""
OTHER = "other"
"""What no label is for."""


@dataclass(slots=True, kw_only=True)
class RecordedMessage:
    """One message."""

    axis: str
    """The parallelism that sends it."""
    what: str
    """What it carries."""
    kind: str
    """The collective, or send."""
    group: int
    """Ranks that take part."""
    bytes: int
    """Its whole buffer."""
    busy: list[Stamp] = field(default_factory=list)
    """Start and end."""
    exposed: list[Stamp] = field(default_factory=list)
    """Start and end of waiting for it."""
    work: Any = None
    """Handle of what runs."""
    holds: Any = None
    """Buffers that must live until it is done."""


@dataclass(slots=True)
class RecordedStep:
    """Marks and messages of one step."""

    marks: list[tuple[str, Stamp]] = field(default_factory=list)
    """Labels and when each begins; the last mark is the end."""
    messages: list[RecordedMessage] = field(default_factory=list)
    """Messages whose wait ended in this step."""


class Recorder:
    """Marks and messages of steps, one after the other without a gap."""

    def __init__(self, device: str) -> None:
        self.cuda = device == "cuda"
        self.stream = torch.cuda.Stream() if self.cuda else None
        # gloo has no streams: its messages run on a thread of their own, one after the other.
        self.thread = None if self.cuda else ThreadPoolExecutor(max_workers=1)
        self._stack: list[str] = [OTHER]
        self.step = RecordedStep()
        self.steps: list[RecordedStep] = []

    def stamp(self) -> Stamp:
        """Now, on the computing stream."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        """A new step; the end of the last one is its beginning."""
        now = self.stamp()
        if self.step.marks:
            self.step.marks.append((OTHER, now))
        self.step = RecordedStep(marks=[(OTHER, now)])
        self.steps.append(self.step)

    def forget(self) -> None:
        """Steps so far were warm-up."""
        self.step, self.steps = RecordedStep(), []

    def mark(self, label: str) -> Stamp:
        """From now on, until the next mark."""
        now = self.stamp()
        self.step.marks.append((label, now))
        return now

    @contextmanager
    def span(self, label: str) -> Iterator[None]:
        """What runs inside belongs to a label."""
        self._stack.append(label)
        self.mark(label)
        try:
            yield
        finally:
            self._stack.pop()
            self.mark(self._stack[-1])

    def start(self, message: RecordedMessage, call: Callable[[], Any]) -> RecordedMessage:
        """Start a message beside what computes."""
        if self.thread is not None:
            message.work = self.thread.submit(_timed, message, call)
            return message
        assert self.stream is not None
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            message.busy.append(self.stamp())
            message.work = call()
            message.busy.append(self.stamp())
        return message

    def wait(self, message: RecordedMessage) -> None:
        """Let what computes wait for a message."""
        if message.exposed:
            return
        with self.span(f"{message.axis}.{message.what}"):
            message.exposed.append(self.step.marks[-1][1])
            if self.thread is not None:
                message.work.result()
            else:
                torch.cuda.current_stream().wait_event(message.busy[1])
        message.exposed.append(self.step.marks[-1][1])
        message.work = message.holds = None
        self.step.messages.append(message)

    def waiting(self, message: RecordedMessage, call: Callable[[], Any]) -> Any:
        """A send or receive, all of which is waited for."""
        with self.span(f"{message.axis}.{message.what}"):
            first = self.step.marks[-1][1]
            found = call()
        message.busy = message.exposed = [first, self.step.marks[-1][1]]
        self.step.messages.append(message)
        return found

    def close(self) -> None:
        """End the thread of messages."""
        if self.thread is not None:
            self.thread.shutdown()

    def finished(self) -> list[tuple[dict[str, float], list[dict[str, Any]]]]:
        """Of every step the seconds by label, and its messages by kind."""
        self.mark(OTHER)
        if self.cuda:
            torch.cuda.synchronize()
        found = []
        for step in self.steps:
            shares: dict[str, float] = {}
            for (label, first), (_, last) in pairwise(step.marks):
                shares[label] = shares.get(label, 0.0) + self._seconds(first, last)
            found.append((shares, self._by_kind(step.messages)))
        self.forget()
        return found

    def _seconds(self, first: Stamp, last: Stamp) -> float:
        return float(first.elapsed_time(last)) * 1e-3 if self.cuda else float(last - first)

    def _by_kind(self, messages: list[RecordedMessage]) -> list[dict[str, Any]]:
        found: dict[tuple[str, str, str, int], dict[str, Any]] = {}
        for m in messages:
            key = (m.axis, m.what, m.kind, m.group)
            names = ("axis", "what", "kind", "group")
            sums = dict.fromkeys(("bytes", "busy_s", "exposed_s", "hidden_s"), 0.0)
            row = found.setdefault(key, {**dict(zip(names, key, strict=True)), "count": 0, **sums})
            busy_s = self._seconds(*m.busy)
            exposed_s = self._seconds(*m.exposed)
            row["count"] += 1
            row["bytes"] += float(m.bytes)
            row["busy_s"] += busy_s
            row["exposed_s"] += exposed_s
            row["hidden_s"] += max(busy_s - exposed_s, 0.0)
        return list(found.values())


def _timed(message: RecordedMessage, call: Callable[[], Any]) -> None:
    """A message on the thread of messages."""
    message.busy.append(time.perf_counter())
    call()
    message.busy.append(time.perf_counter())


Message = RecordedMessage
NAMES = {"tp": "tensor", "dp": "data", "pp": "pipeline"}
"""Degrees of a plan, and the parallelism that each is."""


def collective_function(new: str, old: str) -> Any:
    """A collective under its name of today, or under that of earlier versions."""
    return getattr(dist, new, None) or getattr(dist, old)


all_gather = collective_function("all_gather_single", "all_gather_into_tensor")
reduce_scatter = collective_function("reduce_scatter_single", "reduce_scatter_tensor")


class RankGroups:
    """This rank's place in every group of a plan, and its messages."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.plan, self.recorder = plan, recorder
        self.sizes = {"tp": plan.tp, "dp": plan.dp, "pp": plan.pp}
        order = [axis for axis in plan.order if axis in self.sizes]
        rank = dist.get_rank() if plan.gpus > 1 else 0
        self.at: dict[str, int] = {}
        self.strides: dict[str, int] = {}
        stride = 1
        for axis in order:
            self.strides[axis] = stride
            self.at[axis] = rank // stride % self.sizes[axis]
            stride *= self.sizes[axis]
        self.handles = {axis: self._made(axis) for axis in order}

    def _made(self, axis: str) -> Any:
        """The group of an axis that this rank is in; all ranks make all groups in one order."""
        if self.sizes[axis] < 2:
            return None
        mine = None
        others = [a for a in self.strides if a != axis]
        for place in product(*(range(self.sizes[a]) for a in others)):
            base = sum(i * self.strides[a] for i, a in zip(place, others, strict=True))
            ranks = [base + i * self.strides[axis] for i in range(self.sizes[axis])]
            made = dist.new_group(ranks)
            if all(self.at[a] == i for i, a in zip(place, others, strict=True)):
                mine = made
        return mine

    def close(self) -> None:
        """Give the groups back."""
        for handle in self.handles.values():
            if handle is not None:
                dist.destroy_process_group(handle)

    def _start(
        self, axis: str, what: str, kind: str, holds: Sequence[Tensor], *call: Any
    ) -> Message:
        """Start a collective over an axis; what it holds has the whole buffer first."""
        function, *arguments = call
        message = RecordedMessage(
            axis=NAMES[axis], what=what, kind=kind, group=self.sizes[axis], bytes=holds[0].nbytes
        )
        message.holds = holds
        group = self.handles[axis]
        return self.recorder.start(message, lambda: _quiet(function, *arguments, group=group))

    def all_reduce(self, axis: str, what: str, x: Tensor, largest: bool = False) -> Message:
        """Add up over an axis in place, or take the largest."""
        op = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
        return self._start(axis, what, "all-reduce", (x,), dist.all_reduce, x, op)

    def reduce_scatter(self, axis: str, what: str, whole: Tensor, part: Tensor) -> Message:
        """Add up over an axis; every rank keeps its part."""
        call = (reduce_scatter, part, whole, dist.ReduceOp.SUM)
        return self._start(axis, what, "reduce-scatter", (whole, part), *call)

    def all_gather(self, axis: str, what: str, part: Tensor, whole: Tensor) -> Message:
        """Every rank's part to all."""
        return self._start(axis, what, "all-gather", (whole, part), all_gather, whole, part)

    def wait(self, message: RecordedMessage) -> None:
        """Wait for a message."""
        self.recorder.wait(message)

    def neighbour(self, step: int) -> int:
        """Rank of the stage before (-1) or behind (1)."""
        rank = dist.get_rank() if self.plan.gpus > 1 else 0
        return rank + step * self.strides["pp"]


def _quiet(call: Callable[..., Any], *arguments: Any, group: Any) -> None:
    """A collective without its remarks on names that are going out of use."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        call(*arguments, group=group)
