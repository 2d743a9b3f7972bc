"""What pages show of the ledger: tables of docs/first-contact.md, sentences of README.md, JSON of the web."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.lab.first_contact.entry import SealedScore, after_learning, sealed_scores
from foretell.lab.first_contact.ledger import (
    FACTS,
    FAR,
    KINDS,
    Contact,
    ContactScore,
    Wave,
    at_most,
    first_contacts,
    score_contacts,
    waves,
)
from foretell.lab.validate.page_text import Sections, markdown, rows_text, with_written
from foretell.records import plain

HISTORY = Path(__file__).with_name("history.toml")
"""What was recorded of first contacts before the ledger: aggregates in words."""
MOST = 15
"""Rows of a source that count where a large table would decide everything."""
LABELS: Mapping[str, str] = tomllib.loads(HISTORY.read_text(encoding="utf-8"))["labels"]
"""Metric -> what a page calls it."""
OUTCOME = re.compile(r"\w+ so$")
"""How a scorer ends its count of right outcomes."""
HEADLINES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "training": (("step_s",), "sources"),
    "serving": (("tpot", "ttft"), "combinations of model, chip and engine"),
    "post-training": (("step",), "sources"),
}
"""Kind -> metrics that README.md reports, and what it calls what counts as one."""
COLUMNS = (
    "sources | rows | median source | median row | signed | over 25 % off | in 90 %: rows, sources"
    " | high / low"
)


def waves_text() -> str:
    """Every wave: first contacts by kind and metric, and how they looked after learning."""
    return _waves_table(seen_before=False)


def known_text() -> str:
    """The new rows of known sources in every wave."""
    return _waves_table(seen_before=True)


def _waves_table(*, seen_before: bool) -> str:
    """A line for each wave and metric of first contacts, or of rows of known sources."""
    rows: list[Sequence[str]] = []
    for wave in (wave for kind in KINDS for wave in waves(kind)):
        for score in wave.scores:
            if score.seen_before == seen_before:
                what, after = _what(wave.kind, score.metric), _after_cell(wave, score)
                rows.append((wave.name, wave.commit, what, *_cells(score), after))
        if not seen_before:
            few = _few(wave)
            if few is not None:
                what = f"{_what(wave.kind, few.metric)}, at most {MOST} rows a source"
                rows.append((wave.name, wave.commit, what, *_cells(few), ""))
            rows += _fit_row(wave)
    return markdown(f"wave | met by | predicted | {COLUMNS} | after learning", rows)


def sources_text() -> str:
    """Every training source that was met for the first time, as CSV."""
    groups: dict[tuple[str, str], list[Contact]] = {}
    for one in first_contacts("training"):
        if one.metric == "step_s":
            groups.setdefault((one.wave, one.source), []).append(one)
    rows = []
    for (wave, source), some in groups.items():
        score = score_contacts(some)
        assert score is not None
        rows.append(
            {
                "wave": wave,
                "source": source,
                "rows": score.rows,
                "median error": _error(score.median_source),
                "signed": f"{score.signed:+.0%}",
                "in 90 %": _share(score.inside_rows),
                "high / low": _width(score.high_over_low),
            }
        )
    return rows_text(rows)


def sealed_text() -> str:
    """Scores of waves whose rows are sealed, one table for each; the first of a wave and kind counts. Of one
    that was opened since, which has its rows above, when it was scored."""
    every, opened = sealed_scores(), {(kind, wave.name) for kind in KINDS for wave in waves(kind)}
    scores = [one for one in every if (one.kind, _wave_key(one.wave)) not in opened]
    first = [id(one) for one, _ in _counted(scores)]
    parts = [_sealed_part(one, is_first=id(one) in first) for one in scores]
    times: dict[tuple[str, str], list[str]] = {}
    for one in every:
        if one not in scores and not one.draft and not one.given:
            times.setdefault((one.wave, one.kind), []).append(f"{one.commit} ({one.date})")
    lines = [
        f"- {wave}, {kind}: {', '.join(at)}; every line is in `waves/sealed.txt`."
        for (wave, kind), at in times.items()
    ]
    parts += (
        ["Scored while they were sealed, and opened since:\n\n" + "\n".join(lines)] if lines else []
    )
    return "\n\n".join(parts) or "None has been scored yet."


def _sealed_part(one: SealedScore, *, is_first: bool) -> str:
    """One score of a sealed wave."""
    asked = f"{one.kind} {one.given}".strip()
    state = "first contact" if is_first else "a draft: no first contact" if one.draft else "again"
    lines = [f"{one.wave}, {asked}, scored at {one.commit} on {one.date} ({state}):", ""]
    if one.scores:
        rows = [(_what(one.kind, score.metric), *_cells(score)) for score in one.scores]
        lines += [markdown(f"predicted | {COLUMNS}", rows), ""]
    lines += [f"- {OUTCOME.sub('were predicted to', note)}" for note in one.notes]
    return "\n".join(lines).rstrip()


def history_text() -> str:
    """What was recorded before the ledger."""
    found = tomllib.loads(HISTORY.read_text(encoding="utf-8"))["line"]
    rows = [(one["what"], one["printed"], one["first_contact"]) for one in found]
    return markdown("predicted | printed, source or model held out | first contact", rows)


def readme_text() -> str:
    """What README.md says of first contacts: the newest wave of each kind, by the last version that was
    scored before its rows were opened, with the median of the first that was."""
    newest: dict[str, list[str]] = {}
    sealed = [pair for pair in _counted(sealed_scores()) if not pair[0].given]
    for kind in HEADLINES:
        mine = {_wave_key(pair[1].wave): pair for pair in sealed if pair[1].kind == kind}
        for wave in waves(kind):
            first, _ = mine.pop(_wave_key(wave.name), (None, None))
            met = f"{wave.name}, met by {wave.commit} before its rows were opened"
            scores = [one for one in wave.scores if not one.seen_before]
            newest[kind] = _sentence(kind, met, scores, first)
        for first, last in mine.values():
            met = f"{last.wave}, by {last.commit}, before its rows were opened"
            newest[kind] = _sentence(kind, met, last.scores, first)
    return "\n".join(line for lines in newest.values() for line in lines)


def _wave_key(name: str) -> str:
    """A wave's name as scorers and tables both have it."""
    return name.lower().replace(" ", "-")


def _sentence(
    kind: str, met: str, scores: Sequence[ContactScore], first: SealedScore | None = None
) -> list[str]:
    """A wave of one kind in words; nothing where it lacks the metrics that README.md reports."""
    wanted, noun = HEADLINES[kind]
    found = [one for metric in wanted for one in scores if one.metric == metric]
    if not found:
        return []
    rows, sources = max(one.rows for one in found), max(one.sources for one in found)
    title = f"**{kind.capitalize()}, first contact** ({met})"
    parts = "; ".join(_figures(one, noun.split()[0]) for one in found)
    earlier = ""
    if first is not None and first.commit not in met:
        medians = [
            f"{_name(one.metric)} {100.0 * one.median_source:.1f} %"
            for metric in wanted
            for one in first.scores
            if one.metric == metric
        ]
        earlier = f" (At the wave's first score, by {first.commit}: {', '.join(medians)}.)"
    return [f"- {title}: {rows:,} rows of {sources} {noun}; {parts}.{earlier}"]


def _figures(score: ContactScore, noun: str) -> str:
    """The figures of one metric in words."""
    row = (
        ""
        if score.median_row is None
        else f" and {100.0 * score.median_row:.1f} % in the median row"
    )
    inside = (
        f", 90 % intervals hold {100.0 * score.inside_rows:.0f} % of the rows and "
        f"{100.0 * score.inside_sources:.0f} % of the {noun}"
        if score.inside_rows is not None and score.inside_sources is not None
        else ""
    )
    return (
        f"{_name(score.metric)} is off by {100.0 * score.median_source:.1f} % in the median {noun[:-1]}"
        f"{row}, "
        f"by more than {100.0 * FAR:.0f} % in {100.0 * score.far_off:.0f} % of the rows{inside}"
    )


def _counted(scores: Sequence[SealedScore]) -> list[tuple[SealedScore, SealedScore]]:
    """The first and the last score of each question to a sealed wave, drafts apart."""
    found: dict[tuple[str, str, str], tuple[SealedScore, SealedScore]] = {}
    for one in scores:
        if not one.draft:
            question = one.wave, one.kind, one.given
            found[question] = found.get(question, (one, one))[0], one
    return list(found.values())


def ledger_dict() -> dict[str, Any]:
    """The ledger as JSON: its waves with their aggregates, and scores of sealed waves."""
    return {
        "waves": [
            {
                **{name: getattr(wave, name) for name in FACTS if name != "table"},
                **wave.aggregates,
                "after_learning": after_learning(wave.kind, wave.name),
            }
            for kind in KINDS
            for wave in waves(kind)
        ],
        "sealed": plain(sealed_scores()),
    }


def _few(wave: Wave) -> ContactScore | None:
    """First contacts of training with at most 15 rows a source; None of other kinds."""
    if wave.kind != "training":
        return None
    some = [one for one in wave.contacts if one.metric == "step_s" and not one.seen_before]
    return score_contacts(at_most(some, MOST))


def _fit_row(wave: Wave) -> list[Sequence[str]]:
    """A line of runs that ran or ran out of memory."""
    fits = wave.fits
    if fits is None:
        return []
    text = (
        f"fits: {fits.ran_predicted_not} of {fits.ran} that ran predicted not to fit, "
        f"{fits.out_of_memory_predicted_to_fit} of {fits.out_of_memory} out of memory predicted to fit, "
        f"Brier score {fits.brier:.3f}"
    )
    return [(wave.name, wave.commit, text, *[""] * 9)]


def _cells(score: ContactScore) -> tuple[str, ...]:
    """The figures of a score."""
    inside = f"{_share(score.inside_rows)}, {_share(score.inside_sources)}"
    return (
        str(score.sources),
        f"{score.rows:,}",
        _error(score.median_source),
        "" if score.median_row is None else _error(score.median_row),
        f"{score.signed:+.0%}",
        _share(score.far_off),
        inside if score.inside_rows is not None else "",
        _width(score.high_over_low),
    )


def _after_cell(wave: Wave, score: ContactScore) -> str:
    """Median source and coverage of the same rows by the newest version that learned from them."""
    later = after_learning(wave.kind, wave.name)
    if later is None:
        return "not yet"
    for one in later["scores"]:
        if (one["metric"], one["seen_before"]) == (score.metric, score.seen_before):
            return f"{_error(one['median_source'])}, holds {_share(one['inside_rows'])} ({later['commit']})"
    return "not predicted"


def _what(kind: str, metric: str) -> str:
    """Kind and metric as a page calls them; further words, as of a scorer's groups, are kept."""
    return f"{kind}: {_name(metric)}"


def _name(metric: str) -> str:
    first, _, rest = metric.partition(" ")
    return f"{LABELS.get(first, first)} {rest}".strip()


def _error(value: float) -> str:
    """An error in percent; without decimals from 100 % on."""
    return f"{value:.1%}" if value < 1.0 else f"{value:.0%}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _width(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _of_ledger(write: Callable[[], str]) -> Callable[[Path], str]:
    """A section that needs no data beside the package."""
    return lambda _: write()


SECTIONS: Sections = tuple(
    (name, section, _of_ledger(write))
    for name, section, write in (
        ("README.md", "first contact", readme_text),
        ("docs/accuracy.md", "first contact", readme_text),
        ("docs/first-contact.md", "waves", waves_text),
        ("docs/first-contact.md", "known sources", known_text),
        ("docs/first-contact/training.csv", "", sources_text),
        ("docs/first-contact.md", "sealed waves", sealed_text),
        ("docs/first-contact.md", "before the ledger", history_text),
    )
)
"""Page, name of its section, and what writes it."""


def with_ledger(root: Path) -> dict[Path, str]:
    """The pages of a repository as the ledger is today."""
    return with_written(root, SECTIONS, root)
