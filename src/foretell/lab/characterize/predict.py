"""What `foretell.estimate` says of a point: the step and its shares, memory, every message."""

from dataclasses import field
from pathlib import Path
from typing import Any

from foretell.api.answers import Estimate
from foretell.api.training import estimate
from foretell.errors import BadInput, Infeasible, bad_input
from foretell.kernels.memory import weight_bytes
from foretell.lab.characterize.config import JobPoint
from foretell.lab.characterize.models import spec_of
from foretell.records import as_json, dataclass
from foretell.simulation.programs.collectives import Collective, step_collectives
from foretell.simulation.programs.dealing import dealing_of
from foretell.specs.plan import Plan, batch_of
from foretell.specs.result import Fits
from foretell.specs.scenario import Scenario
from foretell.training.late_gradients import is_late
from foretell.training.leaves import part_runs
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate_rows
from foretell.training.tables import Stages, tables_of

HELD = ("weights", "gradients", "states", "activations")
"""What both sides count tensor by tensor; activations are those that layers keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One rank of one pipeline stage."""

    held_bytes: dict[str, float]
    """Bytes at the peak: `HELD`, and buffers, allocator, framework."""
    collectives: tuple[Collective, ...]
    """Messages of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPrediction:
    """A point as predicted."""

    step_s: float
    """Time of a step."""
    shares_s: dict[str, float]
    """What it is made of on the slowest rank, by the names of `table.SHARES`."""
    low_s: float
    """Low end of the 90 % interval."""
    high_s: float
    """High end."""
    fits: Fits
    """Whether it fits."""
    peak_bytes: float
    """What a chip must have."""
    capacity_bytes: float
    """What a chip has."""
    allocated_bytes: float
    """Of it, what tensors take."""
    stages: tuple[Stage, ...]
    """One rank of each pipeline stage."""
    intervals: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """p50 and p90 of the step and of the peak."""

    to_dict = as_json(without=("shares_s", "stages"), more=("shares_s",))


def predict(point: JobPoint, system: str) -> PointPrediction:
    """The point on a system, whether it fits or not."""
    try:
        found = estimate(
            spec_of(point.sizes, point.model),
            system=Path(system) if Path(system).is_file() else system,
            gpus=point.processes,
            global_batch=point.global_batch,
            seq_len=point.seq_len,
            plan=point.plan,
            # The runner's loop has its batches ready, and reads the loss when all steps are done.
            set=("host.step_s=0",),
        )
    except Infeasible as error:
        if not isinstance(error.answer, Estimate):
            raise BadInput(error.problems) from None
        found = error.answer
    if found.scenario is None:
        raise bad_input("", None, "the estimate lacks its question")
    return _prediction(found, found.scenario, point)


def _prediction(found: Estimate, scenario: Scenario, point: JobPoint) -> PointPrediction:
    plans = batch_of([point.plan])
    tables = tables_of(scenario, plans)
    rows = evaluate_rows(scenario, plans, tables)
    stages = stages_of_plans(plans, tables)
    many, slow = float(rows.micro_batches[0]), int(rows.slowest[0])
    sends_s = many * float(rows.send_s[0, 0]) * (point.plan.pp > 1)
    forward_s = many * float(stages.forward_s[0, slow])
    backward_s = many * float(stages.backward_s[0, slow] + rows.sums_s[0, slow])
    runs, waits, group = part_runs(plans, tables, rows), tables.exchanges, tables.group[0]
    again_s = float(runs.repeated[slow] @ waits.forward_s[group])
    in_forward_s = min(float(runs.once[slow] @ waits.forward_s[group]), forward_s)
    in_backward_s = min(float(runs.once[slow] @ waits.backward_s[group]) + again_s, backward_s)
    shares = {
        "forward": forward_s - in_forward_s,
        "backward": backward_s - in_backward_s,
        "optimizer": float(rows.seconds.optimizer[0, slow]),
        "data": float(rows.seconds.data_parallel[0, slow]),
        "tensor": in_forward_s + in_backward_s,
        "pipeline": sends_s + float(rows.bubble_s[0]),
    }
    shares["other"] = max(found.step_s - sum(shares.values()), 0.0)
    _, order = dealing_of(scenario, point.plan, tables, rows)
    held = [_held(rows.memory, row) for row in order]
    late = is_late(stages.late, plans, scenario.software, rows.micro_batches)
    shown = [
        {**h, **_largest(stages, row, point.plan, h)} if late else h
        for h, row in zip(held, order, strict=True)
    ]
    sent = step_collectives(scenario, point.plan)
    interval = found.interval
    low, high = interval["p90"] if interval is not None else (found.step_s, found.step_s)
    return PointPrediction(
        step_s=found.step_s,
        shares_s=shares,
        low_s=float(low),
        high_s=float(high),
        fits=found.fits,
        peak_bytes=found.peak_memory_bytes,
        capacity_bytes=found.memory_capacity_bytes,
        allocated_bytes=max(
            sum(v for k, v in h.items() if k not in ("allocator", "framework")) for h in held
        ),
        stages=tuple(
            Stage(held_bytes=h, collectives=tuple(c)) for h, c in zip(shown, sent, strict=True)
        ),
        intervals={
            {"peak_memory_bytes": "peak_bytes"}.get(name, name): ends
            for name, ends in found.intervals.items()
            if name in ("step_s", "peak_memory_bytes")
        },
    )


def _held(memory: Any, row: int) -> dict[str, float]:
    names = (*HELD, "buffers", "allocator", "framework")
    return {name: float(getattr(memory, name)[0, row]) for name in names}


def _largest(stages: Stages, row: int, plan: Plan, held: dict[str, float]) -> dict[str, float]:
    """Activations and gradients at their own peaks, which where gradients are made late is not the step's."""
    gradients = weight_bytes(plan)[1] * float(stages.trained[0, row])
    return {
        "activations": max(held["activations"], float(stages.kept_bytes[0, row])),
        "gradients": max(held["gradients"], gradients),
    }
