"""Measured collectives beside our predictions: `validate collectives`.

Reads a table with the columns of NCCL tests over nodes, or of a single-node NCCL or custom all-reduce table
whose chip, software and version stand in the file's name. Every row is scored or said to be unsupported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foretell.calibrate.collectives_rows import Row, read_rows
from foretell.calibrate.collectives_sites import (
    Coefficients,
    Site,
    batches,
    catalogue_coefficients,
    predict,
    site_of,
)
from foretell.catalog.names import exists
from foretell.catalog.systems import named_system

METRIC = "seconds"
SMALL_BYTES, LARGE_BYTES = 65536.0, 16.0 * 2**20
SIZES = ("below_64kib", "64kib_to_16mib", "from_16mib")
"""Names of the three ranges of sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One row beside ours."""

    id: str
    """The row's id."""
    metric: str
    """What is compared: seconds."""
    predicted: float
    """Ours."""
    measured: float
    """Theirs."""
    low: float | None
    """Lower end of the 90 % interval; None until there is one."""
    high: float | None
    """Upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Rows of one group and their median absolute relative error."""

    rows: int
    """Rows scored."""
    median_ape: float | None
    """Median of |predicted / measured - 1|, a fraction; None of no rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveScores:
    """A table of measured collectives, scored."""

    rows: int
    """Rows of the file."""
    scored: int
    """Rows with a prediction."""
    unsupported: tuple[tuple[str, str], ...]
    """Id and reason of every other row."""
    median_ape: float | None
    """Median absolute relative error over all scored rows, a fraction."""
    p90_ape: float | None
    """Its ninetieth percentile."""
    by_source: Mapping[str, Score]
    """By where it was measured."""
    by_size: Mapping[str, Score]
    """By size of the message, split at 64 KiB and 16 MiB; calls with nothing to send are below."""
    by_kind: Mapping[str, Score]
    """By collective."""
    by_system: Mapping[str, Score]
    """By system or chip."""
    predictions: tuple[Prediction, ...]
    """Every scored row."""
    leave_one_out: str | None
    """What was left out of the fit before it was predicted; None: nothing, the catalogue's coefficients."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        groups = {
            name: {key: _score_dict(score) for key, score in getattr(self, name).items()}
            for name in ("by_source", "by_size", "by_kind", "by_system")
        }
        return {
            "rows": self.rows,
            "scored": self.scored,
            "unsupported": [{"id": row, "reason": reason} for row, reason in self.unsupported],
            "median_ape": self.median_ape,
            "p90_ape": self.p90_ape,
            **groups,
            "predictions": [
                {
                    "id": p.id,
                    "metric": p.metric,
                    "predicted": p.predicted,
                    "measured": p.measured,
                    "low": p.low,
                    "high": p.high,
                }
                for p in self.predictions
            ],
            "leave_one_out": self.leave_one_out,
        }


def score_collectives(
    path: Path,
    *,
    chip: str = "",
    software: str = "",
    fabric: str = "",
    leave_one_out: Literal["system"] | None = None,
    training: Sequence[Path] = (),
) -> CollectiveScores:
    """Score a file; with `leave_one_out`, each system by coefficients fitted to all the others.

    `fabric` says what joins the nodes where the table does not, such as "8x NDR InfiniBand". `training`
    names further tables for that fit; without rows a link or fabric keeps its physical start.
    """
    rows = read_rows(Path(path), chip=chip, software=software)
    rows = [replace(row, fabric=row.fabric or fabric) for row in rows]
    told: list[tuple[int, Row, Site]] = []
    unsupported: list[tuple[str, str]] = []
    for place, row in enumerate(rows):
        site = site_of(row)
        if isinstance(site, str):
            unsupported.append((row.id, site))
        else:
            told.append((place, row, site))
    predicted = np.full(len(rows), np.nan)
    if leave_one_out is None:
        _fill(predicted, told, catalogue_coefficients())
    else:
        more = [row for other in training for row in read_rows(Path(other))]
        for name in sorted({label(row) for _, row, _ in told}):
            mine = [item for item in told if label(item[1]) == name]
            far = any(row.nodes > 1 for _, row, _ in mine)
            others = [row for row in (*rows, *more) if far or row.nodes == 1]
            _fill(predicted, mine, _without(name, others))
    return _scores(rows, unsupported, predicted, leave_one_out)


def label(row: Row) -> str:
    """What a row's system is called: the machine, or the chip of a single-node table."""
    if row.system or not exists(row.chip):
        return row.system or row.chip
    return named_system(row.chip).chip.id


def _without(name: str, rows: Sequence[Row]) -> Coefficients:
    from foretell.calibrate.collectives import fit

    return fit([row for row in rows if label(row) != name]).coefficients


def _fill(
    predicted: NDArray[np.float64], told: Sequence[tuple[int, Row, Site]], now: Coefficients
) -> None:
    for batch in batches(told):
        predicted[batch.index] = predict(batch, now)


def _scores(
    rows: Sequence[Row],
    unsupported: list[tuple[str, str]],
    predicted: NDArray[np.float64],
    left: str | None,
) -> CollectiveScores:
    done = [i for i in range(len(rows)) if np.isfinite(predicted[i])]
    error = np.array([abs(predicted[i] / rows[i].measured_s - 1.0) for i in done])
    size = np.array([rows[i].size_bytes for i in done])
    bins = np.array(SIZES)[(size >= SMALL_BYTES).astype(int) + (size >= LARGE_BYTES)]
    return CollectiveScores(
        rows=len(rows),
        scored=len(done),
        unsupported=tuple(unsupported),
        median_ape=float(np.median(error)) if done else None,
        p90_ape=float(np.quantile(error, 0.9)) if done else None,
        by_source=_by([rows[i].source for i in done], error),
        by_size={name: _score(error[bins == name]) for name in SIZES},
        by_kind=_by([str(rows[i].kind) for i in done], error),
        by_system=_by([label(rows[i]) for i in done], error),
        predictions=tuple(
            Prediction(
                id=rows[i].id,
                metric=METRIC,
                predicted=float(predicted[i]),
                measured=rows[i].measured_s,
                low=None,
                high=None,
            )
            for i in done
        ),
        leave_one_out=left,
    )


def _by(names: Sequence[str], error: NDArray[np.float64]) -> dict[str, Score]:
    keys = np.array(names)
    return {name: _score(error[keys == name]) for name in sorted(set(names))}


def _score(error: NDArray[np.float64]) -> Score:
    middle = float(np.median(error)) if len(error) else None
    return Score(rows=len(error), median_ape=middle)


def _score_dict(score: Score) -> dict[str, Any]:
    return {"rows": score.rows, "median_ape": score.median_ape}
