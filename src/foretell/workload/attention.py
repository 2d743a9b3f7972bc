"""Softmax attention as operations: projections, core, output."""

from foretell.specs._base import Num
from foretell.specs.block import MapBlock, MapShape
from foretell.specs.mixers import Attention
from foretell.workload.graph import Edge, LayerGraph, Saved, Tokens, with_region
from foretell.workload.indexer import indexer_graph
from foretell.workload.masks import keys_read, merged_keys, merged_pairs, visible_pairs
from foretell.workload.ops import AttentionCore, Gemm, Op, Pointwise
from foretell.workload.part import Fields, PartOps
from foretell.workload.roles import EdgeRole, OpRole, Region, SavedRole


def attention_graph(mixer: Attention, hidden: int, tokens: Tokens) -> LayerGraph:
    """qkv projection, normalised and rotated queries and keys, core, gate, output projection."""
    name = "cross" if mixer.cross else "attention"
    part = PartOps(name=name, region=attention_region(cross=mixer.cross), rows=tokens.count)
    core = _core(mixer, tokens, part)
    inputs: tuple[Op, ...]
    kept: tuple[Saved, ...] = ()
    if mixer.factor is None:
        inputs = _input_projections(mixer, hidden, tokens, part)
    else:
        maps = _factored_projections(mixer, mixer.factor, hidden, tokens)
        inputs, kept = maps.ops, maps.saved
    between, out = _between(mixer, tokens, part), _output_projections(mixer, hidden, part)
    graph = LayerGraph(
        name=name,
        ops=(*inputs, *between, core, *out),
        saved=(*_saved(mixer, tokens, core, part), *kept),
        edges=_edges(mixer, hidden, tokens, part),
    )
    if mixer.indexer is not None:
        graph = graph + indexer_graph(mixer.indexer, hidden, tokens)
    return graph


def attention_region(*, cross: bool) -> Region:
    """The region of softmax attention."""
    return Region.CROSS_ATTENTION if cross else Region.ATTENTION


def core_saved(core: AttentionCore, name: str) -> tuple[Saved, ...]:
    """One fp32 statistic per row when fused; else the scores after softmax.

    Softmax's gradient and the product with the values need its output alone: 2 a s^2 b bytes of
    Korthikanti's 5 a s^2 b (arXiv 2205.05198, section 4.1); the rest are the dropout's mask and
    output.
    """
    rows = core.batch * core.heads * core.q_len
    part = PartOps(name=name, region=core.region, rows=rows)
    if core.flash:
        return (part.kept("lse", rows, SavedRole.STATISTIC, bytes_per_element=4.0),)
    return (part.kept("scores", core.scores, core=True),)


def _value_dim(mixer: Attention) -> int:
    return mixer.value_dim or mixer.head_dim


def _core(mixer: Attention, tokens: Tokens, part: PartOps) -> AttentionCore:
    """The pairs that mask, window or indexer leave; the encoder's keys in cross-attention."""
    pairs, kv_len, whole = _seen(mixer, tokens)
    return AttentionCore(
        name=f"{part.name}.core",
        batch=tokens.batch,
        heads=float(mixer.heads),
        kv_heads=float(mixer.kv_heads),
        q_len=tokens.q_len,
        kv_len=kv_len,
        pairs=pairs,
        qk_dim=float(mixer.head_dim),
        v_dim=float(_value_dim(mixer)),
        flash=tokens.flash,
        counted=None if whole else pairs,
        kv_rank=float(mixer.head_dim) if mixer.value_is_key else 0.0,
        region=part.region,
    )


def _seen(mixer: Attention, tokens: Tokens) -> tuple[Num, Num, bool]:
    """Pairs, keys read, and whether every pair up to causality is there.

    An indexer keeps its top_k of all keys; where keys are merged as well, it keeps those of the
    merged ones, which are seen beside the window's.
    """
    if mixer.cross:
        return tokens.q_len * tokens.cross_len, tokens.cross_len, True
    kept = None if mixer.indexer is None else mixer.indexer.top_k
    ratio = mixer.compress_ratio
    window = mixer.window if kept is None or ratio is not None else kept
    causal, chunked = mixer.causal, mixer.chunked
    pairs = visible_pairs(tokens, causal=causal, window=window, chunked=chunked)
    keys = keys_read(tokens, causal=causal, window=window, chunked=chunked)
    if ratio is not None:
        pairs = pairs + merged_pairs(tokens, ratio, kept)
        keys = keys + merged_keys(tokens, ratio, kept)
    return pairs, keys, window is None and ratio is None


def _edges(mixer: Attention, hidden: int, tokens: Tokens, part: PartOps) -> tuple[Edge, ...]:
    """The hidden state enters and leaves; so do the encoder's states where keys are made of
    them."""
    edges = part.ends(part.rows * hidden, part.rows * hidden)
    if not mixer.cross or not mixer.owns_kv or tokens.phase == "decode":
        return edges
    elements = tokens.batch * tokens.cross_len * (mixer.cross_inputs or hidden)
    return (*edges, states_edge(part.name, elements))


def states_edge(name: str, elements: Num) -> Edge:
    """Where an encoder's states enter cross-attention."""
    return Edge(
        name=f"{name}.states",
        elements=elements,
        leave=False,
        role=EdgeRole.STATES,
        region=Region.CROSS_ATTENTION,
    )


def _saved(
    mixer: Attention, tokens: Tokens, core: AttentionCore, part: PartOps
) -> tuple[Saved, ...]:
    """Queries, keys and values as the core reads them, its result; what norms, gates and ranks
    add."""
    count, v_dim = tokens.count, _value_dim(mixer)
    q_width, out_width = mixer.heads * mixer.head_dim, mixer.heads * v_dim
    rows = tokens.batch * core.kv_len
    kv_width = mixer.kv_heads * (mixer.head_dim + v_dim) if mixer.owns_kv else 0
    saved = [
        part.kept("q", count * q_width, SavedRole.QUERY),
        part.kept("kv", rows * kv_width, SavedRole.KEY_VALUE),
        part.kept("out", count * out_width, SavedRole.RESULT),
        *core_saved(core, part.name),
    ]
    if mixer.qk_norm != "none":
        keys = rows * mixer.kv_heads * mixer.head_dim if mixer.owns_kv else 0.0
        saved.append(part.kept("unnormed", count * q_width + keys, SavedRole.UNNORMED))
    if mixer.output_gate != "none":
        gates = out_width if mixer.output_gate == "element" else mixer.heads
        saved.append(part.kept("gated", count * (gates + out_width)))
    if mixer.q_rank is not None:
        saved.append(part.kept("rank", 2.0 * count * mixer.q_rank, split="none"))
    if mixer.o_rank is not None:
        saved.append(part.kept("o_rank", count * (mixer.o_groups * mixer.o_rank)))
    return tuple(saved)


def _input_projections(
    mixer: Attention, hidden: int, tokens: Tokens, part: PartOps
) -> tuple[Gemm, ...]:
    """Queries (direct or through a low rank that is whole on every rank), keys and values, from the hidden
    state or the encoder."""
    q_width = mixer.heads * mixer.head_dim
    q_outputs = float(q_width * 2 if mixer.output_gate == "element" else q_width)
    kv_pair = mixer.head_dim + (0 if mixer.value_is_key else _value_dim(mixer))
    kv_width = float(mixer.kv_heads * kv_pair if mixer.owns_kv else 0)
    held: Fields = {"n_kv": kv_width, "n_kv_min": float(kv_pair if mixer.owns_kv else 0)}
    if not mixer.cross and mixer.q_rank is None:
        return (part.gemm("qkv", q_outputs + kv_width, hidden, "col", OpRole.QKV, **held),)
    if mixer.q_rank is None:
        ops = [part.gemm("q", q_outputs, hidden, "col", OpRole.QUERY)]
    else:
        ops = [
            part.gemm("q_down", mixer.q_rank, hidden, role=OpRole.QUERY_DOWN),
            part.gemm("q_up", q_outputs, mixer.q_rank, "col", OpRole.QUERY_UP),
        ]
    if mixer.owns_kv:
        # In decode the encoder's keys and values lie in the cache: weights are held, nothing is
        # done.
        cross_rows = 0.0 if tokens.phase == "decode" else tokens.batch * tokens.cross_len
        rows = cross_rows if mixer.cross else part.rows
        inputs = mixer.cross_inputs or hidden
        ops.append(part.gemm("kv", kv_width, inputs, "col", OpRole.KEY_VALUE, m=rows, **held))
    return tuple(ops)


def _factored_projections(
    mixer: Attention, factor: MapBlock, hidden: int, tokens: Tokens
) -> LayerGraph:
    """Queries, keys and values, each by factors that every rank has whole; low ranks are kept apart."""
    name = "cross" if mixer.cross else "attention"
    count, waiting = tokens.count, tokens.phase == "decode"
    source = tokens.batch * tokens.cross_len if mixer.cross else count
    inputs = (mixer.cross_inputs or hidden) if mixer.cross else hidden
    shapes = [
        (MapShape(name=f"{name}.q", inputs=hidden, outputs=mixer.heads * mixer.head_dim), count)
    ]
    for part, width in (("k", mixer.head_dim), ("v", _value_dim(mixer))):
        shape = MapShape(name=f"{name}.{part}", inputs=inputs, outputs=mixer.kv_heads * width)
        shapes.append((shape, source))
    graph = LayerGraph(name=name)
    for shape, rows in shapes:
        made: LayerGraph = factor.graph(shape, rows, "none")
        if mixer.cross and waiting and rows is source:
            # The encoder's keys and values lie in the cache: weights are held, nothing is done.
            held = sum(float(op.parameters) for op in made.ops)
            op = Pointwise(name=f"{shape.name}.held", elements=0.0, weights=held, split="none")
            made = LayerGraph(name=name, ops=(op,))
        graph = graph + made
    return with_region(graph, attention_region(cross=mixer.cross))


def _between(mixer: Attention, tokens: Tokens, part: PartOps) -> tuple[Op, ...]:
    """Biases, query and key norms, rotation: one pass over queries and keys; the gate over
    outputs."""
    count = part.rows
    q_width, k_width = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    v_width = mixer.kv_heads * _value_dim(mixer)
    if not mixer.owns_kv:
        k_width = v_width = 0
    widths = ((q_width, mixer.q_bias), (k_width, mixer.k_bias), (v_width, mixer.v_bias))
    biases = float(sum(width for width, there in widths if there))
    # Positions are not rotated against the encoder's; the biases alone ride on the products.
    turned = count * (q_width + k_width) if tokens.rotary and not mixer.cross else 0.0
    ops: list[Op] = [
        part.pointwise(
            "rotate", turned, "width", flop=4.0, back_moves=2.0, back_flop=4.0, weights=biases,
            cut_weights=True,
            role=OpRole.SCALED_ROTATION if mixer.scaled_rotary else OpRole.ROTATION,
        )
    ]  # fmt: skip
    if mixer.q_rank is not None:
        rank = mixer.q_rank
        ops.append(part.norm("q_norm", count * rank, float(rank), "none"))
    if mixer.qk_norm != "none":
        per = 2 if mixer.qk_norm_bias else 1
        head = mixer.qk_norm == "head"
        own = mixer.head_dim if mixer.owns_kv else 0
        weights = float(per * (mixer.head_dim + own if head else q_width + k_width))
        repeats = 2.0 if mixer.owns_kv else 1.0
        elements = count * (q_width + k_width)
        ops.append(part.norm("qk_norm", elements, weights, "width", repeats=repeats))
    if mixer.output_gate != "none":
        ops.append(part.gate("gate", count * mixer.heads * _value_dim(mixer)))
    return tuple(ops)


def _output_projections(mixer: Attention, hidden: int, part: PartOps) -> tuple[Gemm, ...]:
    """Heads back to the hidden width, directly or through a low rank per group; a per-head gate."""
    width = float(mixer.heads * _value_dim(mixer))
    ops: list[Gemm] = []
    if mixer.output_gate == "head":
        ops.append(part.gemm("gate_up", mixer.heads, hidden, "col"))
    if mixer.o_rank is not None:
        groups, inputs = float(mixer.o_groups), width / mixer.o_groups
        ops.append(part.gemm("o_down", mixer.o_rank, inputs, "heads", groups=groups))
        width = groups * mixer.o_rank
    ops.append(part.gemm("o", hidden, width, "row", OpRole.OUTPUT, bias=mixer.o_bias))
    return tuple(ops)
