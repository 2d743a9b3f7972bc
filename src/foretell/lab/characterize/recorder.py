"""Where the time of steps goes on one rank: marks that cut it without gaps, and every message's own time.

Marks are CUDA events on the stream that computes, or readings of the host's clock on a CPU. What lies between
two marks belongs to the label of the first, so that the shares of a step add up to it. A message runs on a
stream (or thread) of its own: `busy` is from its start to its end, `exposed` what the computing stream waits
for it; what is left is hidden.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

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
            row = found.setdefault(
                key,
                {
                    "axis": m.axis, "what": m.what, "kind": m.kind, "group": m.group, "count": 0,
                    "bytes": 0.0, "busy_s": 0.0, "exposed_s": 0.0, "hidden_s": 0.0,
                },
            )  # fmt: skip
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
