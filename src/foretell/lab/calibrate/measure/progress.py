"""How far it is: a bar by rich where it is installed and someone watches, else a line now and then."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

QUIET_S = 15.0
"""Time between two plain lines."""


class ProgressBar:
    """Tells nothing; its children do."""

    def hello(self, text: str, todo: int) -> None:
        """The machine, and how many points there are."""

    def point(self, text: str) -> None:
        """What is measured now."""

    def done(self, done: int, todo: int, status: str) -> None:
        """One more point."""


class Lines(ProgressBar):
    """Plain text on standard error."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s, self._begin, self._last = limit_s, time.monotonic(), 0.0
        self._text, self._failed = "", 0

    def hello(self, text: str, todo: int) -> None:
        """The machine, and how many points there are."""
        self._say(f"{text}: {todo} points, {self._limit_s:.0f} s")

    def point(self, text: str) -> None:
        """What is measured now."""
        self._text = text

    def done(self, done: int, todo: int, status: str) -> None:
        """One more point."""
        self._failed += status == "failed"
        now = time.monotonic()
        if now - self._last > QUIET_S:
            self._last = now
            at = f"{now - self._begin:.0f} of {self._limit_s:.0f} s"
            self._say(f"{at}: {done} of {todo} points, {self._failed} failed; {self._text}")

    @staticmethod
    def _say(text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class Rich(ProgressBar):
    """A bar that fills with the time or with the points, whichever is further."""

    def __init__(self, limit_s: float, progress: Any) -> None:
        self._limit_s, self._begin, self._progress = limit_s, time.monotonic(), progress
        self._task, self._failed = progress.add_task("starting", total=1.0, points=""), 0

    def hello(self, text: str, todo: int) -> None:
        """The machine, and how many points there are."""
        self._progress.console.print(f"{text}: {todo} points", highlight=False, markup=False)

    def point(self, text: str) -> None:
        """What is measured now."""
        self._progress.update(self._task, description=text[:70])

    def done(self, done: int, todo: int, status: str) -> None:
        """One more point."""
        self._failed += status == "failed"
        share = max((time.monotonic() - self._begin) / self._limit_s, done / max(todo, 1))
        points = f"{done}/{todo}" + (f", {self._failed} failed" if self._failed else "")
        self._progress.update(self._task, completed=min(share, 1.0), points=points)


@contextmanager
def bar(limit_s: float, wanted: bool) -> Iterator[ProgressBar]:
    """Where to tell how far it is."""
    if not wanted:
        yield ProgressBar()
        return
    if find_spec("rich") is None or not sys.stderr.isatty():
        yield Lines(limit_s)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        TextColumn("{task.fields[points]}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Rich(limit_s, progress)
