"""Errors of predicted memory by source: `python -m foretell.lab.validate.memory_errors FILE ...`.

Writes catalog/memory_errors.toml, which intervals of memory and the probability to fit rest on
(uncertainty/intervals.py), and prints how they do on sources that are held out of the fit. Tables of runs
that ran give printed peaks and outcomes, tables of runs out of memory outcomes. Rows of grade C do not count,
and of each source at most MOST_ROWS. To be run again whenever a change moves predicted bytes.

    ln(measured / predicted) = room_shift room + (source + row) (1 + room_scale room)

`room` is the share of the chip that is predicted to stay free; source and row are Student's t with 4 degrees
of freedom. The most likely coefficients are found by coordinates, the source's part integrated out.
"""

import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretell.catalog.error_models import MEMORY_FILE, LogError, is_measured
from foretell.catalog.files import toml_value
from foretell.lab.validate.memory import read_memory_rows
from foretell.lab.validate.own_runs import points
from foretell.lab.validate.training import RunPrediction, prediction_of, printed_peak
from foretell.lab.validate.training_rows import TrainingRow
from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.uncertainty.intervals import QUANTILES, scale_of, t_share

MOST_ROWS = 15
"""Rows of a source that count."""
GIB = 2.0**30
SCALES = tuple(round(0.004 * 1.25**i, 4) for i in range(21))
"""Scales that are tried, up to 0.4."""
SHIFTS = tuple(round(0.05 * i, 2) for i in range(9))
GROWTHS = (0.0, 0.5, 1.0, 2.0)
PASSES = 3
"""Times that all coefficients are gone through."""
EFFECTS = np.linspace(-1.2, 1.2, 481)
"""Values of a source's part that are summed over."""
NOTES = {
    "reserved_bytes": re.compile(r"real reserved ([\d.]+) GiB"),
    "peak_memory_bytes": re.compile(r"nvidia-smi peak ([\d.]+) GiB"),
}
"""How notes of a table tell a second figure."""
MEASURED = {
    "software": ["transformers@5", "transformers-compiled@5"],
    "weights": ["bf16", "fp32"],
    "gpus": 1,
}
"""Releases of software that this project measured itself, with weights of what dtypes, on how many chips."""
HEAD = """# How far memory was from its prediction: scales of ln(measured / predicted), Student's t with 4
# degrees of freedom; source_scale of what runs of a source have in common, row_scale of what a run has
# beside it. room_shift and room_scale: what is added, and how scales grow, for a chip that stays all free.
# Written by lab/validate/memory_errors.py: most likely values over printed peaks of {sources} sources (at
# most 15 rows each, grade C omitted). Software that this project measured itself on so many chips is
# fitted apart, over {models} models of lab/validate/own_transformers.csv and sources that ran the same.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryResidual:
    """One printed figure beside its prediction."""

    log_error: float
    """ln(measured / predicted)."""
    room: float
    """Share of the chip that is predicted to stay free."""


ResidualsBySource = Mapping[str, Sequence[MemoryResidual]]
"""By source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run that ran or did not, by what its memory is over the chip's."""

    framework: str
    """The row's framework."""
    source: str
    """Where it was published."""
    ran: bool
    """Whether it ran."""
    log_room: float
    """ln(memory that the allocator may take / what it is predicted to reserve)."""


def t_log_density(x: Array, scale: float) -> Array:
    """Logarithm of the density of Student's t with 4 degrees of freedom."""
    return np.asarray(math.log(0.375 / scale) - 2.5 * np.log1p(np.square(x / scale) / 4.0))


def log_likelihood(found: ResidualsBySource, error: LogError) -> float:
    """Of all residuals, with each source's part summed out."""
    whole, step = 0.0, float(EFFECTS[1] - EFFECTS[0])
    for rows in found.values():
        room = np.array([row.room for row in rows])
        wide = 1.0 + error.room_scale * room
        rest = (np.array([row.log_error for row in rows]) - error.room_shift * room) / wide
        each = t_log_density(rest[:, None] - EFFECTS, error.row_scale).sum(axis=0)
        logs = each + t_log_density(EFFECTS, error.source_scale) - np.log(wide).sum()
        whole += float(logs.max() + np.log(np.exp(logs - logs.max()).sum() * step))
    return whole


def fit_error(found: ResidualsBySource, *, by_room: bool) -> LogError:
    """The most likely coefficients; `by_room`: what free memory does is fitted too."""
    choices: dict[str, Sequence[float]] = {"source_scale": SCALES, "row_scale": SCALES}
    choices |= {"room_shift": SHIFTS} if by_room else {}
    ends = []
    for growth in GROWTHS if by_room else (0.0,):
        best = LogError(source_scale=0.05, row_scale=0.05, room_scale=growth)
        for _ in range(PASSES):
            for name, values in choices.items():
                ways = [replace(best, **{name: value}) for value in values]
                best = max(ways, key=lambda one: log_likelihood(found, one))
        ends.append(best)
    return max(ends, key=lambda one: log_likelihood(found, one))


def residuals_of(told: RunPrediction) -> list[tuple[str, MemoryResidual]]:
    """Printed figures of a row, each by the number that it is of."""
    row, answer = told.row, told.answer
    if not row.peak_mem_gb or row.quality == "C":
        return []
    printed = {printed_peak(row): row.peak_mem_gb}
    for name, text in NOTES.items():
        second = text.search(row.notes)
        printed |= {name: float(second[1])} if second else {}
    room = max(1.0 - answer.peak_memory_bytes / answer.memory_capacity_bytes, 0.0)
    return [
        (name, MemoryResidual(log_error=math.log(gib * GIB / getattr(answer, name)), room=room))
        for name, gib in printed.items()
    ]


def spread_out(rows: Sequence[MemoryResidual]) -> list[MemoryResidual]:
    """At most MOST_ROWS of them, evenly over their order."""
    places = np.unique(np.linspace(0, len(rows) - 1, MOST_ROWS).astype(int))
    return [rows[int(place)] for place in places]


def own_residuals() -> tuple[ResidualsBySource, ResidualsBySource]:
    """Of tensors and of reserved bytes that this project measured, by model."""
    tensors, held = (
        defaultdict[str, list[MemoryResidual]](list),
        defaultdict[str, list[MemoryResidual]](list),
    )
    for point in points():
        told, row = point.told, point.row
        room = max(1.0 - told.peak_memory_bytes / told.memory_capacity_bytes, 0.0)
        for column, name, found in (
            ("peak_bytes", "allocated_bytes", tensors),
            ("reserved_bytes", "reserved_bytes", held),
        ):
            error = math.log(float(row[column]) / getattr(told, name))
            found[row["model"]].append(MemoryResidual(log_error=error, room=room))
    return _few(tensors), _few(held)


def _few(found: Mapping[str, Sequence[MemoryResidual]]) -> ResidualsBySource:
    return {source: spread_out(rows) for source, rows in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTables:
    """What some tables say."""

    residuals: Mapping[tuple[bool, bool], ResidualsBySource]
    """Whether the software was measured by this project, and whether of tensors -> residuals by source."""
    outcomes: Sequence[Outcome]
    """Every run."""


def read_tables(paths: Iterable[str]) -> MemoryTables:
    """ResidualsBySource of tensors and of held memory by source, and outcomes, of some tables."""
    pairs = [(a, b) for a in (True, False) for b in (True, False)]
    found = {pair: defaultdict[str, list[MemoryResidual]](list) for pair in pairs}
    outcomes: list[Outcome] = []
    for row in (row for path in paths for row in read_memory_rows(Path(path))):
        told = prediction_of(row)
        if isinstance(told, str):
            continue
        outcomes.append(_outcome(row, told))
        asked = told.scenario
        known = is_measured(asked.software.id, asked.job.gpus, told.plan.weights)
        for name, one in residuals_of(told):
            found[known, name == "allocated_bytes"][row.source].append(one)
    return MemoryTables(
        residuals={key: _few(rows) for key, rows in found.items()}, outcomes=outcomes
    )


def _outcome(row: TrainingRow, told: RunPrediction) -> Outcome:
    answer = told.answer
    own = answer.peak_memory_bytes - answer.reserved_bytes
    return Outcome(
        framework=row.framework_id,
        source=row.source,
        ran=row.outcome != "oom",
        log_room=math.log((answer.memory_capacity_bytes - own) / answer.reserved_bytes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutMemory:
    """How coefficients do on sources that were left out of their fit."""

    inside_p90: float
    """Share of printed peaks inside their 90 % intervals."""
    brier_score: float
    """Mean square of the probability to fit less what happened."""


def held_out_scores(held: ResidualsBySource, outcomes: Sequence[Outcome]) -> HeldOutMemory:
    """Coverage of printed peaks and Brier score of outcomes, every source left out of the fit of its own;
    with runs out of memory go all sources of their framework."""
    inside, squares, known = list[bool](), list[float](), dict[frozenset[str], LogError]()

    def without(sources: Iterable[str]) -> LogError:
        key = frozenset({*sources} & {*held})
        if key not in known:
            known[key] = fit_error({s: r for s, r in held.items() if s not in key}, by_room=True)
        return known[key]

    for source, rows in held.items():
        error = without((source,))
        for row in rows:
            wide = QUANTILES["p90"] * scale_of(error) * (1.0 + error.room_scale * row.room)
            inside.append(abs(row.log_error - error.room_shift * row.room) <= wide)
    failing = {one.framework for one in outcomes if not one.ran}
    theirs = {one.source for one in outcomes if one.framework in failing}
    for outcome in outcomes:
        left = theirs if outcome.framework in failing else {outcome.source}
        share = float(t_share(np.asarray(outcome.log_room / scale_of(without(left)))))
        squares.append((share - outcome.ran) ** 2)
    return HeldOutMemory(inside_p90=float(np.mean(inside)), brier_score=float(np.mean(squares)))


def table_text(told: MemoryTables) -> str:
    """The file."""
    own_tensors, own_held = own_residuals()
    found = {
        "measured": (
            {**own_tensors, **told.residuals[True, True]},
            {**own_held, **told.residuals[True, False]},
        ),
        "other": (told.residuals[False, True], told.residuals[False, False]),
    }
    sources = {source for residuals in told.residuals.values() for source in residuals}
    lines = [HEAD.format(sources=len(sources), models=len(own_tensors))]
    lines += ["[measured]", *(f"{n} = {toml_value(v)}" for n, v in MEASURED.items()), ""]
    for level, (tensors, held) in found.items():
        by_room = level == "other"
        lines += [f"[software.{level}]", f"allocated = {_entry(fit_error(tensors, by_room=False))}"]
        lines += [f"held = {_entry(fit_error(held, by_room=by_room))}", ""]
    return "\n".join(lines)


def _entry(error: LogError) -> str:
    names = ("source_scale", "row_scale", "room_shift", "room_scale")
    told = [f"{n} = {toml_value(getattr(error, n))}" for n in names if getattr(error, n)]
    return f"{{ {', '.join(told)} }}"


def main(paths: Sequence[str]) -> None:
    """Fit, write, and print how it does on sources that are left out."""
    told = read_tables(paths)
    MEMORY_FILE.write_text(table_text(told))
    print(held_out_scores(told.residuals[False, False], told.outcomes))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
