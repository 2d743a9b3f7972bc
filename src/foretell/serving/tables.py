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
from numpy.typing import NDArray

from foretell.kernels.families.experts_loads import loads_of
from foretell.network.collectives import Group, collective_s, send_s
from foretell.network.library import prepare
from foretell.network.library_catalog import library_for
from foretell.network.library_records import Kind, Library
from foretell.network.placement import over_systems, tier_counts, units
from foretell.network.stack import stack_of
from foretell.records import dataclass
from foretell.serving.formats import narrow_dense
from foretell.serving.kernels import KernelCost, Kernels, PowerLimitedCost, nothing
from foretell.serving.step_ops import is_alone, is_cross_keys, is_routed, join_low_ranks, low_rank
from foretell.serving.wide_experts import (
    WideExperts,
    group_limit,
    most_of,
    slots_of,
    wide_experts,
)
from foretell.sharding.tensor import tensor_parallel
from foretell.specs._base import Num, with_fields
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention, LatentAttention
from foretell.specs.model import Layer, Model, Stack
from foretell.specs.system import Network, System
from foretell.specs.system_batch import system_count
from foretell.workload.graph import Phase, Tokens
from foretell.workload.layer import layer_graph, layer_kinds
from foretell.workload.ops import Gemm, Op, Pointwise
from foretell.workload.roles import OpRole, Region

Array = NDArray[np.float64]

TOKENS = np.unique(
    np.rint(
        np.concatenate(
            [
                [1, 2, 4],
                np.arange(8, 128, 8),
                np.arange(128, 512, 32),
                512 * 2 ** np.arange(0, 9.26, 0.25),
            ]
        )
    )
).astype(float)
"""Tokens of a step, to 314 thousand; beyond, times go on straight."""
SEQUENCES = np.unique(np.rint(2.0 ** np.arange(0.0, 13.1, 0.5))).astype(float)
"""Decoding sequences."""
CONTEXTS = np.concatenate([[1.0], 2.0 ** np.arange(5.0, 21.0)])
"""Tokens in a sequence's cache."""
PROMPTS = 2.0 ** np.arange(0.0, 11.0)
"""Prompts of a step."""
LENGTHS = np.concatenate([[1.0, 16.0], 2.0 ** np.arange(5.0, 20.1, 0.5)])
"""New tokens of one prompt."""
PASTS = np.concatenate([[0.0], 4.0 ** np.arange(4.0, 11.0)])
"""Tokens of one prompt that are in the cache already."""
EXPERT_SKEW = 1.01
"""Exponent of the power law by which a router likes its experts. With it, rows drawn by chance and tables of
kernels alone meet decode steps of gpt-oss-120b and DeepSeek-R1 under three engines, at 4 to 256 in flight."""
BESIDE_S = 20e-6
"""What of a layer's shared experts hides: they run beside the routed ones, on a stream of their own or as one
expert more, and three small kernels take about this."""
UNEVEN = 0.75
"""Of its answer what a sequence of a running batch counts as having in the cache. Sequences are anywhere
between their first token and their last, half of the answer on the mean, but kernels wait for the longest."""
MOMENTS, MOMENTS_S = 8.0, 6e-6
"""Where queries and keys are normalised over all heads, ranks that have some of them sum the squares of both:
bytes of one token, and seconds of the kernels that square, join and scale beside the norm's own (vLLM's
MiniMaxText01RMSNormTP, forward_qk: model_executor/layers/mamba/linear_attn.py; three of 2 us each)."""
SAMPLING_S = 30e-6
"""Seconds of sampling that do not depend on the vocabulary."""
SAMPLING_PASSES = 3.0
"""Passes over the scores in fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePoints:
    """Points of the axes that are tabulated: all of them, or those around the loads that will be asked."""

    tokens: Array
    """Tokens of a step."""
    sequences: Array
    """Decoding sequences."""
    contexts: Array
    """Tokens in a sequence's cache."""
    prompts: Array
    """Prompts of a step."""
    lengths: Array
    """New tokens of one prompt."""
    pasts: Array
    """Tokens of one prompt that are in the cache already."""


WHOLE = TablePoints(
    tokens=TOKENS,
    sequences=SEQUENCES,
    contexts=CONTEXTS,
    prompts=PROMPTS,
    lengths=LENGTHS,
    pasts=PASTS,
)


def points_near(points: Array, *values: float) -> Array:
    """The points of an axis between which, or at which, all of some values are."""
    first = int(np.searchsorted(points, min(values) * (1.0 - 1e-9), side="right")) - 1
    last = int(np.searchsorted(points, max(values) * (1.0 + 1e-9), side="right")) + 1
    first = min(max(first, 0), len(points) - 2)
    return points[first : max(last, first + 2)]


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
    latents: float = 0.0
    """Layers with latent attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Groups of a deployment's ranks on the network."""

    tensor: Group
    """The tp ranks of a copy of the attention."""
    stage: Group
    """All ranks that share the experts."""
    pipe_counts: Array
    """Where the stages are; (tiers, 1)."""
    network: Network
    """The network."""


Degrees = tuple[int, int, int, int]
"""Tensor-parallel ranks, ranks of a stage, stages, and chips of an instance."""


def links_of(system: System, deployment: Deployment, profile: EngineProfile) -> Links:
    """Place the groups: tensor parallel innermost, then the rest of the stage, then stages."""
    library = library_for(system, software="trtllm" if profile.custom_all_reduce else "")
    d = deployment
    degrees = d.tp, d.stage, d.pp, d.gpus
    if any(over_systems(tier) for tier in system.network.tiers):
        return _placed_links(library, system.network, degrees, system_count(system))
    return _known_links(library, system.network, degrees)


@lru_cache(maxsize=1024)
def _known_links(library: Library | None, network: Network, degrees: Degrees) -> Links:
    """On one network: the same few placements recur from system to system of a study."""
    return _placed_links(library, network, degrees, 1)


def _placed_links(
    library: Library | None, network: Network, degrees: Degrees, networks: int
) -> Links:
    """The groups on one network, or on each of several."""
    tp, stage, pp, gpus = degrees
    filled = units(network, gpus)

    def counts(size: int, stride: int) -> Array:
        one = tier_counts(np.array([float(size)]), np.array([float(stride)]), filled, gpus)
        return np.repeat(one, networks, axis=1)

    kinds: tuple[Kind, ...] = ("all-reduce", "all-gather", "reduce-scatter")

    def group(size: int) -> Group:
        where = counts(size, 1)
        if library is None:
            return stack_of(where, network, kinds)
        return prepare(library, network, where, kinds)

    return Links(
        tensor=group(tp),
        stage=group(stage),
        pipe_counts=counts(pp, stage),
        network=network,
    )


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
        latents=sum(
            many
            for layer, many in kinds_of(stack)
            if any(isinstance(mixer, LatentAttention) for mixer in layer.mixers)
        ),
    )


def kinds_of(stack: Stack) -> list[tuple[Layer, float]]:
    """Distinct layers and how many of each."""
    layers, order = layer_kinds(stack)
    return [(layer, float(order.count(i))) for i, layer in enumerate(layers)]


def reduces_of(stack: Stack) -> float:
    """Times that a step leaves a region that tensor parallelism cuts."""
    one = Tokens(batch=1.0, q_len=1.0, kv_len=1.0, phase="decode")
    return sum(
        many * sum(edge.leave for edge in layer_graph(layer, stack.hidden, one).edges)
        for layer, many in kinds_of(stack)
    )


def token_costs(
    model: Model, stack: Stack, kernels: Kernels, links: Links, points: TablePoints
) -> tuple[PowerLimitedCost, Array]:
    """Operations on each token, the all-reduces behind them included; and these alone."""
    tp, many_systems = float(kernels.deployment.tp), kernels.systems
    kernels, (rows,) = kernels.along(points.tokens)
    tokens = Tokens(
        batch=rows, q_len=1.0, kv_len=1.0, phase="decode",
        rotary=model.embedding.rotary,
    )  # fmt: skip
    ops: list[Op] = []
    counts: list[float] = []
    exchange = np.zeros_like(rows)
    for layer, many in kinds_of(stack):
        graph = layer_graph(layer, stack.hidden, tokens)
        for op in tensor_parallel(graph, tp, 0.0).ops:
            if is_alone(op) or is_routed(op) or op.region is Region.SHARED_EXPERTS:
                continue
            if op.role is OpRole.LATENT_DOWN and low_rank(graph.ops):
                continue
            if op.role is OpRole.QUERY_DOWN:
                op = join_low_ranks(op, graph.ops)
            if op.role is OpRole.ENTRY_NORM and isinstance(op, Pointwise) and layer.norms:
                op, times = with_fields(op, elements=op.elements / layer.norms), many * layer.norms
            else:
                times = many
            ops.append(op)
            counts.append(times)
        for edge in graph.edges:
            experts = edge.region is Region.EXPERTS
            if edge.leave and not (experts and kernels.deployment.stage > tp):
                size = 2.0 * np.asarray(edge.elements)[None, ::many_systems]
                reduced_s = collective_s("all-reduce", size, links.tensor)
                exchange = exchange + many * on_systems(reduced_s, many_systems)
        if tp > 1.0 and whole_norms(layer):
            size = MOMENTS * np.asarray(rows)[None, ::many_systems]
            reduced_s = collective_s("all-reduce", size, links.tensor) + MOMENTS_S
            exchange = exchange + many * whole_norms(layer) * on_systems(reduced_s, many_systems)
    cost = kernels.held(kernels.cost(ops, counts, len(rows)), exchange)
    return PowerLimitedCost(
        seconds=cost.seconds + exchange, joules=cost.joules * kernels.deployment.stage
    ), exchange


def selecting(layer: Layer) -> int:
    """Mixers of a layer that choose by an indexer of their own which keys they read."""
    found = (getattr(mixer, "indexer", None) for mixer in layer.mixers)
    return sum(one is not None and one.owns_weights for one in found)


def whole_norms(layer: Layer) -> int:
    """Mixers whose queries and keys are normalised over all heads, which tensor parallelism cuts."""
    return sum(isinstance(m, Attention) and m.qk_norm == "whole" for m in layer.mixers)


def on_systems(found: Array, systems: int) -> Array:
    """Times of one network or several, (networks, points), along the points, once for every system."""
    return np.broadcast_to(found, (systems, found.shape[1])).T.ravel()


def expert_dims(
    ffn: Experts, hidden: float, d: Deployment, wide: WideExperts | None, tokens: Array
) -> dict[str, Num]:
    """Sizes of a mixture's layer of routed experts, for tokens of the stage."""
    return {
        "tokens": tokens,
        "hidden": hidden,
        "inter": float(ffn.width),
        "experts": float(slots_of(ffn, d) if wide else ffn.experts),
        "top_k": float(ffn.top_k),
        "ep": float(d.ep),
        "tp": float(d.stage / d.ep),
        "skew": EXPERT_SKEW,
        "drawn": 1.0,
        "gated": 1.0 if ffn.gated else 0.0,
        "local": 1.0 if wide else 0.0,
        "most": most_of(d) if wide else 0.0,
    }


def dispatch_costs(
    model: Model, d: Deployment, points: TablePoints, wide: WideExperts | None
) -> tuple[Array, Array]:
    """What dispatches and combines of all layers take, by tokens of a rank: decoding, and with prompts."""
    tokens = points.tokens
    decode = prompts = np.zeros_like(tokens)
    if wide is None:
        return decode, prompts
    if np.ndim(wide.near_bytes_per_s):
        decode = prompts = np.zeros((len(tokens), 1))
    for layer, many in kinds_of(model.stack):
        if not isinstance(layer.ffn, Experts):
            continue
        hidden = float(layer.ffn.latent or model.stack.hidden)
        dims = expert_dims(layer.ffn, hidden, d, wide, tokens)
        # A copy of the attention has tp ranks, each of which sends its part of the tokens.
        own = tokens / d.tp
        sizes = {n: np.broadcast_to(np.asarray(v, float), tokens.shape) for n, v in dims.items()}
        sizes["tokens"] = own * d.ep
        even = own * layer.ffn.top_k
        over = np.maximum(loads_of(sizes, np.ones(1)).rows / np.maximum(even, 1e-9), 1.0)
        limit = group_limit(model.family)
        one = wide.exchange_s(layer.ffn, hidden, own, d, over, limit)
        # Where rates are of several networks, (networks, points).
        decode, prompts = decode + many * one[0].T, prompts + many * one[1].T
    return decode, prompts


def expert_costs(
    stack: Stack,
    kernels: Kernels,
    links: Links,
    points: TablePoints,
    wide: WideExperts | None = None,
) -> tuple[PowerLimitedCost, Array]:
    """Routed experts of all layers for the tokens of the stage, and what they wait for."""
    d, systems = kernels.deployment, kernels.systems
    kernels, (rows,) = kernels.along(points.tokens)
    none = np.zeros_like(rows)
    total, hidden_s, exchange = nothing(len(rows)), none, none
    for layer, many in kinds_of(stack):
        if not isinstance(layer.ffn, Experts):
            continue
        ffn = layer.ffn
        hidden = float(ffn.latent or stack.hidden)
        one = kernels.experts(expert_dims(ffn, hidden, d, wide, rows), len(rows))
        if wide is not None:
            wait = none  # dispatched: by the tokens of a rank (dispatch_costs)
        elif d.stage > d.tp:
            # Ranks with tokens of their own gather those of all, and get back the sums of theirs.
            size = 2.0 * points.tokens[None, :] * hidden
            gathered_s = collective_s("all-gather", size, links.stage)
            scattered_s = collective_s("reduce-scatter", size, links.stage)
            wait = on_systems(gathered_s + scattered_s, systems)
        else:
            wait = none  # the region's all-reduce stands among the tokens' exchanges
        exchange = exchange + many * wait
        beside = shared_costs(layer, stack, kernels, rows)
        hidden_s = hidden_s + many * np.minimum(beside.seconds, BESIDE_S)
        total = total + (one + beside).times(many)
    found = kernels.held(total, exchange)
    return PowerLimitedCost(
        seconds=found.seconds - hidden_s, joules=found.joules * d.stage
    ), exchange


def shared_costs(layer: Layer, stack: Stack, kernels: Kernels, stage: Array) -> KernelCost:
    """Shared experts of one layer for the tokens of a rank, by the tokens of the stage."""
    d = kernels.deployment
    rows = np.maximum(stage / (d.dp * d.cp), 1.0)
    tokens = Tokens(batch=rows, q_len=1.0, kv_len=1.0, phase="decode")
    graph = tensor_parallel(layer_graph(layer, stack.hidden, tokens), float(d.tp), 0.0)
    ops = [op for op in graph.ops if op.region is Region.SHARED_EXPERTS]
    return kernels.cost(ops, [1.0] * len(ops), len(rows))


def sequence_cost_of(
    model: Model, stack: Stack, kernels: Kernels, phase: Phase, points: TablePoints
) -> PowerLimitedCost:
    """What depends on sequences, remembered: layouts that cut a sequence alike share it."""
    if points is not WHOLE or kernels.systems > 1:
        return sequence_cost(model, stack, kernels, phase, points)
    return _known_sequence_cost(model, stack, kernels, phase)


@lru_cache(maxsize=128)
def _known_sequence_cost(
    model: Model, stack: Stack, kernels: Kernels, phase: Phase
) -> PowerLimitedCost:
    return sequence_cost(model, stack, kernels, phase, WHOLE)


def sequence_cost(
    model: Model, stack: Stack, kernels: Kernels, phase: Phase, points: TablePoints
) -> PowerLimitedCost:
    """What depends on sequences: attention, recurrences, products with cached latents."""
    d = kernels.deployment
    rotary = model.embedding.rotary
    if phase == "decode":
        grid = np.meshgrid(points.sequences, points.contexts, indexing="ij")
        kernels, (n, context) = kernels.along(*(axis.ravel() for axis in grid))
        tokens = Tokens(
            batch=n, q_len=1.0 + d.draft_tokens, kv_len=context, cross_len=context, phase=phase,
            rotary=rotary,
        )  # fmt: skip
    else:
        cube = np.meshgrid(points.prompts, points.lengths, points.pasts, indexing="ij")
        kernels, (k, new, past) = kernels.along(*(axis.ravel() for axis in cube))
        tokens = Tokens(
            batch=k, q_len=new, kv_len=new + past, cross_len=new, phase=phase, rotary=rotary,
        )  # fmt: skip
    ops: list[Op] = []
    counts: list[float] = []
    for layer, many in kinds_of(stack):
        if not kernels.profile.window_used:
            layer = without_window(layer)
        graph = tensor_parallel(layer_graph(layer, stack.hidden, tokens), float(d.tp), 0.0)
        mine = [op for op in graph.ops if is_alone(op)]
        if phase == "decode":
            # The encoder's keys and values lie in the cache already.
            mine = [op for op in mine if not is_cross_keys(op)]
        ops += mine
        counts += [many] * len(mine)
    width = np.size(tokens.batch)
    cost = kernels.held(kernels.cost(ops, counts, width, phase))
    return PowerLimitedCost(seconds=cost.seconds, joules=cost.joules * d.tp)


def without_window(layer: Layer) -> Layer:
    """The layer as engines run it that read all keys behind a mask."""
    mixers = tuple(
        replace(mixer, window=None) if isinstance(mixer, Attention) else mixer
        for mixer in layer.mixers
    )
    return replace(layer, mixers=mixers)


def head_costs(
    model: Model, kernels: Kernels, links: Links, points: TablePoints
) -> PowerLimitedCost:
    """Table, final norm, scores over the vocabulary's parts, and the sampling of one token each."""
    tp, systems = float(kernels.deployment.tp), kernels.systems
    kernels, (rows,) = kernels.along(points.tokens)
    width = float(model.embedding.width or model.stack.hidden)
    outputs = float(model.head.outputs)
    region, elements = Region.HEAD, rows * model.stack.hidden
    ops: list[Op] = [
        Pointwise(name="head.norm", elements=elements, flop=5.0, family="norm", region=region)
    ]
    if outputs:
        role, part = OpRole.SCORES, outputs / tp
        ops.append(Gemm(name="head.scores", m=rows, n=part, k=width, role=role, region=region))
        moved = SAMPLING_PASSES * rows * outputs * 2.0
        ops.append(
            Pointwise(
                name="head.sample", elements=moved, reads=0.5, writes=0.5, flop=1.0, region=region
            )
        )
    cost = kernels.held(kernels.cost(ops, [1.0] * len(ops), len(rows)))
    seconds = cost.seconds + (SAMPLING_S if outputs else 0.0)
    if outputs:
        size = 2.0 * points.tokens[None, :] * outputs
        seconds = seconds + on_systems(collective_s("all-gather", size, links.tensor), systems)
    return PowerLimitedCost(seconds=seconds, joules=cost.joules * kernels.deployment.tp)


def pipe_s(tokens: float, model: Model, links: Links) -> Num:
    """Seconds of passing the tokens' activations to the next stage; of several networks, of each."""
    size = 2.0 * tokens * model.stack.hidden
    found = send_s(size, links.pipe_counts, links.network)
    return found if len(found) > 1 else float(found[0])
