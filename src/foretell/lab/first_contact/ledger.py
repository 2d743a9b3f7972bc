"""Waves of measured rows with the predictions of the version that met them first, and their aggregates.

Every source counts alike in aggregates.

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
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import mean, median
from typing import Any

from foretell.errors import bad_input
from foretell.records import as_json, dataclass, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """One number of one row: measured, and as the version that met it predicted it."""

    wave: str
    """Name of the wave."""
    id: str
    """The row's id."""
    source: str
    """Where the row is published."""
    group: str
    """What counts as one source: a source's short name; of serving model, chip, engine and disaggregation."""
    metric: str
    """What is compared: step_s, tpot, ttft, step, fit_probability, ..."""
    seen_before: bool
    """Whether rows of its source (of serving: of its model, chip and engine) were open already."""
    measured: float | None
    """The measurement; None where it is unknown. Of fit_probability 1: it ran, 0: it ran out of memory."""
    predicted: float
    """The prediction of the version that met it."""
    low: float | None
    """Lower end of the 90 % interval; None where there is none."""
    high: float | None
    """Upper end."""

    @property
    def log_error(self) -> float:
        """ln(measured / predicted); NaN where one of them is no positive number."""
        if not (self.measured and self.measured > 0.0 and self.predicted > 0.0):
            return math.nan
        return math.log(self.measured / self.predicted)


FAR = 0.25
"""Relative error from which a row is far off."""
FIT = "fit_probability"
"""Metric of rows that ran or ran out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContactScore:
    """How far some rows were from their predictions, and how many lay inside their intervals."""

    metric: str
    """What is compared."""
    seen_before: bool
    """Whether these are new rows of sources that were known."""
    sources: int
    """Sources; of serving combinations of model, chip, engine and disaggregation."""
    rows: int
    """Rows."""
    median_source: float
    """Median over sources of the median |predicted / measured - 1|."""
    median_row: float | None
    """Median over rows of |predicted / measured - 1|; None where only aggregates are known."""
    signed: float
    """Median over rows of predicted / measured - 1."""
    far_off: float
    """Share of rows that are more than 25 % off."""
    inside_rows: float | None
    """Share of rows inside their 90 % interval; None where there is none."""
    inside_sources: float | None
    """Mean over sources of that share."""
    high_over_low: float | None
    """Median width of the intervals."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class FitScore:
    """How many runs were predicted to fit, of those that ran and of those that ran out of memory."""

    ran: int
    """Runs that ran."""
    ran_predicted_not: int
    """Of these, those that were less likely than not to fit."""
    out_of_memory: int
    """Runs that ran out of memory."""
    out_of_memory_predicted_to_fit: int
    """Of these, those that were at least as likely to fit as not."""
    brier: float
    """Mean square of probability - outcome."""

    to_dict = as_json()


def scores_by_metric(contacts: Sequence[Contact]) -> tuple[ContactScore, ...]:
    """Scores of each metric, largest group first; first contacts before new rows of known sources."""
    groups: dict[tuple[bool, str], list[Contact]] = {}
    for one in contacts:
        groups.setdefault((one.seen_before, one.metric), []).append(one)
    scores = [found for some in groups.values() if (found := score_contacts(some)) is not None]
    return tuple(sorted(scores, key=lambda s: (s.seen_before, -s.rows, s.metric)))


def score_contacts(contacts: Sequence[Contact]) -> ContactScore | None:
    """The score of rows of one metric; None where nothing was measured, or no amount (see `score_fits`)."""
    known = [one for one in contacts if one.metric != FIT and one.measured]
    if not known:
        return None
    errors = [one.predicted / (one.measured or 1.0) - 1.0 for one in known]
    sizes = [abs(error) for error in errors]
    wide = [one for one in known if one.low is not None and one.high is not None]
    inside = [float(_inside(one)) for one in wide]
    shares = [mean(some) for some in _by_source(wide, inside).values()]
    widths = [one.high / one.low for one in wide if one.low and one.high]
    return ContactScore(
        metric=known[0].metric,
        seen_before=known[0].seen_before,
        sources=len(_by_source(known, sizes)),
        rows=len(known),
        median_source=_short(median(median(some) for some in _by_source(known, sizes).values())),
        median_row=_short(median(sizes)),
        signed=_short(median(errors)),
        far_off=_short(mean(size > FAR for size in sizes)),
        inside_rows=_short(mean(inside)) if inside else None,
        inside_sources=_short(mean(shares)) if shares else None,
        high_over_low=_short(median(widths)) if widths else None,
    )


def score_fits(contacts: Sequence[Contact]) -> FitScore | None:
    """The score of runs that ran or ran out of memory; None where no outcome is known."""
    known = [
        (one.predicted, bool(one.measured))
        for one in contacts
        if one.metric == FIT and one.measured is not None
    ]
    if not known:
        return None
    ran = [chance for chance, outcome in known if outcome]
    failed = [chance for chance, outcome in known if not outcome]
    return FitScore(
        ran=len(ran),
        ran_predicted_not=sum(chance < 0.5 for chance in ran),
        out_of_memory=len(failed),
        out_of_memory_predicted_to_fit=sum(chance >= 0.5 for chance in failed),
        brier=_short(mean((chance - outcome) ** 2 for chance, outcome in known)),
    )


def _by_source(contacts: Sequence[Contact], values: Sequence[float]) -> dict[str, list[float]]:
    """Values of rows by what counts as one source."""
    found: dict[str, list[float]] = {}
    for one, value in zip(contacts, values, strict=True):
        found.setdefault(one.group, []).append(value)
    return found


def _inside(one: Contact) -> bool:
    """Whether the measurement of a row lies in its interval."""
    if one.low is None or one.high is None or one.measured is None:
        return False
    return one.low <= one.measured <= one.high


def _short(value: float) -> float:
    return round(float(value), 4)


KINDS = ("training", "serving", "post-training", "memory")
"""Kinds of tables that a wave may be of."""
FOLDER = Path(__file__).with_name("waves")
"""The waves that are part of the package."""
OPEN_BEFORE = Path(__file__).with_name("open_before.csv.gz")
"""What the tables hold that formulas were found on before the first wave: columns kind and group."""
COLUMNS = ("id", "source", "group", "metric", "seen_before", "measured", "predicted", "low", "high")
"""Columns of a wave's table."""
FACTS = ("kind", "name", "date", "commit", "table", "rows", "refused")
"""What a wave's file says of it."""
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

    @property
    def aggregates(self) -> dict[str, Any]:
        """Both as JSON."""
        return {"scores": plain(self.scores), "fits": plain(self.fits)}


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
    return Wave(**{name: facts[name] for name in FACTS}, contacts=contacts)


def wave_text(wave: Wave) -> str:
    """What a wave's file holds, unpacked; aggregates are of the figures as they are stored."""
    wave = replace(wave, contacts=tuple(as_stored(one) for one in wave.contacts))
    names = list(dict.fromkeys(text for one in wave.contacts for text in (one.source, one.group)))
    places = {text: place for place, text in enumerate(names)}
    head = {**{name: getattr(wave, name) for name in FACTS}, **wave.aggregates, "names": names}
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
        measured=_digits(one.measured),
        predicted=float(f"{one.predicted:.5g}"),
        low=_digits(one.low),
        high=_digits(one.high),
    )


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def check_entry(kind: str, name: str, folder: Path = FOLDER) -> Path:
    """Where a new wave would be stored; BadInput for a name that is none or is taken."""
    path = folder / f"{kind}--{name}.csv.gz"
    if NAME.fullmatch(name) is None:
        allowed = "lower-case letters, digits, '.', '_' and '-', 60 at most"
        raise bad_input("first-contact", name, "is no name of a wave", allowed)
    if path.exists() or (FOLDER / path.name).exists():
        taken = ", ".join(wave.name for wave in (*waves(kind), *waves(kind, folder)))
        message = (
            f"is in the ledger already as a first contact of {kind}; a first contact is met once"
        )
        allowed = f"a name other than {taken}, or --after-learning {name} to score it again"
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
