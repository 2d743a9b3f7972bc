"""The package's tables in TOML, also as JSON made when it is built: Python reads that ten times as fast.

`python src/foretell/interop/package_tables.py` writes it; a build does so by itself (tools/hatch_build.py),
in an environment that has nothing but the standard library, so this file imports nothing of ours. A line is
the hash of a TOML file's bytes, a blank, and its table: a file that was changed since finds no line and is
read as TOML. What JSON would not give back the same, such as dates, gets no line.
"""

import hashlib
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent
"""The package."""
STORE = FOLDER / "interop" / "parsed.jsonl"
"""What is made; not in the repository."""


def packaged_table(path: Path) -> dict[str, Any]:
    """The table of a TOML file of the package, a new one in every call."""
    content = path.read_bytes()
    table = stored_table(content)
    if table is None:
        import tomllib  # only what was not stored when the package was built pays for it

        table = tomllib.loads(content.decode())
    return table


def stored_table(content: bytes) -> dict[str, Any] | None:
    """The table of a TOML file of these bytes, a new one in every call; None where it is not stored."""
    line = _lines().get(key_of(content))
    return None if line is None else json.loads(line)


def key_of(content: bytes) -> bytes:
    """What a file is known by."""
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()


@lru_cache(maxsize=1)
def _lines() -> dict[bytes, bytes]:
    """Key -> JSON; empty where nothing is stored."""
    try:
        lines = STORE.read_bytes().splitlines()
    except OSError:
        return {}
    return {key: table for key, _, table in (line.partition(b" ") for line in lines)}


def build(folder: Path = FOLDER) -> bytes:
    """The lines of every TOML file in a folder and those in it."""
    import tomllib

    lines = []
    for path in sorted(folder.rglob("*.toml")):
        content = path.read_bytes()
        table = tomllib.loads(content.decode())
        try:
            line = json.dumps(table, ensure_ascii=True, separators=(",", ":"))
        except TypeError:  # a date
            continue
        if json.loads(line) == table:
            lines.append(key_of(content) + b" " + line.encode() + b"\n")
    return b"".join(lines)


def write(path: Path = STORE) -> None:
    """Write the store anew, whole or not at all; who else does so at the same time is not in the way."""
    new = path.with_suffix(f".{os.getpid()}.new")
    try:
        new.write_bytes(build())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


if __name__ == "__main__":
    write()
