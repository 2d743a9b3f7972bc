"""One evaluated plan as trees: time along the slowest stage, memory of each stage."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from foretell.cost.memory import StageMemory
from foretell.cost.roofline import OpSeconds
from foretell.estimate import Rows, Tables
from foretell.parts import Parts
from foretell.specs.plan import Plans
from foretell.specs.result import Leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """The answer of one plan, taken apart."""

    time: Leaf
    """Seconds of the step."""
    memory: Leaf
    """Bytes on the fullest stage."""
    stages: tuple[Leaf, ...]
    """Bytes on every distinct stage."""


def trees(plans: Plans, tables: Tables, rows: Rows) -> Trees:
    """Trees of the only plan of a batch of one."""
    stages = tuple(
        _memory_leaf(rows.memory, s, _stage_name(rows, s))
        for s in range(rows.multiplicity.shape[1])
        if rows.multiplicity[0, s] > 0
    )
    full = int(rows.fullest[0])
    return Trees(
        time=time_tree(plans, tables, rows),
        memory=_memory_leaf(rows.memory, full, "peak"),
        stages=stages,
    )


def time_tree(plans: Plans, tables: Tables, rows: Rows) -> Leaf:
    """compute and memory-bound time by op family, recomputation, communication, bubble, optimizer."""
    slow, mu = int(rows.slowest[0]), float(rows.micro_batches[0])
    on_stage = rows.counts[rows.pair[0], slow] * mu
    parts, group = tables.parts, int(tables.tensor_group[0])
    compute: dict[str, float] = defaultdict(float)
    memory: dict[str, float] = defaultdict(float)
    again: dict[str, float] = defaultdict(float)
    for times in (parts.forward, parts.backward):
        _add_families(parts, times, on_stage, compute, memory)
    tensor_s = float(
        (on_stage * (tables.tensor.forward_s[group] + tables.tensor.backward_s[group])).sum()
    )
    layers_only = np.where(np.arange(len(on_stage)) < parts.kinds, on_stage, 0.0)
    mode = float(plans.recompute[0])
    if mode == 2.0:
        _add_families(parts, parts.forward, layers_only, again, again)
        tensor_s += float((layers_only * tables.tensor.forward_s[group]).sum())
    if mode == 1.0:
        again["core"] = float((on_stage * parts.core_s[0]).sum())
    children = [
        _node("compute", compute),
        _node("memory_bound", memory),
        _node("recompute", again),
        _leaf("tensor_parallel", tensor_s),
        _leaf("pipeline_parallel", mu * float(rows.send_s[0, 0])),
        _leaf("data_parallel", float(rows.data_s[0, slow])),
        _leaf("bubble", float(rows.bubble_s[0])),
        _leaf("optimizer", float(rows.optimizer_s[0, slow])),
    ]
    return Leaf(name="step", value=float(rows.step_s[0]), unit="s", children=tuple(children))


def largest_share(tree: Leaf) -> str:
    """The largest end of a tree, with its parent's name where it has one."""
    best = max(
        ((leaf.value, name) for child in tree.children for leaf, name in _named(child)),
        default=(0.0, ""),
    )
    return best[1]


def _named(node: Leaf) -> list[tuple[Leaf, str]]:
    if not node.children:
        return [(node, node.name)]
    return [(leaf, f"{node.name}.{leaf.name}") for leaf in node.children]


def _add_families(
    parts: Parts,
    times: OpSeconds,
    on_stage: np.ndarray,
    compute: dict[str, float],
    memory: dict[str, float],
) -> None:
    """Add the time of every op, times its count, to its family in one of the two sums."""
    total, bound = times.total_s[:, 0], times.memory_bound[:, 0]
    row = 0
    for count, ops in zip(on_stage, parts.ops, strict=True):
        for op in ops:
            if total[row] > 0.0 and count > 0.0:
                target = memory if bound[row] else compute
                target[op.family] += float(count * total[row])
            row += 1


def _node(name: str, families: dict[str, float]) -> Leaf:
    children = tuple(
        _leaf(family, value) for family, value in sorted(families.items(), key=lambda i: -i[1])
    )
    return Leaf(name=name, value=sum(families.values()), unit="s", children=children)


def _leaf(name: str, value: float, unit: str = "s") -> Leaf:
    return Leaf(name=name, value=value, unit=unit)


def _stage_name(rows: Rows, stage: int) -> str:
    first, alike = int(rows.position[0, stage]), int(rows.multiplicity[0, stage])
    return f"stage {first}" if alike == 1 else f"stage {first} and {alike - 1} alike"


def _memory_leaf(memory: StageMemory, stage: int, name: str) -> Leaf:
    names = ("weights", "gradients", "states", "activations", "buffers", "lost")
    children = tuple(_leaf(n, float(getattr(memory, n)[0, stage]), "bytes") for n in names)
    return Leaf(name=name, value=float(memory.total[0, stage]), unit="bytes", children=children)
