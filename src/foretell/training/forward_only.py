"""A pass over a batch without gradients: log-probabilities, values, rewards.

No backward pass, no optimizer, no reduction of gradients and nothing computed again; weights that ZeRO 3
shares are gathered once for each micro-batch. A pipeline of pp stages takes m + pp - 1 turns of its slowest
stage for m micro-batches. What it holds are the weights, one layer's tensors, and the scores.
"""

import numpy as np

from foretell.records import dataclass
from foretell.schedules.rules import pipe_of
from foretell.specs.plan import Plan, batch_of
from foretell.specs.scenario import Scenario
from foretell.training.data_parallel import shares_of
from foretell.training.memory import held_weights
from foretell.training.micro_batch import micro_batch
from foretell.training.recipes import fixed_seconds
from foretell.training.stages import stages_of_plans
from foretell.training.tables import tables_of


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
