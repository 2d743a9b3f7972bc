"""Measured kernels beside our predictions: `validate kernels`.

Chip, software and version are in the file's name. `leave_one_out="site"` refits the table's own surface
without each fifth of its sites; `"chip"` predicts it from the surfaces of other chips alone.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foretell.catalog import chip as named_chip
from foretell.kernels.families.base import attainable, engine_of
from foretell.kernels.families.choose import (
    FamilyCoefficients,
    catalogue_surfaces,
    choose,
    spread_of,
)
from foretell.lab.calibrate.kernel_files import read_kernels
from foretell.lab.calibrate.surfaces import KernelRows, left_out
from foretell.lab.validate.scores import Prediction, Scores, scores_of
from foretell.specs.arrays import Array

Left = Literal["site", "chip"]
METRIC = "seconds"
LABELS = ("by_source", "by_family", "by_dtype", "by_shape", "by_evidence")
"""Ways of grouping."""
LLM_WIDTH, LLM_WEIGHTS = 512, 1e6
"""A product of a language model: n and k from 512 on, and a million weights."""


def score_kernels(
    path: Path, *, chip: str = "", software: str = "", leave_one_out: Left | None = None
) -> Scores:
    """Score a file of kernels; every row is predicted or reported as unsupported."""
    table = read_kernels(Path(path), chip=chip, software=software)
    predictions: list[Prediction] = []
    labels: dict[str, list[str]] = {name: [] for name in LABELS}
    for rows in table.groups:
        predicted, chosen = predict(rows, leave_one_out)
        low, high = (predicted * np.exp(q) for q in _outer(chosen))
        good = np.isfinite(predicted)
        predictions += [
            Prediction(
                id=rows.ids[i],
                metric=METRIC,
                predicted=float(predicted[i]),
                measured=float(rows.measured_s[i]),
                low=float(low[i]),
                high=float(high[i]),
            )
            for i in np.flatnonzero(good)
        ]
        count = int(good.sum())
        labels["by_source"] += [table.name] * count
        labels["by_family"] += [rows.family] * count
        labels["by_dtype"] += [rows.dtype] * count
        labels["by_evidence"] += [chosen.evidence] * count
        labels["by_shape"] += shapes(rows)[good].tolist()
    return scores_of(
        table.rows,
        predictions,
        table.unsupported,
        labels,
        leave_one_out=leave_one_out,
        facts={
            "coefficients": sorted({predict_note(rows, leave_one_out) for rows in table.groups})
        },
    )


def predict(rows: KernelRows, left: Left | None = None) -> tuple[Array, FamilyCoefficients]:
    """Predicted seconds of measured kernels, and the coefficients they come from."""
    chosen = choose_for(rows, left)
    chip = named_chip(rows.chip)
    engine = engine_of(chip, rows.dtype)
    engine = attainable(engine, chip, chosen.kin) if chosen.foreign else engine
    if left == "site":
        return left_out(chosen.family, rows, engine, start=begin(rows, chosen)), chosen
    return chosen.family.seconds(rows.dims, chosen.record, engine), chosen


def begin(rows: KernelRows, chosen: FamilyCoefficients) -> Any:
    """Where a refit begins: at the family's start, with what the stored surface has chosen, not fitted."""
    family = chosen.family
    start = family.begin(named_chip(rows.chip).architecture, rows.software, rows.dtype)
    if family.start is not None:
        return start
    held = {n: v for n, v in asdict(chosen.record).items() if n not in family.bounds}
    return replace(start, **held)


def choose_for(rows: KernelRows, left: Left | None) -> FamilyCoefficients:
    """The coefficients for a table, without those of its chip where that is left out."""
    known = catalogue_surfaces()
    if left == "chip":
        known = tuple(s for s in known if s.chip != rows.chip)
    return choose(
        named_chip(rows.chip), rows.family, rows.dtype, (rows.software,), known, rows.version
    )


def predict_note(rows: KernelRows, left: Left | None) -> str:
    """Where a group's coefficients come from."""
    return f"{rows.dtype} {choose_for(rows, left).note}"


def shapes(rows: KernelRows) -> "np.ndarray[tuple[int], np.dtype[np.str_]]":
    """`llm` for products as language models have them, `other` for the rest; `all` in other families."""
    if rows.family not in ("gemm",):
        return np.full(len(rows.ids), "all")
    n, k = rows.dims["n"], rows.dims["k"]
    wide = (n >= LLM_WIDTH) & (k >= LLM_WIDTH) & (n * k >= LLM_WEIGHTS)
    return np.where(wide, "llm", "other")


def _outer(chosen: FamilyCoefficients) -> Sequence[float]:
    """5 and 95 % quantiles of ln(measured / predicted)."""
    spread = spread_of(chosen)
    return spread[0], spread[-1]
