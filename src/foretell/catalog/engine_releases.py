"""Releases of serving engines: how each sizes its cache, and what it launches (`engine_releases/`)."""

from functools import lru_cache
from typing import Any

from foretell.catalog.engines import FIRST_YEAR
from foretell.catalog.files import ROOT, read_table
from foretell.specs._base import release_numbers
from foretell.specs.engine import EngineProfile
from foretell.specs.engine_release import EngineRelease

FOLDER = ROOT / "engine_releases"
"""One file for each engine; `other` has those without a file."""
LISTS = ("unspread_formats", "vendors")
"""Fields that are lists."""


@lru_cache(maxsize=16)
def engine_releases(engine: str) -> tuple[EngineRelease, ...]:
    """All releases of an engine, the oldest first."""
    path = FOLDER / f"{engine}.toml"
    table = read_table(path if path.exists() else FOLDER / "other.toml")
    known: dict[str, Any] = {"engine": engine}
    found = []
    for entry in table["release"]:
        known |= {name: tuple(value) if name in LISTS else value for name, value in entry.items()}
        found.append(EngineRelease(**known))
    return tuple(found)


@lru_cache(maxsize=256)
def release_named(engine: str, version: str) -> EngineRelease:
    """The release that a version, or a date in its place, means; the newest where none is given."""
    every = engine_releases(engine)
    numbers = release_numbers(version)
    if not numbers:
        return every[-1]
    if numbers[0] >= FIRST_YEAR:
        year, month = numbers[0], numbers[1] if len(numbers) > 1 else 12
        past = [one for one in every if release_numbers(one.released) <= (year, month)]
    else:
        past = [one for one in every if release_numbers(one.release) <= numbers]
    return past[-1] if past else every[0]


def release_of_profile(p: EngineProfile) -> EngineRelease:
    """The release that a profile stands for: the one asked for, or the last that it was fitted to."""
    return release_named(p.engine, p.release or p.until)
