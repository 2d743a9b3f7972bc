"""Answers: an estimate, and the tree of leaves that it is the sum of."""

from collections.abc import Iterator
from dataclasses import field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from foretell.records import dataclass
from foretell.specs.outputs import OUTPUTS, Totals
from foretell.specs.plan import Plan
from foretell.specs.run import Run
from foretell.specs.scenario import Scenario

Evidence = Literal["measured", "fitted", "transferred", "datasheet"]
"""What a number stands on, best first."""
Fits = Literal["yes", "no", "too_close"]
"""Whether the peak is clearly inside the chip's memory, outside it, or too near to tell."""


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
    """What the value stands on."""
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

    def to_dict(self) -> dict[str, Any]:
        """The tree as JSON."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "evidence": self.evidence,
            "joules": self.joules,
            "interval": self.interval,
            "children": [child.to_dict() for child in self.children],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
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
    """Model TFLOP/s per chip: 3 x the forward products, attention as the whole square (or window)."""
    mfu: float
    """Model FLOP/s over the dense peak of the plan's precision."""
    hfu: float
    """The same with recomputation counted."""
    peak_memory_bytes: float
    """Peak on the fullest stage."""
    memory_capacity_bytes: float
    """What a chip has."""
    energy_joules: float | None
    """Energy of a step; none until power is modelled."""
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
    totals: Totals | None = field(default=None, repr=False, compare=False)
    """What the step adds up to, from which its numbers follow; no part of the JSON."""
    scenario: Scenario | None = field(default=None, repr=False, compare=False)
    """The question, from which more can be asked; no part of the JSON."""

    @property
    def intervals(self) -> dict[str, dict[str, tuple[float, float]]]:
        """p50 and p90 of every predicted number, by its name (foretell/intervals.py)."""
        found: dict[str, dict[str, tuple[float, float]]]
        found = import_module("foretell.uncertainty.intervals").of_estimate(self)
        return found

    @property
    def fit_probability(self) -> float | None:
        """How probable it is that the peak is within the chip's memory, by the peak's interval."""
        found: float | None = import_module("foretell.uncertainty.intervals").fit_of(self)
        return found

    def explain(self) -> Any:
        """Where time and memory go, and what would have to change to move them (foretell/explain.py)."""
        # By name: records stand below all that computes.
        return import_module("foretell.api.training").explain_estimate(self)

    def to_chrome_trace(self, path: str | Path, detail: str = "auto") -> Path:
        """Play the step and write it as a Chrome trace, gzipped where the name ends in .gz.

        ui.perfetto.dev opens it. `detail` is tasks, layers, ops, or auto: the finest of a fair size.
        """
        return Path(import_module("foretell.report.trace").write_estimate(self, path, detail))

    def export(self, tool: str) -> Any:
        """The plan as arguments of megatron, torchtitan or deepspeed: text and notes (api/exports.py)."""
        return import_module("foretell.api.exports").export_plan(self, tool)

    def to_flat(self) -> dict[str, float]:
        """Numbers under slash-separated keys such as perf/mfu, for experiment trackers."""
        found: dict[str, float] = import_module("foretell.interop.trackers").estimate_metrics(
            self.to_dict()
        )
        return found

    def to_config(self) -> dict[str, Any]:
        """What was asked, as the nested table that trackers keep as a run's config."""
        trackers = import_module("foretell.interop.trackers")
        found: dict[str, Any] = trackers.estimate_config(self.to_dict(), self.plan)
        return found

    def to_json_line(self) -> str:
        """Both as one line of JSON."""
        trackers = import_module("foretell.interop.trackers")
        return str(trackers.json_lines([(self.to_config(), self.to_flat())]))

    def to_dict(self) -> dict[str, Any]:
        """The estimate as JSON: the same keys as the attributes."""
        result: dict[str, Any] = {
            name: getattr(self, name) for name in _PLAIN if name not in ("plan",)
        }
        result["intervals"] = self.intervals
        result["fit_probability"] = self.fit_probability
        result["plan"] = str(self.plan)
        result["breakdown"] = self.breakdown.to_dict() if self.breakdown else None
        result["memory"] = self.memory.to_dict() if self.memory else None
        result["memory_by_stage"] = [stage.to_dict() for stage in self.memory_by_stage]
        result["run"] = self.run.to_dict() if self.run else None
        result["assumptions"] = list(self.assumptions)
        result["overrides"] = dict(self.overrides or {})
        return result


_PLAIN = (
    "model",
    "system",
    "gpus",
    "global_batch",
    "seq_len",
    "target_len",
    "plan",
    "plan_chosen",
    "fits",
    *OUTPUTS,
    "limited_by",
    "interval",
)
