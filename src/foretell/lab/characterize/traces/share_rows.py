"""Measured and predicted beside each other, the largest disagreement first."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from foretell.lab.characterize.traces.breakdown import StepBreakdown
from foretell.lab.characterize.traces.prediction import Key, StepPrediction
from foretell.records import as_json

Level = Literal["step", "pass", "family", "op"]
MOSTLY = 0.5
"""Share of a trace's work whose pass is known, from which passes are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRow:
    """One share of a step, both ways."""

    level: Level
    """step: a part of the whole; pass, family: kernels; op: one operation, or products of one shape."""
    name: str
    """What it is."""
    phase: str
    """forward, backward, optimizer; empty where it is of all."""
    measured_s: float | None
    """In the trace; None where it is not in it."""
    predicted_s: float | None
    """By the model; None where it has no such thing."""

    @property
    def difference_s(self) -> float:
        """Predicted less measured; what one of them lacks is 0."""
        return (self.predicted_s or 0.0) - (self.measured_s or 0.0)

    @property
    def ratio(self) -> float | None:
        """Predicted over measured; None where one of them is lacking."""
        if not self.measured_s or self.predicted_s is None:
            return None
        return self.predicted_s / self.measured_s

    to_dict = as_json(more=("difference_s", "ratio"))


def share_rows(steps: Sequence[StepBreakdown], told: StepPrediction) -> tuple[ShareRow, ...]:
    """Rows of a mean step, each level with its largest disagreement first."""
    many = len(steps)

    def mean(name: str) -> float:
        return sum(float(getattr(step, name)) for step in steps) / many

    parts = (
        ("step", mean("step_s"), told.estimate.step_s),
        ("compute", mean("compute_s"), told.compute_s),
        ("exposed communication", mean("exposed_communication_s"), told.exposed_s),
        ("copies", mean("copy_s"), None),
        ("host, idle and bubble", mean("host_s") + mean("idle_s"), told.host_s + told.bubble_s),
    )
    rows = [
        ShareRow(level="step", name=name, phase="", measured_s=measured, predicted_s=ours)
        for name, measured, ours in parts
    ]
    rows += _passes(steps, told)
    families = _mean([{(f.family, f.phase): f.seconds for f in step.compute} for step in steps])
    rows += _rows("family", *_alike(families, told.families))
    ops: dict[Key, float] = _mean([_op_seconds(step, told) for step in steps])
    known = {key[0] for key in ops}
    rows += _rows("op", ops, {k: v for k, v in _joined_ops(told).items() if k[0] in known})
    order = {"step": 0, "pass": 1, "family": 2, "op": 3}
    return tuple(sorted(rows, key=lambda row: (order[row.level], -abs(row.difference_s))))


def _passes(steps: Sequence[StepBreakdown], told: StepPrediction) -> list[ShareRow]:
    """Kernels of each pass, where the trace knows most of its passes."""
    found = _mean([{(f.phase, f.family): f.seconds for f in step.compute} for step in steps])
    known = sum(value for (phase, _), value in found.items() if phase)
    if known < MOSTLY * sum(found.values()):
        return []
    return [
        ShareRow(
            level="pass",
            name=phase,
            phase="",
            measured_s=sum(value for key, value in found.items() if key[0] == phase),
            predicted_s=sum(value for key, value in told.families.items() if key[1] == phase),
        )
        for phase in ("forward", "backward", "optimizer")
    ]


def _rows(level: Level, measured: Mapping[Key, float], ours: Mapping[Key, float]) -> list[ShareRow]:
    return [
        ShareRow(
            level=level,
            name=key[0],
            phase=key[1],
            measured_s=measured.get(key),
            predicted_s=ours.get(key),
        )
        for key in dict.fromkeys([*measured, *ours])
    ]


def _mean(tables: Sequence[Mapping[Key, float]]) -> dict[Key, float]:
    total: dict[Key, float] = defaultdict(float)
    for table in tables:
        for key, value in table.items():
            total[key] += value / len(tables)
    return dict(total)


def _alike(
    measured: Mapping[Key, float], ours: Mapping[Key, float]
) -> tuple[dict[Key, float], dict[Key, float]]:
    """Families by pass where the trace knows the passes of most of its work, else all passes together."""
    known = sum(value for (_, phase), value in measured.items() if phase)
    if known >= MOSTLY * sum(measured.values()):
        return dict(measured), dict(ours)
    return _all_passes(measured), _all_passes(ours)


def _all_passes(table: Mapping[Key, float]) -> dict[Key, float]:
    total: dict[Key, float] = defaultdict(float)
    for (name, _), value in table.items():
        total[name, ""] += value
    return dict(total)


def _op_seconds(step: StepBreakdown, told: StepPrediction) -> dict[Key, float]:
    """Operations of a step by the names that the prediction has for them; others are left out."""
    names = {name for name, _ in told.ops}
    found: dict[Key, float] = defaultdict(float)
    for one in step.ops:
        if one.op in names:
            found[one.op, one.phase] += one.seconds
        elif one.op in told.shapes:
            found[_joined(told, one.op), one.phase] += one.seconds
    for two in step.ranges:
        # An annotation that bears an operation's name is opened around its forward pass.
        if two.name in names and (two.name, "forward") not in found:
            found[two.name, "forward"] = two.compute_s
    return dict(found)


def _joined_ops(told: StepPrediction) -> dict[Key, float]:
    """Operations, and beside them those of one shape together, as a trace sees them."""
    found = dict(told.ops)
    for shape, names in told.shapes.items():
        for phase in ("forward", "backward"):
            total = sum(told.ops.get((name, phase), 0.0) for name in names)
            if total > 0.0:
                found[_joined(told, shape), phase] = total
    return found


def _joined(told: StepPrediction, shape: str) -> str:
    return f"{' + '.join(told.shapes[shape])} ({shape})"
