"""Softmax attention as operations: projections, core, output."""

from typing import Literal

from foretell.specs._base import Num, with_fields
from foretell.specs.block import MapBlock, MapShape
from foretell.specs.mixers import Attention
from foretell.workload.graph import Edge, LayerGraph, Saved, Tokens, with_region
from foretell.workload.indexer import indexer_graph
from foretell.workload.masks import keys_read, merged_keys, merged_pairs, visible_pairs
from foretell.workload.ops import AttentionCore, Gemm, Op, Pointwise, Split
from foretell.workload.roles import EdgeRole, OpRole, Region, SavedRole


def attention_graph(mixer: Attention, hidden: int, tokens: Tokens) -> LayerGraph:
    """qkv projection, normalised and rotated queries and keys, core, gate, output projection."""
    name = "cross" if mixer.cross else "attention"
    core = _core(mixer, tokens, name)
    inputs: tuple[Op, ...]
    kept: tuple[Saved, ...] = ()
    if mixer.factor is None:
        inputs = _input_projections(mixer, hidden, tokens, name)
    else:
        maps = _factored_projections(mixer, mixer.factor, hidden, tokens)
        inputs, kept = maps.ops, maps.saved
    graph = LayerGraph(
        name=name,
        ops=(
            *inputs,
            *_between(mixer, tokens, name),
            core,
            *_output_projections(mixer, hidden, tokens.count, name),
        ),
        saved=(*_saved(mixer, tokens, core, name), *kept),
        edges=_edges(mixer, hidden, tokens, name),
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
    if core.flash:
        rows = core.batch * core.heads * core.q_len
        statistic = Saved(
            name=f"{name}.lse",
            elements=rows,
            split="width",
            bytes_per_element=4.0,
            role=SavedRole.STATISTIC,
            region=core.region,
        )
        return (statistic,)
    scores = Saved(
        name=f"{name}.scores",
        elements=core.scores,
        split="width",
        core=True,
        region=core.region,
    )
    return (scores,)


def _value_dim(mixer: Attention) -> int:
    return mixer.value_dim or mixer.head_dim


def _core(mixer: Attention, tokens: Tokens, name: str) -> AttentionCore:
    """The pairs that mask, window or indexer leave; the encoder's keys in cross-attention."""
    pairs, kv_len, whole = _seen(mixer, tokens)
    return AttentionCore(
        name=f"{name}.core",
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
        region=attention_region(cross=mixer.cross),
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


def _edges(mixer: Attention, hidden: int, tokens: Tokens, name: str) -> tuple[Edge, ...]:
    """The hidden state enters and leaves; so do the encoder's states where keys are made of
    them."""
    region = attention_region(cross=mixer.cross)
    edges = (
        Edge(name=name, elements=tokens.count * hidden, leave=False, region=region),
        Edge(name=name, elements=tokens.count * hidden, leave=True, region=region),
    )
    if not mixer.cross or not mixer.owns_kv or tokens.phase == "decode":
        return edges
    elements = tokens.batch * tokens.cross_len * (mixer.cross_inputs or hidden)
    return (*edges, states_edge(name, elements))


def states_edge(name: str, elements: Num) -> Edge:
    """Where an encoder's states enter cross-attention."""
    return Edge(
        name=f"{name}.states",
        elements=elements,
        leave=False,
        role=EdgeRole.STATES,
        region=Region.CROSS_ATTENTION,
    )


def _saved(mixer: Attention, tokens: Tokens, core: AttentionCore, name: str) -> tuple[Saved, ...]:
    """Queries, keys and values as the core reads them, its result; what norms, gates and ranks
    add."""
    count, v_dim = tokens.count, _value_dim(mixer)
    q_width, out_width = mixer.heads * mixer.head_dim, mixer.heads * v_dim
    rows = tokens.batch * core.kv_len
    kv_width = mixer.kv_heads * (mixer.head_dim + v_dim) if mixer.owns_kv else 0

    def kept(
        what: str,
        elements: Num,
        role: SavedRole = SavedRole.OTHER,
        split: Literal["width", "none"] = "width",
    ) -> Saved:
        full = f"{name}.{what}"
        return Saved(name=full, elements=elements, split=split, role=role, region=core.region)

    saved = [
        kept("q", count * q_width, SavedRole.QUERY),
        kept("kv", rows * kv_width, SavedRole.KEY_VALUE),
        kept("out", count * out_width, SavedRole.RESULT),
        *core_saved(core, name),
    ]
    if mixer.qk_norm != "none":
        keys = rows * mixer.kv_heads * mixer.head_dim if mixer.owns_kv else 0.0
        saved.append(kept("unnormed", count * q_width + keys, SavedRole.UNNORMED))
    if mixer.output_gate != "none":
        gates = out_width if mixer.output_gate == "element" else mixer.heads
        saved.append(kept("gated", count * (gates + out_width)))
    if mixer.q_rank is not None:
        saved.append(kept("rank", 2.0 * count * mixer.q_rank, split="none"))
    if mixer.o_rank is not None:
        saved.append(kept("o_rank", count * (mixer.o_groups * mixer.o_rank)))
    return tuple(saved)


def _input_projections(
    mixer: Attention, hidden: int, tokens: Tokens, name: str
) -> tuple[Gemm, ...]:
    """Queries (direct or through a low rank), keys and values, from the hidden state or the
    encoder."""
    q_width = mixer.heads * mixer.head_dim
    q_outputs = float(q_width * 2 if mixer.output_gate == "element" else q_width)
    kv_pair = mixer.head_dim + (0 if mixer.value_is_key else _value_dim(mixer))
    kv_width = float(mixer.kv_heads * kv_pair if mixer.owns_kv else 0)
    kv_min = float(kv_pair if mixer.owns_kv else 0)
    count, region = tokens.count, attention_region(cross=mixer.cross)
    if not mixer.cross and mixer.q_rank is None:
        joint = Gemm(
            name=f"{name}.qkv",
            role=OpRole.QKV,
            region=region,
            m=count,
            n=q_outputs + kv_width,
            k=float(hidden),
            split="col",
            n_kv=kv_width,
            n_kv_min=kv_min,
        )
        return (joint,)
    ops = list(_queries(mixer, hidden, count, q_outputs, name))
    if mixer.owns_kv:
        # In decode the encoder's keys and values lie in the cache: weights are held, nothing is
        # done.
        cross_rows = 0.0 if tokens.phase == "decode" else tokens.batch * tokens.cross_len
        ops.append(
            Gemm(
                name=f"{name}.kv",
                role=OpRole.KEY_VALUE,
                region=region,
                m=cross_rows if mixer.cross else count,
                n=kv_width,
                k=float(mixer.cross_inputs or hidden),
                split="col",
                n_kv=kv_width,
                n_kv_min=kv_min,
            )
        )
    return tuple(ops)


def _queries(
    mixer: Attention, hidden: int, count: Num, outputs: float, name: str
) -> tuple[Gemm, ...]:
    """Queries, directly or through a low rank that is whole on every rank."""

    def product(what: str, role: OpRole, n: float, k: float, split: Split) -> Gemm:
        region = attention_region(cross=mixer.cross)
        return Gemm(name=f"{name}.{what}", m=count, n=n, k=k, split=split, role=role, region=region)

    if mixer.q_rank is None:
        return (product("q", OpRole.QUERY, outputs, float(hidden), "col"),)
    rank = float(mixer.q_rank)
    return (
        product("q_down", OpRole.QUERY_DOWN, rank, float(hidden), "none"),
        product("q_up", OpRole.QUERY_UP, outputs, rank, "col"),
    )


def _factored_projections(
    mixer: Attention, factor: MapBlock, hidden: int, tokens: Tokens
) -> LayerGraph:
    """Queries, keys and values, each by factors that every rank has whole; low ranks stand aside."""
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


def _between(mixer: Attention, tokens: Tokens, name: str) -> tuple[Op, ...]:
    """Biases, query and key norms, rotation: one pass over queries and keys; the gate over
    outputs."""
    count, region = tokens.count, attention_region(cross=mixer.cross)
    q_width, k_width = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    v_width = mixer.kv_heads * _value_dim(mixer)
    if not mixer.owns_kv:
        k_width = v_width = 0
    biases = (
        (q_width if mixer.q_bias else 0)
        + (k_width if mixer.k_bias else 0)
        + (v_width if mixer.v_bias else 0)
    )
    ops: list[Op] = [
        Pointwise(
            name=f"{name}.rotate",
            # Positions are not rotated against the encoder's; the biases alone ride on the
            # products.
            elements=count * (q_width + k_width) if tokens.rotary and not mixer.cross else 0.0,
            flop=4.0,
            back_moves=2.0,
            back_flop=4.0,
            weights=float(biases),
            cut_weights=True,
            split="width",
            role=OpRole.SCALED_ROTATION if mixer.scaled_rotary else OpRole.ROTATION,
            region=region,
        )
    ]
    if mixer.q_rank is not None:
        rank = mixer.q_rank
        ops.append(_norm(f"{name}.q_norm", count * rank, float(rank), "none", region))
    if mixer.qk_norm != "none":
        per = 2 if mixer.qk_norm_bias else 1
        head = mixer.qk_norm == "head"
        own = mixer.head_dim if mixer.owns_kv else 0
        weights = per * (mixer.head_dim + own if head else q_width + k_width)
        elements = count * (q_width + k_width)
        norm = _norm(f"{name}.qk_norm", elements, float(weights), "width", region)
        ops.append(with_fields(norm, repeats=2.0 if mixer.owns_kv else 1.0))
    if mixer.output_gate != "none":
        ops.append(
            Pointwise(
                name=f"{name}.gate",
                elements=count * mixer.heads * _value_dim(mixer),
                reads=2.0,
                flop=4.0,
                back_moves=5.0,
                back_flop=6.0,
                split="width",
                region=region,
            )
        )
    return tuple(ops)


def _norm(name: str, elements: Num, weights: float, split: Split, region: Region) -> Pointwise:
    return Pointwise(
        name=name,
        elements=elements,
        flop=5.0,
        back_flop=8.0,
        weights=weights,
        split=split,
        family="norm",
        region=region,
    )


def _output_projections(mixer: Attention, hidden: int, count: Num, name: str) -> tuple[Gemm, ...]:
    """Heads back to the hidden width, directly or through a low rank per group; a per-head gate."""
    out_width = float(mixer.heads * _value_dim(mixer))
    region = attention_region(cross=mixer.cross)
    ops: list[Gemm] = []
    if mixer.output_gate == "head":
        heads, inputs = float(mixer.heads), float(hidden)
        full = f"{name}.gate_up"
        ops.append(Gemm(name=full, m=count, n=heads, k=inputs, split="col", region=region))
    width = out_width
    if mixer.o_rank is not None:
        groups = float(mixer.o_groups)
        width = groups * mixer.o_rank
        ops.append(
            Gemm(
                name=f"{name}.o_down",
                m=count,
                n=float(mixer.o_rank),
                k=out_width / groups,
                groups=groups,
                split="heads",
                region=region,
            )
        )
    ops.append(
        Gemm(
            name=f"{name}.o",
            m=count,
            n=float(hidden),
            k=width,
            split="row",
            bias=mixer.o_bias,
            role=OpRole.OUTPUT,
            region=region,
        )
    )
    return tuple(ops)
