"""DeepSeek-V3.2 and GLM-5: latent attention whose keys an indexer chooses."""

from dataclasses import replace

from foretell.interop.huggingface.common import plain_decoder
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.deepseek import deepseek_ffns, latent_attention
from foretell.interop.huggingface.prediction import joined_block
from foretell.specs.ffn import Dense, Experts
from foretell.specs.mixers import Indexer, LatentAttention
from foretell.specs.model import Layer, Model

WHY = {
    "deepseek_v32": "DeepseekV32Config's defaults",
    "glm_moe_dsa": "GlmMoeDsaConfig's defaults",
}


def read(config: Config) -> Model:
    """Latent attention with an indexer of its own or an earlier layer's; experts; prediction block.

    DeepSeek stores copies of embedding and head with the prediction block, GLM-5 does not; it
    has an indexer of its own in both cases.
    """
    why = WHY[config.family]
    hidden, depth = config.need("hidden_size"), config.layers()
    mixer = latent_attention(config, why)
    own = replace(mixer, indexer=_indexer(config, mixer, hidden, owns=True))
    shared = replace(mixer, indexer=_indexer(config, mixer, hidden, owns=False))
    layers = tuple(
        Layer(mixers=(own if owns else shared,), ffn=ffn)
        for owns, ffn in zip(_owners(config, depth), _ffns(config, depth, why), strict=True)
    )
    vocab = config.need("vocab_size")
    model = plain_decoder(config, layers, hidden, longest=4096, why=why)
    copies = config.family == "deepseek_v32"
    block = joined_block(
        config,
        replace(layers[-1], mixers=(own,)),
        hidden,
        tables=2 * vocab * hidden if copies else 0,
        default=0,
        why=None,
    )
    if block is not None:
        config.assume(
            "the prediction block is counted "
            + ("with its stored" if copies else "without")
            + " copies of embedding and head"
        )
    return replace(model, prediction=block)


def _indexer(config: Config, mixer: LatentAttention, hidden: int, *, owns: bool) -> Indexer:
    """Queries from the low rank, one layer-normalised key per token."""
    return Indexer(
        heads=config.need("index_n_heads"),
        head_dim=config.need("index_head_dim"),
        top_k=config.need("index_topk"),
        query_inputs=mixer.q_rank or hidden,
        owns_weights=owns,
    )


def _owners(config: Config, depth: int) -> tuple[bool, ...]:
    """Layers with an indexer of their own: `indexer_types`, else a pattern, else every n-th.

    From layer `index_skip_topk_offset` - 1 on, every `index_topk_freq`-th layer has one; the layers
    before it have one each. Both keys absent: every layer.
    """
    kinds = config.texts("indexer_types", depth)
    if kinds is None and isinstance(config.raw("index_topk_pattern"), str):
        letters = config.text("index_topk_pattern", "")
        config.check(len(letters) == depth, ("index_topk_pattern",), f"has {len(letters)} letters")
        kinds = tuple({"F": "full", "S": "shared"}.get(c, c) for c in letters.ljust(depth, "F"))
    if kinds is None:
        every = config.get("index_topk_freq", 1, None, low=1)
        offset = config.get("index_skip_topk_offset", 2, None)
        return tuple(max(i - offset + 1, 0) % every == 0 for i in range(depth))
    for kind in dict.fromkeys(kinds):
        if kind not in ("full", "shared"):
            config.problem("indexer_types", "has an unknown kind", kind, allowed="full, shared")
    config.check(
        kinds[0] == "full", ("indexer_types",), "the first layer has no indexer to share with"
    )
    return tuple(kind == "full" for kind in kinds[:depth])


def _ffns(config: Config, depth: int, why: str) -> tuple[Dense | Experts, ...]:
    """Experts after the leading dense layers, or as `mlp_layer_types` says."""
    kinds = config.texts("mlp_layer_types", depth)
    if kinds is None:
        return deepseek_ffns(config, depth, router_bias=True, why=why)
    first = next((i for i, kind in enumerate(kinds) if kind == "sparse"), depth)
    config.check(
        config.get("first_k_dense_replace", first) == first
        and all(kind == "sparse" for kind in kinds[first:]),
        ("mlp_layer_types", "first_k_dense_replace"),
        "disagree on which layers are dense",
    )
    return deepseek_ffns(config, depth, router_bias=True, why=why)
