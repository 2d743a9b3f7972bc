"""A step's numbers, and the tree of leaves that they are the sum of."""

from collections.abc import Iterator
from dataclasses import field
from typing import Any, Literal

from foretell.records import as_json, dataclass, made_when_asked
from foretell.specs.outputs import LATE, Totals
from foretell.specs.plan import Plan
from foretell.specs.run import Run
from foretell.specs.scenario import Scenario

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
