"""Every message of one step by kind: how many, of how many bytes, between how many ranks.

The closed form prices what `training/data_parallel.py` and `training/exchanges.py` send; this lists the
same messages without seconds, so that they can be set against those of a real run. Context and expert
parallelism and the panels of a grid are not listed.
"""

from typing import Literal

import numpy as np

from foretell.network.library_records import Kind
from foretell.records import dataclass
from foretell.sharding.data import wire_bytes
from foretell.simulation.programs.dealing import dealing_of
from foretell.specs.arrays import Array
from foretell.specs.plan import Plan, Plans, batch_of
from foretell.specs.scenario import Scenario
from foretell.training.data_parallel import GroupWeights, message_count, shares_of
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate_rows
from foretell.training.tables import Tables, tables_of

Axis = Literal["data", "tensor", "pipeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Messages of one kind that one rank takes part in, in one step."""

    axis: Axis
    """The parallelism that sends them."""
    what: str
    """What they carry: gradients, weights, activations, ..."""
    kind: Kind | Literal["send"]
    """The collective, or a send to the next rank."""
    group: int
    """Ranks that take part."""
    count: int
    """Messages."""
    bytes: float
    """Bytes of all of them: of each the whole buffer, the part of every rank together."""


def step_collectives(scenario: Scenario, plan: Plan) -> tuple[tuple[Collective, ...], ...]:
    """Messages of a step for one rank of each stage; numbers of messages are rounded up."""
    plans = batch_of([plan])
    tables = tables_of(scenario, plans)
    rows = evaluate_rows(scenario, plans, tables)
    stages = stages_of_plans(plans, tables)
    _, stage = dealing_of(scenario, plan, tables, rows)
    micro_batches = float(rows.micro_batches[0])
    shares = shares_of(plans, tables, stages, rows.micro_batches)
    found = []
    for rank, row in enumerate(stage):
        here = [m for s in shares for m in _data(plans, tables, s, row)]
        if plan.tp > 1 and not tables.parts.grid:
            here += _tensor(plan, tables, rows.counts[rows.pair[0], row], micro_batches)
        if plan.pp > 1:
            here += _pipeline(plan, tables, rank, micro_batches)
        found.append(tuple(m for m in here if m.count))
    return tuple(found)


def _data(plans: Plans, tables: Tables, share: GroupWeights, row: int) -> list[Collective]:
    """Gradients reduced and weights gathered on one stage (training/data_parallel.py)."""
    if float(share.ranks[0]) <= 1.0:
        return []
    base, traffic = plans.base, share.traffic
    layers = tables.stages.layers[tables.pair]
    bucket = float(base.bucket)
    messages = message_count(share.ranks, plans.zero, share.parameters, layers, bucket)
    pieces = float(np.ceil(messages[0, row]))
    gradient_bytes, weight_bytes = wire_bytes(base)
    trained, weights = float(share.trained[0, row]), float(share.parameters[0, row])
    gathered = weights if base.zero >= 3 else trained
    group = int(traffic.group[0])

    def one(what: str, kind: Kind, ranks: int, times: Array, size: float) -> Collective:
        many = float(times[0]) if ranks > 1 else 0.0
        return Collective(
            axis="data",
            what=what,
            kind=kind,
            group=ranks,
            count=round(many * pieces),
            bytes=many * size,
        )

    whole = base.zero < 3 and tables.software.zero_sums == "all-reduce" and not base.shard
    shared: Kind = "all-reduce" if whole else "reduce-scatter"
    gradients, replicas = trained * gradient_bytes, int(traffic.replicas[0])
    again = int(traffic.backward_group[0])
    return [
        one("gradients", "all-reduce", int(share.ranks[0]), traffic.all_reduces, gradients),
        one("gradients", shared, group, traffic.scatters, gradients),
        one(
            "gradients of shares", "all-reduce", replicas, traffic.replica_reduces,
            gradients / group,
        ),
        one("weights", "all-gather", group, traffic.gathers_forward, gathered * weight_bytes),
        one("weights again", "all-gather", again, traffic.gathers_backward, gathered * weight_bytes),
    ]  # fmt: skip


def _tensor(plan: Plan, tables: Tables, counts: Array, micro_batches: float) -> list[Collective]:
    """Ends of tensor-parallel regions on one stage (exchanges.py); full recomputation sends again."""
    parts, at = tables.parts, int(tables.shape[0])
    is_layer = np.arange(len(parts.names)) < parts.kinds

    def sums(name: str) -> tuple[Array, Array]:
        many = np.array([getattr(t, f"{name}s") for t in parts.traffic])
        sizes = [np.broadcast_to(getattr(t, f"{name}_elements"), at + 1)[at] for t in parts.traffic]
        times = micro_batches * counts * many
        return times, times * np.array(sizes) * parts.element_bytes

    enters, leaves = sums("enter"), sums("leave")
    again = np.where(is_layer & (plan.recompute == "full"), 2.0, 1.0)
    always = np.ones_like(again)

    def one(what: str, kind: Kind, ends: tuple[Array, Array], times: Array) -> Collective:
        count, size = (float((x * times).sum()) for x in ends)
        return Collective(
            axis="tensor", what=what, kind=kind, group=plan.tp, count=round(count), bytes=size
        )

    if not plan.sp:
        return [
            one("activations", "all-reduce", leaves, again),
            one("activations back", "all-reduce", enters, always),
        ]
    return [
        one("activations", "all-gather", enters, again),
        one("activations", "reduce-scatter", leaves, again),
        one("activations again", "all-gather", enters, always),
        one("activations back", "reduce-scatter", enters, always),
        one("activations back", "all-gather", leaves, always),
    ]


def _pipeline(plan: Plan, tables: Tables, rank: int, micro_batches: float) -> list[Collective]:
    """Sends to the neighbours; without sequence parallelism in pieces that the receivers gather."""
    size = float(tables.parts.send_bytes[tables.shape][0])
    onward = plan.vpp - (rank == plan.pp - 1)
    back = plan.vpp - (rank == 0)

    def one(
        what: str, kind: Kind | Literal["send"], each: int, group: int, wide: float
    ) -> Collective:
        many = micro_batches * each
        return Collective(
            axis="pipeline",
            what=what,
            kind=kind,
            group=group,
            count=round(many),
            bytes=many * size * wide,
        )

    found = [
        one("activations", "send", onward, 2, 1.0),
        one("activations back", "send", back, 2, 1.0),
    ]
    if plan.tp > 1 and not plan.sp:
        # What the stage before sent arrives on the forward pass, what the stage behind sent backward.
        found += [
            one("activations", "all-gather", back, plan.tp, float(plan.tp)),
            one("activations back", "all-gather", onward, plan.tp, float(plan.tp)),
        ]
    return found
