"""Aggregates of first contacts, in which every source counts alike."""

from collections.abc import Sequence
from statistics import mean, median

from foretell.lab.first_contact.contact import Contact
from foretell.records import as_json, dataclass

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
