"""What tests of the graph share: sums over a graph, and a module's count by torch."""

from foretell.specs.mixers import DeltaNet
from foretell.specs.model import Model
from foretell.workload.graph import Graph
from foretell.workload.ops import Op


def all_ops(graph: Graph) -> list[Op]:
    """Every op of one pass, layers as often as they occur."""
    parts = [graph.embedding, *(graph.kinds[i] for i in graph.order), graph.head]
    if graph.prediction is not None:
        parts.append(graph.prediction)
    return [op for part in parts for op in part.ops]


def matrix_flop(graph: Graph) -> tuple[float, float]:
    """Matrix operations of the forward and the backward pass."""
    ops = all_ops(graph)
    forward = sum(float(op.forward().matrix_flop) for op in ops)
    return forward, sum(float(op.backward().matrix_flop) for op in ops)


def unread_states_flop(model: Model, batch: int) -> float:
    """What torch skips in the backward pass of delta-rule layers of more than one chunk.

    Four products per sequence and head: the first chunk's state is a constant zero (no gradient to
    it from two products), and the last chunk's new state is never read.
    """
    mixers = [mixer for layer in model.stack.layers for mixer in layer.mixers]
    return sum(
        4.0 * 2.0 * m.chunk * m.key_dim * m.value_dim * m.value_heads * batch
        for m in mixers
        if isinstance(m, DeltaNet)
    )
