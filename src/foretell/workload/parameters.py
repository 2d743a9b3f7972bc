"""Parameter counts: the sum of the weights of the graph's operations, so that nothing is counted twice."""

from dataclasses import replace

from foretell.records import dataclass
from foretell.specs.ffn import Experts
from foretell.specs.model import Model
from foretell.workload.build import build
from foretell.workload.graph import LayerGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Unique weights; tied tables once, no buffers, no quantisation scales."""

    total: int
    """Everything that the configuration describes: prediction blocks and towers included."""
    text: int
    """The main model alone."""
    active: int
    """Those of the main model that one token uses: routed experts count top_k of them."""


def count(model: Model) -> Parameters:
    """Total, text and active weights of a model."""
    graph = build(replace(model, reads=()), batch=1.0, seq_len=1.0, target_len=1.0)
    text = layer_weights(graph.embedding) + layer_weights(graph.head) + graph.extra_parameters
    for index in graph.order:
        text += layer_weights(graph.kinds[index])
    prediction = 0.0
    if graph.prediction is not None and model.prediction is not None:
        # Copies of embedding and head that a checkpoint stores with a block; training shares them.
        stored = model.prediction.own_tables * model.prediction.repeats
        prediction = layer_weights(graph.prediction) + stored
    towers = sum(tower.parameters for tower in model.towers)
    idle = sum(
        idle_weights(layer.ffn, model.stack.hidden)
        for layer in model.stack.layers
        if isinstance(layer.ffn, Experts)
    )
    return Parameters(
        total=round(text + prediction) + towers,
        text=round(text),
        active=round(text) - idle,
    )


def layer_weights(graph: LayerGraph) -> float:
    """Weights of one layer kind; exact while they stay under 2**53."""
    return float(sum(op.parameters for op in graph.ops))


def idle_weights(ffn: Experts, hidden: int) -> int:
    """Weights of the routed experts that one token does not use."""
    inner = ffn.latent or hidden
    ups = 2 if ffn.gated else 1
    biases = (ups * ffn.width + inner) if ffn.expert_bias else 0
    return (ffn.experts - ffn.top_k) * ((ups + 1) * inner * ffn.width + biases)
