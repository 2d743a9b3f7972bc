"""A mix of workloads as one answer for each point, and the points that no other beats.

A weight is a workload's share of the work tokens: those trained on, read or written. What is counted by the
token (money, joules, seconds) is then the weighted mean over the mix; what is a rate, its harmonic mean,
since each share of the tokens takes its own time. What is bought once (capital, watts, silicon) is what the
most demanding workload asks for. One workload alone is its own mix.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.search.pareto import pareto_front
from foretell.specs.arrays import Array, Mask
from foretell.specs.study import Direction, Study
from foretell.studies.sweep.columns import POINT, columns_of, is_paid

RATES = ("tokens_per_", "requests_per_s", "tflops_per_gpu", "flop_per_", "mfu", "hfu")
"""Beginnings, or parts, of columns that are so much for each second, dollar or joule."""
HIGHEST = (
    "capital_usd", "peak_watts", "package_usd", "silicon_mm2", "gpus", "tdp_watts",
    "peak_memory_bytes", "memory_bytes", "weight_bytes", "kv_bytes", "usd", "tco_usd",
)  # fmt: skip
"""Columns of which the largest counts."""
PAID_WISHES: Mapping[str, Direction] = {
    "usd_per_million_work_tokens": "min",
    "work_tokens_per_s_per_gpu": "max",
}
"""What is wanted of a study that is paid for and says nothing."""
_DIGITS = re.compile(r"[0-9][0-9.,]*")
REASONS = 6
"""Reasons that are stated why points cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixPoints:
    """All points of a study, each with one value in each column of numbers."""

    points: NDArray[np.int64]
    """Their numbers."""
    values: Mapping[str, Sequence[Any]]
    """What varies, by flag or path."""
    columns: Mapping[str, Array]
    """Columns of the mix by name, and of each workload as `name.column`; NaN where unknown."""
    possible: Mask
    """Whether every workload has an answer that fits."""
    problems: tuple[str, ...]
    """Why not; empty where it is possible."""
    plans: Mapping[str, Sequence[str | None]]
    """Plans found, by workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixFront:
    """Which points will do, and which of these no other beats."""

    objectives: Mapping[str, Direction]
    """Columns that are to be small or large."""
    within: Mask
    """Possible, and within every limit."""
    front: Mask
    """Within, and beaten by no other."""


def shares(study: Study) -> dict[str, float]:
    """Each workload's share of the mix; they sum to 1."""
    whole = sum(workload.weight for workload in study.workloads)
    return {workload.name: workload.weight / whole for workload in study.workloads} or {"": 1.0}


def mix_points(study: Study, frame: Any) -> MixPoints:
    """The rows of a sweep (a polars DataFrame of whole points) as one answer for each point."""
    parts = share_parts(study, frame)
    first = next(iter(parts.values()))
    columns: dict[str, Array] = {}
    for name in mix_columns(study):
        each = {part: _numbers(rows[name]) for part, rows in parts.items()}
        columns[name] = combine_column(name, each, shares(study))
    for workload in study.workloads:
        for name, kind in columns_of(study, workload.verb).items():
            if kind in ("float", "int"):
                columns[f"{workload.name}.{name}"] = _numbers(parts[workload.name][name])
    told = [_problems(rows) for rows in parts.values()]
    problems = tuple(_said(dict(zip(parts, one, strict=True))) for one in zip(*told, strict=True))
    return MixPoints(
        points=first[POINT].to_numpy(),
        values={axis.path: first[axis.path].to_list() for axis in study.axes},
        columns=columns,
        possible=np.array([not text for text in problems], bool),
        problems=problems,
        plans={p: rows["plan"].to_list() for p, rows in parts.items() if "plan" in rows.columns},
    )


def share_parts(study: Study, frame: Any) -> dict[str, Any]:
    """The rows of each workload, all in the order of the points; the base alone is called ''."""
    import polars as pl

    if not study.workloads:
        return {"": frame.sort(POINT)}
    return {w.name: frame.filter(pl.col("workload") == w.name).sort(POINT) for w in study.workloads}


def mix_columns(study: Study) -> list[str]:
    """Columns of numbers that every workload has."""
    found = [columns_of(study, verb) for verb in study.verbs]
    return [
        name
        for name, kind in found[0].items()
        if kind in ("float", "int") and all(name in other for other in found)
    ]


def combine_column(name: str, each: Mapping[str, Array], weights: Mapping[str, float]) -> Array:
    """One column over the mix: a weighted mean, a harmonic one for rates, the highest of what is bought."""
    values = np.stack([each[part] for part in weights])
    share = np.array([*weights.values()])[:, None]
    if name in HIGHEST:
        return np.asarray(values.max(axis=0))
    if is_rate(name):
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / (share / values).sum(axis=0))
    return np.asarray((share * values).sum(axis=0))


def is_rate(name: str) -> bool:
    """Whether a column is so much for each second, dollar or joule."""
    return name.startswith(RATES) or "tokens_per_s" in name


def mix_front(study: Study, table: MixPoints) -> MixFront:
    """The exact front of the points that are possible and within the limits."""
    within = table.possible.copy()
    for name, most in study.limits.items():
        with np.errstate(invalid="ignore"):
            within &= column_of(table, name) <= most
    wishes = objectives_of(study)
    front = np.zeros(len(within), bool)
    rows = np.flatnonzero(within)
    if len(rows) and wishes:
        wanted = [significant(column_of(table, name)[rows]) for name in wishes]
        front[rows] = pareto_front(wanted, [*wishes.values()])
    return MixFront(objectives=wishes, within=within, front=front)


def significant(values: Array, digits: int = 10) -> Array:
    """Values without what differs by the order of additions alone: equals are not better than each other."""
    size = np.floor(np.log10(np.maximum(np.abs(values), 1e-300)))
    scale = 10.0 ** (digits - 1 - size)
    return np.asarray(np.round(values * scale) / scale)


def objectives_of(study: Study) -> Mapping[str, Direction]:
    """What is wanted; money and speed of work where a study that is paid for says nothing."""
    return study.objectives or (PAID_WISHES if is_paid(study) else {})


def column_of(table: MixPoints, name: str) -> Array:
    """A column of the mix, of a workload, or of what varies."""
    if name in table.columns:
        return table.columns[name]
    return np.array([float(value) for value in table.values[name]])


def best_of(study: Study, table: MixPoints, found: MixFront) -> dict[str, tuple[str, int]]:
    """Of each workload by itself, what is looked at and the place of the point that is best for it.

    That is the first objective where it is a column of the workload.
    """
    best: dict[str, tuple[str, int]] = {}
    places = np.flatnonzero(found.within)
    for workload in study.workloads if len(places) else ():
        for name, way in found.objectives.items():
            column = table.columns.get(f"{workload.name}.{name}")
            if column is None or np.isnan(column[places]).all():
                continue
            values = column[places] * (-1.0 if way == "max" else 1.0)
            best[workload.name] = (name, int(places[np.nanargmin(values)]))
            break
    return best


def reasons(table: MixPoints) -> list[tuple[str, int]]:
    """Why points cannot be, the most frequent first; of those that differ in numbers alone, one of them."""
    told = [text for text in table.problems if text]
    alike = [_DIGITS.sub("#", text) for text in told]
    first = dict(zip(reversed(alike), reversed(told), strict=True))
    return [(first[key], many) for key, many in Counter(alike).most_common(REASONS)]


def _numbers(column: Any) -> Array:
    import polars as pl

    return np.asarray(column.cast(pl.Float64).fill_null(float("nan")).to_numpy(), float)


def _problems(rows: Any) -> list[str]:
    """Of each point, why a workload has no answer there, or ''."""
    fits = rows["fits"].to_list() if "fits" in rows.columns else ["yes"] * len(rows)
    return [
        text or ("does not fit in memory" if fit == "no" else "")
        for text, fit in zip(rows["problem"].to_list(), fits, strict=True)
    ]


def _said(by_part: Mapping[str, str]) -> str:
    """What is wrong at one point: once where all workloads say the same."""
    texts = {*by_part.values()}
    if len(texts) == 1:
        return texts.pop()
    return "; ".join(f"{part}: {text}" for part, text in by_part.items() if text)
