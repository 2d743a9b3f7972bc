"""The prediction of a traced job: seconds of a step by family, by operation, and what it waits for."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.api.answers import Estimate
from foretell.lab.characterize.traces.device import shape_text
from foretell.specs.plan import batch_of
from foretell.training.leaves import runs_of
from foretell.training.step import evaluate_rows
from foretell.training.tables import tables_of
from foretell.uncertainty.evidence import EXCHANGES
from foretell.workload.ops import Gemm

Key = tuple[str, str]
"""Family or operation, and pass."""
BUILDING = {"recompute": "backward"}
"""Passes that a trace cannot tell from others: what is computed again runs inside the backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """One step along its slowest stage."""

    estimate: Estimate
    """The whole answer."""
    families: dict[Key, float]
    """Family and pass -> seconds; the optimizer's update among them."""
    ops: dict[Key, float]
    """Operation and pass -> seconds."""
    shapes: dict[str, tuple[str, ...]]
    """Three sides of a product -> operations that have them."""
    exposed_s: float
    """Waiting for collectives and sends."""
    bubble_s: float
    """Waiting for other stages."""
    host_s: float
    """Waiting for the host, and what the framework takes beside the work."""

    @property
    def compute_s(self) -> float:
        """All kernels."""
        return sum(self.families.values())


def step_prediction(answer: Estimate) -> StepPrediction:
    """Take an estimate apart as a trace is."""
    scenario = answer.scenario
    if scenario is None or answer.breakdown is None:  # made by hand
        raise ValueError("an estimate without its question")
    plans = batch_of([answer.plan])
    tables = tables_of(scenario, plans)
    rows = evaluate_rows(scenario, plans, tables)
    parts, times = tables.parts, tables.parts.times
    seconds = (
        times.seconds[:, 0] + (tables.pace / float(rows.clock[0]) - 1.0) * times.clocked_s[:, 0]
    )
    flat = [op for ops in parts.ops for op in ops]
    families: dict[Key, float] = defaultdict(float)
    ops: dict[Key, float] = defaultdict(float)
    shapes: dict[str, list[str]] = defaultdict(list)
    for run in runs_of(plans, tables, rows):
        phase = BUILDING.get(run.phase, run.phase)
        for row, count, _ in run.ops(parts):
            op, spent = flat[row % len(flat)], count * float(seconds[row])
            if spent > 0.0:
                families[op.family, phase] += spent
                ops[op.name, phase] += spent
                if isinstance(op, Gemm) and op.name not in shapes[side_text(op)]:
                    shapes[side_text(op)].append(op.name)
    shares = {child.name: child.value for child in answer.breakdown.children}
    core_s = sum(c.value for c in answer.breakdown.children if c.name == "recompute")
    told_s = sum(families.values()) - shares["compute"] - shares["memory_bound"]
    if core_s - told_s > 1e-12:  # selective recomputation is not in runs_of
        families["attention", "backward"] += core_s - told_s
    families["optimizer", "optimizer"] += shares["optimizer"]
    families["elementwise", "backward"] += shares["gradient_sums"]
    return StepPrediction(
        estimate=answer,
        families=dict(families),
        ops=dict(ops),
        shapes={key: tuple(names) for key, names in shapes.items()},
        exposed_s=sum(shares.get(name, 0.0) for name in EXCHANGES),
        bubble_s=shares["bubble"],
        host_s=shares["host"] + shares["fixed"] + shares.get("offload", 0.0),
    )


def side_text(op: Any) -> str:
    """The three sides of a product on one rank, the longest first."""
    sides = [round(float(np.asarray(side).reshape(-1)[0])) for side in (op.m, op.k, op.n)]
    return shape_text((sides[0], sides[1], sides[2]))
