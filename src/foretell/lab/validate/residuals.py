"""How far published runs were from their predictions: one table.

`residual_table` gives a row for every graded run that has a target: who published it, the chip, the family of
frameworks, ln(measured / predicted), and the seconds of every leaf of the
predicted step. Predictions leave out what `held_out` says (held_out.py); `unnamed` asks without a framework.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from foretell.lab.validate.held_out import HeldOut, left_out_of, sightings_of
from foretell.lab.validate.training import RunPrediction, prediction_of, source_label
from foretell.lab.validate.training_rows import TrainingRow
from foretell.records import dataclass
from foretell.specs.result import Leaf

UNNAMED: Literal["unnamed"] = "unnamed"
"""Runs that are asked for without their framework."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One run beside its prediction."""

    id: str
    """The row's id."""
    source: str
    """Where it is published."""
    label: str
    """The name under which it is counted: its source, or that with a remark where it is reported apart."""
    chip: str
    """The chip."""
    framework: str
    """Family of the software."""
    held_out: str
    """What was left out: nothing (empty), source, framework, chip, or the name of the framework (unnamed)."""
    predicted_s: float
    """Step time, predicted."""
    measured_s: float
    """Step time, measured."""
    log_residual: float
    """ln(measured / predicted) of the step."""
    leaves: Mapping[str, float]
    """Seconds of the predicted step by leaf: `compute.gemm`, `tensor_parallel`, `host`, ..."""


def residual_table(
    rows: Sequence[TrainingRow], held_out: HeldOut | Literal["unnamed"] | None = None
) -> list[Residual]:
    """Every run of some rows that has a grade above C, a target and a prediction."""
    named = held_out != UNNAMED
    mode = None if held_out == UNNAMED else held_out
    seen = sightings_of(rows) if mode in ("framework", "chip") else frozenset()
    found = []
    for row in rows:
        if row.quality == "C" or not (row.step_s or row.rate):
            continue
        told = prediction_of(row, left_out_of(row, mode, seen), named=named)
        if not isinstance(told, str) and told.measured_s and told.answer.breakdown is not None:
            found.append(_residual(told, told.measured_s, told.answer.breakdown, held_out or ""))
    return found


def _residual(told: RunPrediction, measured_s: float, tree: Leaf, held_out: str) -> Residual:
    return Residual(
        id=told.row.id,
        source=told.row.source,
        label=source_label(told.row),
        chip=told.scenario.system.chip.id,
        framework=told.scenario.software.family,
        held_out=held_out,
        predicted_s=told.answer.step_s,
        measured_s=measured_s,
        log_residual=math.log(measured_s / told.answer.step_s),
        leaves=leaves_of(tree),
    )


def leaves_of(tree: Leaf) -> dict[str, float]:
    """Seconds of the ends of a step's tree by name, with their parent's where they have one."""
    found: dict[str, float] = {}
    for child in tree.children:
        if child.children:
            found |= {f"{child.name}.{end.name}": end.value for end in child.children}
        else:
            found[child.name] = child.value
    return found
