"""The model that a traced decoder is, so that engines can serve it: what a cache of keys and values needs.

A trace has whole sequences. Where every layer has one call of fused causal attention with maps before and
behind it, and a feed-forward part or experts, keys and values of earlier tokens can be kept: prefill and
decode then are those of a model with these widths. Its weights must be those of the trace, one by one; what
else a layer has is named.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from foretell.errors import bad_input
from foretell.records import dataclass
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Attention
from foretell.specs.model import Embedding, Head, Layer, Model, NormKind, Stack
from foretell.trace.graph import TracedModel
from foretell.trace.regions import Flow, LinearMap, MapRegion
from foretell.workload.parameters import count

FORM = "inference"
"""The form of a trace that is read: attention in 16 bits is fused for groups of heads too."""
LONGEST = 2**20
"""Positions of a model without a table of them."""
ACTIVATIONS = ("silu", "gelu", "relu", "sigmoid", "tanh")
"""Activations by PyTorch's names of them."""
OTHERS = 0.001
"""Share of a layer's weights that may be scales, sinks and such, which no part here has."""


class _Missing(Exception):
    """What a layer lacks, or has besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of a layer, and the parameters that it accounts for."""

    part: Attention | Dense | Experts | None
    """The part."""
    weights: frozenset[int]
    """Places of its parameters in the model's tensors."""
    reads: int
    """The storage that it reads."""


@lru_cache(maxsize=8)
def decoder_of(model: TracedModel) -> Model:
    """The decoder that a trace shows; BadInput with what is missing."""
    graph = model.graphs[FORM if FORM in model.graphs else "as-is"]
    try:
        if len(graph.weights) != len(graph.op):
            raise _Missing(
                "it was traced by an earlier version, without the parameters of each row"
            )
        if not model.layers:
            raise _Missing("it has no repeated blocks")
        return _decoder(Flow(model, graph))
    except _Missing as error:
        message = f"{model.id} cannot write tokens from its trace: {error}"
        allowed = "a decoder of causal scaled_dot_product_attention; --steps and --once serve whole passes"
        raise bad_input("model", model.source or model.id, message, allowed) from None


def _decoder(flow: Flow) -> Model:
    model = flow.model
    words, tables = _tables(flow)
    hidden = model.tensors[words].shape[1]
    layers = []
    for number in range(len(model.layers)):
        rows = [r for r in range(len(flow.ops)) if flow.layer[r] == number and _forward(flow, r)]
        try:
            layers.append(_layer(flow, rows, hidden))
        except _Missing as error:
            raise _Missing(f"{model.layers[number]}: {error}") from None
    last = max((m for m in flow.maps.values() if flow.layer[m.row] < 0), key=_row, default=None)
    if last is None or last.inputs != hidden:
        raise _Missing("no map from the hidden width to scores behind the layers")
    ends = {words, last.weight}
    outside = {
        w
        for r, own in enumerate(flow.weights)
        if flow.layer[r] < 0 and _forward(flow, r)
        for w in own
    }
    norms = [r for r in range(len(flow.ops)) if flow.layer[r] < 0 and _is_norm(flow, r, hidden)]
    length = max((model.tensors[w].shape[0] for w in tables), default=0)
    bias = any(len(model.tensors[w].shape) == 1 for w in flow.weights[last.row])
    explained = {
        *ends,
        *tables,
        *flow.weights[last.row],
        *(w for r in norms for w in flow.weights[r]),
    }
    left = outside - explained
    masked = any(op.kind == "attention" and (op.sizes or {})["masked"] for op in flow.ops)
    native = {t.dtype for t in model.of_kind("parameter") if len(t.shape) > 1}
    dtype = native.pop() if len(native) == 1 else "bf16"
    said = [f"read from the trace {model.id}: a cache of keys and values is added to its attention"]
    if masked:
        said.append("a mask of its own: every token is taken to see all before it, no window")
    if not length:
        said.append("no table of positions: any length is taken")
    found = Model(
        id=model.id,
        family="traced",
        kind="decoder",
        stack=Stack(hidden=hidden, layers=tuple(layers), final_norm=_norm_kind(flow, norms[-1:])),
        embedding=Embedding(vocab=model.tensors[words].shape[0], positions=length),
        head=Head(outputs=last.outputs, tied=last.weight == words, bias=bias),
        extra_parameters=sum(model.tensors[w].elements for w in left),
        max_positions=length or LONGEST,
        dtype=dtype if dtype in ("bf16", "fp16") else "bf16",
        assumptions=tuple(said),
    )
    whole, own = sum(t.elements for t in model.of_kind("parameter")), count(found).total
    if whole != own:
        raise _Missing(f"its {whole:,} parameters are not the {own:,} of the parts that were found")
    return found


def _forward(flow: Flow, row: int) -> bool:
    return bool(flow.graph.phase[row] == 0)


def _row(one: LinearMap) -> int:
    return one.row


def _tables(flow: Flow) -> tuple[int, set[int]]:
    """The table of words, and those of positions."""
    found = [
        weight
        for row, op in enumerate(flow.ops)
        if op.name == "aten.embedding" and flow.layer[row] < 0 and _forward(flow, row)
        for weight in flow.weights[row]
    ]
    if not found:
        raise _Missing("no table of words in front of its layers")
    words = max(found, key=lambda w: flow.model.tensors[w].shape[0])
    return words, set(found) - {words}


def _layer(flow: Flow, rows: Sequence[int], hidden: int) -> Layer:
    """One layer by its maps, its attention and its norms."""
    regions = {row: flow.behind(row) for row in rows if row in flow.maps}
    attention, own = _attention(flow, rows, regions, hidden)
    rest = {row: region for row, region in regions.items() if row not in own}
    ffn = _feed_forward(flow, rest, hidden, flow.ops[min(own)].sizes or {})
    norms = [r for r in rows if r not in regions and _is_norm(flow, r, hidden)]
    norms = [r for r in norms if not attention.weights.intersection(flow.weights[r])]
    used = {w for r in rows for w in flow.weights[r]}
    left = used - attention.weights - ffn.weights - {w for r in norms for w in flow.weights[r]}
    sizes = {w: flow.model.tensors[w].elements for w in used}
    if sum(sizes[w] for w in left) > OTHERS * sum(sizes.values()):
        names = ", ".join(flow.model.tensors[w].name for w in sorted(left)[:4])
        raise _Missing(f"{names} belong to no attention, feed-forward part or norm")
    assert isinstance(attention.part, Attention)
    assert not isinstance(ffn.part, Attention)
    return Layer(
        mixers=(attention.part,),
        ffn=ffn.part,
        norms=len({flow.weights[r] for r in norms}),
        norm_kind=_norm_kind(flow, norms),
        parallel=attention.reads == ffn.reads,
        extra_parameters=sum(sizes[w] for w in left),
    )


def _attention(
    flow: Flow, rows: Sequence[int], regions: dict[int, MapRegion], hidden: int
) -> tuple[_Part, set[int]]:
    """The attention of a layer, and the rows of its maps."""
    calls = [r for r in rows if flow.ops[r].kind == "attention"]
    if len(calls) != 1:
        raise _Missing(f"{len(calls)} calls of scaled_dot_product_attention, and not one")
    s = flow.ops[calls[0]].sizes or {}
    if s["q_len"] != s["kv_len"]:
        raise _Missing("its keys are not those of its own tokens")
    if s["pairs"] >= s["q_len"] * s["kv_len"] and not s["masked"]:
        raise _Missing("every token sees all others, and none is written behind them")
    into = [row for row, region in regions.items() if calls[0] in region.rows]
    behind = {end for row in into for end in regions[row].ends}
    heads, wide = int(s["heads"]), sum(flow.maps[row].outputs for row in into)
    if len(behind) != 1 or any(flow.maps[row].inputs != hidden for row in into):
        raise _Missing("queries, keys and values are not maps of the hidden states alone")
    out = flow.maps[behind.pop()]
    width = out.inputs // heads
    groups = wide / max(width, 1) - heads
    kv = int(groups // 2)
    if width * heads != out.inputs or groups != 2 * kv or not kv or heads % kv:
        raise _Missing(f"{heads} heads, and maps of {wide} numbers before and {out.inputs} behind")
    normed, norms = "none", set[int]()
    for row in {r for one in into for r in regions[one].rows}:
        for weight in flow.weights[row]:
            size = flow.model.tensors[weight].elements
            if size in (width, heads * width, kv * width):
                normed = "head" if size == width else "whole"
                norms.add(weight)
    biased = [any(len(flow.model.tensors[w].shape) == 1 for w in flow.weights[r]) for r in into]
    part = Attention(
        heads=heads,
        kv_heads=kv,
        head_dim=width,
        q_bias=all(biased),
        k_bias=all(biased),
        v_bias=all(biased),
        o_bias=len(flow.weights[out.row]) > 1,
        qk_norm=normed,  # type: ignore[arg-type]
    )
    weights = {w for row in (*into, out.row) for w in flow.weights[row]}
    reads = flow.root(flow.graph.reads[into[0]][0])
    own = _Part(part=part, weights=frozenset(weights | norms), reads=reads)
    return own, {*into, out.row}


def _feed_forward(
    flow: Flow, regions: dict[int, MapRegion], hidden: int, token: Mapping[str, float]
) -> _Part:
    """The feed-forward part of a layer: dense, or experts with a router."""
    if not regions:
        return _Part(part=None, weights=frozenset(), reads=-1)
    routers = [r for r, one in regions.items() if any(flow.ops[x].kind == "sort" for x in one.rows)]
    downs = {end for region in regions.values() for end in region.ends if end in regions}
    ups = {
        down: [r for r, one in regions.items() if down in one.ends and r not in routers]
        for down in downs
    }
    ups = {down: own for down, own in ups.items() if own and flow.maps[down].outputs == hidden}
    weights = {w for down, own in ups.items() for r in (down, *own) for w in flow.weights[r]}
    others = [flow.maps[r] for r in regions if r not in ups and not _among(r, ups.values())]
    first = min((r for own in ups.values() for r in own), default=None)
    if first is None:
        raise _Missing("no pair of maps that is a feed-forward part")
    reads = flow.root(flow.graph.reads[first][0])
    plain = [down for down in ups if len(flow.model.tensors[flow.maps[down].weight].shape) == 2]
    routed = [down for down in ups if down not in plain]
    if len(ups) == 1 and plain and not others:
        return _Part(part=_dense(flow, plain[0], ups), weights=frozenset(weights), reads=reads)
    router = flow.maps[routers[0]] if routers else None
    if router is None:
        raise _Missing(f"{len(ups)} feed-forward parts without a router")
    if not routed:  # experts that are modules of their own, and shared ones of another width
        routed = [d for d in plain if len(plain) >= router.outputs][: router.outputs]
        plain = [d for d in plain if d not in routed]
    if not routed:
        raise _Missing(f"{len(ups)} feed-forward parts beside a map of {router.outputs} outputs")
    tokens = token["m"] * token["batch"]
    sizes = [flow.ops[down].sizes or {} for down in routed]
    dense = _dense(flow, routed[0], ups)
    part = Experts(
        experts=router.outputs,
        top_k=max(round(sum(s["m"] * s["batch"] for s in sizes) / tokens), 1),
        width=dense.width,
        gated=dense.gated,
        activation=dense.activation,
        expert_bias=dense.up_bias,
        shared_width=sum(flow.maps[down].inputs for down in plain),
        shared_gate=any(m.outputs == 1 for m in others),
    )
    weights |= {w for one in others for w in flow.weights[one.row]}
    return _Part(part=part, weights=frozenset(weights), reads=reads)


def _among(row: int, groups: Iterable[Sequence[int]]) -> bool:
    return any(row in group for group in groups)


def _dense(flow: Flow, down: int, ups: dict[int, list[int]]) -> Dense:
    """A pair of maps, the first of which may be two."""
    width, wide = flow.maps[down].inputs, sum(flow.maps[r].outputs for r in ups[down])
    if wide not in (width, 2 * width):
        raise _Missing(f"a feed-forward part of {wide} numbers before {width}")
    between = {flow.ops[r].name for up in ups[down] for r in flow.behind(up).rows}
    named = (name for name in ACTIVATIONS if f"aten.{name}" in between)
    return Dense(
        width=width,
        gated=wide == 2 * width,
        activation=next(named, "silu"),
        up_bias=all(len(flow.weights[r]) > 1 for r in ups[down]),
        down_bias=len(flow.weights[down]) > 1,
    )


def _is_norm(flow: Flow, row: int, hidden: int) -> bool:
    """Whether a row scales the hidden states."""
    if not _forward(flow, row) or row in flow.maps or flow.ops[row].kind in ("view", "copy"):
        return False
    own = flow.weights[row]
    return bool(own) and all(flow.model.tensors[w].shape == (hidden,) for w in own)


def _norm_kind(flow: Flow, rows: Sequence[int]) -> NormKind:
    """What the norms of some rows hold."""
    if not rows:
        return "none"
    if flow.ops[rows[0]].name == "aten.native_layer_norm":
        return "layer" if len(flow.weights[rows[0]]) > 1 else "layer-nobias"
    return "rms"
