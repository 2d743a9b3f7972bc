"""What steps of a deployment are made of, tabulated: seconds and joules on one rank.

    token     everything that sees each token by itself: projections, norms, dense feed-forward parts
    experts   routed experts, which see the tokens of all ranks of the stage
    decode    attention, recurrences and absorbed projections of decoding sequences: sequences x context
    prefill   the same of prompts: prompts x tokens x past
    head      final norm, scores and sampling, by the number of sequences that get a token
    encoder   what an encoder does for its tokens

Points are chosen where engines capture graphs and further apart above; between them times are nearly
straight.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from foretell.records import dataclass
from foretell.serving.formats import narrow_dense
from foretell.serving.kernel_costs import PowerLimitedCost
from foretell.serving.kernels import Kernels
from foretell.serving.links import links_of
from foretell.serving.step_costs import (
    dispatch_costs,
    expert_costs,
    head_costs,
    kinds_of,
    selecting,
    sequence_cost_of,
    token_costs,
)
from foretell.serving.table_points import WHOLE, TablePoints
from foretell.serving.wide_experts import wide_experts
from foretell.specs.arrays import Array
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.ffn import Experts
from foretell.specs.model import Model, Stack
from foretell.specs.system import System, system_count
from foretell.workload.graph import Tokens
from foretell.workload.layer import layer_graph

UNEVEN = 0.75
"""Of its answer what a sequence of a running batch counts as having in the cache. Sequences are anywhere
between their first token and their last, half of the answer on the mean, but kernels wait for the longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingTables:
    """Seconds of one rank at every point, the exchanges it waits for included.

    Of a batch of systems every table has one dim more, of these.
    """

    points: TablePoints
    """Points of those axes that may have some alone."""

    token_s: Array
    """By tokens of a rank; (tokens,)."""
    experts_s: Array
    """By tokens of the stage, kernels alone; (tokens,)."""
    gather_s: Array
    """What experts wait for tokens of other ranks, by tokens of the stage; (tokens,)."""
    dispatch_s: Array
    """What experts wait for dispatched tokens in decode steps, by tokens of a rank; (tokens,)."""
    prompt_dispatch_s: Array
    """The same in steps with prompts; (tokens,)."""
    decode_s: Array
    """By sequences of a rank and their context; (sequences, contexts)."""
    prefill_s: Array
    """By prompts of a rank, their new tokens and their pasts; (prompts, lengths, pasts)."""
    head_s: Array
    """By sequences of a rank that get a token; (tokens,)."""
    encoder_s: Array
    """By tokens of a rank that an encoder reads; (tokens,)."""
    token_joules: Array
    """As token_s, of all ranks with as many tokens each."""
    experts_joules: Array
    """As experts_s, of all ranks."""
    decode_joules: Array
    """As decode_s, of all ranks."""
    prefill_joules: Array
    """As prefill_s, of all ranks."""
    head_joules: Array
    """As head_s, of all ranks."""
    encoder_joules: Array
    """As encoder_s, of all ranks with as many tokens each."""
    exchange_s: Array
    """What of token_s is waiting for other ranks; (tokens,)."""
    reduces: float
    """All-reduces of a step."""
    mixtures: float
    """Layers with routed experts."""
    selections: float = 0.0
    """Mixers that choose by an indexer which keys they read."""


def tables_of(
    model: Model,
    system: System,
    deployment: Deployment,
    profile: EngineProfile,
    points: TablePoints = WHOLE,
) -> ServingTables:
    """All tables of a deployment; those of one system with all points are remembered."""
    if points is not WHOLE or system_count(system) > 1:
        return _new_tables(model, system, deployment, profile, points)
    return _known_tables(model, system, deployment, profile)


@lru_cache(maxsize=256)
def _known_tables(
    model: Model, system: System, deployment: Deployment, profile: EngineProfile
) -> ServingTables:
    return _new_tables(model, system, deployment, profile, WHOLE)


def _new_tables(
    model: Model,
    system: System,
    deployment: Deployment,
    profile: EngineProfile,
    points: TablePoints,
) -> ServingTables:
    """The tables, computed."""
    many, narrow = system_count(system), narrow_dense(model, deployment)
    kernels = Kernels(
        chip=system.chip, deployment=deployment, profile=profile, narrow=narrow, systems=many
    )
    links = links_of(system, deployment, profile)
    stack = model.stack
    token, exchange = token_costs(model, stack, kernels, links, points)
    dispatched = wide_experts(system, deployment, profile)
    experts, routed_exchange = expert_costs(stack, kernels, links, points, dispatched)
    sent, prompts_sent = dispatch_costs(model, deployment, points, dispatched)
    alone = replace(kernels, deployment=replace(deployment, dp=1, pp=1, ep=1, cp=1))
    decode = sequence_cost_of(model, stack, alone, "decode", points)
    prefill = sequence_cost_of(model, stack, alone, "prefill", points)
    head = head_costs(model, kernels, links, points)
    none = np.zeros(len(points.tokens) * many)
    encoder = PowerLimitedCost(seconds=none, joules=none)
    if model.encoder is not None:
        encoder, _ = token_costs(model, model.encoder, kernels, links, points)
        own = sequence_cost_of(model, model.encoder, alone, "prefill", points)
        prefill = PowerLimitedCost(
            seconds=prefill.seconds + own.seconds, joules=prefill.joules + own.joules
        )
    wide = () if many == 1 else (many,)
    line = (len(points.tokens), *wide)
    shape = (len(points.prompts), len(points.lengths), len(points.pasts), *wide)
    square = (len(points.sequences), len(points.contexts), *wide)
    return ServingTables(
        points=points,
        token_s=token.seconds.reshape(line),
        experts_s=experts.seconds.reshape(line),
        gather_s=routed_exchange.reshape(line),
        dispatch_s=sent,
        prompt_dispatch_s=prompts_sent,
        decode_s=decode.seconds.reshape(square),
        prefill_s=prefill.seconds.reshape(shape),
        head_s=head.seconds.reshape(line),
        encoder_s=encoder.seconds.reshape(line),
        token_joules=token.joules.reshape(line),
        experts_joules=experts.joules.reshape(line),
        decode_joules=decode.joules.reshape(square),
        prefill_joules=prefill.joules.reshape(shape),
        head_joules=head.joules.reshape(line),
        encoder_joules=encoder.joules.reshape(line),
        exchange_s=exchange.reshape(line),
        reduces=reduces_of(stack),
        mixtures=sum(many for layer, many in kinds_of(stack) if isinstance(layer.ffn, Experts)),
        selections=sum(many * selecting(layer) for layer, many in kinds_of(stack)),
    )


def reduces_of(stack: Stack) -> float:
    """Times that a step leaves a region that tensor parallelism cuts."""
    one = Tokens(batch=1.0, q_len=1.0, kv_len=1.0, phase="decode")
    return sum(
        many * sum(edge.leave for edge in layer_graph(layer, stack.hidden, one).edges)
        for layer, many in kinds_of(stack)
    )
