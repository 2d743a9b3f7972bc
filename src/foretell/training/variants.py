"""Other walks of the spine: plans each on a system of its own, under corrections, and without gradients.

A pass without gradients has log-probabilities, values or rewards: no backward pass, no optimizer and nothing
computed again; weights that ZeRO 3 shares are gathered once for each micro-batch. A pipeline of pp stages
takes m + pp - 1 turns of its slowest stage for m micro-batches. What it holds are the weights, one layer's
tensors, and the scores.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from foretell.records import dataclass
from foretell.schedules.rules import pipe_of
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.corrections import Corrections
from foretell.specs.plan import Plan, Plans, batch_of
from foretell.specs.result import OUTPUTS
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.training.answer import totals_of
from foretell.training.data_parallel import shares_of
from foretell.training.ledger import Ledger
from foretell.training.memory import held_weights
from foretell.training.micro_batch import micro_batch
from foretell.training.shapes import fixed_seconds
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate_rows
from foretell.training.tables import Tables, tables_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemBatch:
    """Plans on systems of their own, evaluated; arrays begin with the systems."""

    scenario: Scenario
    """The question, on the system as it is."""
    system: System
    """The systems: arrays in its numbers are over the plans."""
    plans: Plans
    """One plan for each system."""
    tables: Tables
    """What it costs in parts."""
    rows: Ledger
    """What it costs in all."""

    def outputs(self) -> dict[str, Array]:
        """Every output of a step on each system."""
        asked = replace(self.scenario, system=self.system)
        totals = totals_of(asked, self.plans, self.tables, self.rows)
        wide = np.zeros(len(self.plans))
        return {name: np.asarray(output.of(totals)) + wide for name, output in OUTPUTS.items()}

    def result(self, name: str) -> Array:
        """One of RESULTS on each system."""
        if name not in RESULTS:
            raise KeyError(name)
        totals = totals_of(self.scenario, self.plans, self.tables, self.rows)
        return np.asarray(OUTPUTS[name].of(totals))


RESULTS = ("step_s", "tokens_per_s", "energy_joules", "peak_memory_bytes")
"""What a batch can be asked for."""


def evaluate_systems(scenario: Scenario, plans: Plans, system: System) -> SystemBatch:
    """Each plan on its system: `system` has arrays over the plans in some of its numbers."""
    asked = replace(scenario, system=system)
    tables = tables_of(asked, plans, apart=True)
    # Inside, what a chip's number meets is (systems, stages).
    columns = replace(asked, system=replace(system, chip=_as_columns(system.chip)))
    rows = evaluate_rows(columns, plans, tables)
    return SystemBatch(scenario=scenario, system=system, plans=plans, tables=tables, rows=rows)


def _as_columns(chip: Chip) -> Chip:
    """The chip with its arrays over systems as columns."""

    def column(value: Any) -> Any:
        return value[:, None] if isinstance(value, np.ndarray) and value.ndim else value

    names = ("memory_bandwidth_bytes_per_s", "vector_flop_per_s", "host_bytes_per_s")
    return replace(chip, **{name: column(getattr(chip, name)) for name in names})


STEP = 0.02
"""Half-width of the differences of logarithms that slopes are taken from."""


def evaluate_corrections(
    scenario: Scenario, plan: Plan, factors: Array, names: tuple[str, ...]
) -> Ledger:
    """The ledger of one plan under each row of `factors` (rows, mechanisms): a batch, evaluated once."""
    many = len(factors)
    columns = {f.name: np.ones(many) for f in fields(Corrections)}
    columns |= {name: factors[:, i] for i, name in enumerate(names)}
    asked = replace(scenario, system=scenario.system.with_corrections(Corrections(**columns)))
    plans = batch_of([plan] * many)
    return evaluate_rows(asked, plans, tables_of(asked, plans, apart=True))


def peak_slopes(
    scenario: Scenario, plan: Plan, names: tuple[str, ...], at: Array
) -> tuple[float, Array]:
    """Peak memory (bytes) at some log-factors, and its slopes."""
    many = len(names)
    moves = np.zeros((1 + 2 * many, many))
    moves[1 : 1 + many], moves[1 + many :] = STEP * np.eye(many), -STEP * np.eye(many)
    peak = evaluate_corrections(scenario, plan, np.exp(at + moves), names).peak_bytes
    up, down = peak[1 : 1 + many], peak[1 + many :]
    return float(peak[0]), np.log(up / down) / (2.0 * STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPass:
    """One pass of a batch without gradients."""

    seconds: float
    """The whole batch."""
    weight_bytes: float
    """Weights on one chip of the fullest stage."""
    passing_bytes: float
    """One layer's tensors or the scores, whichever is more."""
    trained: float
    """Weights that are trained, of the whole model: all, or those of adapters."""


def forward_only(scenario: Scenario, plan: Plan) -> ForwardPass:
    """The job's batch passed once by the trainer's plan."""
    plans = batch_of([plan])
    tables = tables_of(scenario, plans)
    pipe, stages = pipe_of(scenario, plans), stages_of_plans(plans, tables)
    shares = shares_of(plans, tables, stages, pipe.micro_batches)
    one = micro_batch(scenario, plans, tables, stages, (shares, pipe.micro_batches))
    each_s = stages.forward_s + one.waits.gather_s + 0.5 * one.sends_s
    many = float(pipe.micro_batches[0])
    turns = many + float(plans.pp[0]) - 1.0
    slowest_s = float(np.max(each_s[0]))
    weights = held_weights(scenario, plans, stages, shares)
    passing = np.maximum(stages.head_bytes, stages.again_bytes)
    return ForwardPass(
        seconds=turns * slowest_s + fixed_seconds(scenario),
        weight_bytes=float(np.max(weights)),
        passing_bytes=float(np.max(passing)),
        trained=float(np.sum(stages.trained[0]) * plans.tp[0]),
    )
