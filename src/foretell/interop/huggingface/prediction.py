"""Multi-token-prediction blocks as DeepSeek-V3 has them."""

from foretell.interop.huggingface.config import Config
from foretell.specs.model import Layer, Projection, TokenPrediction


def joined_block(
    config: Config, layer: Layer, hidden: int, *, tables: int, default: int, why: str | None
) -> TokenPrediction | None:
    """`num_nextn_predict_layers` blocks: two norms, a joint of 2 hidden -> hidden, a layer, a norm.

    `tables` are the weights of the copies of embedding and head that the checkpoint stores with
    each block.
    """
    repeats = config.get(
        "num_nextn_predict_layers", default, why, "num_mtp_layers", "mtp_num_hidden_layers"
    )
    if repeats == 0:
        return None
    config.check(
        repeats <= 100, ("num_nextn_predict_layers",), "is more than any model has (at most 100)"
    )
    return TokenPrediction(
        layers=(layer,),
        repeats=min(repeats, 100),
        norms=3,
        norm_kind=layer.norm_kind,
        projections=(Projection(name="prediction.joint", inputs=2 * hidden, outputs=hidden),),
        own_tables=tables,
    )
