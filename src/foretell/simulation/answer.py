"""One plan's step, simulated: `foretell.simulate` beside the closed form, and what `foretell.memory`
shows."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from foretell.records import Answer, JsonRecord, dataclass
from foretell.simulation.chance import PERCENTILES, Chance, SyncGroups, draw, job_steps
from foretell.simulation.memory import MemoryLine
from foretell.simulation.memory_timeline import StageLine, StepMemory
from foretell.simulation.programs import StepLayout
from foretell.simulation.streams import (
    PlayedStep,
    held_bytes,
    play_step,
    played_step,
    rank_stride,
)
from foretell.simulation.trace import write_trace
from foretell.specs.plan import Plan
from foretell.specs.result import OUTPUTS, Leaf, StepEstimate, outputs
from foretell.specs.scenario import Scenario
from foretell.uncertainty.intervals import cause, fit_of, of_estimate, times

SHARES = {
    "compute": ("compute", "memory_bound", "recompute", "gradient_sums"),
    "host": ("host",),
    "tensor_parallel": ("tensor_parallel",),
    "context_parallel": ("context_parallel",),
    "expert_parallel": ("expert_parallel",),
    "pipeline_parallel": ("pipeline_parallel",),
    "data_parallel": ("data_parallel",),
    "bubble": ("bubble",),
    "offload": ("offload",),
    "optimizer": ("optimizer",),
    "fixed": ("fixed",),
}
"""Share of a simulated step -> leaves of the closed form's tree that it is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOfStep:
    """One share of the step, both ways."""

    name: str
    """What it is."""
    simulated_s: float
    """Along the rank that sets the pace, simulated; collectives beside passes count what they hold up."""
    closed_s: float
    """Along the slowest stage, in closed form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOfStep:
    """One pipeline stage of the simulated step."""

    stage: int
    """Its number."""
    rank: int
    """The rank that was simulated."""
    busy_s: float
    """Busy time, waits for communication and sends included."""
    bubble_s: float
    """What it waits for other stages."""
    data_parallel_s: float
    """What it waits for data-parallel collectives, and what these hold it up."""
    peak_memory_bytes: float
    """The most that it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(JsonRecord, Answer):
    """A step as events, beside the closed form."""

    verb = "simulate"

    estimate: StepEstimate
    """The closed form's answer."""
    step_s: float
    """Time of the simulated step, without chance."""
    shares: tuple[ShareOfStep, ...]
    """Where the time goes, both ways."""
    contention_s: float
    """Of data_parallel, what collectives hold passes up by sharing links and cores."""
    stages: tuple[StageOfStep, ...]
    """Every pipeline stage."""
    chance: Chance
    """What was left to chance."""
    step_percentiles_s: dict[str, float] | None
    """Mean and percentiles of the whole job's step; none where nothing was left to chance."""
    laid: StepLayout
    """What was simulated."""
    played: PlayedStep
    """The events."""

    @property
    def intervals(self) -> dict[str, dict[str, tuple[float, float]]]:
        """p50 and p90 of every predicted number: the closed form's, around the simulated step."""
        return of_estimate(with_step(self.estimate, self.step_s))

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        closed, step_s = self.estimate, self.step_s
        told = with_step(closed, step_s)
        names = ("model", "system", "gpus", "global_batch", "seq_len", "target_len", "plan_chosen")
        known = {name: getattr(closed, name) for name in names}
        return {
            **known,
            "plan": str(closed.plan),
            "fits": closed.fits,
            **{name: getattr(told, name) for name in OUTPUTS},
            "closed_step_s": closed.step_s,
            "difference": step_s / closed.step_s - 1.0,
            "intervals": of_estimate(told),
            "fit_probability": fit_of(closed),
            "shares": [
                {"name": s.name, "simulated_s": s.simulated_s, "closed_s": s.closed_s}
                for s in self.shares
            ],
            "contention_s": self.contention_s,
            "stages": [
                {name: getattr(s, name) for name in StageOfStep.__slots__} for s in self.stages
            ],
            "jitter": self.chance.jitter,
            "stragglers": self.chance.stragglers,
            "slowdown": self.chance.slowdown,
            "repeats": self.chance.repeats,
            "seed": self.chance.seed,
            "step_percentiles_s": self.step_percentiles_s,
            "assumptions": list(closed.assumptions),
            "overrides": dict(closed.overrides or {}),
        }

    def to_chrome_trace(self, path: str | Path, detail: str = "auto") -> Path:
        """Write the step as a Chrome trace, gzipped where the name ends in .gz; ui.perfetto.dev opens it."""
        return write_trace(self.laid, self.played, path, detail)


def simulation_of(scenario: Scenario, answer: StepEstimate, chance: Chance) -> Simulation:
    """Play the step of an answer's plan."""
    laid, played = played_step(scenario, answer.plan)
    told = played.spent[played.busiest]
    closed = {leaf.name: leaf for leaf in (answer.breakdown or _none()).children}
    shares = []
    for name, leaves in SHARES.items():
        have = [closed[leaf].value for leaf in leaves if leaf in closed]
        simulated_s = told[name] + (told["contention"] if name == "data_parallel" else 0.0)
        if have or simulated_s:
            shares.append(ShareOfStep(name=name, simulated_s=simulated_s, closed_s=sum(have)))
    return Simulation(
        estimate=answer,
        step_s=played.step_s,
        shares=tuple(shares),
        contention_s=told["contention"],
        stages=tuple(_stage(laid, played, rank) for rank in range(len(played.spent))),
        chance=chance,
        step_percentiles_s=distribution(laid, chance) if chance.some else None,
        laid=laid,
        played=played,
    )


def _none() -> Leaf:
    return Leaf(name="step", value=0.0, unit="s")


def _stage(laid: StepLayout, played: PlayedStep, rank: int) -> StageOfStep:
    spent = played.spent[rank]
    return StageOfStep(
        stage=rank,
        rank=rank * rank_stride(laid.plan),
        busy_s=played.step_s - spent["bubble"] - spent["data_parallel"] - spent["fixed"],
        bubble_s=spent["bubble"],
        data_parallel_s=spent["data_parallel"] + spent["contention"],
        peak_memory_bytes=float(held_bytes(laid, played, rank)[1].max()),
    )


def distribution(laid: StepLayout, chance: Chance) -> dict[str, float]:
    """Mean and percentiles of a step of the whole job."""
    plan, program = laid.plan, laid.program
    meets = plan.tp * plan.cp
    replicas = plan.dp
    if plan.zero >= 3 and plan.dp > 1:
        meets, replicas = meets * plan.dp, 1
    meeting = SyncGroups(ranks=meets, replicas=replicas)
    vpp = 1 if laid.schedule.layout == "both" else len(program.ranks[0])
    pp, many = len(program.ranks), program.micro_batches
    tasks = tuple(len(laid.schedule.tasks(r, pp, vpp, many)) for r in range(pp))
    rng = np.random.default_rng(chance.seed)
    steps, groups = np.empty(chance.repeats), np.empty(chance.repeats, np.int64)
    for i in range(chance.repeats):
        drawn = draw(chance, meeting, tasks, rng)
        steps[i] = play_step(laid.schedule, program, drawn.factors).step_s
        groups[i] = drawn.slow_stages
    found = job_steps(steps, groups, replicas, rng)
    told = {f"p{p}": float(np.percentile(found, p)) for p in PERCENTILES}
    return {"mean": float(found.mean()), **told}


def overlaps(plan: Plan) -> bool:
    """Whether a plan has a pipeline or replicas: without either nothing runs beside the passes."""
    return plan.pp > 1 or plan.dp * plan.cp > 1


def with_step(answer: StepEstimate, step_s: float) -> StepEstimate:
    """An answer with another step time, and the numbers and the interval that go with it."""
    scale = step_s / answer.step_s
    ends = answer.interval or {}
    interval = {key: (low * scale, high * scale) for key, (low, high) in ends.items()}
    assert answer.totals is not None
    totals = replace(answer.totals, step_s=step_s)
    return replace(answer, **outputs(totals), totals=totals, interval=interval or None)


MOST_MOMENTS = 1000
"""Moments of a stage that a file or a picture shows; the fullest of each part of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAnswer(JsonRecord, Answer):
    """One plan's memory over a step."""

    verb = "memory"

    estimate: StepEstimate
    """The plan's estimate, fits or not."""
    step: StepMemory
    """The simulated step."""

    @property
    def intervals(self) -> dict[str, dict[str, tuple[float, float]]]:
        """p50 and p90 of tensors, of what is reserved and held, and of the simulated step."""
        found, told = of_estimate(self.estimate), self.estimate
        names = ("allocated_bytes", "reserved_bytes", "peak_memory_bytes")
        kept = {name: found[name] for name in names}
        if "step_s" in found:
            kept["step_s"] = times(self.step.step_s, cause(told.step_s, found["step_s"]))
        return kept

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        told, step = self.estimate, self.step
        return {
            "model": told.model,
            "system": told.system,
            "gpus": told.gpus,
            "plan": str(told.plan),
            "plan_chosen": told.plan_chosen,
            "schedule": step.schedule,
            "fits": told.fits,
            "refusals": list(told.refusals),
            "step_s": step.step_s,
            "allocated_bytes": told.allocated_bytes,
            "reserved_bytes": told.reserved_bytes,
            "peak_memory_bytes": told.peak_memory_bytes,
            "memory_capacity_bytes": step.capacity_bytes,
            "intervals": self.intervals,
            "fit_probability": fit_of(told),
            "fullest_stage": step.fullest.stage,
            "stages": [_stage_json(stage, self) for stage in step.stages],
            "assumptions": list(told.assumptions),
        }


def of_stage(found: MemoryAnswer, stage: StageLine) -> Mapping[str, float]:
    """Leaves of the closed form of one stage, by name, with those of `lost`."""
    # The estimate has the same distinct stages in the same order; none where its trees were left out.
    pairs = zip(found.step.stages, found.estimate.memory_by_stage, strict=False)
    leaves = next((_flat(leaf) for one, leaf in pairs if one is stage), [])
    return {leaf.name: leaf.value for leaf in leaves}


def _flat(node: Leaf) -> list[Leaf]:
    return [leaf for child in node.children for leaf in (child, *child.children)]


def _stage_json(stage: StageLine, found: MemoryAnswer) -> dict[str, Any]:
    peak, when = stage.line.peak
    few, closed = thin_line(stage.line), of_stage(found, stage)
    allocated = stage.closed_bytes
    return {
        "stage": stage.stage,
        "alike": stage.alike,
        "allocated_bytes": peak,
        "peak_at_s": when,
        "closed_form_bytes": allocated,
        "reserved_bytes": allocated + closed.get("allocator", 0.0),
        "framework_bytes": stage.framework_bytes,
        "total_bytes": allocated + closed.get("lost", 0.0),
        "at_peak": stage.line.at(when),
        "kept_at_peak": dict(sorted(stage.kept_at_peak.items(), key=lambda item: -item[1])),
        "moments_s": few.moments_s.tolist(),
        "held_bytes": {name: values.tolist() for name, values in few.held_bytes.items()},
    }


def thin_line(line: MemoryLine, most: int = MOST_MOMENTS) -> MemoryLine:
    """The line with at most about so many moments: of each part of the step the fullest, so peaks stay."""
    many = len(line.moments_s)
    if many <= most:
        return line
    total = line.allocated_bytes
    ends = np.linspace(0, many, most + 1).astype(int)
    fullest = [int(a + np.argmax(total[a:b])) for a, b in pairwise(ends)]
    chosen = np.unique([0, *fullest, many - 1])
    return MemoryLine(
        moments_s=line.moments_s[chosen],
        held_bytes={name: values[chosen] for name, values in line.held_bytes.items()},
    )
