"""Waves of measured rows with the predictions of the version that met them first.

A wave is a file `waves/KIND--NAME.csv.gz`. Its first line is `# ` and JSON: kind, name, date, commit, table,
its rows, how many were refused, aggregates, and a list of names. A CSV table follows, with a line for each
number that was predicted: id, source and group (places in the list of names), metric, seen_before (1: yes),
measured, predicted, and the ends of the 90 % interval, low and high, blank where there is none; five
significant digits.
"""

import csv
import gzip
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretell.errors import bad_input
from foretell.lab.first_contact.contact import Contact
from foretell.lab.first_contact.scores import ContactScore, FitScore, score_fits, scores_by_metric
from foretell.records import dataclass

KINDS = ("training", "serving", "post-training", "memory")
"""Kinds of tables that a wave may be of."""
FOLDER = Path(__file__).with_name("waves")
"""The waves that are part of the package."""
OPEN_BEFORE = Path(__file__).with_name("open_before.csv.gz")
"""What the tables hold that formulas were found on before the first wave: columns kind and group."""
COLUMNS = ("id", "source", "group", "metric", "seen_before", "measured", "predicted", "low", "high")
"""Columns of a wave's table."""
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
"""A name of a wave: a part of its file's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Rows that one version met."""

    kind: str
    """training, serving, post-training or memory."""
    name: str
    """Name of the wave."""
    date: str
    """Day on which it was met, or of the version where only that is known; as in 2026-11-16."""
    commit: str
    """The version that met it."""
    table: str
    """Name of the table."""
    rows: int
    """Rows of the table."""
    refused: int | None
    """Rows of it that the version refused; None where that was not recorded."""
    contacts: tuple[Contact, ...]
    """Every number that was predicted."""

    @property
    def scores(self) -> tuple[ContactScore, ...]:
        """Aggregates by metric, first contacts and new rows of known sources apart."""
        return scores_by_metric(self.contacts)

    @property
    def fits(self) -> FitScore | None:
        """Runs predicted to fit or not, where the wave has such."""
        return score_fits(self.contacts)


def first_contacts(
    kind: str, *, seen_before: bool = False, most: int | None = None, folder: Path = FOLDER
) -> tuple[Contact, ...]:
    """Every stored first contact of a kind: the residuals that error models are fitted to.

    Rows of all waves, in their order, each as predicted by the version that met it; a row that a later wave
    has again counts once, as it was first met. `seen_before` adds new rows of sources that were known (their
    `seen_before` is True). `most` keeps at most so many numbers of a group and metric, evenly spaced, so
    that one large table does not decide everything: 15 is usual.
    """
    found: dict[tuple[str, str], Contact] = {}
    for wave in waves(kind, folder):
        for one in wave.contacts:
            if seen_before or not one.seen_before:
                found.setdefault((one.id, one.metric), one)
    kept = tuple(found.values())
    return kept if most is None else at_most(kept, most)


def at_most(contacts: Sequence[Contact], most: int) -> tuple[Contact, ...]:
    """At most so many numbers of each group and metric, evenly spaced in their order."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, one in enumerate(contacts):
        groups.setdefault((one.group, one.metric), []).append(place)
    kept = [
        places[i * len(places) // min(most, len(places))]
        for places in groups.values()
        for i in range(min(most, len(places)))
    ]
    return tuple(contacts[place] for place in sorted(kept))


@lru_cache(maxsize=32)
def waves(kind: str, folder: Path = FOLDER) -> tuple[Wave, ...]:
    """The waves of a kind, oldest first."""
    found = [read_wave(path) for path in sorted(folder.glob(f"{kind}--*.csv.gz"))]
    return tuple(sorted(found, key=lambda wave: (wave.date, wave.name)))


def read_wave(path: Path) -> Wave:
    """A wave from its file."""
    head, _, table = gzip.decompress(path.read_bytes()).decode().partition("\n")
    facts: dict[str, Any] = json.loads(head.removeprefix("# "))
    names = facts["names"]
    contacts = tuple(
        Contact(
            wave=facts["name"],
            id=cells["id"],
            source=names[int(cells["source"])],
            group=names[int(cells["group"])],
            metric=cells["metric"],
            seen_before=cells["seen_before"] == "1",
            measured=_number(cells["measured"]),
            predicted=float(cells["predicted"]),
            low=_number(cells["low"]),
            high=_number(cells["high"]),
        )
        for cells in csv.DictReader(io.StringIO(table))
    )
    keys = ("kind", "name", "date", "commit", "table", "rows", "refused")
    return Wave(**{key: facts[key] for key in keys}, contacts=contacts)


def wave_text(wave: Wave) -> str:
    """What a wave's file holds, unpacked; aggregates are of the figures as they are stored."""
    wave = replace(wave, contacts=tuple(as_stored(one) for one in wave.contacts))
    names = list(dict.fromkeys(text for one in wave.contacts for text in (one.source, one.group)))
    places = {text: place for place, text in enumerate(names)}
    head = {
        "kind": wave.kind,
        "name": wave.name,
        "date": wave.date,
        "commit": wave.commit,
        "table": wave.table,
        "rows": wave.rows,
        "refused": wave.refused,
        "scores": [score.to_dict() for score in wave.scores],
        "fits": None if wave.fits is None else wave.fits.to_dict(),
        "names": names,
    }
    text = io.StringIO()
    text.write(f"# {json.dumps(head)}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in wave.contacts:
        numbers = (one.measured, one.predicted, one.low, one.high)
        known = (one.id, places[one.source], places[one.group], one.metric, int(one.seen_before))
        writer.writerow((*known, *("" if n is None else f"{n:.5g}" for n in numbers)))
    return text.getvalue()


def as_stored(one: Contact) -> Contact:
    """A contact with figures of five significant digits."""
    return replace(
        one,
        measured=_short(one.measured),
        predicted=float(f"{one.predicted:.5g}"),
        low=_short(one.low),
        high=_short(one.high),
    )


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def check_entry(kind: str, name: str, folder: Path = FOLDER) -> Path:
    """Where a new wave would be stored; BadInput for a name that is none or is taken."""
    path = folder / f"{kind}--{name}.csv.gz"
    problem = None
    if NAME.fullmatch(name) is None:
        problem = (
            "is no name of a wave",
            "lower-case letters, digits, '.', '_' and '-', 60 at most",
        )
    elif path.exists() or (FOLDER / path.name).exists():
        taken = ", ".join(wave.name for wave in (*waves(kind), *waves(kind, folder)))
        problem = (
            f"is in the ledger already as a first contact of {kind}; a first contact is met once",
            f"a name other than {taken}, or --after-learning {name} to score it again",
        )
    if problem is not None:
        message, allowed = problem
        raise bad_input("first-contact", name, message, allowed)
    return path


def add_wave(wave: Wave, folder: Path = FOLDER) -> Path:
    """Store a wave and return its file; BadInput where the name is taken."""
    path = check_entry(wave.kind, wave.name, folder)
    content = gzip.compress(wave_text(wave).encode(), mtime=0)
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(content)
    waves.cache_clear()
    return path


def seen_groups(kind: str) -> frozenset[str]:
    """Groups whose rows are open, by `novelty_key`: in tables before the first wave, or in a stored wave."""
    table = gzip.decompress(OPEN_BEFORE.read_bytes()).decode()
    before = {row["group"] for row in csv.DictReader(io.StringIO(table)) if row["kind"] == kind}
    met = {novelty_key(kind, one.group) for wave in waves(kind) for one in wave.contacts}
    return frozenset(before | met)


def novelty_key(kind: str, group: str) -> str:
    """What must not have been in sight for a first contact: the group; of serving without disaggregation."""
    return group.rpartition("|")[0].lower() if kind == "serving" else group


def _number(text: str) -> float | None:
    return float(text) if text else None
