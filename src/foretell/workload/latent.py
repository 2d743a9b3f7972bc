"""Multi-head latent attention as operations, in its expanded and its absorbed form.

Both forms hold the same weights:

    h r_q + r_q + r_q H (d_n + d_r)   queries, down, norm, up (h H (d_n + d_r) without a query rank)
    h (r + d_r) + r                   latent and shared rotary key, with the latent's norm
    r H (d_n + d_v)                   keys and values from the latent
    H d_v h                           output

(DeepSeek-V2, arXiv 2405.04434, section 2.1 and appendix C.) Expanded, every head has keys and
values of its own: training and prefill. Absorbed, queries are mapped into the latent's rank by W_uk
and the result out of it by W_uv, so that all heads share one key of width r + d_r and its first r
as value: decode, and every phase of sparse attention, whose kernels are published in this form
alone (DeepSeek-V3.2-Exp).
"""

from foretell.specs._base import Num
from foretell.specs.mixers import LatentAttention
from foretell.workload.attention import core_saved
from foretell.workload.graph import Edge, LayerGraph, Saved, Tokens
from foretell.workload.indexer import indexer_graph
from foretell.workload.masks import keys_read, visible_pairs
from foretell.workload.ops import AttentionCore, Gemm, Op, Pointwise
from foretell.workload.roles import OpRole, Region, SavedRole

NAME, REGION = "attention", Region.ATTENTION


def latent_graph(mixer: LatentAttention, hidden: int, tokens: Tokens) -> LayerGraph:
    """Down, norm and up projections, core, gate, output projection; the indexer where there is one.

    The down projections are whole on every tensor-parallel rank; what enters the cut region is
    their output (r_q + r + d_r wide), and the hidden state only where something else reads it
    inside.
    """
    absorbed = tokens.phase == "decode" or mixer.indexer is not None
    core = _core(mixer, tokens, absorbed=absorbed)
    middle = _absorbed(mixer, tokens.count, core) if absorbed else _expanded(mixer, tokens, core)
    inside = mixer.q_rank is None or mixer.output_gate != "none"
    entering = (mixer.q_rank or 0) + mixer.kv_rank + mixer.rope_dim + (hidden if inside else 0)
    graph = LayerGraph(
        name=NAME,
        ops=(
            *_queries(mixer, hidden, tokens.count),
            *_latent(mixer, hidden, tokens.count),
            *middle,
            *_output(mixer, hidden, tokens.count),
        ),
        saved=(
            *_saved_inputs(mixer, tokens.count),
            *_saved_core(mixer, tokens.count, absorbed=absorbed),
            *core_saved(core, NAME),
        ),
        edges=(
            Edge(name=NAME, elements=tokens.count * entering, leave=False, region=REGION),
            Edge(name=NAME, elements=tokens.count * hidden, leave=True, region=REGION),
        ),
    )
    if mixer.indexer is not None:
        graph = graph + indexer_graph(mixer.indexer, hidden, tokens)
    return graph


def _core(mixer: LatentAttention, tokens: Tokens, *, absorbed: bool) -> AttentionCore:
    """Expanded: H keys of d_n + d_r and values of d_v. Absorbed: one of r + d_r, read once."""
    window = None if mixer.indexer is None else mixer.indexer.top_k
    shared = float(mixer.kv_rank + mixer.rope_dim)
    pairs = visible_pairs(tokens, causal=True, window=window, chunked=False)
    return AttentionCore(
        name=f"{NAME}.core",
        batch=tokens.batch,
        heads=float(mixer.heads),
        kv_heads=1.0 if absorbed else float(mixer.heads),
        q_len=tokens.q_len,
        kv_len=keys_read(tokens, causal=True, window=window, chunked=False),
        pairs=pairs,
        qk_dim=shared if absorbed else float(mixer.nope_dim + mixer.rope_dim),
        v_dim=float(mixer.kv_rank if absorbed else mixer.value_dim),
        flash=tokens.flash,
        counted=None if window is None else pairs,
        kv_rank=shared if absorbed else 0.0,
        region=REGION,
    )


def _queries(mixer: LatentAttention, hidden: int, count: Num) -> tuple[Op, ...]:
    """Hidden -> rank, norm, rank -> heads; or directly."""
    width = float(mixer.heads * (mixer.nope_dim + mixer.rope_dim))
    if mixer.q_rank is None:
        direct = Gemm(
            name=f"{NAME}.q",
            m=count,
            n=width,
            k=float(hidden),
            split="col",
            role=OpRole.QUERY,
            region=REGION,
        )
        return (direct,)
    rank = float(mixer.q_rank)
    return (
        Gemm(
            name=f"{NAME}.q_down",
            role=OpRole.QUERY_DOWN,
            region=REGION,
            m=count,
            n=rank,
            k=float(hidden),
            bias=mixer.bias,
            split="tokens",
        ),
        _norm(f"{NAME}.q_norm", count, rank),
        Gemm(
            name=f"{NAME}.q_up",
            m=count,
            n=width,
            k=rank,
            split="col",
            role=OpRole.QUERY_UP,
            region=REGION,
        ),
    )


def _latent(mixer: LatentAttention, hidden: int, count: Num) -> tuple[Op, ...]:
    """Hidden -> latent and rotary key, norm of the latent, rotation of queries and key."""
    rank = float(mixer.kv_rank)
    return (
        Gemm(
            name=f"{NAME}.kv_down",
            role=OpRole.LATENT_DOWN,
            region=REGION,
            m=count,
            n=rank + mixer.rope_dim,
            k=float(hidden),
            bias=mixer.bias,
            split="tokens",
        ),
        _norm(f"{NAME}.kv_norm", count, rank),
        Pointwise(
            name=f"{NAME}.rotate",
            elements=count * (mixer.heads + 1.0) * mixer.rope_dim,
            flop=4.0,
            back_moves=2.0,
            back_flop=4.0,
            split="width",
            role=OpRole.ROTATION,
            region=REGION,
        ),
    )


def _norm(name: str, count: Num, width: float) -> Pointwise:
    return Pointwise(
        name=name,
        elements=count * width,
        flop=5.0,
        back_flop=8.0,
        weights=width,
        family="norm",
        region=REGION,
    )


def _expanded(mixer: LatentAttention, tokens: Tokens, core: AttentionCore) -> tuple[Op, ...]:
    """Keys and values of every head from the latent, then the core."""
    width = float(mixer.heads * (mixer.nope_dim + mixer.value_dim))
    # A chunk of a longer prompt expands the cached latents of the earlier chunks again.
    rows = tokens.batch * tokens.kv_len
    up = Gemm(
        name=f"{NAME}.kv_up",
        m=rows,
        n=width,
        k=float(mixer.kv_rank),
        split="col",
        role=OpRole.LATENT_UP,
        region=REGION,
    )
    if tokens.phase != "training":
        return (up, core)  # engines' kernels write keys and values where attention reads them
    apart = (mixer.nope_dim + mixer.rope_dim + mixer.value_dim) * mixer.heads / width
    join = Pointwise(
        name=f"{NAME}.join",
        elements=rows * width,
        writes=apart,
        flop=0.0,
        back_moves=1.0 + apart,
        back_flop=0.0,
        split="width",
        role=OpRole.LATENT_JOIN,
        region=REGION,
    )
    return (up, join, core)


def _absorbed(mixer: LatentAttention, count: Num, core: AttentionCore) -> tuple[Op, ...]:
    """Queries into the latent's rank, the core, results out of it: one product per head each."""
    heads, rank = float(mixer.heads), float(mixer.kv_rank)
    into = Gemm(
        name=f"{NAME}.k_absorb",
        m=count,
        n=rank,
        k=float(mixer.nope_dim),
        groups=heads,
        split="heads",
        role=OpRole.ABSORB,
        region=REGION,
    )
    out = Gemm(
        name=f"{NAME}.v_absorb",
        m=count,
        n=float(mixer.value_dim),
        k=rank,
        groups=heads,
        split="heads",
        role=OpRole.ABSORB,
        region=REGION,
    )
    return (into, core, out)


def _output(mixer: LatentAttention, hidden: int, count: Num) -> tuple[Op, ...]:
    """The gate from the hidden state where there is one, and the output projection."""
    width = float(mixer.heads * mixer.value_dim)
    ops: list[Op] = []
    if mixer.output_gate != "none":
        gates = width if mixer.output_gate == "element" else float(mixer.heads)
        name, inputs = f"{NAME}.gate_up", float(hidden)
        ops.append(Gemm(name=name, m=count, n=gates, k=inputs, split="col", region=REGION))
        ops.append(
            Pointwise(
                name=f"{NAME}.gate",
                region=REGION,
                elements=count * width,
                reads=2.0,
                flop=4.0,
                back_moves=5.0,
                back_flop=6.0,
                split="width",
            )
        )
    ops.append(
        Gemm(
            name=f"{NAME}.o",
            m=count,
            n=float(hidden),
            k=width,
            bias=mixer.bias,
            split="row",
            role=OpRole.OUTPUT,
            region=REGION,
        )
    )
    return tuple(ops)


def _saved_inputs(mixer: LatentAttention, count: Num) -> tuple[Saved, ...]:
    """The latents before and after their norms, and the rotary key."""
    rank = float(mixer.q_rank or 0)
    kv = 2.0 * mixer.kv_rank + mixer.rope_dim
    elements = count * (2.0 * rank + kv)
    return (Saved(name=f"{NAME}.latents", elements=elements, split="tokens", region=REGION),)


def _saved_core(mixer: LatentAttention, count: Num, *, absorbed: bool) -> tuple[Saved, ...]:
    """What the core and the output projection read: queries, keys, values, results."""
    heads = float(mixer.heads)
    query = mixer.nope_dim + mixer.rope_dim
    out = float(mixer.value_dim)
    if mixer.output_gate != "none":
        out += mixer.value_dim + (mixer.value_dim if mixer.output_gate == "element" else 1.0)
    if absorbed:
        # The rotary part is shared by both; the latent itself stands among the inputs.
        per_head = mixer.nope_dim + (mixer.kv_rank + mixer.rope_dim) + mixer.kv_rank + out
        elements = count * heads * per_head
        return (Saved(name=f"{NAME}.heads", elements=elements, split="width", region=REGION),)
    keys = query + mixer.value_dim
    return (
        Saved(
            name=f"{NAME}.queries",
            elements=count * heads * query,
            split="width",
            role=SavedRole.OTHER if mixer.q_rank is None else SavedRole.EXPANDED_QUERY,
            region=REGION,
        ),
        Saved(
            name=f"{NAME}.heads",
            elements=count * heads * out,
            split="width",
            role=SavedRole.RESULT,
            region=REGION,
        ),
        Saved(
            name=f"{NAME}.expanded",
            elements=count * heads * keys,
            split="width",
            role=SavedRole.EXPANDED,
            region=REGION,
        ),
    )
