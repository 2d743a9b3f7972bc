"""Measured collectives beside our predictions: `validate collectives`.

Reads a table with the columns of NCCL tests over nodes, or of a single-node NCCL or custom all-reduce table
whose chip, software and version are in the file's name. Every row is scored or reported as unsupported.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.names import exists
from foretell.catalog.systems import named_system
from foretell.lab.calibrate.collectives_rows import CollectiveRow, read_rows
from foretell.lab.calibrate.collectives_sites import (
    Coefficients,
    Installation,
    batches,
    catalogue_coefficients,
    predict,
    site_of,
)
from foretell.lab.validate.scores import Prediction, Scores, scores_of
from foretell.uncertainty.evidence import FABRIC

METRIC = "seconds"
SMALL_BYTES, LARGE_BYTES = 65536.0, 16.0 * 2**20
SIZES = ("below_64kib", "64kib_to_16mib", "from_16mib")
"""Names of the three ranges of sizes."""


def score_collectives(
    path: Path,
    *,
    chip: str = "",
    software: str = "",
    fabric: str = "",
    leave_one_out: Literal["system"] | None = None,
    training: Sequence[Path] = (),
) -> Scores:
    """Score a file; with `leave_one_out`, each system by coefficients fitted to all the others.

    `fabric` says what joins the nodes where the table does not, such as "8x NDR InfiniBand". `training`
    names further tables for that fit; without rows a link or fabric keeps its physical start.
    """
    rows = read_rows(Path(path), chip=chip, software=software)
    rows = [replace(row, fabric=row.fabric or fabric) for row in rows]
    told: list[tuple[int, CollectiveRow, Installation]] = []
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


def label(row: CollectiveRow) -> str:
    """What a row's system is called: the machine, or the chip of a single-node table."""
    if row.system or not exists(row.chip):
        return row.system or row.chip
    return named_system(row.chip).chip.id


def _without(name: str, rows: Sequence[CollectiveRow]) -> Coefficients:
    from foretell.lab.calibrate.collectives import fit

    return fit([row for row in rows if label(row) != name]).coefficients


def _fill(
    predicted: NDArray[np.float64],
    told: Sequence[tuple[int, CollectiveRow, Installation]],
    now: Coefficients,
) -> None:
    for batch in batches(told):
        predicted[batch.index] = predict(batch, now)


def _scores(
    rows: Sequence[CollectiveRow],
    unsupported: list[tuple[str, str]],
    predicted: NDArray[np.float64],
    left: str | None,
) -> Scores:
    done = [i for i in range(len(rows)) if np.isfinite(predicted[i])]
    size = np.array([rows[i].size_bytes for i in done])
    bins = np.array(SIZES)[(size >= SMALL_BYTES).astype(int) + (size >= LARGE_BYTES)]
    spread = FABRIC["fitted" if left is None else "transferred"]
    predictions = [
        Prediction(
            id=rows[i].id,
            metric=METRIC,
            predicted=float(predicted[i]),
            measured=rows[i].measured_s,
            low=float(predicted[i]) * math.exp(spread[0]),
            high=float(predicted[i]) * math.exp(spread[-1]),
        )
        for i in done
    ]
    labels = {
        "by_source": [rows[i].source for i in done],
        "by_size": bins.tolist(),
        "by_kind": [str(rows[i].kind) for i in done],
        "by_system": [label(rows[i]) for i in done],
    }
    order = {"by_size": SIZES}
    return scores_of(len(rows), predictions, unsupported, labels, order=order, leave_one_out=left)
