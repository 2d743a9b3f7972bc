"""Seconds and joules of the parts of a step on one rank, at the points of its tables.

What each part is of: serving/tables.py.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from foretell.kernels.families.base import DTYPES
from foretell.kernels.families.experts_loads import loads_of
from foretell.network.collectives import collective_s
from foretell.serving.formats import kernel_format
from foretell.serving.kernel_costs import KernelCost, PowerLimitedCost, nothing
from foretell.serving.kernels import Kernels
from foretell.serving.links import Links
from foretell.serving.step_ops import is_alone, is_cross_keys, is_routed, join_low_ranks, low_rank
from foretell.serving.table_points import WHOLE, TablePoints
from foretell.serving.wide_experts import WideExperts, group_limit, most_of, slots_of
from foretell.sharding.tensor import tensor_parallel
from foretell.specs._base import Num, with_fields
from foretell.specs.arrays import Array
from foretell.specs.deployment import Deployment
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Layer, Model, Stack
from foretell.workload.graph import Phase, Tokens
from foretell.workload.layer import layer_graph, layer_kinds
from foretell.workload.ops import Gemm, Op, Pointwise
from foretell.workload.roles import OpRole, Region

EXPERT_SKEW = 1.01
"""Exponent of the power law by which a router likes its experts. With it, rows drawn by chance and tables of
kernels alone meet decode steps of gpt-oss-120b and DeepSeek-R1 under three engines, at 4 to 256 in flight."""


BESIDE_S = 20e-6
"""What of a layer's shared experts hides: they run beside the routed ones, on a stream of their own or as one
expert more, and three small kernels take about this."""


MOMENTS, MOMENTS_S = 8.0, 6e-6
"""Where queries and keys are normalised over all heads, ranks that have some of them sum the squares of both:
bytes of one token, and seconds of the kernels that square, join and scale beside the norm's own (vLLM's
MiniMaxText01RMSNormTP, forward_qk: model_executor/layers/mamba/linear_attn.py; three of 2 us each)."""


SAMPLING_S = 30e-6
"""Seconds of sampling that do not depend on the vocabulary."""


SAMPLING_PASSES = 3.0
"""Passes over the scores in fp32."""


def kinds_of(stack: Stack) -> list[tuple[Layer, float]]:
    """Distinct layers and how many of each."""
    layers, order = layer_kinds(stack)
    return [(layer, float(order.count(i))) for i, layer in enumerate(layers)]


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
            sent = size * (0.5 * gathered_bytes(kernels))
            gathered_s = collective_s("all-gather", sent, links.stage)
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


def gathered_bytes(kernels: Kernels) -> float:
    """Bytes of an element that ranks gather for their experts: 16 bits, or the format that these multiply
    (TensorRT-LLM: quantize_input before allgather, _torch/modules/fused_moe/fused_moe_trtllm_gen.py)."""
    if not kernels.profile.gathers_narrow:
        return 2.0
    return DTYPES[
        kernel_format(kernels.deployment.experts, kernels.chip, experts=True)
    ].activation_bytes


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
