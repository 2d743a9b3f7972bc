"""The figure of a folder of results: which rows and columns it takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import Infeasible, Problem
from foretell.report.figures.look import Figure
from foretell.report.figures.sweep import FALLBACK, chosen_columns, column_direction, sweep_figure
from foretell.search.pareto import pareto_front
from foretell.studies.sweep.columns import POINT
from foretell.studies.sweep.export import results
from foretell.studies.sweep.run import needs_polars
from foretell.studies.sweep.shards import read_manifest

MOST_ROWS = 20_000
"""Rows that a figure is made of; of more, the front and every so many of the others."""


def study_figure(
    folder: str | Path, asked: Mapping[str, str | None]
) -> tuple[Figure, dict[str, Any]]:
    """The figure of a sweep's results, and what it shows."""
    study, _ = read_manifest(Path(folder))
    needs_polars()
    table = results(folder)
    schema = table.collect_schema()
    known = [name for name in schema.names() if name != POINT]
    varied = [axis.path for axis in study.axes]
    objectives = list(study.objectives) or list(FALLBACK[study.kind])
    x, y, value = chosen_columns(varied, objectives, known, asked)
    wanted = dict.fromkeys([x, y, *([value] if value else []), *varied, "plan", "fits"])
    frame = table.select([name for name in wanted if name in known])
    if "fits" in known:
        import polars as pl

        frame = frame.filter(pl.col("fits") != "no")
    frame = frame.drop_nulls([x, y, *([value] if value else [])]).collect()
    if not len(frame):
        message = "no point of the sweep has an answer in these columns"
        raise Infeasible([Problem(path="folder", value=str(folder), message=message)])
    if len(frame) > MOST_ROWS and value is None and x not in varied:
        ways = [column_direction(name, study.objectives) for name in (x, y)]
        front = pareto_front([frame[x].to_numpy(), frame[y].to_numpy()], ways)
        kept = np.arange(len(frame)) % -(-len(frame) // MOST_ROWS) == 0
        frame = frame.filter(front | kept)
    title = f"{study.base.get('model') or study.verb} on {study.base.get('system', '')}".strip()
    title = f"{title} ({Path(folder).name})"
    figure = sweep_figure(frame.to_dicts(), (x, y, value), varied, study.objectives, title)
    return figure, {"x": x, "y": y, "value": value, "rows": len(frame)}
