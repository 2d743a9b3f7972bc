"""What `estimate` answers: the record of the engine with what can be asked of it next.

An engine returns a plain record of numbers: here `StepEstimate`. Those of a search and of a service are in
search_answers.py and service_answers.py, so that none loads the engine of another. A function turns such a
record into the answer once, at its end. An answer has the same fields, the JSON of the command line
(`to_dict`) and what needs another engine: intervals, `explain`, `export`, a trace, metrics.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.errors import bad_input
from foretell.records import Answer, values_as_held
from foretell.specs.result import StepEstimate
from foretell.specs.service import Interval
from foretell.training.answer import estimate_json
from foretell.uncertainty.intervals import fit_of, of_estimate
from foretell.uncertainty.words import interval_reason

if TYPE_CHECKING:
    # Each of these is loaded by the method that needs it: a plain estimate starts sooner.
    from foretell.interop.launch import ToolArguments
    from foretell.search.explain import Explanation
    from foretell.specs.scenario import Scenario


class Estimate(StepEstimate, Answer):
    """One training step of one plan."""

    __slots__ = ()
    verb = "estimate"

    @property
    def intervals(self) -> dict[str, Interval]:
        """p50 and p90 of every predicted number, by its name (uncertainty/intervals.py)."""
        return of_estimate(self)

    @property
    def interval_reason(self) -> str:
        """Why the interval of the step time is as wide as it is, and what would narrow it."""
        return interval_reason(self)

    @property
    def fit_probability(self) -> float | None:
        """How probable it is that the peak is within the chip's memory, by the peak's interval."""
        return fit_of(self)

    def explain(self) -> "Explanation":
        """Where time and memory go, and what would have to change to move them (search/explain.py)."""
        from foretell.search.explain import explain

        return explain(self, scenario_of(self))

    def to_chrome_trace(self, path: str | Path, detail: str = "auto") -> Path:
        """Simulate the step and write it as a Chrome trace, gzipped where the name ends in .gz.

        ui.perfetto.dev opens it. `detail` is tasks, layers, ops, or auto: the finest of a fair size.
        """
        from foretell.simulation.streams import played_step
        from foretell.simulation.trace import write_trace

        return write_trace(*played_step(scenario_of(self), self.plan), path, detail)

    @property
    def launchable_with(self) -> tuple[str, ...]:
        """Frameworks that can run the plan (search/frameworks.py)."""
        from foretell.search.search import launchers_of

        return launchers_of(self)

    def export(self, tool: str, launcher: str | None = None) -> "ToolArguments":
        """The plan as arguments of megatron, torchtitan or deepspeed, of a release as in
        megatron-core@0.14, as a launcher starts it (torchrun, slurm, kubernetes, skypilot): text and notes
        (api/exports.py)."""
        from foretell.api.exports import export_plan

        return export_plan(self, tool, launcher)

    def to_flat(self) -> dict[str, float]:
        """Numbers under slash-separated keys such as perf/mfu, for experiment trackers."""
        from foretell.interop.trackers import estimate_metrics

        return estimate_metrics(self.to_dict())

    def to_config(self) -> dict[str, Any]:
        """What was asked, as the nested table that trackers keep as a run's config."""
        from foretell.interop.trackers import estimate_config

        return estimate_config(self.to_dict(), self.plan)

    def to_json_line(self) -> str:
        """Config and metrics as one line of JSON."""
        from foretell.interop.trackers import json_lines

        return json_lines([(self.to_config(), self.to_flat())])

    def to_dict(self) -> dict[str, Any]:
        """The estimate as JSON: the same keys as the attributes."""
        return estimate_json(self)


def scenario_of(result: StepEstimate) -> "Scenario":
    """What an estimate is an answer to; BadInput where that is not known."""
    if result.scenario is None:
        message = "was not made by estimate or search: its question is not known"
        raise bad_input("estimate", None, message)
    return result.scenario


def estimate_answer(found: StepEstimate) -> Estimate:
    """The answer with a step's numbers."""
    return Estimate(**values_as_held(found))
