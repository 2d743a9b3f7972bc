"""Shards on disk: Parquet files, each named by its number and the hash of its bytes.

A shard is written beside its place and then renamed, so that a file under a shard's name is whole or its
hash says that it is not. The folder holds nothing else that a resumed sweep relies on but its manifest.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretell.errors import bad_input
from foretell.interop.user_files import is_there, write_whole
from foretell.records import dataclass
from foretell.specs.study import Study
from foretell.studies.axes import point_count
from foretell.studies.study_file import read_study
from foretell.studies.sweep.frames import shard_count, shard_frame, shard_points

MANIFEST, SHARDS, LOCK = "manifest.json", "shards", "lock"
FORMAT = 1
"""Of the manifest; a folder of another is not taken up."""
DIGITS = 32
"""Of the hash in a shard's name."""
_NAME = re.compile(rf"(\d{{7}})-([0-9a-f]{{{DIGITS}}})\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFolder:
    """What a folder holds of a sweep."""

    whole: Mapping[int, Path]
    """Shards whose bytes are those of their name, by number."""
    corrupt: tuple[Path, ...]
    """Files with a shard's name and other bytes."""


def shard_bytes(study: Study, number: int) -> bytes:
    """One shard as a Parquet file: what a worker is asked for. It depends on nothing but the study."""
    buffer = io.BytesIO()
    # Statistics of row groups would help readers that look for few rows, and take a quarter of the time.
    shard_frame(study, number).write_parquet(
        buffer, compression="zstd", compression_level=1, statistics=False
    )
    return buffer.getvalue()


def file_name(number: int, content: bytes) -> str:
    """The name of a shard of this content."""
    return f"{number:07d}-{digest(content)}.parquet"


def digest(content: bytes) -> str:
    """The hash that a shard is named after."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def write_shard(folder: Path, number: int, content: bytes) -> Path:
    """Put a shard in its place, whole or not at all."""
    return write_whole(folder / SHARDS / file_name(number, content), content)


def read_folder(folder: Path) -> SweepFolder:
    """Read every shard and compare it with its name."""
    whole: dict[int, Path] = {}
    corrupt = []
    for path in sorted((folder / SHARDS).glob("*.parquet")):
        named = _NAME.fullmatch(path.name)
        if named is None:
            continue
        number = int(named[1])
        if digest(path.read_bytes()) == named[2] and number not in whole:
            whole[number] = path
        else:
            corrupt.append(path)
    return SweepFolder(whole=whole, corrupt=tuple(corrupt))


def tidy(folder: Path) -> None:
    """Remove what a killed run left half-written."""
    for path in (folder / SHARDS).glob(".*.part"):
        path.unlink(missing_ok=True)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep a second sweep out of the folder; a killed process holds it no longer."""
    import fcntl

    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise bad_input("out", str(folder), "another sweep is writing there") from None
        yield


def is_locked(folder: Path) -> bool:
    """Whether a sweep is writing there now."""
    import fcntl

    try:
        with (folder / LOCK).open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def manifest_of(study: Study) -> dict[str, Any]:
    """What must be the same for results to be in one folder."""
    return {
        "format": FORMAT,
        "program": program_hash(),
        "inputs": _inputs_hash(study),
        "points": point_count(study),
        "shards": shard_count(study),
        "points_per_shard": shard_points(study),
        "study": study.table,
    }


@lru_cache(maxsize=1)
def program_hash() -> str:
    """Of every file of the package: what was computed by another program is not mixed in."""
    root = Path(__file__).parents[2]
    whole = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".toml", ".json")):
        whole.update(str(path.relative_to(root)).encode() + b"\0")
        whole.update(path.read_bytes())
    return whole.hexdigest()[:DIGITS]


def _inputs_hash(study: Study) -> str:
    """Of the files that a study names."""
    whole = hashlib.sha256()
    tables = [study.base, *(w.base for w in study.workloads)]
    named = [t.get(key) for t in tables for key in ("model", "system", "name")]
    named += [value for axis in study.axes if axis.is_flag for value in axis.values]
    for text in named:
        if isinstance(text, str) and is_there(text):
            path = Path(text)
            files = sorted(path.glob("*.json")) if path.is_dir() else [path]
            whole.update(b"".join(file.read_bytes() for file in files))
    return whole.hexdigest()[:DIGITS]


def read_manifest(folder: Path) -> tuple[Study, dict[str, Any]]:
    """The study of a folder, with its manifest; BadInput where there is none."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text())
        if manifest["format"] != FORMAT:
            raise ValueError
        return read_study(manifest["study"]), manifest
    except (FileNotFoundError, NotADirectoryError):
        message, allowed = "holds no sweep", "the folder that `foretell sweep --out` wrote"
    except (ValueError, KeyError, TypeError, RecursionError):
        message, allowed = f"its {MANIFEST} is damaged", "the study with --out of this folder again"
    raise bad_input("folder", str(folder), message, allowed)
