"""Measured and predicted beside each other, the largest disagreement first."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from foretell.api.answers import Estimate
from foretell.lab.characterize.traces.breakdown import StepBreakdown
from foretell.lab.characterize.traces.device import shape_text
from foretell.lab.characterize.traces.rank_trace import RankTrace
from foretell.records import as_json
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

    def mean(name: str) -> float:
        return sum(float(getattr(step, name)) for step in steps) / len(steps)

    measured: dict[Key, float] = {
        ("step", ""): mean("step_s"),
        ("compute", ""): mean("compute_s"),
        ("exposed communication", ""): mean("exposed_communication_s"),
        ("copies", ""): mean("copy_s"),
        ("host, idle and bubble", ""): mean("host_s") + mean("idle_s"),
    }
    ours: dict[Key, float] = {
        ("step", ""): told.estimate.step_s,
        ("compute", ""): told.compute_s,
        ("exposed communication", ""): told.exposed_s,
        ("host, idle and bubble", ""): told.host_s + told.bubble_s,
    }
    rows = _rows("step", measured, ours)
    families = _mean([{(f.family, f.phase): f.seconds for f in step.compute} for step in steps])
    known = sum(value for (_, phase), value in families.items() if phase)
    if known >= MOSTLY * sum(families.values()):
        passes = _by_pass(families), _by_pass(told.families)
        rows += [*_rows("pass", *passes), *_rows("family", families, told.families)]
    else:
        rows += _rows("family", _all_passes(families), _all_passes(told.families))
    ops = _mean([_op_seconds(step, told) for step in steps])
    names = {name for name, _ in ops}
    rows += _rows("op", ops, {k: v for k, v in _joined_ops(told).items() if k[0] in names})
    order = ("step", "pass", "family", "op")
    return tuple(sorted(rows, key=lambda row: (order.index(row.level), -abs(row.difference_s))))


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


def _by_pass(table: Mapping[Key, float]) -> dict[Key, float]:
    """Families together, pass by pass."""
    return {
        (name, ""): sum(value for (_, phase), value in table.items() if phase == name)
        for name in ("forward", "backward", "optimizer")
    }


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    """Ranks of one step beside each other."""

    step: str
    """Which step."""
    compute_s: dict[int, float]
    """Rank -> compute."""
    imbalance: float
    """Compute of the busiest rank over the mean, less one."""
    busiest: int
    """The rank with most of it."""
    waits_s: dict[int, float] | None
    """Rank -> waiting in collectives for others; None where ranks did not run the same ones."""

    to_dict = as_json()


def imbalances(
    traces: Sequence[RankTrace], told: Sequence[Sequence[StepBreakdown]]
) -> tuple[Imbalance, ...]:
    """Every step that all ranks have; none of a single rank."""
    if len(traces) < 2:
        return ()
    common = [s.step for s in told[0] if all(any(o.step == s.step for o in r) for r in told)]
    found = []
    for step in common:
        compute = {r[0].rank: next(s.compute_s for s in r if s.step == step) for r in told}
        mean = sum(compute.values()) / len(compute)
        busiest = max(compute, key=lambda rank: compute[rank])
        found.append(
            Imbalance(
                step=step,
                compute_s=compute,
                imbalance=compute[busiest] / mean - 1.0 if mean else 0.0,
                busiest=busiest,
                waits_s=_waits(traces, step),
            )
        )
    return tuple(found)


def _waits(traces: Sequence[RankTrace], step: str) -> dict[int, float] | None:
    """What each rank's collectives lasted beyond those of the last to come, added up."""
    lengths, labels = [], []
    for trace in traces:
        if trace.device == "simulated":
            return None
        window = next(s for s in trace.steps if s.name == step)
        sent = trace.sent
        here = (sent.starts >= window.start_ns) & (sent.starts < window.end_ns)
        order = np.flatnonzero(here)
        order = order[np.argsort(sent.starts[order], kind="stable")]
        seen: Counter[tuple[str, int]] = Counter()
        label = []
        for place in order.tolist():
            key = sent.kinds[sent.kind[place]], int(sent.size_bytes[place])
            label.append((*key, seen[key]))
            seen[key] += 1
        labels.append(dict(zip(label, order.tolist(), strict=True)))
        lengths.append(sent.ends - sent.starts)
    names = set(labels[0])
    if not names or any(set(one) != names for one in labels):
        return None
    table = np.array(
        [[int(lengths[i][labels[i][name]]) for name in sorted(names)] for i in range(len(traces))]
    )
    waited = (table - table.min(axis=0)).sum(axis=1) * 1e-9
    return {trace.rank: float(seconds) for trace, seconds in zip(traces, waited, strict=True)}
