"""A linear map in the place of a mixer."""

from foretell.specs.mixers import Replacement
from foretell.workload.graph import LayerGraph, Tokens
from foretell.workload.ops import Gemm
from foretell.workload.roles import Region


def replacement_graph(mixer: Replacement, hidden: int, tokens: Tokens) -> LayerGraph:
    """hidden -> hidden (NAS-pruned Llama): h^2 weights (+ h), on every rank whole.

    It acts on each token alone, so it opens no tensor-parallel region; sequence parallelism cuts
    its tokens. Its input is the layer's normalised state, which the layer itself keeps.
    """
    width = float(hidden)
    op = Gemm(
        name="replacement",
        m=tokens.count,
        n=width,
        k=width,
        bias=mixer.bias,
        split="tokens",
        region=Region.MIXER,
    )
    return LayerGraph(name="replacement", ops=(op,))
