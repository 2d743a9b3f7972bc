"""Interrupts of processes that work for this one: each ends without a word, whenever it comes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


def end_at_once() -> None:
    """Let an interrupt end this process without a word, also one that came while it began."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Processes that begin in here have interrupts held until they are ready for one."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
