"""How far measuring is: a line on standard error now and then."""

import sys
import time

QUIET_S = 15.0
"""Time between two lines."""


class ProgressLines:
    """Plain text on standard error; nothing where it is not wanted."""

    def __init__(self, limit_s: float, wanted: bool) -> None:
        self._limit_s, self._wanted = limit_s, wanted
        self._begin, self._last = time.monotonic(), 0.0
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

    def _say(self, text: str) -> None:
        if self._wanted:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
