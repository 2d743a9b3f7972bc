"""What is added to the ledger: a scored table, or lines that the scorer of a sealed wave prints.

`foretell validate KIND FILE --first-contact NAME` stores a scored table as a new entry.
`--after-learning NAME` scores the rows of a stored wave again, by a version that has learned from them, and
adds a line to after_learning.jsonl: kind, name, date, commit and aggregates. Nothing is ever overwritten.

A scorer that holds a sealed wave prints aggregates of this version's predictions, and no row:

    SCORER ... | python -m foretell.lab.first_contact add

keeps what it prints, word for word, in waves/sealed.txt, and renders the pages. The file has blocks with an
empty line after each. A block begins with the day and the commit, as in `2026-11-20 bae3d72c`; its other
lines are those of the scorer. Two forms are read, others are shown as they are:

    first contact, wave B, training at bae3d72c; refused 3 of 500
    step_s  rows 480  groups 24  median group 20.0%  mean 25.0%  signed -3.0%  over 25 % off 30%
            90 % interval holds rows 80%, groups 75%  high/low 1.60                      (one line)
"""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from foretell import __version__
from foretell.catalog.files import csv_rows
from foretell.errors import bad_input
from foretell.lab.first_contact.ledger import (
    FIT,
    FOLDER,
    KINDS,
    Contact,
    ContactScore,
    Wave,
    add_wave,
    as_stored,
    novelty_key,
    seen_groups,
    waves,
)
from foretell.lab.validate.scores import table_text
from foretell.records import dataclass

AFTER = "after_learning.jsonl"
"""Name of the file with the scores of waves after learning."""
OUTCOMES = {"ran": 1.0, "oom": 0.0, "out of memory": 0.0}
"""How a table says whether a run ran."""
Answer = Mapping[str, Any]
"""The JSON of `foretell validate`."""


def wave_of(kind: str, name: str, file: Path, answer: Answer, *, every_grade: bool = False) -> Wave:
    """The entry of a scored table: its predictions by this version, of today.

    Rows of grade C, which state a trend, are left to the printed answer unless `every_grade` is asked for.
    """
    _, cells = csv_rows(table_text(file), str(file))
    rows = {
        one.get("id") or one.get("job_id") or str(n): one for n, one in enumerate(cells, start=1)
    }
    seen = seen_groups(kind)
    contacts = []
    for one in (*answer["predictions"], *answer.get("memory_predictions", ())):
        row = rows.get(str(one["id"]), {})
        if every_grade or "C" not in (row.get("quality"), row.get("grade")):
            contacts.append(_contact(kind, name, one, row, seen))
    return Wave(
        kind=kind,
        name=name,
        date=date.today().isoformat(),
        commit=code_version(),
        table=file.name,
        rows=int(answer["rows"]),
        refused=len(answer["unsupported"]),
        contacts=tuple(contacts),
    )


def _contact(
    kind: str, name: str, one: Answer, cells: Mapping[str, str], seen: frozenset[str]
) -> Contact:
    """One prediction of an answer beside the cells of its row."""
    source = str(one.get("source") or cells.get("source") or "not stated")
    parts = [cells.get(column) or "" for column in ("model", "gpu", "framework", "disagg")]
    group = "|".join(parts) if kind == "serving" else source
    fits = "fit_probability" in one
    predicted, measured = one["predicted"], one.get("measured")
    if fits:
        chance = one["fit_probability"]
        predicted = float(one["fits"]) if chance is None else chance
        measured = OUTCOMES.get(str(one.get("outcome") or cells.get("outcome")).lower())
    return Contact(
        wave=name,
        id=str(one["id"]),
        source=source,
        group=group,
        metric=FIT if fits else str(one["metric"]),
        seen_before=novelty_key(kind, group) in seen,
        measured=measured,
        predicted=predicted,
        low=None if fits else one["low"],
        high=None if fits else one["high"],
    )


def known_wave(kind: str, name: str, folder: Path = FOLDER) -> Wave:
    """A stored wave by its name; BadInput where there is none."""
    found = {wave.name: wave for wave in (*waves(kind), *waves(kind, folder))}
    if name not in found:
        message = f"is no first contact of {kind} in the ledger"
        allowed = ", ".join(found) or "none is stored; --first-contact NAME adds one"
        raise bad_input("after-learning", name, message, allowed)
    return found[name]


def add_after(met: Wave, file: Path, answer: Answer, folder: Path = FOLDER) -> Path:
    """Store the scores of a wave's rows as this version predicts them, and return the file."""
    known = {(one.id, one.metric): one.seen_before for one in met.contacts}
    now = wave_of(met.kind, met.name, file, answer, every_grade=True)
    kept = [one for one in now.contacts if (one.id, one.metric) in known]
    wave = replace(
        now,
        contacts=tuple(
            replace(as_stored(one), seen_before=known[one.id, one.metric]) for one in kept
        ),
    )
    names = ("kind", "name", "date", "commit")
    line = {**{one: getattr(wave, one) for one in names}, **wave.aggregates}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / AFTER
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")
    return path


def after_learning(kind: str, name: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """The newest scores of a wave after learning; None where it was not scored again."""
    path = folder / AFTER
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    mine = [one for one in found if (one["kind"], one["name"]) == (kind, name)]
    return mine[-1] if mine else None


def store(kind: str, name: str, file: Path, answer: Answer, folder: Path = FOLDER) -> Path:
    """Add a first contact to the ledger and return its file."""
    return add_wave(wave_of(kind, name, file, answer), folder)


def code_version() -> str:
    """The commit of this code, with `+changes` where src differs from it; the version where there is none."""
    root = Path(__file__).parents[4]
    if not (root / ".git").exists():
        return __version__
    commit = _git(root, "rev-parse", "--short=8", "HEAD")
    if commit is None:
        return __version__
    return f"{commit}+changes" if _git(root, "status", "--porcelain", "src") else commit


def _git(root: Path, *words: str) -> str | None:
    """What git prints; None where there is no git or it refuses."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


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
