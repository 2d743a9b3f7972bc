"""A bar on standard error for what takes longer than a moment, where someone is watching."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

PATIENCE_S = 2.0
"""What ends sooner shows no bar."""

Progress = Callable[[int, int], None]
"""Called with what is done and the total."""


@contextmanager
def late_bar(unit: str) -> Iterator[Progress | None]:
    """A function to report progress to, or None where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as stack:
        start = time.monotonic()
        move: Progress | None = None

        def report(done: int, total: int) -> None:
            nonlocal move
            if move is None and time.monotonic() - start > PATIENCE_S:
                move = stack.enter_context(open_bar(unit))
            if move is not None:
                move(done, total)

        yield report


@contextmanager
def open_bar(words: str) -> Iterator[Callable[..., None]]:
    """A bar with words behind it, which a report may change."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    said = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(), MofNCompleteColumn(), said, TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=None)
        yield lambda done, total, text=words: bar.update(
            task, completed=done, total=total, description=text[:80]
        )
