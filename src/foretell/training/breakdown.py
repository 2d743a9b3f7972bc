"""One evaluated plan as trees: time along the slowest stage, memory of each stage."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from foretell.kernels.memory import StageMemory
from foretell.kernels.optimizer import MEMORY_SHARE
from foretell.records import dataclass
from foretell.sharding.recompute import full_share
from foretell.specs._base import Num
from foretell.specs.plan import Plans
from foretell.specs.plan_forms import recompute_layers
from foretell.specs.result import Leaf
from foretell.specs.scenario import Scenario
from foretell.training.layer_costs import Parts, beside_host
from foretell.training.pass_times import late_launches, pass_times
from foretell.training.step import Rows
from foretell.training.tables import Tables
from foretell.uncertainty.evidence import (
    HOST,
    HOST_TIMES,
    Grounds,
    grounds_of,
    kind_of,
    leaf,
    node,
    whole,
)

Phase = Literal["forward", "backward", "recompute"]
"""A pass in which operations run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """The answer of one plan, taken apart."""

    time: Leaf
    """Seconds of the step."""
    memory: Leaf
    """Bytes on the fullest stage."""
    stages: tuple[Leaf, ...]
    """Bytes on every distinct stage."""


def trees(plans: Plans, tables: Tables, rows: Rows, scenario: Scenario) -> Trees:
    """Trees of the only plan of a batch of one."""
    stages = {
        s: _memory_leaf(name, held)
        for s, (name, held) in enumerate(zip(_stage_names(rows), _held(rows.memory), strict=True))
        if rows.multiplicity[0, s] > 0
    }
    return Trees(
        time=time_tree(plans, tables, rows, scenario),
        memory=replace(stages[int(rows.fullest[0])], name="peak"),
        stages=tuple(stages.values()),
    )


def time_tree(plans: Plans, tables: Tables, rows: Rows, scenario: Scenario) -> Leaf:
    """compute and memory-bound time by op family, recomputation, communication, bubble, optimizer."""
    slow, mu = int(rows.slowest[0]), float(rows.micro_batches[0])
    on_stage = rows.counts[rows.pair[0], slow] * mu
    parts = tables.parts
    grounds = grounds_of(parts.times.grounds, scenario.system)
    compute, memory, again = Families(), Families(), Families()
    costs = _op_costs(tables, rows)
    for run in runs_of(plans, tables, rows):
        _add_families(costs, run, (again, again) if run.phase == "recompute" else (compute, memory))
    layers_only = np.where(np.arange(len(on_stage)) < parts.kinds, on_stage, 0.0)
    mode, at = float(plans.recompute[0]), int(tables.shape[0])
    share = repeated_share(plans, float(layers_only.sum() / mu))
    repeated = layers_only * share
    if mode == 1.0:
        again.add("attention", float((on_stage * parts.core_s[at]).sum()), 0.0)
    exchanged = _exchanged(tables, on_stage, repeated, layers_only)
    sends_s = mu * float(rows.send_s[0, 0])
    if rows.saved_s.shape[1] > 1 or rows.saved_s.any():
        sends_s = less_saved(exchanged, sends_s, float(rows.saved_s[0, slow]))
    spread = HOST_TIMES[scenario.software.host_grade]
    factors = np.array([1.0, *(factor for pair in spread.values() for factor in pair)])
    counts = (on_stage, repeated, layers_only * (mode == 3.0))
    hosts_s = _host_waits(plans, tables, rows, counts, factors)
    host_s = float(hosts_s[0])
    base = float(tables.power.base_watts)

    def waits(name: str, seconds: float) -> Leaf:
        return leaf(name, seconds, grounds.collectives, base * seconds)

    update_s = float(rows.optimizer_s[0, slow])
    sums_s = mu * float(rows.sums_s[0, slow])
    bubble_s = float(rows.bubble_s[0])
    busy = [_node("compute", compute, grounds, base), _node("memory_bound", memory, grounds, base)]
    offload_s = float(rows.offload_s[0, slow])
    children = [
        *busy,
        _node("recompute", again, grounds, base),
        *(waits(name, seconds) for name, seconds in exchanged.items()),
        waits("pipeline_parallel", sends_s),
        waits("data_parallel", float(rows.data_s[0, slow])),
        _bubble(busy, bubble_s, base),
        leaf("host", host_s, ("transferred", HOST), base * host_s),
        leaf("fixed", rows.fixed_s, ("transferred", HOST), base * rows.fixed_s),
        leaf(
            "gradient_sums", sums_s, grounds.of("elementwise"), float(update_joules(sums_s, tables))
        ),
        leaf(
            "optimizer", update_s, grounds.of("elementwise"), float(update_joules(update_s, tables))
        ),
    ]
    if plans.base.offload != "none":
        children.append(leaf("offload", offload_s, ("datasheet", HOST), base * offload_s))
    step = node("step", children, float(rows.step_s[0]))
    # Stages that wait for the slowest wait for its host too.
    shared = step.value / max(step.value - bubble_s, 1e-30)
    others = iter(step.value + shared * (hosts_s[1:] - host_s))
    host = {key: (float(next(others)), float(next(others))) for key in spread}
    return whole(step, kind_of(scenario, plans.base, step), scenario.software.held_out, host)


def _exchanged(
    tables: Tables, on_stage: np.ndarray, repeated: np.ndarray, layers: np.ndarray
) -> dict[str, float]:
    """Seconds of each kind of exchange of the slowest stage: of its passes, and of what runs again."""
    parts, group, found = tables.parts, int(tables.group[0]), {}
    for name, e in tables.exchanges.by_name.items():
        modules = parts.waits_again[name] * layers if parts.waits_again else 0.0
        forwards = on_stage + repeated + modules
        found[name] = float((forwards * e.forward_s[group] + on_stage * e.backward_s[group]).sum())
    return found


def _bubble(busy: list[Leaf], seconds: float, base_watts: float) -> Leaf:
    """Waiting for other stages: as certain as the work that they wait for."""
    work = node("bubble", busy)
    share = seconds / max(work.value, 1e-30)
    return Leaf(
        name="bubble",
        value=seconds,
        unit=work.unit,
        evidence=work.evidence,
        joules=base_watts * seconds,
        interval=_scaled(work, share),
    )


def _host_waits(
    plans: Plans,
    tables: Tables,
    rows: Rows,
    counts: tuple[np.ndarray, np.ndarray, np.ndarray],
    factors: np.ndarray,
) -> np.ndarray:
    """What the chip waits for the host, of parts run once, layers run again whole, modules run again.

    `factors` are on the host's own time; one wait for each.
    """
    parts, slower = tables.parts, tables.pace / float(rows.clock[0]) - 1.0
    spent = pass_times(tables, tables.shape[:1], tables.group[:1], late_launches(plans, tables))

    def waits(chip_s: np.ndarray, host_s: np.ndarray) -> np.ndarray:
        return np.asarray(beside_host(chip_s, factors[:, None] * host_s) - chip_s)

    forward_s, backward_s = spent.chip_s(slower)
    forward = waits(forward_s, spent.host_s[0])
    backward = waits(backward_s, spent.host_s[1])
    waited = counts[0] * (forward + backward) + counts[1] * forward
    if parts.again is not None:
        waited = waited + counts[2] * waits(
            spent.again_chip_s(slower), parts.again.host_s[spent.shape]
        )
    return np.asarray(waited.sum(axis=1))


def less_saved(exchanged: dict[str, float], sends_s: float, saved_s: float) -> float:
    """Take what pairs hide from dispatches and sends, from each its part; the sends that are left."""
    dispatched = exchanged.get("expert_parallel", 0.0)
    left = 1.0 - saved_s / max(dispatched + sends_s, 1e-30)
    if "expert_parallel" in exchanged:
        exchanged["expert_parallel"] = dispatched * left
    return sends_s * left


def update_joules(seconds: Num, tables: Tables) -> Num:
    """Energy of the optimizer's update, which streams memory."""
    numbers = tables.power.coefficients
    per_byte = numbers.core_joules_per_byte + numbers.memory_joules_per_byte
    moved = MEMORY_SHARE * tables.bytes_per_s * seconds
    return tables.power.base_watts * seconds + per_byte * moved


def _scaled(whole_part: Leaf, share: float) -> dict[str, tuple[float, float]]:
    """An interval of a part that goes with another."""
    ends = whole_part.interval or {}
    return {key: (low * share, high * share) for key, (low, high) in ends.items()}


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


class Families:
    """Seconds and joules by op family."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.joules: dict[str, float] = defaultdict(float)

    def add(self, family: str, seconds: float, joules: float) -> None:
        """One more share of a family."""
        self.seconds[family] += seconds
        self.joules[family] += joules


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How often the slowest stage runs the operations of each part in one kind of pass of a step."""

    phase: Phase
    """Which pass."""
    counts: np.ndarray
    """Runs of each part in a step."""
    only: np.ndarray | None = None
    """Share of each operation that it runs; None: all of every one."""

    def ops(self, parts: Parts) -> Iterator[tuple[int, float, int]]:
        """Row in the table of times, runs in a step and part of each operation that it runs."""
        row = sum(len(ops) for ops in parts.ops) if self.phase == "backward" else 0
        for part, (count, ops) in enumerate(zip(self.counts.tolist(), parts.ops, strict=True)):
            for _ in ops:
                share = 1.0 if self.only is None else float(self.only[row])
                if count * share > 0.0:
                    yield row, count * share, part
                row += 1


def runs_of(plans: Plans, tables: Tables, rows: Rows) -> list[Run]:
    """Every pass of the slowest stage; what selective recomputation repeats is not in it (core_s)."""
    parts, mu = tables.parts, float(rows.micro_batches[0])
    on_stage = rows.counts[rows.pair[0], int(rows.slowest[0])] * mu
    layers = np.where(np.arange(len(on_stage)) < parts.kinds, on_stage, 0.0)
    share = repeated_share(plans, float(layers.sum() / mu))
    found = [Run(phase="forward", counts=on_stage), Run(phase="backward", counts=on_stage)]
    if share:
        found.append(Run(phase="recompute", counts=layers * share))
    if float(plans.recompute[0]) == 3.0 and len(parts.again_ops):
        found.append(Run(phase="recompute", counts=layers, only=parts.again_ops))
    return found


def repeated_share(plans: Plans, layers: float) -> float:
    """Share of a stage's so many layers that is computed again whole."""
    blocks = float(recompute_layers(plans.base.recompute))
    shares = {2.0: 1.0, 3.0: float(full_share(layers, blocks))}
    return shares.get(float(plans.recompute[0]), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCosts:
    """What the operations of every part cost at the clock held; arrays are (2, operations), forward first."""

    lengths: list[int]
    """Operations of each part."""
    families: list[str]
    """Families that occur."""
    bin: np.ndarray
    """Of each operation, twice the place of its family, and one more where memory bounds it."""
    seconds: np.ndarray
    """Time."""
    joules: np.ndarray
    """Energy."""


def _op_costs(tables: Tables, rows: Rows) -> OpCosts:
    """Times and energies of the only plan's operations."""
    parts, at = tables.parts, int(tables.shape[0])
    times, slower = parts.times, tables.pace / float(rows.clock[0]) - 1.0
    of = [op.family for ops in parts.ops for op in ops]
    place = {family: i for i, family in enumerate(dict.fromkeys(of))}
    spent = times.core_joules[:, at] * float(rows.core_fall[0]) + times.memory_joules[:, at]
    return OpCosts(
        lengths=[len(ops) for ops in parts.ops],
        families=list(place),
        bin=2 * np.array([place[family] for family in of])
        + times.memory_bound[:, at].reshape(2, -1),
        seconds=(times.seconds[:, at] + slower * times.clocked_s[:, at]).reshape(2, -1),
        joules=spent.reshape(2, -1),
    )


def _add_families(costs: OpCosts, run: Run, sums: tuple[Families, Families]) -> None:
    """Add every operation of a pass, times its count, to its family: arithmetic or memory."""
    half = int(run.phase == "backward")
    counts = np.repeat(run.counts, costs.lengths)
    if run.only is not None:
        counts = counts * run.only
    bins, many = costs.bin[half], 2 * len(costs.families)
    seconds = np.bincount(bins, counts * costs.seconds[half], many).tolist()
    joules = np.bincount(bins, counts * costs.joules[half], many).tolist()
    for i, spent_s in enumerate(seconds):
        if spent_s > 0.0:
            sums[i % 2].add(costs.families[i // 2], spent_s, joules[i])


def _node(name: str, families: Families, grounds: Grounds, base_watts: float) -> Leaf:
    """Families, largest first; each draws the base watts as long as it runs."""
    order = sorted(families.seconds.items(), key=lambda item: -item[1])
    children = [
        leaf(family, value, grounds.of(family), families.joules[family] + base_watts * value)
        for family, value in order
    ]
    return node(name, children)


def _stage_names(rows: Rows) -> list[str]:
    ranks = zip(rows.position[0].tolist(), rows.multiplicity[0].tolist(), strict=True)
    return [
        f"stage {first:.0f}" if alike == 1 else f"stage {first:.0f} and {alike - 1:.0f} alike"
        for first, alike in ranks
    ]


HELD = ("weights", "gradients", "states", "activations", "buffers")
LOST = ("allocator", "framework")


def _held(memory: StageMemory) -> list[dict[str, float]]:
    """What each stage of the only plan holds, in bytes by name."""
    names = (*HELD, *LOST, "lost", "total")
    columns = [getattr(memory, name)[0].tolist() for name in names]
    return [dict(zip(names, stage, strict=True)) for stage in zip(*columns, strict=True)]


def _memory_leaf(name: str, held: dict[str, float]) -> Leaf:
    def leaf_of(what: str, children: tuple[Leaf, ...] = ()) -> Leaf:
        return Leaf(name=what, value=held[what], unit="bytes", children=children)

    lost = leaf_of("lost", tuple(leaf_of(what) for what in LOST))
    children = (*(leaf_of(what) for what in HELD), lost)
    return Leaf(name=name, value=held["total"], unit="bytes", children=children)
