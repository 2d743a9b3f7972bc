"""Every number that a training step is answered with: its formula, its words, its interval, once.

An output is a function of the step's totals. `estimate`, `simulate`, the columns of a sweep, the intervals,
the page, the printer and experiment trackers read this table, so that a new one is an entry here and a field
of `StepEstimate` (specs/result.py) that carries it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from foretell.records import dataclass
from foretell.specs._base import Num

Rule = Literal["time", "rate", "tensors", "memory", "energy", "none"]
"""How a number errs: as the step's time, the other way round, as tensors, as what the allocator holds, as
watts and time, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a step adds up to; numbers, or arrays over plans."""

    step_s: Num
    """Time of the step: the sum of its leaves (training/ledger.py)."""
    allocated_bytes: Num
    """Tensors at their peak."""
    reserved_bytes: Num
    """What the framework's allocator holds for them."""
    peak_memory_bytes: Num
    """What the fullest chip holds."""
    memory_capacity_bytes: Num
    """What a chip has."""
    base_watts: Num
    """What a clocked-up chip draws all along."""
    active_joules: Num
    """What all chips spend on top (training/energy.py)."""
    tokens: Num
    """Tokens of the global batch."""
    model_flop: Num
    """Matrix operations of the step by the usual convention."""
    masked_flop: Num
    """The same with attention as its mask leaves it, not as the whole square."""
    hardware_flop: Num
    """The same with what is recomputed."""
    gpus: Num
    """Chips."""
    peak_flop_per_s: Num
    """Dense peak of a chip in the plan's precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One number of the answer."""

    name: str
    """Its key, with its unit as a suffix."""
    of: Callable[[Totals], Num]
    """Its formula."""
    label: str
    """Its words, for tables, axes and the page."""
    unit: str
    """s, J, bytes, share or count: how it is shown."""
    rule: Rule
    """How it errs."""
    metric: str
    """Its slash-separated key in experiment trackers."""


OUTPUTS: Mapping[str, Output] = {
    output.name: output
    for output in (
        Output(
            name="step_s",
            of=lambda t: t.step_s,
            label="time of a step",
            unit="s",
            rule="time",
            metric="perf/step_s",
        ),
        Output(
            name="tokens_per_s",
            of=lambda t: t.tokens / t.step_s,
            label="tokens/s",
            unit="count",
            rule="rate",
            metric="perf/tokens_per_s",
        ),
        Output(
            name="tokens_per_s_per_gpu",
            of=lambda t: t.tokens / t.step_s / t.gpus,
            label="tokens/s per GPU",
            unit="count",
            rule="rate",
            metric="perf/tokens_per_s_per_gpu",
        ),
        Output(
            name="tflops_per_gpu",
            of=lambda t: t.model_flop / t.step_s / t.gpus / 1e12,
            label="TFLOP/s per GPU",
            unit="count",
            rule="rate",
            metric="perf/tflops_per_gpu",
        ),
        Output(
            name="mfu",
            of=lambda t: t.model_flop / t.step_s / t.gpus / t.peak_flop_per_s,
            label="MFU",
            unit="share",
            rule="rate",
            metric="perf/mfu",
        ),
        Output(
            name="hfu",
            of=lambda t: t.hardware_flop / t.step_s / t.gpus / t.peak_flop_per_s,
            label="HFU",
            unit="share",
            rule="rate",
            metric="perf/hfu",
        ),
        Output(
            name="mfu_causal",
            of=lambda t: t.masked_flop / t.step_s / t.gpus / t.peak_flop_per_s,
            label="MFU, causal attention",
            unit="share",
            rule="rate",
            metric="perf/mfu_causal",
        ),
        Output(
            name="allocated_bytes",
            of=lambda t: t.allocated_bytes,
            label="memory of tensors",
            unit="bytes",
            rule="tensors",
            metric="memory/allocated_bytes",
        ),
        Output(
            name="reserved_bytes",
            of=lambda t: t.reserved_bytes,
            label="reserved memory",
            unit="bytes",
            rule="memory",
            metric="memory/reserved_bytes",
        ),
        Output(
            name="peak_memory_bytes",
            of=lambda t: t.peak_memory_bytes,
            label="peak memory",
            unit="bytes",
            rule="memory",
            metric="memory/peak_bytes",
        ),
        Output(
            name="memory_capacity_bytes",
            of=lambda t: t.memory_capacity_bytes,
            label="memory of a chip",
            unit="bytes",
            rule="none",
            metric="memory/capacity_bytes",
        ),
        Output(
            name="energy_joules",
            of=lambda t: t.base_watts * t.step_s * t.gpus + t.active_joules,
            label="energy of a step",
            unit="J",
            rule="energy",
            metric="energy/step_joules",
        ),
    )
}
"""By name, in the order of the JSON."""


LATE = tuple(name for name, output in OUTPUTS.items() if output.rule in ("rate", "energy"))
"""Those that an answer makes when they are read: they follow from FLOPs and joules, which take their time."""


def outputs(totals: Totals) -> dict[str, Any]:
    """Every number of the answer from the step's totals."""
    return {name: output.of(totals) for name, output in OUTPUTS.items()}


def rates(totals: Totals) -> dict[str, Any]:
    """Those that fall with the step's time: tokens/s, TFLOP/s, MFU and HFU."""
    return {name: o.of(totals) for name, o in OUTPUTS.items() if o.rule == "rate"}
