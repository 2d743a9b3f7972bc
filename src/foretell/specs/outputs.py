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
    """What all chips spend on top (training/totals.py)."""
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


def _energy(totals: Totals) -> Num:
    """Joules of all chips over a step: without hosts, switches and cooling."""
    return totals.base_watts * totals.step_s * totals.gpus + totals.active_joules


_ROWS: tuple[tuple[str, str, str, Rule, str, Callable[[Totals], Num]], ...] = (
    ("step_s", "step time", "s", "time", "perf/step_s", lambda t: t.step_s),
    ("tokens_per_s", "tokens/s", "count", "rate", "perf/tokens_per_s",
     lambda t: t.tokens / t.step_s),
    ("tokens_per_s_per_gpu", "tokens/s per GPU", "count", "rate", "perf/tokens_per_s_per_gpu",
     lambda t: t.tokens / t.step_s / t.gpus),
    ("tflops_per_gpu", "TFLOP/s per GPU", "count", "rate", "perf/tflops_per_gpu",
     lambda t: t.model_flop / t.step_s / t.gpus / 1e12),
    ("mfu", "MFU", "share", "rate", "perf/mfu",
     lambda t: t.model_flop / t.step_s / t.gpus / t.peak_flop_per_s),
    ("hfu", "HFU", "share", "rate", "perf/hfu",
     lambda t: t.hardware_flop / t.step_s / t.gpus / t.peak_flop_per_s),
    ("mfu_causal", "MFU, causal attention", "share", "rate", "perf/mfu_causal",
     lambda t: t.masked_flop / t.step_s / t.gpus / t.peak_flop_per_s),
    ("allocated_bytes", "allocated by tensors", "bytes", "tensors", "memory/allocated_bytes",
     lambda t: t.allocated_bytes),
    ("reserved_bytes", "reserved memory", "bytes", "memory", "memory/reserved_bytes",
     lambda t: t.reserved_bytes),
    ("peak_memory_bytes", "peak memory", "bytes", "memory", "memory/peak_bytes",
     lambda t: t.peak_memory_bytes),
    ("memory_capacity_bytes", "memory of a GPU", "bytes", "none", "memory/capacity_bytes",
     lambda t: t.memory_capacity_bytes),
    ("energy_joules", "energy of a step", "J", "energy", "energy/step_joules",
     _energy),
    ("joules_per_token", "energy of a token", "J", "energy", "energy/token_joules",
     lambda t: _energy(t) / t.tokens),
)  # fmt: skip
"""Name, label, unit, rule, key in trackers and formula of each."""
OUTPUTS: Mapping[str, Output] = {
    name: Output(name=name, label=label, unit=unit, rule=rule, metric=metric, of=of)
    for name, label, unit, rule, metric, of in _ROWS
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
