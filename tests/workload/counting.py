"""What tests of the graph share: sums over a graph, and a module's count by torch."""

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
