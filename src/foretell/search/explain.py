"""Where the time and memory of a step go, which bound each share hits, and what would move it.

Everything comes from one batch of systems (search/sensitivity.py): a share's bound is the number of the
system that its seconds answer to most, found by varying each in turn, so that no rule of thumb says what a
kernel or a collective is limited by. The first row of the batch is the system as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.kernels.fusion import kind_of
from foretell.kernels.stack_passes import traffic_factor
from foretell.records import Answer, JsonRecord, as_json
from foretell.search.search import rank
from foretell.search.sensitivity import (
    ALL_HARDWARE,
    SOFTWARE,
    TWICE,
    Elasticity,
    Number,
    Sensitivity,
    batch_of_systems,
    elasticities,
    numbers_of,
    sensitivity_of,
)
from foretell.search.space import enumerate_plans
from foretell.sharding.lora import backward_products
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.plan import DTYPE_BYTES, Plan, activation_bytes
from foretell.specs.result import Evidence, Leaf, StepEstimate
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software
from foretell.training.breakdown import time_tree
from foretell.training.feasibility import verdict_codes
from foretell.training.layer_costs import CORE
from foretell.training.leaves import Phase, runs_of
from foretell.training.step import evaluate_plans
from foretell.training.tables import select
from foretell.training.variants import SystemBatch
from foretell.workload.ops import Gemm, Lookup, Op, Pointwise

WORTH = 0.005
"""A change of the step below this share is called none."""
MOST = 3
"""Sentences about what would shorten the step."""
BOUNDS: Mapping[str, str] = {
    "chip.matrix_flop_per_s": "matrix rate",
    "chip.vector_flop_per_s": "vector units",
    "chip.memory_bandwidth_bytes_per_s": "memory bandwidth",
    "chip.tdp_watts": "power limit",
    "chip.idle_watts": "power limit",
    "chip.host_speed": "host",
    "chip.host_bytes_per_s": "host link",
    "chip.l2_bytes": "cache",
    SOFTWARE: "launch and other fixed times",
}
"""Number of a system -> the bound it stands for; tiers have theirs by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """An end of a tree, with what it is bound by."""

    name: str
    """Its name, with its parent's."""
    value: float
    """How much."""
    unit: str
    """s or bytes."""
    share: float
    """Of the whole."""
    evidence: Evidence | None
    """What it rests on."""
    bound: str | None = None
    """What its seconds answer to most; none for bytes."""
    bound_elasticity: float | None = None
    """d ln(seconds) / d ln(that number)."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpShare:
    """All runs of one operation in one pass of a step on the slowest stage."""

    op: str
    """The operation."""
    part: str
    """Layer kind, embedding or head that it belongs to."""
    phase: Phase
    """forward, backward or recompute."""
    family: str
    """Kernels that it runs on."""
    count: float
    """Runs in a step."""
    seconds: float
    """All of them."""
    share: float
    """Of the step."""
    bound: str
    """What its seconds answer to most."""
    bound_elasticity: float
    """d ln(seconds) / d ln(that number)."""
    flop: float
    """Operations of one run, of the matrix and the vector units."""
    moved_bytes: float
    """What one run moves through the device memory, as its kernels are fused."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The best plan on chips with more memory."""

    factor: float
    """Times the memory."""
    plan: str
    """The best plan there."""
    step_ratio: float
    """Its step over that of the best plan now."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(JsonRecord, Answer):
    """One plan, explained."""

    verb = "explain"

    estimate: StepEstimate
    """What is explained."""
    time: tuple[Share, ...]
    """Ends of the time tree, largest first."""
    ops: tuple[OpShare, ...]
    """Operations, largest first."""
    memory: tuple[Share, ...]
    """What the fullest stage holds, largest first."""
    sensitivity: Sensitivity
    """How the step answers to each number of the system."""
    capacity: Capacity | None
    """What more memory would do; none where the plan was given, and is held."""
    conclusions: tuple[str, ...]
    """The same in sentences."""

    def __str__(self) -> str:
        """Largest shares, and the conclusions."""
        rows = [f"{s.share:6.1%}  {s.name:<28} {s.bound}" for s in self.time]
        return "\n".join([f"step {self.estimate.step_s * 1e3:,.1f} ms", *rows, *self.conclusions])

    def to_dict(self) -> dict[str, Any]:
        """The explanation as JSON."""
        e = self.estimate
        names = ("model", "system", "gpus", "global_batch", "seq_len", "plan_chosen", "fits")
        numbers = ("step_s", "interval", "limited_by", "peak_memory_bytes", "memory_capacity_bytes")
        likely = ("allocated_bytes", "reserved_bytes", "intervals", "fit_probability")
        return {
            **{name: getattr(e, name) for name in (*names, *numbers, *likely)},
            "plan": str(e.plan),
            "time": [s.to_dict() for s in self.time],
            "ops": [s.to_dict() for s in self.ops],
            "memory": [s.to_dict() for s in self.memory],
            "elasticities": self.sensitivity.to_dict()["elasticities"],
            "capacity": self.capacity.to_dict() if self.capacity else None,
            "conclusions": list(self.conclusions),
            "assumptions": list(e.assumptions),
            "overrides": dict(e.overrides or {}),
        }


def explain(estimate: StepEstimate, scenario: Scenario) -> Explanation:
    """Explain an estimate of a scenario."""
    plan = estimate.plan
    numbers = numbers_of(scenario, plan)
    batch = batch_of_systems(scenario, plan, numbers)
    found = sensitivity_of(batch, numbers)
    time = _time_shares(estimate, batch, numbers)
    capacity = _capacity(estimate, scenario) if estimate.plan_chosen else None
    return Explanation(
        estimate=estimate,
        time=time,
        ops=_op_shares(batch, numbers),
        memory=_memory_shares(estimate),
        sensitivity=found,
        capacity=capacity,
        conclusions=conclusions(estimate, time, found, capacity),
    )


def bound_of(slopes: Array, numbers: Sequence[Number]) -> tuple[str, float]:
    """What seconds answer to most, of their elasticities to `numbers`; fixed times are what is left."""
    known = {n.path: float(s) for n, s in zip(numbers, slopes, strict=True) if n.kind != "joint"}
    joint = [float(s) for n, s in zip(numbers, slopes, strict=True) if n.path == ALL_HARDWARE]
    known[SOFTWARE] = 1.0 + joint[0]
    path = max(known, key=lambda p: abs(known[p]))
    return bound_words(path), known[path]


def bound_words(path: str) -> str:
    """The bound that a number stands for: `network.node.latency_s` is the node tier's latency."""
    if path in BOUNDS:
        return BOUNDS[path]
    _, tier, field = path.split(".")
    return f"{tier} latency" if field == "latency_s" else f"{tier} link"


def ends(tree: Leaf) -> dict[str, Leaf]:
    """Ends of a tree by name, with their parent's name where it is not the root."""
    found = {}
    for child in tree.children:
        if not child.children:
            found[child.name] = child
        for leaf in child.children:
            found[f"{child.name}.{leaf.name}"] = leaf
    return found


def _time_shares(
    estimate: StepEstimate, batch: SystemBatch, numbers: Sequence[Number]
) -> tuple[Share, ...]:
    """Ends of the time tree, each with its bound."""
    trees = [ends(_tree_at(batch, k)) for k in range(len(batch.plans))]
    found = []
    for name, leaf in trees[0].items():
        if leaf.value <= 0.0:
            continue
        values = np.array([tree[name].value if name in tree else 0.0 for tree in trees])
        bound, slope = bound_of(elasticities(values, numbers), numbers)
        found.append(
            Share(
                name=name,
                value=leaf.value,
                unit="s",
                share=leaf.value / estimate.step_s,
                evidence=leaf.evidence,
                bound=bound,
                bound_elasticity=slope,
            )
        )
    return tuple(sorted(found, key=lambda s: -s.value))


def _tree_at(batch: SystemBatch, k: int) -> Leaf:
    """The time tree of one system of a batch."""
    row = np.array([k])
    tables = select(batch.tables, row)
    return time_tree(batch.plans.take(row), tables, batch.rows.row(k), batch.scenario)


def _op_shares(batch: SystemBatch, numbers: Sequence[Number]) -> tuple[OpShare, ...]:
    """Operations of the slowest stage on the system as it is, with the bound of each."""
    tables, rows = batch.tables, batch.rows
    parts, times = tables.parts, tables.parts.times
    slower = tables.pace / rows.clock - 1.0
    total = times.seconds + slower * times.clocked_s
    slopes = elasticities(total.T, numbers)
    step_s = float(rows.step_s[0])
    flat = [op for ops in parts.ops for op in ops]
    first = np.array([0])
    runs = runs_of(batch.plans.take(first), select(tables, first), rows.row(0))
    found = []
    for run in runs:
        for row, count, part in run.ops(parts):
            if total[row, 0] > 0.0:
                op = flat[row % len(flat)]
                names = {"op": op.name, "part": parts.names[part], "family": op.family}
                bound = bound_of(slopes[:, row], numbers)
                seconds = count * float(total[row, 0])
                work = _work(op, run.phase, batch.plans.base, batch.tables.software)
                found.append(_op(names, run.phase, count, seconds, step_s, bound, work))
    if float(batch.plans.recompute[0]) == 1.0:
        cores = parts.core_s * runs[0].counts
        all_s = cores.sum(axis=1)
        if all_s[0] > 0.0:
            names = {"op": "attention cores", "part": "all layers", "family": "attention"}
            many = float((runs[0].counts * (cores[0] > 0.0)).sum())
            bound = bound_of(elasticities(all_s, numbers), numbers)
            sums = np.zeros(2)
            for count, ops in zip(runs[0].counts, parts.ops, strict=True):
                works = [
                    _work(op, "recompute", batch.plans.base, batch.tables.software)
                    for op in ops
                    if op.family in CORE
                ]
                sums += float(count) * np.array(works).reshape(-1, 2).sum(axis=0)
            mean = (float(sums[0]) / many, float(sums[1]) / many)
            found.append(_op(names, "recompute", many, float(all_s[0]), step_s, bound, mean))
    return tuple(sorted(found, key=lambda s: -s.seconds))


def _work(op: Op, phase: Phase, plan: Plan, software: Software) -> tuple[float, float]:
    """Operations, and bytes through the device memory, of one run on the system as it is."""
    if phase == "backward" and isinstance(op, Gemm):
        done, times = op.forward(), float(backward_products(op, plan))
    else:
        done, times = op.backward() if phase == "backward" else op.forward(), 1.0
    flop = _first(done.matrix_flop) + _first(done.vector_flop)
    moved = _first(done.activation_elements) * activation_bytes(plan)
    moved += _first(done.weight_elements) * DTYPE_BYTES[plan.weights]
    if isinstance(op, Pointwise | Lookup):
        moved *= traffic_factor(kind_of(op), phase == "backward", plan, software, cut=plan.tp > 1)
    return times * flop, times * moved


def _first(value: Num) -> float:
    """Of an array over systems the first: all have one plan."""
    return float(np.ravel(value)[0])


def _op(
    names: Mapping[str, str],
    phase: Phase,
    count: float,
    seconds: float,
    step_s: float,
    bound: tuple[str, float],
    work: tuple[float, float],
) -> OpShare:
    return OpShare(
        **names,
        phase=phase,
        count=count,
        seconds=seconds,
        share=seconds / step_s,
        bound=bound[0],
        bound_elasticity=bound[1],
        flop=work[0],
        moved_bytes=work[1],
    )


def _memory_shares(estimate: StepEstimate) -> tuple[Share, ...]:
    if estimate.memory is None:
        return ()
    whole = max(estimate.memory.value, 1.0)
    shares = [
        Share(name=x.name, value=x.value, unit="bytes", share=x.value / whole, evidence=x.evidence)
        for x in estimate.memory.children
        if x.value > 0.0
    ]
    return tuple(sorted(shares, key=lambda s: -s.value))


def _capacity(estimate: StepEstimate, scenario: Scenario) -> Capacity | None:
    """The best plan were the memory TWICE as large: one evaluation of all plans answers it."""
    plans = enumerate_plans(scenario, estimate.plan).plans
    totals = evaluate_plans(scenario, plans)
    verdicts = verdict_codes(totals.held, TWICE * float(scenario.system.chip.memory_bytes))
    best = rank(totals.step_s, verdicts, 1, plans.recompute)
    if len(best) == 0:
        return None
    row = int(best[0])
    ratio = min(float(totals.step_s[row]) / estimate.step_s, 1.0)
    return Capacity(factor=TWICE, plan=str(plans.plan(row)), step_ratio=ratio)


def conclusions(
    estimate: StepEstimate, time: Sequence[Share], found: Sensitivity, capacity: Capacity | None
) -> tuple[str, ...]:
    """What limits the step, what would shorten it, what would not, and how full the memory is."""
    said = []
    if time:
        top = time[0]
        said.append(f"{top.share:.0%} of the step is {top.name}, which follows the {top.bound}.")
    apart = [e for e in found.numbers if e.number.kind != "joint"]
    gains = sorted((e for e in apart if 1.0 - e.what_if >= WORTH), key=lambda e: e.what_if)
    said += [_gain(e) for e in gains[:MOST]]
    idle = [e.number.words for e in apart if abs(1.0 - e.what_if) < WORTH]
    if idle:
        said.append("No difference to speak of: " + ", ".join(idle) + ".")
    used = estimate.peak_memory_bytes / estimate.memory_capacity_bytes
    said.append(f"The fullest chip holds {used:.0%} of its memory. {_of_capacity(capacity)}")
    return tuple(said)


def _gain(e: Elasticity) -> str:
    change = "half the" if e.number.better < 1.0 else "twice the"
    return f"The step is {1.0 - e.what_if:.1%} shorter with {change} {e.number.words}."


def _of_capacity(capacity: Capacity | None) -> str:
    if capacity is None:
        return "With this plan, more would not change the time."
    if 1.0 - capacity.step_ratio < WORTH:
        return "More of it would allow no better plan."
    return (
        f"With {capacity.factor:g} times as much, `{capacity.plan}` would take "
        f"{1.0 - capacity.step_ratio:.1%} less."
    )
