"""Fit kernel families to a folder of published tables and write the catalogue's files.

`python -m foretell.lab.calibrate.kernel_fit KIND DATA_DIR [OUT_FILE]`: KIND is gemm, attention, experts or
pointwise (catalog/kernels/KIND.toml); or transfer (kernels/transfer.toml), how far coefficients carried over
from other chips are from every table without the surfaces of its own chip: what an interval on a chip without
measurements is made of. There every table counts the same, and variants of a software (`vllm-2023`,
`vllm-cutlass`) are left to their own surfaces.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.chips import catalogue_chip
from foretell.catalog.files import ROOT
from foretell.kernels.families.base import Engine, Family, engine_of
from foretell.kernels.families.choose import catalogue_surfaces, choose, family_named
from foretell.kernels.families.experts import FAMILY, ExpertsCoefficients, NarrowExperts
from foretell.lab.calibrate.kernel_files import read_kernels
from foretell.lab.calibrate.surfaces import (
    QUANTILES,
    KernelRows,
    errors,
    fit,
    left_out,
    surface_of,
    surface_with_errors,
    write_surfaces,
)
from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.specs.chip import Surface

ATTENTION_ROWS, EXPERT_ROWS, TRANSFER_ROWS = 3000, 1500, 2000
"""Rows of a table's part that are looked at: more move no coefficient by much."""
TOO_FAST, BEYOND_CACHE = 1.05, 2.0
"""Shares of the nominal bandwidth and of the last-level cache above which a reading is no measurement."""
AICONFIGURATOR = (
    "NVIDIA aiconfigurator (github.com/ai-dynamo/aiconfigurator), "
    "{system}/{kind}/{software}/{version}"
)
"""Where most tables come from."""
TRANSFERRED = ("*_gemm_*", "*_attention_*", "*_mla*", "*_moe*")
"""Tables whose chips are left out in turn."""


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


def residuals(rows: KernelRows) -> Array:
    """ln(measured / predicted) without the surfaces of the rows' chip."""
    chip = catalogue_chip(rows.chip)
    others = [surface for surface in catalogue_surfaces() if surface.chip != rows.chip]
    found = choose(chip, rows.family, rows.dtype, (rows.software,), others)
    predicted = found.family.seconds(rows.dims, found.record, engine_of(chip, rows.dtype))
    return np.asarray(np.log(rows.measured_s / predicted))


def transfer_text(folder: Path, when: str) -> str:
    """Residuals by family over all tables, each without its chip."""
    found: dict[str, list[Array]] = defaultdict(list)
    for path in sorted(path for pattern in TRANSFERRED for path in folder.glob(f"{pattern}.csv*")):
        for rows in read_kernels(path).groups:
            if "-" not in rows.software:
                gaps = residuals(evenly(rows, TRANSFER_ROWS))
                found[rows.family].append(np.quantile(gaps, np.linspace(0.01, 0.99, 99)))
    lines = [
        "# Residuals ln(measured / predicted) of chips left out, 5, 25, 50, 75 and 95 % quantiles.",
        f'date = "{when}"',
    ]
    for family, parts in sorted(found.items()):
        quantiles = np.quantile(np.concatenate(parts), QUANTILES)
        lines += ["", f'[family."{family}"]', f"tables = {len(parts)}"]
        lines.append(f"residuals = [{', '.join(f'{q:.3f}' for q in quantiles)}]")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Fit all tables of a kind and write the file; a line for every surface."""
    if len(arguments) not in (2, 3) or arguments[0] not in (*KINDS, "transfer"):
        kinds = "|".join((*KINDS, "transfer"))
        sys.stderr.write(
            f"usage: python -m foretell.lab.calibrate.kernel_fit {kinds} DATA_DIR [OUT_FILE]\n"
        )
        return 2
    kind, folder, when = arguments[0], Path(arguments[1]), date.today().isoformat()
    out = Path(arguments[2]) if len(arguments) > 2 else ROOT / "kernels" / f"{kind}.toml"
    if kind == "transfer":
        out.write_text(transfer_text(folder, when))
        return 0
    surfaces: list[Surface] = []
    for tables in KINDS[kind]:
        for path in sorted(folder.rglob(f"{tables.pattern}.csv*")):
            for s in surfaces_of(path, tables, when):
                surfaces.append(s)
                sys.stdout.write(
                    f"{s.family:12} {s.chip:16} {s.dtype:10} {s.software:7} {s.version:10} {s.points:6}"
                    f"  fitted {s.median_ape:6.2%} {s.p90_ape:6.1%}"
                    f"  held out {s.left_out_median_ape:6.2%} {s.left_out_p90_ape:6.1%}\n"
                )
                sys.stdout.flush()
    write_surfaces(out, surfaces)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
