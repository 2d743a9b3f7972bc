"""The points of one shard as a table: every column of the study, rows sorted by point."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretell.specs.study import BEST, Axis, Study, Verb, Workload
from foretell.studies.axes import Column, Index, columns, point_count
from foretell.studies.sweep.batches import VariedField, batch_frame, plan_row, served_frame
from foretell.studies.sweep.columns import (
    POINT,
    Columns,
    all_columns,
    axis_type,
    batch_axes,
    point_columns,
    result_columns,
    searches,
    system_axes,
)
from foretell.studies.sweep.questions import answer_row, question, served_rows
from foretell.training.tables import distinct

SHARD_POINTS: dict[Verb, int] = {
    "estimate": 256, "serve": 32, "size": 2, "cost system": 64, "cost chip": 64, "cost package": 64,
    "cost run": 2, "cost token": 16,
}  # fmt: skip
"""Points of one shard, by the verb: about a second's work."""
SHARD_SEARCHES = 2
"""Points of one shard where every point is a search."""
SHARD_PLANS = 1 << 18
"""Points of one shard where they are plans of one batch."""
SHARD_SYSTEMS = 1 << 15
"""Points of one shard where they are systems."""
SHARD_SERVICES = 1 << 12
"""Points of one shard where they are systems that serve."""
BATCH_S, PLAN_S = 0.015, 1.0 / SHARD_PLANS
"""Seconds of a batch whatever its size, and of each plan in it."""


def shard_points(study: Study) -> int:
    """Points of one shard."""
    inner = batch_axes(study)
    if inner and study.verbs == ("serve",):
        return SHARD_SERVICES
    if inner and {*inner} <= {*system_axes(study)}:
        return SHARD_SYSTEMS
    if inner:
        plans = float(math.prod(len(study.axes[place].values) for place in inner))
        if len(inner) == len(study.axes):
            plans = math.inf  # all points are plans of one batch
        elif study.mode != "product":
            plans = 1.0
        return max(int(1.0 / (BATCH_S / plans + PLAN_S)), 1)
    # A workload with a plan of its own is no search.
    own = [w for w in study.workloads if w.verb == "estimate" and "plan" not in w.base]
    every = searches(study) and (bool(own) or not study.workloads)
    return SHARD_SEARCHES if every else min(SHARD_POINTS[verb] for verb in study.verbs)


def shard_count(study: Study) -> int:
    """Shards of the whole study."""
    return -(-point_count(study) // shard_points(study))


def shard_frame(study: Study, number: int) -> Any:
    """The table of one shard."""
    size = shard_points(study)
    points = np.arange(number * size, min((number + 1) * size, point_count(study)))
    inner = batch_axes(study)
    outer = [place for place in range(len(study.axes)) if place not in inner]
    return points_frame(study, points, columns(study, (*outer, *inner), points))


def points_frame(study: Study, points: Index, chosen: Sequence[Column]) -> Any:
    """The table of some points, given what each axis has at them."""
    import polars as pl

    inner = batch_axes(study)
    outer = tuple(place for place in range(len(study.axes)) if place not in inner)
    mix: Sequence[Workload | None] = study.workloads or (None,)
    frames = []
    for workload in mix:
        frame = _answers(study, workload, chosen, outer, inner)
        own = {axis.path: _values(axis, c) for axis, c in zip(study.axes, chosen, strict=True)}
        frame = _typed(frame, result_columns(study)).drop(own.keys(), strict=False)
        ids = {POINT: points}
        if workload is not None:
            ids |= {"workload": pl.repeat(workload.name, len(points), eager=True)}
            ids |= {"weight": pl.repeat(workload.weight, len(points), eager=True)}
        left = _typed(pl.DataFrame(ids | own), point_columns(study))
        frames.append(pl.concat([left, frame], how="horizontal"))
    whole = pl.concat(frames).select(*all_columns(study))
    if study.limits:
        # A limit of one workload, or of the mix, is looked at where a point's rows stand together.
        rows = {name: most for name, most in study.limits.items() if name in whole.columns}
        within = [pl.col(name) <= most for name, most in rows.items()]
        within.append(pl.col("problem").is_null())
        whole = whole.with_columns(within_limits=pl.all_horizontal(within).fill_null(False))
    return whole if len(mix) == 1 else whole.sort(POINT, maintain_order=True)


def _values(axis: Axis, chosen: Column) -> Any:
    """What an axis has at some points, as a column."""
    import polars as pl

    if not axis.values:
        return chosen
    kind = axis_type(axis)
    if kind == "text":
        return pl.Series([str(v) for v in axis.values], dtype=pl.String).gather(chosen)
    return pl.Series(pl.Series(axis.values, dtype=_types()[kind]).to_numpy()[chosen])


def _types() -> dict[str, Any]:
    import polars as pl

    return {"text": pl.String, "float": pl.Float64, "int": pl.Int64, "bool": pl.Boolean}


def _typed(frame: Any, wanted: Columns) -> Any:
    """The table with exactly these columns, of these types; what is missing is unknown."""
    import polars as pl

    types = _types()
    missing = [pl.lit(None).alias(name) for name in wanted if name not in frame.columns]
    return frame.with_columns(missing).select(
        pl.col(name).cast(types[kind]) for name, kind in wanted.items()
    )


def _answers(
    study: Study,
    workload: Workload | None,
    chosen: Sequence[Column],
    outer: Sequence[int],
    inner: Sequence[int],
) -> Any:
    """The answers for all points of a shard, in their order."""
    import polars as pl

    if not inner:
        many = range(len(chosen[0]))
        asked_all = [question(study, workload, _chosen(study, chosen, outer, r)) for r in many]
        if asked_all[0].verb == "serve":
            return typed_rows(served_rows(asked_all), result_columns(study))
        answers = [
            plan_row(asked)
            if asked.verb == "estimate" and asked.plan != BEST
            else answer_row(asked)
            for asked in asked_all
        ]
        return typed_rows(answers, result_columns(study))
    codes = [_codes(study.axes[place], chosen[place]) for place in outer]
    first, group = distinct(*codes) if codes else (np.zeros(1, int), np.zeros(len(chosen[0]), int))
    order = np.argsort(group, kind="stable")
    edges = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=len(first)))])
    frames = []
    for place, one in enumerate(first):
        rows = order[edges[place] : edges[place + 1]]
        asked = question(study, workload, _chosen(study, chosen, outer, int(one)))
        varied = [
            VariedField(
                field=study.axes[i].path.removeprefix("plan."),
                values=study.axes[i].values,
                places=np.asarray(chosen[i])[rows],
            )
            for i in inner
        ]
        frame = (served_frame if asked.verb == "serve" else batch_frame)(asked, varied)
        frames.append(_typed(frame, result_columns(study)))
    whole = pl.concat(frames)
    if np.array_equal(order, np.arange(len(order))):
        return whole
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return whole[back]


def _codes(axis: Axis, chosen: Column) -> Index:
    """What an axis has at some points as whole numbers: places of its values, or ranks of those drawn."""
    return (
        np.asarray(chosen, np.int64) if axis.values else np.unique(chosen, return_inverse=True)[1]
    )


def _chosen(
    study: Study, chosen: Sequence[Column], places: Sequence[int], row: int
) -> list[tuple[Axis, Any]]:
    """Axes with their values at one point."""
    found = []
    for place in places:
        axis, at = study.axes[place], chosen[place][row]
        if axis.values:
            value = axis.values[int(at)]
        else:
            value = int(at) if axis.whole else float(at)
        found.append((axis, value))
    return found


def typed_rows(rows: Sequence[Mapping[str, Any]], wanted: Columns) -> Any:
    """Rows as a table with exactly these columns, of these types."""
    import polars as pl

    types = _types()
    columns = {name: [row.get(name) for row in rows] for name in wanted}
    return pl.DataFrame(
        [pl.Series(n, v, dtype=types[wanted[n]], strict=False) for n, v in columns.items()]
    )
