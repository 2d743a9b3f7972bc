"""LongCat-Flash: two attentions and two dense parts per layer, experts beside the first pair."""

from dataclasses import replace

from foretell.interop.huggingface.common import plain_decoder
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.deepseek import latent_attention
from foretell.interop.huggingface.experts import routed_experts
from foretell.interop.huggingface.prediction import joined_block
from foretell.specs.ffn import Dense, Experts
from foretell.specs.model import Layer, Model

WHY = "LongcatFlashConfig's defaults"


def read(config: Config) -> Model:
    """Each layer of the config is two here: one with the experts, one without.

    The router also scores `zero_expert_num` experts that return their input: no weights, no work.
    At balanced load a token uses top-k E / (E + zero) real experts, which is what is timed and
    counted as active.
    """
    hidden = config.need("hidden_size")
    depth = config.layers("num_hidden_layers", key="num_layers")
    mixer = latent_attention(config, WHY)
    dense = Dense(width=config.need("ffn_hidden_size", "intermediate_size"))
    sparse = _experts(config, hidden)
    pair = (
        Layer(mixers=(mixer,), ffn=sparse, dense_beside=dense),
        Layer(mixers=(mixer,), ffn=dense),
    )
    vocab = config.need("vocab_size")
    model = plain_decoder(config, pair * depth, hidden, longest=131072, why=WHY)
    block = joined_block(config, pair[1], hidden, tables=vocab * hidden, default=0, why=None)
    if block is not None:
        config.assume("the prediction block is dense, with a stored copy of the embedding")
    return replace(model, prediction=block)


def _experts(config: Config, hidden: int) -> Experts:
    """Real experts with weights; the router also scores the others and biases all of them."""
    experts, top_k = routed_experts(
        config,
        experts=("n_routed_experts",),
        top_k=("moe_topk", "num_experts_per_tok"),
    )
    zero = config.get("zero_expert_num", 0, WHY)
    used = max(round(top_k * experts / (experts + zero)), 1)
    if zero:
        config.assume(
            f"{used} of the {top_k} experts per token are real ones: balanced load over "
            f"{experts} experts and {zero} that return their input"
        )
    return Experts(
        experts=experts,
        top_k=used,
        width=config.need("expert_ffn_hidden_size", "moe_intermediate_size"),
        router_bias=True,
        extra_parameters=zero * hidden + zero,
    )
