"""Fit kernel families to published tables: the surfaces of catalog/kernels come from these.

KINDS has the tables of gemm, attention, experts and pointwise, each with the fit of its groups of rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.chips import catalogue_chip
from foretell.kernels.families.base import Engine, Family, engine_of
from foretell.kernels.families.choose import family_named
from foretell.kernels.families.experts import FAMILY, ExpertsCoefficients, NarrowExperts
from foretell.lab.calibrate.kernel_files import read_kernels
from foretell.lab.calibrate.surfaces import (
    KernelRows,
    errors,
    fit,
    left_out,
    surface_of,
    surface_with_errors,
)
from foretell.records import dataclass
from foretell.specs.chip import Surface

ATTENTION_ROWS, EXPERT_ROWS = 3000, 1500
"""Rows of a table's part that are looked at: more move no coefficient by much."""
TOO_FAST, BEYOND_CACHE = 1.05, 2.0
"""Shares of the nominal bandwidth and of the last-level cache above which a reading is no measurement."""
AICONFIGURATOR = (
    "NVIDIA aiconfigurator (github.com/ai-dynamo/aiconfigurator), "
    "{system}/{kind}/{software}/{version}"
)
"""Where most tables come from."""


def physical(rows: KernelRows, engine: Engine) -> NDArray[np.bool_]:
    """Rows to trust: where any site of shared heads reads its cache faster than the memory can, none is."""
    if rows.family != "decode":
        return np.ones(len(rows.ids), dtype=bool)
    width = rows.dims["qk_dim"] + rows.dims["v_dim"]
    held = rows.dims["batch"] * rows.dims["kv_heads"] * rows.dims["kv_len"] * width
    held_bytes = held * rows.dims["kv_bytes"]
    wild = held_bytes > TOO_FAST * engine.bytes_per_s * rows.measured_s
    wild &= held_bytes > BEYOND_CACHE * engine.l2_bytes
    shared = rows.dims["heads"] > rows.dims["kv_heads"]
    return np.asarray(~(shared & np.any(wild & shared)))


def fit_attention(rows: KernelRows, engine: Engine) -> Any:
    """Coefficients of one group of rows, begun at the library's tiles, packing and splits."""
    every = max(1, len(rows.ids) // ATTENTION_ROWS)
    # A stride that shares no factor with the tables' order would still meet all sizes: rows are shuffled.
    few = np.sort(np.random.default_rng(0).permutation(len(rows.ids))[::every])
    family = family_named(rows.family)
    start = family.begin(catalogue_chip(rows.chip).architecture, rows.software, rows.dtype)
    return fit(family, rows.take(few), engine, start=start)


def attention_surface(rows: KernelRows, engine: Engine, source: str, when: str) -> Surface:
    """A surface of attention with its residuals on sites left out."""
    rows, family = rows.take(physical(rows, engine)), family_named(rows.family)
    record = fit_attention(rows, engine)
    inside = family.seconds(rows.dims, record, engine)
    blind = left_out(family, rows, engine, fitter=lambda others: fit_attention(others, engine))
    where = (catalogue_chip(rows.chip).architecture, source, when)
    return surface_with_errors(rows, record, (inside, blind), where)


def evenly(rows: KernelRows, most: int) -> KernelRows:
    """Some of the rows, evenly picked."""
    count = len(rows.ids)
    return rows.take(np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.intp)))


def expert_family(rows: KernelRows, engine: Engine) -> Family:
    """The family with the largest tile that meets the rows best: sizes of tiles are chosen, not fitted."""
    few = evenly(rows, EXPERT_ROWS // 2)
    families = [replace(FAMILY, record=record) for record in (ExpertsCoefficients, NarrowExperts)]
    return min(
        families,
        key=lambda f: sum(errors(f.seconds(few.dims, fit(f, few, engine), engine), few.measured_s)),
    )


def expert_surface(rows: KernelRows, engine: Engine, source: str, when: str) -> Surface:
    """A surface of experts; its errors in the fit are those of all rows."""
    family = expert_family(rows, engine)
    surface = surface_of(family, evenly(rows, EXPERT_ROWS), engine, source, when)
    record = ExpertsCoefficients(**surface.coefficients)
    median, tail = errors(family.seconds(rows.dims, record, engine), rows.measured_s)
    return replace(
        surface, points=len(rows.ids), median_ape=round(median, 4), p90_ape=round(tail, 4)
    )


def plain_surface(rows: KernelRows, engine: Engine, source: str, when: str) -> Surface:
    """A surface fitted to all rows."""
    return surface_of(family_named(rows.family), rows, engine, source, when)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTables:
    """Tables of one kind in a folder."""

    pattern: str
    """Names of their files."""
    source: str
    """Where they come from: a template of system, kind, software and version."""
    surface: Callable[[KernelRows, Engine, str, str], Surface] = plain_surface
    """The surface of a group of rows: engine, source and date follow."""
    kind: str = ""
    """The kind in the source."""


KINDS: dict[str, tuple[KernelTables, ...]] = {
    "gemm": (KernelTables(pattern="*_gemm_*", source=AICONFIGURATOR, kind="gemm"),),
    "attention": (
        KernelTables(
            pattern="*_attention*",
            source=AICONFIGURATOR,
            surface=attention_surface,
            kind="attention",
        ),
        KernelTables(
            pattern="*_mla*", source=AICONFIGURATOR, surface=attention_surface, kind="mla"
        ),
    ),
    "experts": (
        KernelTables(pattern="*_moe*", source=AICONFIGURATOR, surface=expert_surface, kind="moe"),
    ),
    "pointwise": (
        KernelTables(
            pattern="vidur_*_linear_ops*",
            source="Vidur (github.com/microsoft/vidur), profiling data of compute",
        ),
        KernelTables(
            pattern="llmcompass_measured_ops*",
            source="LLMCompass (github.com/PrincetonUniversity/LLMCompass), measured operators",
        ),
    ),
}
"""Kind of kernels -> its tables."""


def surfaces_of(path: Path, tables: KernelTables, when: str) -> Iterator[Surface]:
    """The surfaces of one table, one for each group of its rows."""
    for rows in read_kernels(path).groups:
        software = rows.software.split("-")[0]
        system = path.name.split(f"_{software}_")[0]
        source = tables.source.format(
            system=system, kind=tables.kind, software=software, version=rows.version
        )
        engine = engine_of(catalogue_chip(rows.chip), rows.dtype)
        yield tables.surface(rows, engine, source, when)
