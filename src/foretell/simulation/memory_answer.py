"""Memory over one step as an answer: the estimate beside the step as it was simulated."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from foretell.records import Answer, JsonRecord, dataclass
from foretell.simulation.memory import MemoryLine
from foretell.simulation.memory_timeline import StageLine, StepMemory
from foretell.specs.result import Leaf, StepEstimate
from foretell.uncertainty.intervals import cause, fit_of, of_estimate, times

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
            "stages": [_stage(stage, self) for stage in step.stages],
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


def _stage(stage: StageLine, found: MemoryAnswer) -> dict[str, Any]:
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
    """The line with at most about so many moments: the first, the last, and of each part of the step the one
    that holds most, so that every peak stays."""
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
