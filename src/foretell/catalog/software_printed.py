"""The word of a plan for software as people print it: "NeMo 24.07 (Megatron-Core)", "Megatron-LM (2020)".

A family's file lists patterns of what is printed for it (`printed`), and for its variants; the longest that
a text holds tells the family. `versions` of the file are patterns of its releases in the text or in the notes
beside it: the newest release not above the one in print is named. Without one, a date in print names the
release of that time. Where nothing tells it is the newest, or on chips that `newest_on` does not list the
release of `elsewhere`, else the one before the newest.
"""

import re
from functools import lru_cache

from foretell.catalog.software import families, family_of, family_table, releases, software_names
from foretell.specs._base import release_numbers
from foretell.specs.plan_words import GENERIC

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
NUMBER = re.compile(r"20\d\d-(?:0[1-9]|1[0-2])\b")
"""A year and a month in numbers."""
NAMED = re.compile(rf"\b({'|'.join(MONTHS)})[a-z]*\.? (20\d\d)\b", re.IGNORECASE)
"""A month by its name, and a year."""
DENIED = re.compile(
    r"\b(?:no|not|non|without|w/o)[ -](?:torch[.]?)?[\w.]+|\b[\w.]+(?: is)? (?:off|disabled)\b",
    re.IGNORECASE,
)
"""What a text says a run had not: "eager (no torch.compile)" names no compiler."""
YEAR = re.compile(r"\b(20[12]\d)\b|[A-Za-z]'([12]\d)\b")
"""A year, or a conference's."""
TORCH = re.compile(r"\b(?:py)?torch v?(\d+\.\d+)", re.IGNORECASE)
"""PyTorch's release, beside whose date a framework is no newer than its own next release."""
TORCH_MONTHS = {
    "1.8": "2021-03", "1.9": "2021-06", "1.10": "2021-10", "1.11": "2022-03", "1.12": "2022-06",
    "1.13": "2022-10", "2.0": "2023-03", "2.1": "2023-10", "2.2": "2024-01", "2.3": "2024-04",
    "2.4": "2024-07", "2.5": "2024-10", "2.6": "2025-01", "2.7": "2025-04", "2.8": "2025-08",
    "2.9": "2025-10",
}  # fmt: skip
"""Release of PyTorch -> year and month."""
OTHER_NAMES = {"other": GENERIC, "": GENERIC}
"""What tables call software in a column of ids, where plans call it otherwise."""


def recognise_framework(
    text: str, name: str = "", date: str = "", notes: str = "", architecture: str = ""
) -> str:
    """The word of a plan for a printed framework; generic where nothing tells.

    `name` is an id that is beside the text, `date` a text that may have a date, `notes` what is stated
    besides, `architecture` the chip's.
    """
    return _recognised(text, name, date, notes, architecture)


@lru_cache(maxsize=4096)
def _recognised(text: str, name: str, date: str, notes: str, architecture: str) -> str:
    text = DENIED.sub(" ", text)
    plain = OTHER_NAMES.get(name, name)
    plain = plain if plain in software_names() else GENERIC
    typed = text.strip().lower()
    word = typed if _one_release(typed) else _longest(text)
    word = word or (typed if typed in software_names() and typed != GENERIC else "")
    word = word or (plain if _one_release(plain) else _longest(f"{plain} {text}")) or plain
    if word == GENERIC:
        return GENERIC
    family = family_of(word)[0]
    at = _release(family, f"{text}; {notes}")
    if not at and word in (family, *_variants(family)):
        told = first_date(text) or torch_date(text) or first_date(date)
        at = _by_date(family, told) if told else _by_chip(family, architecture)
    return f"{word}@{at}" if at else word


def _one_release(word: str) -> bool:
    """Whether a word names one release of a family or a variant of it, and not the family."""
    if word not in software_names():
        return False
    family = family_of(word)[0]
    return word not in (family, *family_table(family)["family"].get("aliases", ()))


def first_date(text: str) -> str:
    """The first date in a text: a year, with a month where there is one; empty where there is none."""
    if number := NUMBER.search(text):
        return number[0]
    if named := NAMED.search(text):
        return f"{named[2]}-{MONTHS.index(named[1].lower()) + 1:02d}"
    year = YEAR.search(text)
    return "" if year is None else year[1] or f"20{year[2]}"


def torch_date(text: str) -> str:
    """When the release of PyTorch in a text came out; empty: none is named, or the newest are."""
    named = TORCH.search(text)
    return TORCH_MONTHS.get(named[1], "") if named else ""


def _longest(text: str) -> str:
    """The family or variant whose pattern takes most of a text; empty: none is there."""
    found = [
        (len(hit[0]), word)
        for word, pattern in _patterns()
        if (hit := pattern.search(text)) is not None
    ]
    return max(found)[1] if found else ""


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Word and pattern of everything that is printed."""
    found = []
    for family in families():
        table = family_table(family)
        blocks = [(family, table["family"]), *((v["id"], v) for v in table.get("variant", ()))]
        for word, block in blocks:
            found += [(word, _whole(pattern)) for pattern in block.get("printed", ())]
    return tuple(found)


def _whole(pattern: str) -> re.Pattern[str]:
    """A pattern of whole words: TRL is not in `control`, NeMo not in `Nemotron`."""
    return re.compile(rf"(?<![a-z])(?:{pattern})(?![a-z])", re.IGNORECASE)


def _variants(family: str) -> tuple[str, ...]:
    return tuple(block["id"] for block in family_table(family).get("variant", ()))


def _release(family: str, text: str) -> str:
    """The newest release of a family that is not above the one in print."""
    for pattern in family_table(family)["family"].get("versions", ()):
        if hit := re.search(pattern, text, re.IGNORECASE):
            known = [one.release for one in releases(family)]
            below = [r for r in known if release_numbers(r) <= release_numbers(hit[1])]
            return max(below, key=release_numbers, default=known[0])
    return ""


def _by_chip(family: str, architecture: str) -> str:
    """The release that is meant on chips that the newest is not meant on; else empty."""
    table = family_table(family)["family"]
    meant = table.get("newest_on", ())
    if not (meant and architecture) or architecture in meant:
        return ""
    return str(table.get("elsewhere") or releases(family)[-2].release)


def _by_date(family: str, date: str) -> str:
    """A date that names another release of the family than the newest; empty where it is the newest's."""
    every = releases(family)
    last = date if "-" in date else f"{date}-12"
    if not date or every[-1].released[:7] <= last:
        return ""
    return date if every[0].released[:7] <= last else every[0].release
