"""A step's numbers, the tree of leaves that they are the sum of, and a whole run of such steps.

An output is a number of the answer, a function of the step's totals: its formula, its words, its interval,
once. `estimate`, `simulate`, the columns of a sweep, the intervals, the page, the printer and experiment
trackers read this table, so that a new one is an entry here and a field of `StepEstimate` that carries it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

from foretell.records import as_json, dataclass, made_when_asked
from foretell.specs._base import Num
from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario

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


CheckpointWay = Literal["async", "sync"]
"""Written behind the steps that follow, or while all chips wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """Conditions of a long run, each with a default that is reported."""

    tokens: float
    """Tokens to train on."""
    failures_per_gpu_day: float
    """Unplanned interruptions of the job, for each chip and day."""
    restart_s: float
    """From a failure to the reading of the checkpoint: found, replaced, started."""
    checkpoint: CheckpointWay
    """How checkpoints are written."""
    checkpoint_interval_s: float
    """Seconds of steps between checkpoints; 0: those that give the most goodput."""
    checkpoint_wait_s: float | None
    """What all chips wait for each; None: for its bytes, and what it takes to start."""
    storage_bytes_per_s: float
    """What the storage takes and gives, all chips together."""
    copy_bytes_per_s: float
    """What one chip copies to its host, for a checkpoint that is written later."""
    failures_spread: tuple[float, float] = (1.0, 1.0)
    """Factors on the rate that nine in ten clusters lie between; 1 where the rate was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A long run; times are expected values."""

    tokens: float
    """Tokens trained on."""
    tokens_per_parameter: float
    """Of the weights that one token uses."""
    steps: float
    """Optimizer steps."""
    days: float
    """From the first step to the last, failures and checkpoints included."""
    days_without_failures: float
    """Steps alone."""
    gpu_hours: float
    """Chips times hours."""
    energy_joules: float | None
    """Of all chips: steps at their mean power, waiting at rest."""
    goodput: float
    """Share of the time in steps whose work is kept."""
    checkpoint_share: float
    """Factor of it that waiting for checkpoints leaves."""
    rework_share: float
    """Factor of it that is left after steps repeated because of failures."""
    restart_share: float
    """Factor of it that restarts leave."""
    failures: float
    """Failures to expect."""
    failures_per_gpu_day: float
    """Their rate."""
    mean_time_between_failures_s: float | None
    """Of the whole job; none without failures."""
    restart_s: float
    """From a failure to the next step, the checkpoint read."""
    checkpoint: CheckpointWay
    """How checkpoints are written."""
    checkpoint_bytes: float
    """One checkpoint: weights, master copy and states."""
    checkpoint_interval_s: float | None
    """Seconds of steps between two; none where none is needed."""
    checkpoint_interval_steps: float | None
    """The same in steps."""
    checkpoint_interval_chosen: bool
    """Whether the interval is the best one, rather than given."""
    checkpoint_wait_s: float
    """What all chips wait for each."""
    checkpoint_write_s: float
    """Until it is on the storage."""
    storage_bytes_per_s: float
    """Of the storage."""
    interval: dict[str, tuple[float, float]] | None
    """Of days: p50 and p90, each (low, high)."""
    intervals: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """p50 and p90 of days, chip-hours and energy, by their names (foretell/intervals.py)."""

    to_dict = as_json()


Evidence = Literal["measured", "fitted", "transferred", "datasheet"]
"""What a number rests on, best first."""
Fits = Literal["yes", "no", "too_close"]
"""Whether a plan clearly fits in the chip's memory, not even its tensors do, or it is borderline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A named share of a total; a node's value is the sum of its children's."""

    name: str
    """What it is."""
    value: float
    """How much of it."""
    unit: str
    """s or bytes."""
    evidence: Evidence | None = "datasheet"
    """What the value rests on."""
    joules: float | None = None
    """Energy of this share; none while nothing is known of it."""
    interval: dict[str, tuple[float, float]] | None = None
    """p50 and p90, each (low, high); none while no residuals are known."""
    children: tuple["Leaf", ...] = ()
    """What it is made of; none for a leaf."""

    def leaves(self) -> Iterator["Leaf"]:
        """All ends of the tree."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    to_dict = as_json()


@made_when_asked(
    *LATE,
    "limited_by",
    "interval",
    "breakdown",
    "memory",
    "memory_by_stage",
    "assumptions",
    "totals",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimate:
    """One training step of one plan."""

    model: str
    """Model id."""
    system: str
    """System id."""
    gpus: int
    """Chips used."""
    global_batch: int
    """Sequences per step."""
    seq_len: int
    """Tokens per sequence."""
    target_len: int | None
    """Tokens per target sequence of an encoder-decoder; none otherwise."""
    plan: Plan
    """The plan."""
    plan_chosen: bool
    """Whether Foretell chose the plan."""
    fits: Fits
    """Whether it fits in memory."""
    step_s: float
    """Time of a step."""
    tokens_per_s: float
    """Tokens of the global batch over the step's time."""
    tokens_per_s_per_gpu: float
    """The same per chip."""
    tflops_per_gpu: float
    """Model TFLOP/s per chip: 3 x the forward GEMMs, attention as the whole square (or window)."""
    mfu: float
    """Model FLOP/s over the dense peak of the plan's precision."""
    hfu: float
    """The same with recomputation counted."""
    mfu_causal: float
    """MFU with attention counted as its mask leaves it, as Megatron-Bridge prints it."""
    allocated_bytes: float
    """Largest sum of tensors on any rank: what `torch.cuda.max_memory_allocated` prints."""
    reserved_bytes: float
    """What the framework's allocator takes of the device for them: `torch.cuda.max_memory_reserved`."""
    peak_memory_bytes: float
    """What the process holds on the fullest rank: reserved_bytes, driver context and communicators, as
    `nvidia-smi` shows it."""
    memory_capacity_bytes: float
    """What a chip has."""
    energy_joules: float | None
    """Energy of a step: of the chips alone, without hosts, switches and cooling; none where power is not
    modelled."""
    joules_per_token: float | None
    """The same for each token of the batch."""
    limited_by: str
    """The largest share of the step."""
    interval: dict[str, tuple[float, float]] | None
    """Of step_s: p50 and p90; none until residuals are known."""
    breakdown: Leaf | None
    """Where the time goes, along the slowest stage."""
    memory: Leaf | None
    """Where the memory of the fullest stage goes."""
    memory_by_stage: tuple[Leaf, ...] = ()
    """The same for every distinct stage."""
    assumptions: tuple[str, ...] = ()
    """Every default or guess."""
    overrides: dict[str, Any] | None = None
    """Fields that were set by hand."""
    run: Run | None = None
    """The whole run to a number of tokens, where one was asked for."""
    prior: dict[str, Any] | None = None
    """The same numbers before they were conditioned on measured runs; none where nothing was measured."""
    posterior_factors: dict[str, Any] | None = None
    """Mechanism -> what it takes over what was predicted, with its interval; none where nothing was
    measured."""
    peak_interval: dict[str, tuple[float, float]] | None = None
    """p50 and p90 of the peak of memory, where peaks were measured; none: by residuals of published ones."""
    refusals: tuple[str, ...] = ()
    """What the framework that the plan names has against it, a sentence each; empty: it can run the plan."""
    filled_in: tuple[str, ...] = ()
    """Words of the plan that its text left open: from its software's recipes, or to make it fit."""
    interval_words: str = ""
    """Why its interval is as wide as it is; empty: by what of the question is new."""
    totals: Totals | None = field(default=None, repr=False, compare=False)
    """What the step adds up to, from which its numbers follow; no part of the JSON."""
    scenario: Scenario | None = field(default=None, repr=False, compare=False)
    """The question, from which more can be asked; no part of the JSON."""

    @property
    def evidence(self) -> Evidence | None:
        """What the step time rests on."""
        return None if self.breakdown is None else self.breakdown.evidence
