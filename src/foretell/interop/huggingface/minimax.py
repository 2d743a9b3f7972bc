"""MiniMax-M2: normalised queries and keys of the whole width, experts in every layer."""

from dataclasses import replace

from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import routed_experts
from foretell.interop.huggingface.llamalike import Traits, read_like
from foretell.specs.ffn import Experts
from foretell.specs.model import Model, Projection, TokenPrediction

TRAITS = Traits(why="MiniMaxM2Config's defaults", qk_norm="whole", kv_default=8)


def read(config: Config) -> Model:
    """One kind of layer; `num_mtp_modules` prediction blocks of `mtp_transformer_layers` each.

    Published checkpoints hold no weights of these blocks; the config describes them, so they are
    counted in the total.
    """
    width = config.get("shared_intermediate_size", 0)
    experts, top_k = routed_experts(config, experts=("num_local_experts",))
    ffn = Experts(
        experts=experts,
        top_k=top_k,
        width=config.need("intermediate_size"),
        shared_width=width,
        router_bias=config.flag("use_routing_bias", default=True, why=TRAITS.why),
    )
    normed = config.flag("use_qk_norm", default=True, why=TRAITS.why)
    traits = TRAITS if normed else replace(TRAITS, qk_norm="none")
    model = read_like(config, traits, (ffn,) * config.layers())
    repeats = config.get("num_mtp_modules", 0)
    if not repeats or not config.flag("use_mtp", default=True):
        return model
    each = config.get("mtp_transformer_layers", 1, TRAITS.why, low=1)
    config.check(repeats * each <= 100, ("num_mtp_modules",), "is more than any model has")
    config.assume(
        "the prediction blocks that the config names are counted (a joint of 2 hidden -> hidden, "
        "three norms, shared tables), though published checkpoints leave them out"
    )
    hidden = model.stack.hidden
    block = TokenPrediction(
        layers=(model.stack.layers[-1],) * min(each, 100),
        repeats=min(repeats, 100),
        projections=(Projection(name="prediction.joint", inputs=2 * hidden, outputs=hidden),),
    )
    return replace(model, prediction=block)
