"""Files that a user names: every reader asks here before it looks at one.

A server answers strangers inside `names_only`. There no such file is opened or looked for, and each reader
refuses with the same problem whether the file is there or not. What the package ships is always read.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from foretell.errors import BadInput, Problem

PACKAGE = Path(__file__).parents[1]
"""The folder of the package, whose files are its own."""
NOT_READ = "is no name of the catalogue; files are not read here"
"""What is wrong with a path where names alone are taken."""
NAMES = "an id or alias of the catalogue"
_names_only: ContextVar[bool] = ContextVar("names_only", default=False)


@contextmanager
def names_only() -> Iterator[None]:
    """Within it no file that a user names is opened or looked for: BadInput in its place."""
    token = _names_only.set(True)
    try:
        yield
    finally:
        _names_only.reset(token)


def are_read() -> bool:
    """Whether a user may name files here."""
    return not _names_only.get()


def user_file(name: str | os.PathLike[str], field: str, allowed: str = NAMES) -> Path:
    """The path that a user gives in a field; BadInput where names alone are taken."""
    if not are_read():
        raise refusal(field, name, allowed)
    return Path(name)


def is_there(name: str | os.PathLike[str], *, folder: bool = True) -> bool:
    """Whether a user's file of this name is there, or a folder; never so where names alone are taken."""
    path = Path(name)
    try:
        return (
            are_read() and bool(os.fspath(name)) and (path.exists() if folder else path.is_file())
        )
    except (OSError, ValueError):  # a text that no file can be called
        return False


def check_file(path: Path) -> None:
    """Raise BadInput where names alone are taken, unless the file is the package's own."""
    if not are_read() and (PACKAGE not in path.parents or ".." in path.parts):
        raise refusal("", path)


def refusal(field: str, value: object, allowed: str = NAMES) -> BadInput:
    """The problem of a path where names alone are taken."""
    shown = os.fspath(value) if isinstance(value, os.PathLike) else value
    return BadInput([Problem(path=field, value=shown, message=NOT_READ, allowed=allowed)])
