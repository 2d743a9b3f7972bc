"""Where the catalogue's files lie, how TOML is read and written, and how a table of measurements is read."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from foretell.errors import BadInput, bad_input
from foretell.interop.package_tables import stored_table
from foretell.interop.user_files import check_file, is_too_deep

Table = dict[str, Any]
"""A TOML table as `tomllib` gives it."""

ROOT = Path(__file__).parent
"""The folder that holds chips/, systems/ and prices/."""
LARGEST_BYTES = 1 << 20
"""A longer file is refused unread: no description of a machine is that long."""
LARGEST_TABLE = 1 << 28
"""Bytes of a table of measurements, once it is unpacked."""


def catalogue_file(kind: str, entry_id: str) -> Path:
    """The file of one entry; `kind` is `chip`, `system` or `price`."""
    return ROOT / f"{kind}s" / f"{entry_id}.toml"


@lru_cache(maxsize=256)
def catalogue_table(kind: str, entry_id: str) -> Table:
    """The table of one entry: read once, and not to be changed by who reads it."""
    return read_table(catalogue_file(kind, entry_id))


def read_table(path: Path) -> Table:
    """The file's table; BadInput naming the file where it cannot be read or is no TOML."""
    check_file(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise _bad(path, f"is longer than {LARGEST_BYTES} bytes")
        if ROOT in path.parents and (table := stored_table(content)) is not None:
            return table
        import tomllib  # only what was not stored when the package was built pays for it

        table = tomllib.loads(content.decode())
        if is_too_deep(table):
            raise _bad(path, "is nested too deeply")
        return table
    except FileNotFoundError:
        raise _bad(path, "there is no such file") from None
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _bad(path, "is not text in UTF-8") from None
    except ValueError as error:  # TOMLDecodeError, and whole numbers of thousands of digits
        raise _bad(path, f"is not valid TOML: {error}") from None
    except RecursionError:
        raise _bad(path, "is nested too deeply") from None


@lru_cache(maxsize=1)
def between_nodes() -> tuple[str, ...]:
    """Ids of the fabrics that join nodes."""
    files = sorted((ROOT / "fabrics").glob("*.toml"))
    return tuple(path.stem for path in files if read_table(path)["kind"] == "between")


def read_bytes(path: Path) -> bytes:
    """The content of a file, gzipped or not; OSError or EOFError where it cannot be read.

    No more than LARGEST_TABLE of it is ever unpacked, however small the file is.
    """
    import errno
    import gzip  # only a question that reads a table pays for it
    import zlib

    check_file(path)
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            content = bytes(file.read(LARGEST_TABLE + 1))
    except zlib.error as error:
        raise OSError(errno.EIO, f"is damaged: {error}") from None
    if len(content) > LARGEST_TABLE:
        raise OSError(errno.EFBIG, f"has more than {LARGEST_TABLE} bytes")
    return content


def csv_rows(text: str, name: str) -> tuple[list[str], list[dict[str, str]]]:
    """Columns and rows of a CSV table, blank where a row is short; BadInput where it is none."""
    import csv
    import io

    reader = csv.DictReader(io.StringIO(text), restval="")
    try:
        columns = list(reader.fieldnames or ())
        rows = [{key: cell for key, cell in row.items() if key is not None} for row in reader]
    except csv.Error as error:
        raise bad_input(name, None, f"is not CSV: {error}") from None
    return columns, rows


def toml_value(value: object) -> str:
    """A text, number, truth or list of them as TOML has it."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return repr(value)


def _bad(path: Path, message: str) -> BadInput:
    return bad_input(str(path), None, message)
