"""Measured kernels and collectives beside our predictions: `validate kernels` and `validate collectives`.

Kernels: chip, software and version are in the file's name. `leave_one_out="site"` refits the table's own
surface without each fifth of its sites; `"chip"` predicts it from the surfaces of other chips alone.

Collectives: a table with the columns of NCCL tests over nodes, or of a single-node NCCL or custom all-reduce
table whose chip, software and version are in the file's name. Dispatches and combines: with a library left
out, its rows are predicted by what the other libraries are fitted to (lab/calibrate/dispatch_fit.py). Every
row is scored or reported as unsupported.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foretell.catalog import chip as named_chip
from foretell.catalog.names import exists
from foretell.catalog.systems import named_system
from foretell.kernels.families.base import attainable, engine_of
from foretell.kernels.families.choose import (
    FamilyCoefficients,
    catalogue_surfaces,
    choose,
    spread_of,
)
from foretell.lab.calibrate import dispatch_fit, surfaces
from foretell.lab.calibrate.collectives_rows import CollectiveRow, read_rows
from foretell.lab.calibrate.collectives_sites import (
    Coefficients,
    Installation,
    batches,
    catalogue_coefficients,
    site_of,
)
from foretell.lab.calibrate.collectives_sites import predict as predict_batch
from foretell.lab.calibrate.dispatch_fit import predicted_s
from foretell.lab.calibrate.dispatch_rows import DispatchRow, read_dispatches
from foretell.lab.calibrate.kernel_files import read_kernels
from foretell.lab.calibrate.surfaces import KernelRows
from foretell.lab.validate.scores import Prediction, Scores, scores_of
from foretell.network.dispatch import dispatch_kernels
from foretell.specs.arrays import Array
from foretell.uncertainty.evidence import FABRIC

Left = Literal["site", "chip"]
METRIC = "seconds"
LLM_WIDTH, LLM_WEIGHTS = 512, 1e6
"""A product of a language model: n and k from 512 on, and a million weights."""
SMALL_BYTES, LARGE_BYTES = 65536.0, 16.0 * 2**20
SIZES = ("below_64kib", "64kib_to_16mib", "from_16mib")
"""Names of the three ranges of sizes."""
FITTED_P90, LEFT_OUT_P90 = 0.33, 0.75
"""What nine of ten dispatches stay within, in logarithms: of the families' own fits, and with a library left
out (the shares of wires that libraries reach differ less than what they take to begin)."""


def prediction(
    row: str, predicted: float, measured: float, ends: tuple[float, float]
) -> Prediction:
    """Seconds beside ours; `ends`: of the 90 % interval, over ours."""
    ours, (low, high) = float(predicted), ends
    return Prediction(
        id=row,
        metric=METRIC,
        predicted=ours,
        measured=float(measured),
        low=float(ours * low),
        high=float(ours * high),
    )


def score_kernels(
    path: Path, *, chip: str = "", software: str = "", leave_one_out: Left | None = None
) -> Scores:
    """Score a file of kernels; every row is predicted or reported as unsupported."""
    table = read_kernels(Path(path), chip=chip, software=software)
    predictions: list[Prediction] = []
    labels: dict[str, list[str]] = defaultdict(list)
    notes = set()
    for rows in table.groups:
        predicted, chosen = predict(rows, leave_one_out)
        spread = spread_of(chosen)
        ends = float(np.exp(spread[0])), float(np.exp(spread[-1]))
        good = np.flatnonzero(np.isfinite(predicted))
        predictions += [
            prediction(rows.ids[i], predicted[i], rows.measured_s[i], ends) for i in good
        ]
        words = {"source": table.name, "family": rows.family, "dtype": rows.dtype}
        for name, word in {**words, "evidence": chosen.evidence}.items():
            labels[f"by_{name}"] += [word] * len(good)
        labels["by_shape"] += shapes(rows)[good].tolist()
        notes.add(f"{rows.dtype} {chosen.note}")
    groups = {
        f"by_{n}": labels[f"by_{n}"] for n in ("source", "family", "dtype", "shape", "evidence")
    }
    return scores_of(
        table.rows,
        predictions,
        table.unsupported,
        groups,
        leave_one_out=leave_one_out,
        facts={"coefficients": sorted(notes)},
    )


def predict(rows: KernelRows, left: Left | None = None) -> tuple[Array, FamilyCoefficients]:
    """Predicted seconds of measured kernels, and the coefficients they come from."""
    chip, known = named_chip(rows.chip), catalogue_surfaces()
    if left == "chip":
        known = tuple(s for s in known if s.chip != rows.chip)
    chosen = choose(chip, rows.family, rows.dtype, (rows.software,), known, rows.version)
    engine = engine_of(chip, rows.dtype)
    engine = attainable(engine, chip, chosen.kin) if chosen.foreign else engine
    if left == "site":
        start = _begin(rows, chosen)
        return surfaces.left_out(chosen.family, rows, engine, start=start), chosen
    return chosen.family.seconds(rows.dims, chosen.record, engine), chosen


def _begin(rows: KernelRows, chosen: FamilyCoefficients) -> Any:
    """Where a refit begins: at the family's start, with what the stored surface has chosen, not fitted."""
    family = chosen.family
    start = family.begin(named_chip(rows.chip).architecture, rows.software, rows.dtype)
    if family.start is not None:
        return start
    held = {n: v for n, v in asdict(chosen.record).items() if n not in family.bounds}
    return replace(start, **held)


def shapes(rows: KernelRows) -> "np.ndarray[tuple[int], np.dtype[np.str_]]":
    """`llm` for products as language models have them, `other` for the rest; `all` in other families."""
    if rows.family != "gemm":
        return np.full(len(rows.ids), "all")
    n, k = rows.dims["n"], rows.dims["k"]
    wide = (n >= LLM_WIDTH) & (k >= LLM_WIDTH) & (n * k >= LLM_WEIGHTS)
    return np.where(wide, "llm", "other")


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
    done = [i for i in range(len(rows)) if np.isfinite(predicted[i])]
    size = np.array([rows[i].size_bytes for i in done])
    bins = np.array(SIZES)[(size >= SMALL_BYTES).astype(int) + (size >= LARGE_BYTES)]
    spread = FABRIC["fitted" if leave_one_out is None else "transferred"]
    ends = math.exp(spread[0]), math.exp(spread[-1])
    labels = {
        "by_source": [rows[i].source for i in done],
        "by_size": bins.tolist(),
        "by_kind": [str(rows[i].kind) for i in done],
        "by_system": [label(rows[i]) for i in done],
    }
    return scores_of(
        len(rows),
        [prediction(rows[i].id, predicted[i], rows[i].measured_s, ends) for i in done],
        unsupported,
        labels,
        order={"by_size": SIZES},
        leave_one_out=leave_one_out,
    )


def label(row: CollectiveRow) -> str:
    """What a row's system is called: the machine, or the chip of a single-node table."""
    if row.system or not exists(row.chip):
        return row.system or row.chip
    return named_system(row.chip).chip.id


def _without(name: str, rows: Sequence[CollectiveRow]) -> Coefficients:
    from foretell.lab.calibrate.collectives import fit

    return fit([row for row in rows if label(row) != name])


def _fill(
    predicted: Array,
    told: Sequence[tuple[int, CollectiveRow, Installation]],
    now: Coefficients,
) -> None:
    for batch in batches(told):
        predicted[batch.index] = predict_batch(batch, now)


def score_dispatches(path: Path, *, leave_one_out: Literal["library"] | None = None) -> Scores:
    """Score a table of dispatches and combines, by library, family, direction, chip and ranks."""
    rows, unsupported = read_dispatches(path)
    predicted = np.full(len(rows), np.nan)
    fits = dispatch_fit.library_fits(rows) if leave_one_out == "library" else {}
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[row.library, row.family].append(i)
    for (library, family), places in groups.items():
        if leave_one_out == "library":
            passes = dispatch_fit.left_out(fits, library, family)
        else:
            own = dispatch_kernels()[family]
            passes = {"dispatch": own.dispatch, "combine": own.combine}
        predicted[places] = predicted_s([rows[i] for i in places], passes)
    labels = {
        "by_library": [row.library for row in rows],
        "by_kernels": [f"{row.family} {row.op}" for row in rows],
        "by_chip": [row.system.chip.id for row in rows],
        "by_ranks": [f"ep{float(np.asarray(row.load.ranks)):03.0f}" for row in rows],
    }
    return scores_of(
        len(rows) + len(unsupported),
        [
            prediction(row.id, ours, row.seconds, _dispatch_ends(row, leave_one_out))
            for row, ours in zip(rows, predicted, strict=True)
        ],
        unsupported,
        labels,
        leave_one_out=leave_one_out,
    )


def _dispatch_ends(row: DispatchRow, left: str | None) -> tuple[float, float]:
    """What nine of ten rows stay within: more where the library was not fitted to."""
    factor = math.exp(FITTED_P90 if left is None and row.known else LEFT_OUT_P90)
    return 1.0 / factor, factor
