"""Training software: one file per framework family in `software/`, its releases in order of their dates.

A release has the values of the one before it in its file where it states none; the first has those of the
family that the file names as `based_on`. A variant is a way to run any release (compiled, as graphs): its
values replace the release's. A word of a plan is a family, a variant or an alias, with `@RELEASE` or
`@DATE` behind it, else the newest release; a number between two releases is the earlier one.

The release of NCCL that frameworks of a date came with is in fabrics/nccl.toml.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, Table, read_table
from foretell.catalog.hosts import values_of
from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.records import dataclass
from foretell.specs.software import MemoryAllocator, Software


@lru_cache(maxsize=128)
def shipped_release(released: str) -> str:
    """The release of NCCL that frameworks of a date (2024-01) came with; empty: today's."""
    table = read_table(ROOT / "fabrics" / "nccl.toml")
    shipped = [str(one["version"]) for one in table["shipped"] if one["since"] <= released]
    return shipped[-1] if shipped else ""


FOLDER = ROOT / "software"
"""One file for each family."""
PATH = "plan.framework"
"""Family, variant and release that a word of software means."""
VALUE_KEYS = frozenset({"value", "source", "why", "seen", "without"})
"""What a value's table may hold: `seen` are the published runs that were in sight when it was chosen, by the
keys of the file's `[seen]`, and `without` is what is known without any of them."""
FACTS = ("release", "released", "name", "aliases", "id", "printed")
"""Keys of a release or variant that are no values."""
MADE = (
    "id",
    "family",
    "release",
    "released",
    "name",
    "left_out",
)
"""Fields of the record that no value gives."""
VERSION = re.compile(r"v?(\d{1,3}(?:\.\d{1,3}){1,3})")
"""A release as its makers number it: 0.12, v2.5.1, 24.07."""
DATE = re.compile(r"(20\d\d)(?:-(\d\d))?(?:-\d\d)?")
"""A year, with or without month and day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release of a family, or a variant of it, as its file has it."""

    family: str
    """The family."""
    word: str
    """Family or variant."""
    release: str
    """Number or year."""
    released: str
    """Year and month."""
    name: str
    """What people call it."""
    aliases: tuple[str, ...]
    """Words for it alone."""
    based_on: str
    """Family that it takes values from."""
    values: Mapping[str, Table]
    """Every value with its source, those of earlier releases among them."""


def software(word: str, left_out: Iterable[str] = ()) -> Software:
    """The record of a word of a plan; BadInput with the nearest where there is none.

    Values that were chosen with the runs of no other sources in sight than those in `left_out` are what they
    would be without.
    """
    return _record(word, tuple(left_out))


@lru_cache(maxsize=512)
def _record(word: str, left_out: tuple[str, ...]) -> Software:
    found = _found(word)
    given: dict[str, Any] = {}
    for name, raw in found.values.items():
        out = bool(raw.get("seen")) and set(raw["seen"]) <= set(left_out)
        given[name] = raw["without"] if out else raw["value"]
    given["allocator"] = _allocators()[given["allocator"]]
    return Software(
        id=f"{found.word}@{found.release}",
        family=found.family,
        release=found.release,
        released=found.released,
        name=found.name,
        left_out=left_out,
        **given,
    )


@lru_cache(maxsize=1)
def _allocators() -> dict[str, MemoryAllocator]:
    """Every allocator by the word of a release."""
    rows = [values_of(raw) for raw in read_table(ROOT / "allocators.toml")["allocator"]]
    return {row.pop("id"): MemoryAllocator(**row) for row in rows}


def family_of(word: str) -> tuple[str, str]:
    """The family that a word belongs to, and the date of the release that it names."""
    found = _found(word)
    return found.family, found.released


def form_word(word: str, form: str) -> str:
    """The word for the compiled form of a word's software (`on`), or for the other (`off`); auto: itself.

    BadInput where the framework has no such form.
    """
    if form == "auto" or software(word).compiled is (form == "on"):
        return word
    name, at, wanted = word.partition("@")
    family = software(word).family
    for other in dict.fromkeys(r.word for r in family_releases(family)):
        if software(other).compiled is (form == "on"):
            return f"{other}{at}{wanted}"
    with_both = [f for f in families() if len({r.compiled for r in _forms(f)}) > 1]
    said = "compiled" if form == "on" else "eager"
    raise bad_input(
        "plan.compile",
        form,
        f"{name} has no {said} form",
        f"auto, or one of the frameworks {', '.join(with_both)}",
    )


def _forms(family: str) -> list[Software]:
    """The newest release of a family, and its variants."""
    return [software(word) for word in dict.fromkeys(r.word for r in family_releases(family))]


def software_names() -> tuple[str, ...]:
    """Every word that names software without a release: families, variants and aliases."""
    words: dict[str, None] = {"generic": None}
    for family in families():
        words |= dict.fromkeys(_words(family))
    return tuple(words)


def releases(family: str) -> tuple[Release, ...]:
    """Releases of a family, the oldest first."""
    return tuple(r for r in family_releases(family) if r.word == family)


def seen_values() -> int:
    """How many values were chosen with end-to-end runs in sight, not from code, kernels or physics alone."""
    return sum(
        "seen" in raw
        for family in families()
        for block in _blocks(family_table(family))
        for key, raw in block.items()
        if key not in FACTS
    )


@lru_cache(maxsize=1)
def families() -> tuple[str, ...]:
    """Every family, by name."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@lru_cache(maxsize=64)
def family_table(family: str) -> Table:
    """A family's file: read once, and not to be changed by who reads it."""
    return read_table(FOLDER / f"{family}.toml")


def _blocks(table: Table) -> list[Table]:
    return [*table.get("release", ()), *table.get("variant", ())]


def _words(family: str) -> tuple[str, ...]:
    """Words of a family that need no release."""
    table = family_table(family)
    own = [family, *table["family"].get("aliases", ())]
    own += [alias for block in table["release"] for alias in block.get("aliases", ())]
    own += [block["id"] for block in table.get("variant", ())]
    return tuple(own)


@lru_cache(maxsize=64)
def family_releases(family: str) -> tuple[Release, ...]:
    """Releases and variants of a family with all their values; BadInput where its file is wrong."""
    table = family_table(family)
    based_on = table["family"].get("based_on", "")
    values: Mapping[str, Table] = _found(based_on).values if based_on else {}
    problems: list[Problem] = []
    found = []
    blocks = sorted(table["release"], key=lambda block: str(block["released"]))
    for block in blocks:
        values = {**values, **_values(family, block, table, problems)}
        problems += _missing(family, block["release"], values)
        one = Release(
            family=family,
            word=family,
            release=block["release"],
            released=block["released"],
            name=block.get("name", table["family"]["name"]),
            aliases=tuple(block.get("aliases", ())),
            based_on=based_on,
            values=values,
        )
        found.append(one)
        for variant in table.get("variant", ()):
            own = _values(family, variant, table, problems)
            found.append(
                Release(
                    family=family,
                    word=variant["id"],
                    release=one.release,
                    released=one.released,
                    name=variant["name"],
                    aliases=(),
                    based_on=based_on,
                    values={**values, **own},
                )
            )
    if problems:
        raise BadInput({p.path + p.message: p for p in problems}.values())
    return tuple(found)


def _values(family: str, block: Table, table: Table, problems: list[Problem]) -> dict[str, Table]:
    """The values of a release, with a problem for each that lacks a sentence or a source."""
    known = [field.name for field in fields(Software) if field.name not in MADE]
    found: dict[str, Table] = {}
    for name, raw in block.items():
        if name in FACTS:
            continue
        path = f"software/{family}.{name}"
        if name not in known:
            problems.append(wrong(path, name, "no such field", nearest=nearest_name(name, known)))
        elif not isinstance(raw, dict) or not {"value", "source", "why"} <= set(raw) <= VALUE_KEYS:
            problems.append(wrong(path, raw, "is not a value with a sentence and a source"))
        elif raw["source"] not in table["sources"]:
            problems.append(wrong(path, raw["source"], "is no source"))
        else:
            found[name] = raw
            if "seen" in raw:
                found[name] = {**raw, "seen": _seen(raw, table.get("seen", {}), path, problems)}
    return found


def _seen(
    raw: Table, seen: Mapping[str, str], path: str, problems: list[Problem]
) -> tuple[str, ...]:
    """The published runs that a value's keys name."""
    lost = [key for key in raw["seen"] if key not in seen]
    if lost or "without" not in raw:
        message = "is no key of [seen], or the value has no `without`"
        found = ", ".join([*lost, *(() if "without" in raw else ("without",))])
        problems.append(wrong(f"{path}.seen", found, message))
    return tuple(seen[key] for key in raw["seen"] if key in seen)


def _missing(family: str, release: str, values: Mapping[str, Table]) -> list[Problem]:
    """Fields without a default that neither a release nor those before it state."""
    needed = [f.name for f in fields(Software) if f.default is MISSING and f.name not in MADE]
    return [
        wrong(f"software/{family}.{name}", release, "is missing")
        for name in needed
        if name not in values
    ]


def _found(word: str) -> Release:
    """The release that a word names."""
    name, at, wanted = word.partition("@")
    # The file of a family's own name is tried first: most questions name none but the generic one.
    places = (name,) if name in families() else families()
    for family in places:
        if name in _words(family):
            return _of_family(family, name, wanted if at else None)
    names = software_names()
    raise bad_input(
        PATH,
        word,
        "not a choice",
        f"{', '.join(names)}; each with @RELEASE or @DATE",
        nearest_name(name, names),
    )


def _of_family(family: str, name: str, wanted: str | None) -> Release:
    """Of a family the release of an alias, the one that is wanted, or the newest."""
    every = family_releases(family)
    by_alias = [r for r in every if name in r.aliases]
    word = name if any(r.word == name for r in every) else family
    mine = by_alias or [r for r in every if r.word == word]
    if wanted is None:
        return mine[-1]
    exact = [r for r in mine if r.release == wanted]
    date, version = DATE.fullmatch(wanted), _version(wanted)
    if not exact and version and not date:
        # A release that has no block of its own has the values of the last one before it.
        exact = [r for r in mine if (_version(r.release) or version) <= version]
        exact = [r for r in exact if "." in r.release]
    if not exact and date:
        last = f"{date[1]}-{date[2] or '12'}"
        exact = [r for r in mine if r.released[:7] <= last]
    if exact:
        return exact[-1]
    raise BadInput([_no_release(name, wanted, mine)])


def _version(release: str) -> tuple[int, ...] | None:
    """Numbers of a release: 0.12.1 is (0, 12, 1); None where it is no such thing."""
    found = VERSION.fullmatch(release)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def _no_release(name: str, wanted: str, known: Sequence[Release]) -> Problem:
    """A release that is not there, or a date before the first."""
    return wrong(
        PATH,
        f"{name}@{wanted}",
        f"not a release of {name}",
        ", ".join(f"{r.release} ({r.released})" for r in known) + ", or a date from the first on",
        f"{name}@{nearest_name(wanted, [r.release for r in known]) or known[0].release}",
    )
