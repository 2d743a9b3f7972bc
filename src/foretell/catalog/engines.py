"""Engine profiles: overheads, limits and rules of serving engines, by version and chip generation."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, read_table
from foretell.errors import BadInput, Problem, nearest_name
from foretell.specs.chip import Chip
from foretell.specs.engine import EngineProfile, Fit

FILE = ROOT / "engines.toml"
"""Every profile that is known."""
ORDER = ("volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-ultra", "rubin")
"""Chip generations; the nearest one stands for a generation that no profile names."""
FIRST_YEAR = 2000
"""Numbers from here on are years, not versions."""
KEPT_YEARS = 1
"""Years after which the end of a profile's versions is long ago."""
ENGINES: Mapping[str, str] = {
    "trtllm": "trtllm", "tensorrt": "trtllm", "vllm": "vllm", "sglang": "sglang",
    "nemo": "nemo", "fastertransformer": "nemo", "torch": "torch", "huggingface": "torch",
    "transformers": "torch",
}  # fmt: skip
"""Words in the names of engines, and the engine."""


@lru_cache(maxsize=1)
def profiles() -> Mapping[str, EngineProfile]:
    """Every profile by its id."""
    return {entry["id"]: profile_from(entry) for entry in read_table(FILE)["profile"]}


def profile_from(table: Mapping[str, Any]) -> EngineProfile:
    """A profile from its `[[profile]]` table."""
    values = {**table, "fit": Fit(**table["fit"])}
    for name in ("architectures", "software", "years"):
        values[name] = tuple(values[name])
    return EngineProfile(**values)


def engine_named(text: str) -> str | None:
    """The engine that a text means; None where it means none known here."""
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    return next((engine for word, engine in ENGINES.items() if word in plain), None)


def profile(name: str, chip: Chip, version: str = "") -> EngineProfile:
    """A profile by its id, or an engine's for a version and a chip: the newest of the nearest generation.

    Without a version the engine of today is meant: profiles that ended years ago come last, however near
    the chips that they were fitted on.
    """
    known = profiles()
    if name in known:
        return known[name]
    engine = engine_named(name)
    mine = [p for p in known.values() if p.engine == engine]
    if not mine:
        names = [*known, *dict.fromkeys(p.engine for p in known.values())]
        raise BadInput(
            [
                Problem(
                    path="engine",
                    value=name,
                    message="is no engine or profile of the catalogue",
                    allowed=", ".join(names),
                    nearest=nearest_name(name, names),
                )
            ]
        )
    version = version or _version_in(name)
    newest = 0 if version else max(p.years[0] for p in mine)
    return min(
        mine,
        key=lambda p: (outside(p, version), outdated(p, newest), far(p, chip), newest_first(p)),
    )


def _version_in(name: str) -> str:
    """The version that an engine's name ends with, as in vllm-0.6."""
    found = re.search(r"[0-9]+(\.[0-9]+)*$", name.strip())
    return found[0] if found else ""


def outdated(p: EngineProfile, year: int) -> bool:
    """Whether a profile's versions ended so long before a year that nobody means them then."""
    return 0 < p.years[1] < year - KEPT_YEARS


def outside(p: EngineProfile, version: str) -> float:
    """How far a version, or a year in its place, lies outside a profile's range; 0 where none is told."""
    numbers = numbers_of(version)
    if not numbers:
        return 0.0
    if numbers[0] >= FIRST_YEAR:
        first, last = p.years
        return max(first - numbers[0], numbers[0] - (last or 9999), 0)
    low = numbers_of(p.since) <= numbers
    high = not p.until or numbers[: len(numbers_of(p.until))] <= numbers_of(p.until)
    return 0.0 if low and high else 1.0


def far(p: EngineProfile, chip: Chip) -> float:
    """Generations between a chip and those that a profile was fitted on."""
    if not p.architectures:
        return 0.5
    if chip.architecture not in ORDER:
        return 0.0 if chip.architecture in p.architectures else 9.0
    here = ORDER.index(chip.architecture)
    return float(min(abs(ORDER.index(a) - here) for a in p.architectures if a in ORDER))


def newest_first(p: EngineProfile) -> list[int]:
    """Sorts later versions first."""
    return [-n for n in numbers_of(p.since)]


def numbers_of(version: str) -> list[int]:
    """The numbers of a version, in order; a year is one."""
    return [int(n) for n in re.findall(r"\d+", version)]
