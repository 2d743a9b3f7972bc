"""The indexer of sparse attention: a small attention that scores every key and keeps the best."""

from foretell.specs.mixers import Indexer
from foretell.workload.graph import LayerGraph, Saved, Tokens
from foretell.workload.masks import merged_keys, merged_pairs
from foretell.workload.ops import AttentionCore
from foretell.workload.part import Fields, PartOps
from foretell.workload.roles import OpRole, Region, SavedRole

REGION = Region.INDEXER


def indexer_graph(indexer: Indexer, hidden: int, tokens: Tokens) -> LayerGraph:
    """Queries, one key per token (or run of tokens), head weights, scores over all causal pairs,
    top-k.

    score(t, s) = sum over heads of w_th relu(q_th . k_s) (DeepSeek-V3.2-Exp report, eq. 1).
    Weights: query_inputs H d + h d + norm(d) + h H; the norm has 2 d where it is a layer norm.
    Released code keeps the whole indexer on every tensor-parallel rank, so nothing here is cut by
    width, and no region begins or ends. The published training detaches its input; its data
    gradients, which Gemm counts (under 1% of a layer), are then an overcount.
    """
    if not indexer.owns_weights:
        return LayerGraph(name="indexer")
    heads, width = float(indexer.heads), float(indexer.head_dim)
    weighed = heads if indexer.head_weights else 0.0
    count = tokens.count
    pairs = merged_pairs(tokens, indexer.ratio, None)
    scores = AttentionCore(
        name="indexer.scores",
        batch=tokens.batch,
        heads=heads,
        kv_heads=1.0,
        q_len=tokens.q_len,
        kv_len=merged_keys(tokens, indexer.ratio, None),
        pairs=pairs,
        qk_dim=width,
        v_dim=0.0,
        flash=tokens.flash,
        split="none",
        region=REGION,
    )
    part = PartOps(name="indexer", region=REGION, rows=count)
    norm = {"layer": 2.0, "rms": 1.0, "none": 0.0}[indexer.key_norm] * width
    # Every summed score is written once and read by a radix selection twice; nothing flows back.
    choice: Fields = {"reads": 2.0, "writes": 1.0, "flop": 4.0, "back_moves": 0.0, "back_flop": 0.0}
    summed = tokens.batch * pairs
    return LayerGraph(
        name="indexer",
        ops=(
            part.gemm("q", heads * width, indexer.query_inputs),
            part.gemm("k", width, hidden, "tokens"),
            part.gemm("weights", weighed, hidden, "tokens"),
            part.norm("rotate", count * (heads + 1.0) * width, norm, "none"),
            scores,
            part.pointwise("top_k", summed, "none", OpRole.SELECTION, family="routing", **choice),
        ),
        saved=_saved(indexer, tokens, scores, part),
    )


def _saved(
    indexer: Indexer, tokens: Tokens, scores: AttentionCore, part: PartOps
) -> tuple[Saved, ...]:
    """Queries, the key before and after its norm, head weights; per-head scores unless fused."""
    count, width = tokens.count, float(indexer.head_dim)
    keys = 1.0 if indexer.key_norm == "none" else 2.0
    kept = (
        part.kept("q", count * indexer.heads * width, SavedRole.QUERY, "none"),
        part.kept("k", count * keys * width, split="none"),
        part.kept("weights", count * indexer.heads, split="none"),
    )
    if tokens.flash:
        return kept
    return (*kept, part.kept("scores", scores.scores, split="none", core=True))
