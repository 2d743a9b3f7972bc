"""Data parallelism in time: what its groups share and send, and how long that takes alone."""

from typing import Literal

import numpy as np

from foretell.network.collectives import Group, collective_s, take
from foretell.network.library_records import Kind
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.sharding.data import (
    DataTraffic,
    data_parallel,
    sharing_of,
    wire_bytes,
)
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index
from foretell.specs.plan import Plan, Plans, spared_share
from foretell.specs.scenario import Scenario
from foretell.training.rank_links import DataLinks, data_kinds, edp_of
from foretell.training.shapes import sum_of
from foretell.training.tables import Stages, Tables, distinct, gather

COPY_SHARE = 0.8
"""Share of the memory bandwidth that copies reach."""
SLICE_OPERATIONS = 3.0
"""Operations that the host takes for a reduce to one rank: cut its part out, start the collective, wait
(deepspeed/runtime/zero/stage_1_and_2.py of v0.9.5, average_tensor)."""
MATRICES = 7.0
"""Matrices of a layer that are modules of their own: queries, keys, values, output, gate, up and down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWeights:
    """Weights that one kind of data-parallel group holds together."""

    parameters: Array
    """Weights on one rank; (plans, stages)."""
    trained: Array
    """Of these, weights with gradients; (plans, stages)."""
    quantised: Num
    """Of these, frozen weights that are stored in 4 bits; (plans, stages), or 0."""
    ranks: Array
    """Ranks of the group; (plans,)."""
    links: DataLinks
    """The groups, placed; one a spot."""
    traffic: DataTraffic
    """What they share and send."""


def shares_of(
    plans: Plans, tables: Tables, stages: Stages, micro_batches: Array
) -> tuple[GroupWeights, ...]:
    """What data parallelism shares: everything over dp x cp ranks, spread experts over edp."""
    # A micro-batch passes one of the copies of the weights that a rank may hold, and sends for that one.
    micro_batches = micro_batches / schedule_named(plans.base.schedule).weight_copies
    ranks, routed = plans.dp * plans.cp, stages.routed
    rest = stages.parameters if routed is None else stages.parameters - routed
    trained = stages.trained
    if routed is not None and not plans.base.lora:
        trained = stages.trained - routed
    packed: Num = 0.0 if stages.quantised is None else stages.quantised
    spread = 0.0 if routed is None or stages.quantised is None else np.minimum(routed, packed)
    sharing = sharing_of(plans.base)
    traffic = data_parallel(ranks, plans.zero, micro_batches, sharing, plans.pp)
    whole = GroupWeights(
        parameters=rest,
        trained=trained,
        quantised=packed - spread,
        ranks=ranks,
        links=tables.links.data,
        traffic=traffic,
    )
    if routed is None or tables.links.experts is None:
        return (whole,)
    replicas = edp_of(plans)
    traffic = data_parallel(replicas, plans.zero, micro_batches, sharing, plans.pp)
    # Adapters of experts are reduced with the others: they are small.
    learns = np.zeros_like(routed) if plans.base.lora else routed
    experts = GroupWeights(
        parameters=routed,
        trained=learns,
        quantised=spread,
        ranks=replicas,
        links=tables.links.experts,
        traffic=traffic,
    )
    return whole, experts


def kinds_alike(plans: Plans, tables: Tables) -> tuple[Index, Index]:
    """Plans on the same ranks and stages that share as much: their first rows, and that of each row."""
    grade = (plans.zero >= 1).astype(float) + (plans.zero >= 3)
    return distinct(tables.spot, tables.pair, grade)


def sent_seconds(plans: Plans, tables: Tables, shares: tuple[GroupWeights, ...]) -> Array:
    """Data-parallel messages of a step one after the other, hidden or not; (plans, stages)."""
    alike, found = kinds_alike(plans, tables), []
    for share in shares:
        sent, traffic = data_messages(plans, tables, share, alike), share.traffic
        reduces = (traffic.all_reduces + traffic.scatters)[:, None]
        # A gather backward goes with its reduction; those of other micro-batches go alone.
        alone = np.maximum(traffic.gathers_backward - traffic.scatters, 0.0)[:, None]
        forward = traffic.gathers_forward[:, None] * sent.gather_s
        found.append(sent.pieces * (reduces * sent.reduce_s + alone * sent.again_s + forward))
    return sum_of(found)


def copy_seconds(scenario: Scenario, plans: Plans, share: GroupWeights) -> Array:
    """Copies of gathered weights and of gradients in a step, which nothing hides; (plans, stages)."""
    gradient_bytes, weight_bytes = wire_bytes(plans.base)
    traffic = share.traffic
    gathers = (traffic.gathers_forward + traffic.gathers_backward)[:, None]
    weights = 2.0 * weight_bytes * gathers * packed_weights(plans.base, share)
    scatters = traffic.scatters[:, None]
    gradients = (weight_bytes + gradient_bytes) * scatters * share.trained
    moved = (weights + gradients) * (plans.zero >= 3)[:, None]
    bandwidth = COPY_SHARE * scenario.system.chip.memory_bandwidth_bytes_per_s
    return np.asarray(moved / bandwidth)


def packed_weights(base: Plan, share: GroupWeights) -> Array:
    """Weights of a group, those that are stored in 4 bits as so many fewer of the working dtype."""
    return np.asarray(share.parameters - spared_share(base) * share.quantised)


MessageKind = Literal["reduce", "gather", "again", "scatter"]
"""Messages of a backward pass, of a forward one, all-gathers backward, and backward ones without these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Data-parallel messages of one step; arrays are (plans, stages)."""

    reduce_s: Array
    """Seconds in which one reaches the other ranks backward: all-reduce, or reduce-scatter, with an
    all-gather where weights are gathered again."""
    gather_s: Array
    """Seconds of one all-gather forward."""
    again_s: Array
    """Seconds of one all-gather backward, where there are any."""
    reduce_bytes_per_s: Array
    """Bytes that a rank sends in a second of one backward, over all stages; links are in use for these alone:
    what waits for others, or for a start, uses none; (plans,)."""
    gather_bytes_per_s: Array
    """The same of an all-gather forward; (plans,)."""
    again_bytes_per_s: Array
    """The same of one backward; (plans,)."""
    pieces: Array
    """How many there are."""

    @property
    def scatter_s(self) -> Array:
        """Seconds of one backward without its all-gather."""
        return np.asarray(self.reduce_s - self.again_s)

    @property
    def scatter_bytes_per_s(self) -> Array:
        """Bytes that a rank sends in a second of these, over all stages; (plans,)."""
        both_s, again_s = self.reduce_s.sum(axis=-1), self.again_s.sum(axis=-1)
        sent = self.reduce_bytes_per_s * both_s - self.again_bytes_per_s * again_s
        return np.asarray(np.maximum(sent, 0.0) / np.maximum(both_s - again_s, 1e-9))

    def of(self, kind: MessageKind) -> tuple[Array, Array]:
        """Seconds of one message of a kind, (plans, stages), and a rank's bytes a second in it, (plans,)."""
        match kind:
            case "reduce":
                return self.reduce_s, self.reduce_bytes_per_s
            case "gather":
                return self.gather_s, self.gather_bytes_per_s
            case "again":
                return self.again_s, self.again_bytes_per_s
            case "scatter":
                return self.scatter_s, self.scatter_bytes_per_s


def data_messages(
    plans: Plans, tables: Tables, share: GroupWeights, alike: tuple[Index, Index]
) -> Messages:
    """Seconds of one message of each kind, on the distinct combinations (`alike`), gathered."""
    first, key = alike
    zero, spot = plans.zero[first], tables.spot[first]
    base, traffic, links = plans.base, share.traffic, share.links
    kinds = data_kinds(zero, tables.software)
    group = inner = near = take(links.everyone, spot)
    if links.sharing is not links.everyone:
        inner = near = take(links.sharing, spot)
    if links.backward is not links.sharing:
        near = take(links.backward, spot)
    parameters, trained = gather(share.parameters, first), gather(share.trained, first)
    packed = gather(np.asarray(packed_weights(base, share)), first)
    layers = gather(tables.stages.layers, tables.pair[first])
    window = float(base.prefetch)
    pieces = message_count(share.ranks[first], zero, parameters, layers, float(base.bucket), window)
    gradient_bytes, weight_bytes = wire_bytes(base)
    gradient = trained * gradient_bytes / pieces
    # Frozen weights are gathered only where every use gathers them.
    gathered = np.where(zero[:, None] >= 3, packed, trained)
    weight = gathered * weight_bytes / pieces

    def seconds(kind: Kind, size: Array, where: Group) -> Array:
        return collective_s(kind, size, where) if kind in kinds else np.zeros_like(size)

    gather_s = seconds("all-gather", weight, inner)
    again_s = gather_s if near is inner else seconds("all-gather", weight, near)
    again_s = again_s * (traffic.gathers_backward[first] > 0)[:, None]
    scatter_s = seconds("reduce-scatter", gradient, inner)
    everyone = np.asarray((base.shard == 0) | (share.ranks[first] <= base.shard))
    if tables.software.zero_sums != "scatter" and everyone.any():
        parts = np.maximum(share.ranks[first, None] / pieces, 1.0)
        if tables.software.zero_sums == "reduce":
            one_s = SLICE_OPERATIONS * (tables.host.operation_s + tables.host.kernel_s)
            other_s = np.maximum(scatter_s, parts * one_s)
        else:
            other_s = seconds("all-reduce", gradient, group)
        scatter_s = np.where((everyone & (zero < 3))[:, None], other_s, scatter_s)
    scatter_s = scatter_s + again_s
    if links.replicas is not None:
        part = gradient / traffic.group[first][:, None]
        many = (traffic.replicas[first] > 1)[:, None]
        outer = take(links.replicas, spot)
        scatter_s = scatter_s + collective_s("all-reduce", part, outer) * many
    reduce_s = np.where(zero[:, None] >= 1, scatter_s, seconds("all-reduce", gradient, group))
    again = weight * (traffic.gathers_backward[first] > 0)[:, None]

    def rate(sent: Array, spent_s: Array) -> Array:
        return np.asarray((sent.sum(axis=1) / np.maximum(spent_s.sum(axis=1), 1e-9))[key])

    return Messages(
        reduce_s=gather(reduce_s, key),
        gather_s=gather(gather_s, key),
        again_s=gather(again_s, key),
        reduce_bytes_per_s=rate(
            np.where(zero[:, None] >= 1, gradient + again, 2.0 * gradient), reduce_s
        ),
        gather_bytes_per_s=rate(weight, gather_s),
        again_bytes_per_s=rate(again, again_s),
        pieces=gather(pieces, key),
    )


def message_count(
    ranks: Array,
    zero: Array,
    parameters: Array,
    layers: Array,
    bucket: float = 0.0,
    window: float = 0.0,
) -> Array:
    """Messages that a stage's gradients travel in: layers, or buckets where those are fewer.

    A bucket holds max(40 million, 1 million x ranks) weights, as Megatron-Core has it; ZeRO 3 gathers and
    scatters layer by layer. `bucket`, in millions, is what a plan says in the place of both: DeepSpeed joins
    what it reduces until a bucket is full (reduce_bucket_size). With ZeRO 3 it gathers module by module, of
    small ones as many as `window` millions hold (stage3_prefetch_bucket_size), so that a large layer travels
    in several messages, at most one for each of its matrices.
    """
    usual = np.maximum(40e6, 1e6 * ranks)[:, None]
    said = np.asarray(bucket) > 0
    size = np.where(said, np.maximum(1e6 * bucket, 1.0), usual)
    buckets = np.where((zero[:, None] >= 3) & ~said, layers, parameters / size)
    found = np.maximum(np.minimum(layers, buckets), 1.0)
    if window == 0.0:
        return found
    modules = np.clip(parameters / (1e6 * window), 1.0, MATRICES * layers)
    return np.where((zero[:, None] >= 3) & ~said, np.maximum(modules, 1.0), found)
