"""The indexer of sparse attention: a small attention that scores every key and keeps the best."""

from foretell.specs._base import Num
from foretell.specs.mixers import Indexer
from foretell.workload.graph import LayerGraph, Saved, Tokens
from foretell.workload.masks import merged_keys, merged_pairs
from foretell.workload.ops import AttentionCore, Gemm, Pointwise, Split
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
    norm = {"layer": 2.0, "rms": 1.0, "none": 0.0}[indexer.key_norm] * width
    return LayerGraph(
        name="indexer",
        ops=(
            _map("q", count, heads * width, indexer.query_inputs, "none"),
            _map("k", count, width, hidden, "tokens"),
            _map("weights", count, weighed, hidden, "tokens"),
            Pointwise(
                name="indexer.rotate",
                elements=count * (heads + 1.0) * width,
                flop=5.0,
                back_flop=8.0,
                weights=norm,
                split="none",
                family="norm",
                region=REGION,
            ),
            scores,
            _selection(tokens, pairs),
        ),
        saved=_saved(indexer, tokens, scores),
    )


def _map(what: str, count: Num, outputs: float, inputs: int, split: Split) -> Gemm:
    name, width = f"indexer.{what}", float(inputs)
    return Gemm(name=name, m=count, n=outputs, k=width, split=split, region=REGION)


def _selection(tokens: Tokens, pairs: Num) -> Pointwise:
    """Every summed score is written once and read by a radix selection twice; nothing flows
    back."""
    return Pointwise(
        name="indexer.top_k",
        elements=tokens.batch * pairs,
        reads=2.0,
        writes=1.0,
        flop=4.0,
        back_moves=0.0,
        back_flop=0.0,
        split="none",
        family="routing",
        role=OpRole.SELECTION,
        region=REGION,
    )


def _saved(indexer: Indexer, tokens: Tokens, scores: AttentionCore) -> tuple[Saved, ...]:
    """Queries, the key before and after its norm, head weights; per-head scores unless fused."""
    count, width = tokens.count, float(indexer.head_dim)
    keys = 1.0 if indexer.key_norm == "none" else 2.0
    kept = (
        Saved(
            name="indexer.q",
            elements=count * indexer.heads * width,
            split="none",
            role=SavedRole.QUERY,
            region=REGION,
        ),
        Saved(name="indexer.k", elements=count * keys * width, split="none", region=REGION),
        Saved(name="indexer.weights", elements=count * indexer.heads, split="none", region=REGION),
    )
    if tokens.flash:
        return kept
    inner = Saved(
        name="indexer.scores", elements=scores.scores, split="none", core=True, region=REGION
    )
    return (*kept, inner)
