"""Lines of a scorer that holds a sealed wave: it prints aggregates of this version's predictions, and no row.

    SCORER ... | python -m foretell.lab.first_contact add

keeps what it prints, word for word, in waves/sealed.txt, and renders the pages. The file has blocks with an
empty line after each. A block begins with the day and the commit, as in `2026-11-20 bae3d72c`; its other
lines are those of the scorer. Two forms are read, others are shown as they are:

    first contact, wave B, training at bae3d72c; refused 3 of 500
    step_s  rows 480  groups 24  median group 20.0%  mean 25.0%  signed -3.0%  over 25 % off 30%
            90 % interval holds rows 80%, groups 75%  high/low 1.60                      (one line)
"""

import re
from datetime import date
from pathlib import Path

from foretell.errors import bad_input
from foretell.lab.first_contact.entry import code_version
from foretell.lab.first_contact.ledger import FOLDER, KINDS
from foretell.lab.first_contact.scores import ContactScore
from foretell.records import dataclass

FILE = FOLDER / "sealed.txt"
"""What scorers printed."""
_PERCENT = r"\s+([+-]?[\d.]+)%"
TITLE = re.compile(
    rf"(?P<draft>DRAFT [^:]*: )?first contact, (?P<wave>[^,]+), (?P<kind>{'|'.join(KINDS)})\b:?"
    r"(?:\s*(?P<given>.*?)\s*\bat (?P<commit>\S+); refused \d+ of \S+|.*)"
)
"""The line that begins what is printed of a kind."""
SCORE = re.compile(
    r"(?P<metric>\S.*?)\s+rows\s+(\d+)\s+groups\s+(\d+)"
    rf"\s+median group{_PERCENT}\s+mean{_PERCENT}\s+signed{_PERCENT}\s+over 25 % off{_PERCENT}"
    rf"\s+90 % interval holds rows{_PERCENT}, groups{_PERCENT}\s+high/low\s+([\d.]+)"
)
"""A line with the aggregates of one group of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedScore:
    """What a scorer printed of one kind of a sealed wave at one time."""

    date: str
    """The day."""
    commit: str
    """The version that was scored."""
    wave: str
    """Name of the wave."""
    kind: str
    """training, serving, post-training or memory."""
    given: str
    """What else was asked for, such as `--anchors 1`; empty: plain predictions."""
    draft: bool
    """Whether the tree had changes that were not committed: then it is no first contact."""
    scores: tuple[ContactScore, ...]
    """Aggregates by group of rows, sources being the scorer's groups."""
    notes: tuple[str, ...]
    """Lines of another form."""


def append_lines(text: str, file: Path = FILE) -> None:
    """Keep what a scorer printed; BadInput where it is empty, of no known form, or there already."""
    blocks = _blocks(text)
    kept = file.read_text(encoding="utf-8") if file.is_file() else ""
    problem = ""
    if not blocks:
        problem = "has no line `first contact, WAVE, KIND ...`"
    elif any("\n".join(lines) in kept for lines in blocks):
        problem = "is in the ledger already"
    if problem:
        raise bad_input("standard input", None, problem, "the lines of a scorer, as it prints them")
    with file.open("a", encoding="utf-8") as opened:
        for lines in blocks:
            title = TITLE.fullmatch(lines[0])
            commit = (title and title["commit"]) or code_version()
            opened.write("\n".join([f"{date.today().isoformat()} {commit}", *lines, "", ""]))


def _blocks(text: str) -> list[list[str]]:
    """What was printed, by kind and question; lines before the first title are dropped."""
    blocks: list[list[str]] = []
    last: object = None
    for line in (line.rstrip() for line in text.splitlines() if line.strip()):
        title = TITLE.fullmatch(line)
        if title is not None:
            # A score of memory has two titles, neither with a commit: one block.
            now = (title["wave"], title["kind"], title["given"])
            if now != last:
                blocks.append([])
            last = now
        if blocks:
            blocks[-1].append(line)
    return blocks


def sealed_scores(file: Path = FILE) -> tuple[SealedScore, ...]:
    """Every score of a sealed wave, in the order in which they were kept."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    blocks = [block.splitlines() for block in text.split("\n\n") if block.strip()]
    return tuple(_read(block) for block in blocks)


def _read(block: list[str]) -> SealedScore:
    """One block; a title that repeats the kind of the one before, as of memory, is a note."""
    day, _, commit = block[0].partition(" ")
    title = next(found for line in block[1:] if (found := TITLE.fullmatch(line)))
    scores: list[ContactScore] = []
    notes: list[str] = []
    for line in block[1:]:
        if (found := SCORE.match(line)) is not None:
            scores.append(_score(found))
        elif line != title[0] or title["commit"] is None:
            notes.append(line)
    return SealedScore(
        date=day,
        commit=commit,
        wave=title["wave"],
        kind=title["kind"],
        given=title["given"] or "",
        draft=title["draft"] is not None,
        scores=tuple(scores),
        notes=tuple(notes),
    )


def _score(found: re.Match[str]) -> ContactScore:
    """A line of aggregates; the scorer prints no median over rows, its mean over groups is not kept."""
    rows, groups, group, _, signed, far, inside, inside_groups, width = found.groups()[1:]
    has_interval = float(width) > 0.0
    return ContactScore(
        metric=found["metric"],
        seen_before=False,
        sources=int(groups),
        rows=int(rows),
        median_source=float(group) / 100.0,
        median_row=None,
        signed=float(signed) / 100.0,
        far_off=float(far) / 100.0,
        inside_rows=float(inside) / 100.0 if has_interval else None,
        inside_sources=float(inside_groups) / 100.0 if has_interval else None,
        high_over_low=float(width) if has_interval else None,
    )
