"""What depends on few fields of a plan, computed on their distinct combinations, and where plans find it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from foretell.catalog.hosts import host_of
from foretell.kernels.optimizer import Matrices
from foretell.kernels.power import ChipPower, chip_power, slowest
from foretell.records import Keyed, dataclass
from foretell.schedules import schedule_named
from foretell.sharding.pipeline import StageTable, stage_table
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index, Ints
from foretell.specs.model import Model
from foretell.specs.plan import BATCH_FIELDS, Plans
from foretell.specs.plan_forms import layout_sizes
from foretell.specs.scenario import Scenario
from foretell.specs.software import Host, Software
from foretell.training.exchanges import Exchanges, exchanges_on
from foretell.training.layer_costs import part_table
from foretell.training.overlap import Overlap
from foretell.training.part_costs import Parts
from foretell.training.rank_links import RankLinks, data_kinds, rank_links
from foretell.training.shapes import Shape
from foretell.workload.build import build
from foretell.workload.ops import Gemm

CHUNK = 8192
"""Plans evaluated together: large enough to amortise calls, small enough for the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Everything that depends on few fields of a plan, and where each plan finds its row in it."""

    software: Software
    """The training framework."""
    parts: Parts
    """Costs of the parts by shape."""
    shape: Index
    """Shape of each plan."""
    stages: StageTable
    """Stages by (pp, vpp)."""
    pair: Index
    """(pp, vpp) of each plan."""
    exchanges: Exchanges
    """What the layers wait for, by shape and placement."""
    group: Index
    """Row of each plan in it."""
    spot: Index
    """Degrees and placement of each plan, numbered."""
    links: RankLinks
    """The groups of each spot on the network."""
    power: ChipPower
    """The chip's watts and joules."""
    pace: float
    """Time of clocked work on the slowest of the job's chips, over the mean's."""
    bytes_per_s: Num
    """Bandwidth of its memory."""
    host: Host
    """Its host."""
    host_speed: Array
    """How fast its host starts kernels, over the measured one's; (shapes,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Exchanges of one parallelism; arrays are (plans, stages) unless stated otherwise."""

    passes: tuple[Array | Overlap, Array | Overlap]
    """Forward and backward, recomputation included: what the pass waits for, or what can hide that too."""
    tier: Index
    """Outermost tier that they touch; (plans,)."""
    waits_s: Array | None = None
    """What both passes wait for, or would alone; None where nobody asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateWeights:
    """Weights whose gradients the backward pass makes at different moments; arrays are (plans, stages)."""

    head: Array
    """Of the head, whose gradients come first, with the table where it is the same matrix."""
    layer: Array
    """Of the largest layer."""
    table: Array
    """Of the table, whose gradients come last."""
    layers: Array
    """How many layers there are."""
    copies: Num = 0.0
    """Of a tied table, whose gradients are made twice and added up: weights of the further copies."""

    @property
    def last_weights(self) -> Array:
        """Weights of all gradients made at the end of a step, copies among them."""
        return np.asarray(self.table + self.copies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What does not depend on data parallelism; arrays are (plans, stages) unless stated otherwise."""

    forward_s: Array
    """Forward pass of one micro-batch."""
    backward_s: Array
    """Backward pass of one micro-batch, recomputation included."""
    weight_s: Num
    """Of this, the products for the gradients of weights; 0 where the schedule does not run them apart."""
    clock: Array
    """Clock that the step holds, over that of short bursts; (plans,)."""
    core_fall: Array
    """Factor on the cores' joules at that clock; (plans,)."""
    waits: tuple[Waits, ...]
    """Exchanges that the passes wait for, by parallelism."""
    parameters: Array
    """Weights on one rank."""
    trained: Array
    """Of these, weights with gradients: all, or the adapters'."""
    matrices: Matrices | None
    """Matrices that the optimizer treats apart; None where it treats none."""
    products_s: Array | None
    """Matrix products of the update, of all ranks that share the states; None where it treats none."""
    routed: Array | None
    """Of these, weights of spread experts; None where no plan spreads any."""
    kept_bytes: Array
    """Activations kept for one micro-batch in flight."""
    again_bytes: Array
    """The backward pass of one layer, beyond what it keeps: what is computed again, a gradient."""
    head_bytes: Array
    """Scores, loss and inputs of the head of one micro-batch, where it is."""
    placeholders: Array | None
    """Weights whose gradients have an empty tensor in their place; None where none have."""
    narrow: Array | None
    """Weights of which there are copies in a narrow format; None where there are none."""
    quantised: Array | None
    """Frozen weights that are stored in 4 bits; None where there are none."""
    inputs: Array | None
    """Inputs of layers that are computed again, whose gradients can wait for the end of the backward pass."""
    widened_bytes: Array
    """A matrix that is stored in 4 bits, widened for its product; (plans,)."""
    late: LateWeights | None
    """Weights by when their gradients are made; None where a buffer holds all gradients through the step."""
    message_bytes: Array
    """Messages on their way to and from other ranks; (plans,)."""
    largest: Array
    """Weights of the largest part; (plans,)."""


def chunks(plans: Plans, tables: Tables) -> Iterator[Index]:
    """Rows of at most CHUNK plans: those with few distinct stages together, so that arrays stay narrow,
    and of these the ones on the same ranks, so that what they send is computed once. Plans with ZeRO 3 have
    messages that no others have: they come last."""
    pairs = len(tables.stages.counts)
    spots = int(tables.spot.max(initial=0)) + 1
    stages = tables.stages.distinct[tables.pair]
    stages = stages + (plans.zero >= 3) * (stages.max(initial=0) + 1)
    order = np.argsort((stages * spots + tables.spot) * pairs + tables.pair, kind="stable")
    for start in range(0, len(order), CHUNK):
        yield order[start : start + CHUNK]


def tables_of(
    scenario: Scenario, plans: Plans, *, apart: bool = False, zeros: Array | None = None
) -> Tables:
    """Compute each quantity on the distinct combinations of the fields that it depends on.

    `apart` gives each plan a row of its own: fields of the system are then arrays over the plans
    (training/variants.py). `zeros` are the ZeRO stages that plans will have, where these are not their own.
    """
    if len(plans) == 1 and not apart and zeros is None:
        # A single plan recurs from estimate to estimate, with another batch or another price.
        try:
            return _known_tables(Keyed(_key_of(scenario, plans), scenario, plans))
        except TypeError:  # numbers that are arrays have no hash
            return _new_tables(scenario, plans, plans.zero, apart=False)
    return _new_tables(scenario, plans, plans.zero if zeros is None else zeros, apart=apart)


def _key_of(scenario: Scenario, plans: Plans) -> tuple[Any, ...]:
    """All that the tables of one plan depend on: the global batch is no part of it."""
    job = scenario.job
    numbers = tuple(getattr(plans, name).item() for name in BATCH_FIELDS)
    place = scenario.model, scenario.system, scenario.software
    return (*place, job.gpus, job.seq_len, job.target_len, plans.base, plans.orders, numbers)


@lru_cache(maxsize=256)
def _known_tables(asked: Keyed) -> Tables:
    scenario, plans = asked.values
    return _new_tables(scenario, plans, plans.zero, apart=False)


def _new_tables(scenario: Scenario, plans: Plans, zeros: Array, *, apart: bool) -> Tables:
    """The tables, computed."""
    own = [np.arange(float(len(plans)))] if apart else []
    first, shape = distinct(*own, *shape_columns(plans))
    names = ("micro_batch", "tp", "sp", "cp", "ep", "etp", "tp2")
    parts = part_table(scenario, plans.base, Shape(**{n: getattr(plans, n)[first] for n in names}))
    first, pair = distinct(plans.pp, plans.vpp)
    pairs = tuple((int(plans.pp[i]), int(plans.vpp[i])) for i in first)
    degrees = [plans.tp, plans.cp, plans.pp, plans.dp, plans.ep, plans.etp, plans.order]
    # What replicas send depends on a grid's sides too: the weights of norms are on every row.
    degrees += [plans.tp2] if plans.base.tp_mode == "summa" else []
    first, spot = distinct(*own, *degrees)
    links = rank_links(
        scenario,
        plans.take(first),
        data_kinds(zeros, scenario.software),
        experts=bool(parts.experts),
    )
    counts = links.counts
    used = ["tp", *(["cp"] if parts.context else []), *(["ep", "etp"] if parts.experts else [])]
    # Counts need not be whole where a prime number of chips fills its units unevenly.
    _, placed = distinct(*(row for n in used for row in np.rint(1024.0 * counts[n])))
    first, group = distinct(shape, placed[spot])
    where = {name: counts[name][:, spot[first]] for name in used}
    return Tables(
        software=scenario.software,
        parts=parts,
        shape=shape,
        stages=stage_table(
            parts.order,
            parts.kinds,
            pairs,
            schedule_named(plans.base.schedule).layout,
            by_cost(scenario),
            layout_sizes(plans.base.layout),
            tail_layers(scenario.model),
            parts.ahead,
        ),
        pair=pair,
        exchanges=exchanges_on(
            links.system, parts, shape[first], where, plans.base, scenario.software
        ),
        group=group,
        spot=spot,
        links=links,
        power=chip_power(scenario.system.chip),
        pace=slowest(scenario.job.gpus, scenario.system.chip),
        bytes_per_s=scenario.system.chip.memory_bandwidth_bytes_per_s,
        host=host_of(scenario.system),
        host_speed=np.asarray(scenario.system.chip.host_speed) + np.zeros(len(parts.send_bytes)),
    )


def by_cost(scenario: Scenario) -> float:
    """What the head costs, counted in layers, where the software deals layers to stages by cost; else 0."""
    return head_layers(scenario.model) if scenario.software.stages_by_cost else 0.0


def tail_layers(model: Model) -> int:
    """What blocks of multi-token prediction count for in dealing layers to stages: each is a layer and a
    second pass through the head, three layers in Megatron-Bridge's recipes (`Et|(tt|)*30mL` of 61 layers)."""
    block = model.prediction
    return 0 if block is None else block.repeats * (len(block.layers) + 2)


@lru_cache(maxsize=64)
def head_layers(model: Model) -> float:
    """Weights of the head's scores over those of a mean layer, both uncut: what it costs in layers."""
    target = None if model.encoder is None else 1.0
    graph = build(replace(model, reads=()), batch=1.0, seq_len=1.0, target_len=target)
    weights = [float(np.sum([op.parameters for op in kind.ops])) for kind in graph.kinds]
    layer = sum(weights[kind] for kind in graph.order) / max(len(graph.order), 1)
    scores = sum(float(op.groups * op.k * op.n) for op in graph.head.ops if isinstance(op, Gemm))
    return scores / max(layer, 1.0)


def shape_columns(plans: Plans) -> list[Array]:
    """The fields that the operations of a part depend on; those that all plans leave at 1 are left out."""
    columns = [plans.tp, plans.micro_batch, plans.sp]
    columns += [plans.cp] if (plans.cp > 1).any() else []
    columns += [plans.ep, plans.etp] if (plans.ep > 1).any() else []
    return columns + ([plans.tp2] if plans.base.tp_mode == "summa" else [])


def select(tables: Tables, rows: Index) -> Tables:
    """The same tables with the rows of some of the plans, as narrow as their stages allow."""
    pair = tables.pair[rows]
    return replace(
        tables,
        shape=tables.shape[rows],
        stages=tables.stages.trim(int(tables.stages.distinct[pair].max())),
        pair=pair,
        group=tables.group[rows],
        spot=tables.spot[rows],
    )


def distinct(*columns: Array | Index) -> tuple[Index, Index]:
    """First row of each distinct combination, and the combination of each row."""
    if len(columns[0]) == 1:
        return np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp)
    key, span = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        whole = column.astype(np.int64, copy=False)
        values = int(whole.max(initial=0)) + 1
        if span * values > most_values(len(key)):
            # Number both anew, so that the key stays short.
            (key, span), (whole, values) = rank_values(key), rank_values(whole)
        key, span = key * values + whole, span * values
    key, span = rank_values(key)
    first = np.empty(span, dtype=np.intp)
    # Of rows alike the last one written stays: the first, going backwards.
    first[key[::-1]] = np.arange(len(key) - 1, -1, -1)
    return first, key


def gather(values: Array, rows: Index) -> Array:
    """Rows of a table of (combinations, stages), or with parts on a third axis.

    The copy is laid out stage by stage: arithmetic then runs along the plans, which are many, and not along
    the stages, which are few.
    """
    if len(values) == len(rows) == 1:
        return values.T.copy().T
    return values.T.take(rows, axis=-1).T


def largest_stage(values: Array) -> tuple[Index, Array]:
    """The first stage with the largest value, and that value; both (plans,)."""
    index, largest = np.zeros(len(values), dtype=np.intp), values[:, 0]
    for stage in range(1, values.shape[1]):
        index = np.where(values[:, stage] > largest, stage, index)
        largest = np.maximum(largest, values[:, stage])
    return index, largest


def most_values(rows: int) -> int:
    """Up to so many values are numbered by a table of them all, beyond by sorting those that occur."""
    return 8 * rows + 4096


def rank_values(values: Ints) -> tuple[Ints, int]:
    """Values replaced by their rank among those that occur, and how many occur."""
    top = int(values.max(initial=0)) + 1
    if top > most_values(len(values)):
        found, rank = np.unique(values, return_inverse=True)
        return rank.astype(np.int64), len(found)
    there = np.zeros(top, dtype=bool)
    there[values] = True
    found = np.flatnonzero(there)
    rank = np.empty(top, dtype=np.int64)
    rank[found] = np.arange(len(found))
    return rank[values], len(found)
