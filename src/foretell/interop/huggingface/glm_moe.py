"""GLM-4.5, 4.6 and 4.7: experts after leading dense layers, with a prediction block."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import leading_dense, routed_experts
from foretell.interop.huggingface.llamalike import Traits, dense_ffn, read_like
from foretell.interop.huggingface.prediction import joined_block
from foretell.specs.ffn import Dense, Experts
from foretell.specs.model import Model

TRAITS = Traits(
    why="Glm4MoeConfig's defaults",
    qkv_bias=("attention_bias", False),
    qk_norm="head",
    qk_norm_key="use_qk_norm",
    kv_default=8,
)
LONG = 202752
"""`max_position_embeddings` of GLM-4.6 and later: their checkpoints store no copies of tables."""


def read(config: Config) -> Model:
    """Router with balance bias; a prediction block, with copies of the tables in GLM-4.5."""
    model = read_like(config, TRAITS, _ffns(config))
    hidden, vocab = model.stack.hidden, model.embedding.vocab
    copies = model.max_positions < LONG
    block = joined_block(
        config,
        model.stack.layers[-1],
        hidden,
        tables=2 * vocab * hidden if copies else 0,
        default=0,
        why="no prediction block",
    )
    if block is not None:
        stored = (
            "with copies of embedding and head, as GLM-4.5"
            if copies
            else ("without copies of embedding and head, as GLM-4.6")
        )
        config.assume(f"the prediction block is counted {stored} stores it")
    return replace(model, prediction=block)


def _ffns(config: Config) -> tuple[Dense | Experts, ...]:
    depth = config.layers()
    width = config.need("moe_intermediate_size")
    experts, top_k = routed_experts(config, experts=("n_routed_experts", "num_local_experts"))
    first = leading_dense(config, depth, 1, TRAITS.why)
    sparse = Experts(
        experts=experts,
        top_k=top_k,
        width=width,
        shared_width=width * config.get("n_shared_experts", 1, TRAITS.why),
        router_bias=True,
    )
    dense = (dense_ffn(config, TRAITS),) * first if first else ()
    return dense + (sparse,) * (depth - first)
