"""Measured dispatches and combines beside our predictions: `validate collectives` of a table that has them.

Every row is scored or reported as unsupported. With a library left out, its rows are predicted by what the
other libraries are fitted to (lab/calibrate/dispatch_kin.py).
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.lab.calibrate.dispatch_fit import predicted_s
from foretell.lab.calibrate.dispatch_kin import left_out, library_fits
from foretell.lab.calibrate.dispatch_rows import DispatchRow, read_dispatches
from foretell.lab.validate.scores import Prediction, Scores, scores_of
from foretell.network.dispatch import dispatch_kernels

METRIC = "seconds"
FITTED_P90, LEFT_OUT_P90 = 0.33, 0.75
"""What nine of ten rows stay within, in logarithms: of the families' own fits, and with a library left out
(the shares of wires that libraries reach differ less than what they take to begin)."""


def score_dispatches(path: Path, *, leave_one_out: Literal["library"] | None = None) -> Scores:
    """Score a table of dispatches and combines."""
    rows, unsupported = read_dispatches(path)
    predicted = np.full(len(rows), np.nan)
    fits = library_fits(rows) if leave_one_out == "library" else {}
    for places in groups_of(rows):
        mine = [rows[i] for i in places]
        if leave_one_out == "library":
            passes = left_out(fits, mine[0].library, mine[0].family)
        else:
            own = dispatch_kernels()[mine[0].family]
            passes = {"dispatch": own.dispatch, "combine": own.combine}
        predicted[places] = predicted_s(mine, passes)
    return board(rows, unsupported, predicted, leave_one_out)


def groups_of(rows: Sequence[DispatchRow]) -> list[list[int]]:
    """Places of rows of the same library and family."""
    found: dict[tuple[str, str], list[int]] = {}
    for i, row in enumerate(rows):
        found.setdefault((row.library, row.family), []).append(i)
    return list(found.values())


def half_width(row: DispatchRow, left: str | None) -> float:
    """Factor around a prediction that holds nine of ten rows: more where the library was not fitted to."""
    return math.exp(FITTED_P90 if left is None and row.known else LEFT_OUT_P90)


def board(
    rows: Sequence[DispatchRow],
    unsupported: Sequence[tuple[str, str]],
    predicted: NDArray[np.float64],
    left: str | None,
) -> Scores:
    """Scores by library, family, direction, chip and ranks."""
    predictions = [
        Prediction(
            id=row.id, metric=METRIC, predicted=float(ours), measured=row.seconds,
            low=float(ours) / half_width(row, left), high=float(ours) * half_width(row, left),
        )
        for row, ours in zip(rows, predicted, strict=True)
    ]  # fmt: skip
    labels = {
        "by_library": [row.library for row in rows],
        "by_kernels": [f"{row.family} {row.op}" for row in rows],
        "by_chip": [row.system.chip.id for row in rows],
        "by_ranks": [f"ep{float(np.asarray(row.load.ranks)):03.0f}" for row in rows],
    }
    total = len(rows) + len(unsupported)
    return scores_of(total, predictions, unsupported, labels, leave_one_out=left)
