"""Lengths of sequences as frameworks run them: filled up to what the ranks that cut them divide."""

import math
from dataclasses import replace

from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario


def fill_sequences(scenario: Scenario, plan: Plan) -> Scenario:
    """The scenario with sequences of a length that the plan's ranks divide, stated where it is longer.

    Sequence parallelism cuts a sequence over tp x cp ranks, context parallelism over 2 cp parts. A learned
    table of positions is not exceeded, nor a grid's rule or an encoder-decoder's changed.
    """
    parts = plan.tp * plan.cp if plan.sp and plan.tp > 1 else 1
    parts = math.lcm(parts, 2 * plan.cp if plan.cp > 1 else 1)
    job, positions = scenario.job, scenario.model.embedding.positions
    length = -(-job.seq_len // parts) * parts
    beyond = positions and length > positions
    if length == job.seq_len or beyond or plan.tp_mode != "1d" or job.target_len is not None:
        return scenario
    said = f"sequences of {job.seq_len} tokens are filled up to {length}: {parts} ranks cut them"
    filled = replace(job, seq_len=length)
    return replace(scenario, job=filled, assumptions=(*scenario.assumptions, said))
