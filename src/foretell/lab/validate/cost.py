"""Published costs of dies and packages beside ours: `validate cost`.

Two forms of table are known: one die a row (yields by several models, dies per wafer, cost), and one
package a row (five columns and their sum). Both hold values of Chiplet Actuary (Feng and Ma, DAC 2022),
so rows are computed with its parameters and its known mistake (economics/actuary.py), every other number
being the formulas that all our answers use. Each cell is one prediction, rounded as the file prints it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from foretell.catalog.files import csv_rows
from foretell.economics.actuary import (
    INTERFACE_SHARE,
    KINDS,
    NODES,
    Form,
    die_of,
    package_columns,
)
from foretell.economics.silicon import perfect_share
from foretell.errors import bad_input
from foretell.lab.validate.scores import Prediction, Scores, scores_of, table_text
from foretell.specs._base import Num
from foretell.specs.package import Process

DIE_INPUTS = ("node_nm", "die_mm2")
"""Columns without which a table is not one of dies; wafer_usd and D0_per_cm2 may be the node's."""
PACKAGE_INPUTS = ("node_nm", "partition_mm2", "package")
"""Columns without which a table is not one of packages."""
_MONO = re.compile(r"\s*(?:mono(?:lithic)?|1\s*[x\u00d7])\s*([0-9.]+)\s*", re.IGNORECASE)
_SEVERAL = re.compile(r"\s*([0-9]+)\s*[x\u00d7]\s*([0-9.]+)\s*", re.IGNORECASE)
_ALPHA = re.compile(r"(?:alpha|_n|_a)([0-9.]+)$")
LARGEST = 1e12
"""No cell of a table is above this."""
ROUND = (1000.0, 500.0, 100.0, 50.0, 10.0, 5.0, 1.0, 0.5, 0.1)
"""Steps of areas that people choose, the coarsest first."""


def score_cost(path: Path) -> Scores:
    """Every cell of a table of die or package costs beside ours."""
    rows, columns = _read(Path(path))
    packages = all(name in columns for name in PACKAGE_INPUTS)
    if not packages and not all(name in columns for name in DIE_INPUTS):
        allowed = f"columns {', '.join(DIE_INPUTS)}, or {', '.join(PACKAGE_INPUTS)}"
        raise bad_input(str(path), None, "is no table of die or package costs", allowed)
    row_of = package_row if packages else die_row
    predictions: list[Prediction] = []
    groups = ("by_source", "by_metric", "by_node", "by_package")
    labels: dict[str, list[str]] = {name: [] for name in groups}
    unsupported: list[tuple[str, str]] = []
    for number, cells in enumerate(rows, start=1):
        row_id = cells.get("id") or str(number)
        try:
            # Defects or dies beyond any real ones leave no yield: such a row is not scored.
            with np.errstate(divide="raise", over="raise", invalid="raise"):
                found = _predicted(row_of(cells), cells, row_id)
        except (ValueError, KeyError, ArithmeticError) as error:
            unsupported.append((row_id, str(error).strip("'\"")))
            continue
        predictions += found
        labels["by_source"] += [cells.get("source") or Path(path).name for _ in found]
        labels["by_metric"] += [one.metric for one in found]
        labels["by_node"] += [f"{cells['node_nm']} nm" for _ in found]
        labels["by_package"] += [cells.get("package") or "die" for _ in found]
    exact = sum(one.predicted == one.measured for one in predictions)
    facts = {"values": len(predictions), "values_equal": exact}
    scores = scores_of(len(rows), predictions, unsupported, labels, facts=facts)
    return replace(scores, scored=len(rows) - len(unsupported))  # rows, of many values each


def die_row(cells: Mapping[str, str]) -> dict[str, Num]:
    """Every column that can be computed of one die."""
    area = _number(cells, "die_mm2")
    process = _process(cells)
    x = area * process.defects_per_cm2 / 100.0
    one = die_of(area, process)
    found: dict[str, Num] = {"dies_per_wafer": one.dies_per_wafer, "raw_die_usd": one.raw_usd}
    for name in cells:
        share = _share(name, x)
        if share is not None:
            found[name] = share
        elif name.startswith("kgd_usd"):
            alpha = _ALPHA.search(name)
            shaped = perfect_share(x, "negative-binomial", float(alpha[1]) if alpha else 10.0)
            found[name] = one.raw_usd / shaped
    return found


def _share(name: str, x: Num) -> Num | None:
    """A yield by the model that a column's name says."""
    if not name.startswith("Y_"):
        return None
    alpha = _ALPHA.search(name)
    shape = float(alpha[1]) if alpha else 10.0
    models: Mapping[str, Callable[[], Num]] = {
        "Y_negbin": lambda: perfect_share(x, "negative-binomial", shape),
        "Y_poisson": lambda: perfect_share(x, "poisson"),
        "Y_murphy": lambda: perfect_share(x, "murphy"),
        "Y_seeds": lambda: perfect_share(x, "seeds"),
        "Y_bose": lambda: perfect_share(x, "bose-einstein", shape),
    }
    return next((share() for start, share in models.items() if name.startswith(start)), None)


def package_row(cells: Mapping[str, str]) -> dict[str, Num]:
    """The columns of one package."""
    dies, area = partition_of(cells["partition_mm2"])
    words = cells["package"].split()
    form = words[0].upper() if words else ""
    if form not in KINDS:
        raise ValueError(f"package {cells['package']!r} is none of {', '.join(KINDS)}")
    first = "first" in cells["package"].lower()
    return package_columns(area, dies, _process(cells), cast(Form, form), chip_first=first)


def partition_of(text: str) -> tuple[float, float]:
    """(dies, area of one) of `mono 800` or `4x222.2`.

    The printed area is rounded: several dies share a round area of modules, a tenth of each being
    interface, wherever such an area gives the printed one.
    """
    if match := _MONO.fullmatch(text):
        return 1.0, float(match[1])
    match = _SEVERAL.fullmatch(text)
    if match is None or int(match[1]) < 1:
        raise ValueError(f"partition {text!r} is neither 'mono AREA' nor 'NxAREA'")
    dies, printed = int(match[1]), match[2]
    digits = len(printed.partition(".")[2])
    whole = dies * (1.0 - INTERFACE_SHARE)
    for step in ROUND:
        modules = round(float(printed) * whole / step) * step
        if modules > 0 and f"{modules / whole:.{digits}f}" == printed:
            return float(dies), modules / whole
    return float(dies), float(printed)


def _process(cells: Mapping[str, str]) -> Process:
    """The node's parameters, the row's own in their place."""
    node = cells.get("node_nm", "").lower().removesuffix("nm").strip().removesuffix(".0")
    given: dict[str, Any] = {
        name: _number(cells, column)
        for name, column in (("wafer_usd", "wafer_usd"), ("defects_per_cm2", "D0_per_cm2"))
        if cells.get(column)
    }
    if len(given) < 2 and node not in NODES:
        raise ValueError(f"node {node!r} is none of {', '.join(NODES)}")
    return replace(NODES.get(node, next(iter(NODES.values()))), **given)


def _number(cells: Mapping[str, str], column: str) -> float:
    text = cells.get(column, "")
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column} {text!r} is not a number") from None
    if not 0.0 < value < 1e9:
        raise ValueError(f"{column} {text!r} is out of range")
    return value


def _predicted(found: Mapping[str, Num], cells: Mapping[str, str], row_id: str) -> list[Prediction]:
    """One prediction for each column that is computed and printed, to as many digits."""
    made = []
    for metric, value in found.items():
        printed = (cells.get(metric) or "").strip()
        if not printed:
            continue
        measured = float(printed)
        if not abs(measured) <= LARGEST or not np.isfinite(value):
            raise ValueError(f"{metric} {printed[:40]!r} is out of range")
        digits = len(printed.lower().partition("e")[0].partition(".")[2])
        predicted = round(float(value), digits)
        one = Prediction(
            id=row_id, metric=metric, predicted=predicted, measured=measured, low=None, high=None
        )
        made.append(one)
    return made


def _read(path: Path) -> tuple[list[dict[str, str]], Sequence[str]]:
    """Rows and columns of a CSV table, gzipped or not."""
    columns, found = csv_rows(table_text(path), str(path))
    rows = [{name.strip(): value.strip() for name, value in row.items()} for row in found]
    return rows, [name.strip() for name in columns]
