"""How far a long answer is: what a verb reports while it works, and Server-Sent Events that carry it.

A request with `Accept: text/event-stream` is answered by events: `progress` at once and a few times a second
(state queued or working, seconds, done, total), then one `answer` with the JSON that a plain request has, or
one `errors`. Whoever closes the connection cancels the work.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Report = Callable[[int, int], None]
"""Takes how many of how many are done."""
Reply = tuple[int, str, bytes]
"""Status, content type, content."""
Gone = Callable[[], Awaitable[bool]]
"""Whether nobody waits any more."""
Job = Callable[[Gone, Report], Awaitable[Reply | None]]
"""Work of one request: a reply, or None where nobody waits any more."""

EVENTS = "text/event-stream"
"""Content type of a stream."""
BEAT_S = 0.25
"""Longest time between two events."""
LEAST_S = 0.05
"""Shortest time between two reports of a worker."""
_WATCHER: ContextVar[Report | None] = ContextVar("watcher", default=None)


def report(done: int, total: int) -> None:
    """Tell whoever watches this answer how far it is."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher(done, total)


@contextmanager
def watching(watcher: Report | None) -> Iterator[None]:
    """What reports within is asked to `watcher`, a few times a second."""
    if watcher is None:
        yield
        return
    last = 0.0

    def seldom(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LEAST_S or done >= total:
            last = now
            watcher(int(done), int(total))

    token = _WATCHER.set(seldom)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def wants_events(accept: str) -> bool:
    """Whether a request asks for a stream, by its Accept header."""
    return any(one.partition(";")[0].strip().lower() == EVENTS for one in accept.split(","))


def event(name: str, data: bytes) -> bytes:
    """One event; the data are one line."""
    return b"event: " + name.encode("ascii") + b"\ndata: " + data + b"\n\n"


async def stream_job(job: Job) -> AsyncIterator[bytes]:
    """Events of a job; where the stream is left before its end, the job is informed that nobody waits."""
    left = False
    far: dict[str, Any] = {"state": "queued", "done": 0, "total": 0}
    loop = asyncio.get_running_loop()
    moved = asyncio.Event()

    async def gone() -> bool:
        return left

    def told(done: int, total: int) -> None:  # from a worker's thread
        def here() -> None:
            far.update(state="working", done=done, total=total)
            moved.set()

        loop.call_soon_threadsafe(here)

    began = time.monotonic()
    task = asyncio.ensure_future(job(gone, told))
    try:
        yield _progress(far, began)
        while not task.done():
            waiter = asyncio.ensure_future(moved.wait())
            await asyncio.wait({task, waiter}, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()
            moved.clear()
            if not task.done():
                yield _progress(far, began)
        reply = task.result()
        if reply is not None:
            yield _last(reply)
    finally:
        left = True  # the job goes on to its next look, and ends the work there
        _RUNNING.add(task)
        task.add_done_callback(_forget)


_RUNNING: set[asyncio.Future[Any]] = set()
"""Jobs that are ending: a task that nobody holds may vanish."""


def _forget(task: "asyncio.Future[Any]") -> None:
    _RUNNING.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, so that nothing is said of it


def _progress(far: Mapping[str, Any], began: float) -> bytes:
    seconds = round(time.monotonic() - began, 2)
    return event("progress", json.dumps({"seconds": seconds, **far}).encode())


def _last(reply: Reply) -> bytes:
    status, _, content = reply
    if status == 200:
        return event("answer", content)
    told = {"status": status, **json.loads(content)}
    return event("errors", json.dumps(told).encode("ascii"))
