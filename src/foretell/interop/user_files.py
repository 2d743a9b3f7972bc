"""Files that a user names: every reader asks here before it looks at one.

A server answers strangers inside `names_only`. There no such file is opened or looked for, and each reader
refuses with the same problem whether the file is there or not. What the package ships is always read.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from foretell.errors import BadInput, bad_input

PACKAGE = Path(__file__).parents[1]
"""The folder of the package, whose files are its own."""
NOT_READ = "is no name of the catalogue; files are not read here"
"""What is wrong with a path where names alone are taken."""
NAMES = "an id or alias of the catalogue"
LARGEST_BYTES = 1 << 28
"""A longer text is refused."""
MOST_NESTED = 100
"""Tables and lists inside one another."""
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
    path = Path(name)
    check_regular(path)
    return path


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
    check_regular(path)


def check_regular(path: Path) -> None:
    """Raise BadInput where a path is a device, a pipe or a socket: it may never end, or never begin."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # who opens it says what is wrong
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise bad_input(str(path), None, "is a device or a pipe, and no file", "a file on the disk")


def user_text(path: Path, field: str) -> str:
    """The text of a user's file, what is no text replaced; BadInput where it cannot be read."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise bad_input(field, str(path), f"cannot be read: {error.strerror or error}") from None
    if len(content) > LARGEST_BYTES:
        raise bad_input(field, str(path), f"is longer than {LARGEST_BYTES} bytes")
    return content.decode("utf-8-sig", "replace")


def is_too_deep(value: object) -> bool:
    """Whether tables and lists are inside one another deeper than any description of a machine."""
    level = [value]
    for _ in range(MOST_NESTED):
        level = [
            inner
            for held in level
            if isinstance(held, (Mapping, list, tuple))
            for inner in (held.values() if isinstance(held, Mapping) else held)
            if isinstance(inner, (Mapping, list, tuple))
        ]
        if not level:
            return False
    return True


def refusal(field: str, value: object, allowed: str = NAMES) -> BadInput:
    """The problem of a path where names alone are taken."""
    shown = os.fspath(value) if isinstance(value, os.PathLike) else value
    return bad_input(field, shown, NOT_READ, allowed)


def made_folder(name: str | os.PathLike[str] | None, field: str = "out") -> Path:
    """A folder to write in, made where it is missing; BadInput where there can be none."""
    if name is None:
        raise bad_input(field, None, "missing", "a folder to write in")
    try:
        folder = Path(os.fspath(name))
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}.writable"
        probe.touch()
        probe.unlink()
    except (TypeError, ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = f"is not a folder to write in: {reason}"
        raise bad_input(field, str(name), message, "a folder to write in") from None
    return folder


def write_rows(
    path: str | os.PathLike[str],
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str] = (),
) -> Path:
    """A CSV file with these columns, else with every column that a row has; None is an empty cell."""
    import csv

    names = columns or list(dict.fromkeys(name for row in rows for name in row))
    with whole_file(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return Path(path)


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to write, which takes the place of `path` when the block ends well: whole or not at all.

    What is there and is no plain file (a pipe, /dev/stdout) is written as it is.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        yield target
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield beside
        if target.exists():
            beside.chmod(stat.S_IMODE(target.stat().st_mode))
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write a text or bytes, whole or not at all, and on the disk when this returns."""
    with whole_file(path) as beside, beside.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        if beside.is_file():  # a pipe has no disk
            os.fsync(file.fileno())
    return Path(path)
