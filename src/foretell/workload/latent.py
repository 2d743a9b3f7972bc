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

from foretell.specs.mixers import LatentAttention
from foretell.workload.attention import core_saved
from foretell.workload.graph import LayerGraph, Saved, Tokens
from foretell.workload.indexer import indexer_graph
from foretell.workload.masks import keys_read, visible_pairs
from foretell.workload.ops import AttentionCore, Op
from foretell.workload.part import Fields, PartOps
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
    part = PartOps(name=NAME, region=REGION, rows=tokens.count)
    middle = _absorbed(mixer, part, core) if absorbed else _expanded(mixer, tokens, part, core)
    inside = mixer.q_rank is None or mixer.output_gate != "none"
    entering = (mixer.q_rank or 0) + mixer.kv_rank + mixer.rope_dim + (hidden if inside else 0)
    graph = LayerGraph(
        name=NAME,
        ops=(
            *_queries(mixer, hidden, part),
            *_latent(mixer, hidden, part),
            *middle,
            *_output(mixer, hidden, part),
        ),
        saved=(
            *_saved_inputs(mixer, part),
            *_saved_core(mixer, part, absorbed=absorbed),
            *core_saved(core, NAME),
        ),
        edges=part.ends(tokens.count * entering, tokens.count * hidden),
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


def _queries(mixer: LatentAttention, hidden: int, part: PartOps) -> tuple[Op, ...]:
    """Hidden -> rank, norm, rank -> heads; or directly."""
    width = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    if mixer.q_rank is None:
        return (part.gemm("q", width, hidden, "col", OpRole.QUERY),)
    rank = float(mixer.q_rank)
    return (
        part.gemm("q_down", rank, hidden, "tokens", OpRole.QUERY_DOWN, bias=mixer.bias),
        part.norm("q_norm", part.rows * rank, rank),
        part.gemm("q_up", width, rank, "col", OpRole.QUERY_UP),
    )


def _latent(mixer: LatentAttention, hidden: int, part: PartOps) -> tuple[Op, ...]:
    """Hidden -> latent and rotary key, norm of the latent, rotation of queries and key."""
    rank, turned = float(mixer.kv_rank), part.rows * (mixer.heads + 1.0) * mixer.rope_dim
    work: Fields = {"flop": 4.0, "back_moves": 2.0, "back_flop": 4.0}
    wide, role = rank + mixer.rope_dim, OpRole.LATENT_DOWN
    return (
        part.gemm("kv_down", wide, hidden, "tokens", role, bias=mixer.bias),
        part.norm("kv_norm", part.rows * rank, rank),
        part.pointwise("rotate", turned, "width", OpRole.ROTATION, **work),
    )


def _expanded(
    mixer: LatentAttention, tokens: Tokens, part: PartOps, core: AttentionCore
) -> tuple[Op, ...]:
    """Keys and values of every head from the latent, then the core."""
    width = float(mixer.heads * (mixer.nope_dim + mixer.value_dim))
    # A chunk of a longer prompt expands the cached latents of the earlier chunks again.
    rows = tokens.batch * tokens.kv_len
    up = part.gemm("kv_up", width, mixer.kv_rank, "col", OpRole.LATENT_UP, m=rows)
    if tokens.phase != "training":
        return (up, core)  # engines' kernels write keys and values where attention reads them
    apart = (mixer.nope_dim + mixer.rope_dim + mixer.value_dim) * mixer.heads / width
    work: Fields = {"writes": apart, "flop": 0.0, "back_moves": 1.0 + apart, "back_flop": 0.0}
    return (up, part.pointwise("join", rows * width, "width", OpRole.LATENT_JOIN, **work), core)


def _absorbed(mixer: LatentAttention, part: PartOps, core: AttentionCore) -> tuple[Op, ...]:
    """Queries into the latent's rank, the core, results out of it: one product per head each."""
    heads, rank, role = float(mixer.heads), mixer.kv_rank, OpRole.ABSORB
    into = part.gemm("k_absorb", rank, mixer.nope_dim, "heads", role, groups=heads)
    out = part.gemm("v_absorb", mixer.value_dim, rank, "heads", role, groups=heads)
    return (into, core, out)


def _output(mixer: LatentAttention, hidden: int, part: PartOps) -> tuple[Op, ...]:
    """The gate from the hidden state where there is one, and the output projection."""
    width = float(mixer.heads * mixer.value_dim)
    out = part.gemm("o", hidden, width, "row", OpRole.OUTPUT, bias=mixer.bias)
    if mixer.output_gate == "none":
        return (out,)
    gates = width if mixer.output_gate == "element" else float(mixer.heads)
    return (part.gemm("gate_up", gates, hidden, "col"), part.gate("gate", part.rows * width), out)


def _saved_inputs(mixer: LatentAttention, part: PartOps) -> tuple[Saved, ...]:
    """The latents before and after their norms, and the rotary key."""
    rank = float(mixer.q_rank or 0)
    kv = 2.0 * mixer.kv_rank + mixer.rope_dim
    elements = part.rows * (2.0 * rank + kv)
    return (part.kept("latents", elements, SavedRole.LATENTS, split="tokens"),)


def _saved_core(mixer: LatentAttention, part: PartOps, *, absorbed: bool) -> tuple[Saved, ...]:
    """What the core and the output projection read: queries, keys, values, results."""
    heads = part.rows * float(mixer.heads)
    query = mixer.nope_dim + mixer.rope_dim
    out = float(mixer.value_dim)
    if mixer.output_gate != "none":
        out += mixer.value_dim + (mixer.value_dim if mixer.output_gate == "element" else 1.0)
    if absorbed:
        # The rotary part is shared by both; the latent itself stands among the inputs.
        per_head = mixer.nope_dim + (mixer.kv_rank + mixer.rope_dim) + mixer.kv_rank + out
        return (part.kept("heads", heads * per_head),)
    role = SavedRole.OTHER if mixer.q_rank is None else SavedRole.EXPANDED_QUERY
    return (
        part.kept("queries", heads * query, role),
        part.kept("heads", heads * out, SavedRole.RESULT),
        part.kept("expanded", heads * (query + mixer.value_dim), SavedRole.EXPANDED),
    )
