"""A scored table as an entry of the ledger: `foretell validate KIND FILE --first-contact NAME`.

`--after-learning NAME` scores the rows of a stored wave again, by a version that has learned from them, and
adds a line to after_learning.jsonl: kind, name, date, commit and aggregates. Nothing is ever overwritten.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from foretell import __version__
from foretell.catalog.files import csv_rows
from foretell.errors import bad_input
from foretell.lab.first_contact.contact import Contact
from foretell.lab.first_contact.ledger import (
    FOLDER,
    Wave,
    add_wave,
    as_stored,
    novelty_key,
    seen_groups,
    waves,
)
from foretell.lab.first_contact.scores import FIT
from foretell.lab.validate.training_rows import table_text

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
    line = {
        "kind": wave.kind,
        "name": wave.name,
        "date": wave.date,
        "commit": wave.commit,
        "scores": [score.to_dict() for score in wave.scores],
        "fits": None if wave.fits is None else wave.fits.to_dict(),
    }
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
