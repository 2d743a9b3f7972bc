"""The parts of each stage together: sums over its layers, embedding and head, for a batch of plans."""

import numpy as np

from foretell.kernels.op_times import widening_bytes
from foretell.kernels.optimizer import Matrices
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.specs.arrays import Array, Index
from foretell.specs.plan import Plans, spared_share
from foretell.training.late_gradients import late_weights
from foretell.training.memory import (
    LISTED,
    block_share,
    head_of,
    kept_activations,
    message_bytes,
    on_stages,
    placeholders_of,
    staying_inputs,
)
from foretell.training.overlap import Exchange, Overlap
from foretell.training.pass_times import HeldPasses, held_passes, late_launches
from foretell.training.shapes import sum_of
from foretell.training.tables import Stages, Tables, Waits, distinct, gather


def stages_of_plans(plans: Plans, tables: Tables) -> Stages:
    """Sums over the parts of each stage, on distinct combinations, gathered to the plans."""
    late = late_launches(plans, tables)
    first, key = distinct(tables.group, tables.pair, plans.recompute, *late)
    shape = tables.shape[first]
    parts, counts = tables.parts, gather(tables.stages.counts, tables.pair[first])
    mode = plans.recompute[first][:, None]
    share = block_share(plans, first, tables)
    passes = held_passes(plans, tables, first, late)
    forward, backward, clock = passes.forward_s, passes.backward_s, passes.clock
    again = 0.0 if share is None else on_stages(counts, passes.rerun_s) * share
    kept, again_bytes = kept_activations(plans, first, shape, parts, counts, share)
    inputs = staying_inputs(plans, tables.software, first, shape, parts, counts)
    parameters = gather(parts.parameters, shape)
    schedule = schedule_named(plans.base.schedule)
    # A tied head is the token table itself on a single stage, or where the last chunk is on the first rank,
    # and a copy of it elsewhere.
    apart = (plans.pp[first] > 1) & (schedule.layout not in ("v", "both"))
    parameters[:, -1] += parts.tied[shape] * apart
    held = counts if schedule.weight_copies == 1.0 else schedule.weight_copies * counts

    sums = StageSums(first=first, key=key, counts=counts)
    on_plans = sums.of
    on_rank = on_plans(held, parameters)
    learning = parameters
    if parts.trained is not parts.parameters:
        learning = gather(parts.trained, shape)
        learning[:, -1] += 0.0 if plans.base.lora else parts.tied[shape] * apart
    packed = parameters - spared_share(plans.base) * (
        0.0 if parts.quantised is None else gather(parts.quantised, shape)
    )
    layer_only = placeholders_of(plans.base, tables.software, shape, parts, counts)

    return Stages(
        forward_s=on_plans(counts, forward),
        backward_s=gather(on_stages(counts, backward) + again, key),
        weight_s=0.0 if passes.weight_s is None else on_plans(counts, passes.weight_s),
        clock=clock[key],
        core_fall=passes.core_fall[key],
        waits=exchange_waits(plans, tables, sums, passes, mode, share),
        parameters=on_rank,
        trained=on_rank if learning is parameters else on_plans(held, learning),
        matrices=None
        if parts.matrices is None
        else Matrices(
            weights=on_plans(held, gather(parts.matrices.weights, shape)),
            edges=on_plans(held, gather(parts.matrices.edges, shape)),
            counts=on_plans(held, gather(parts.matrices.counts, shape)),
        ),
        products_s=None
        if parts.products_s is None
        else on_plans(held, gather(parts.products_s, shape)),
        routed=on_plans(held, gather(parts.routed, shape)) if parts.experts else None,
        kept_bytes=gather(kept, key),
        again_bytes=gather(again_bytes, key),
        head_bytes=gather(head_of(plans, tables.software, first, shape, parts, counts), key),
        placeholders=None if layer_only is None else gather(layer_only, key),
        narrow=None if parts.narrow is None else on_plans(held, gather(parts.narrow, shape)),
        quantised=None
        if parts.quantised is None
        else on_plans(held, gather(parts.quantised, shape)),
        inputs=None if inputs is None else gather(inputs, key),
        widened_bytes=widening_bytes(plans.base) * parts.widened[tables.shape],
        late=late_weights(
            plans, tables.software, key, learning, parts.tied[shape] * ~apart, counts
        ),
        message_bytes=message_bytes(plans, tables),
        # A frozen tower is gathered layer by layer; it stands with the embedding.
        largest=(packed if plans.base.lora else learning).max(axis=1)[key],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSums:
    """Distinct combinations of plans, whose parts are summed over each stage."""

    first: Index
    """First plan of each combination."""
    key: Index
    """Combination of each plan."""
    counts: Array
    """How often each part is on each stage."""

    def of(self, counted: Array, values: Array) -> Array:
        """Sums over the parts of a stage, gathered to the plans."""
        return gather(on_stages(counted, values), self.key)


def exchange_waits(
    plans: Plans,
    tables: Tables,
    sums: StageSums,
    passes: HeldPasses,
    mode: Array,
    share: Array | None,
) -> tuple[Waits, ...]:
    """Exchanges of each parallelism on each stage; `mode`: what runs again, `share`: of how many layers."""
    parts, group = tables.parts, tables.group[sums.first]
    is_layer = np.arange(len(parts.names)) < parts.kinds
    schedule = schedule_named(plans.base.schedule)

    def both(
        name: str, forward_s: Array, backward_s: Array, behind: bool = False
    ) -> tuple[Array, Array]:
        """Exchanges of both passes, those `behind` other work as far as the chip is the bound."""
        once_more = (mode == 2.0) * is_layer
        if parts.again is not None:
            once_more = once_more + (mode == LISTED) * is_layer * parts.waits_again[name]
        there, back = gather(forward_s, group), gather(backward_s, group)
        repeat = once_more * there
        if behind and passes.shows is not None:
            there, back, repeat = (
                x * y for x, y in zip((there, back, repeat), passes.shows, strict=True)
            )
        total = on_stages(sums.counts, back + repeat)
        if share is not None:
            total = total + share * on_stages(sums.counts, is_layer * there)
        return sums.of(sums.counts, there), gather(total, sums.key)

    def waits_of(name: str, one: Exchange) -> Waits:
        """Exchanges of one parallelism on each stage."""
        tier, waits_s = one.tier[tables.group], None
        if schedule.layout == "both":
            waits_s = sum_of(both(name, one.forward_s, one.backward_s))
        elif one.alone_s is not None:
            waits_s = sum_of(both(name, *one.alone_s, behind=True))
        if one.behind is None:
            passes_s = both(name, one.forward_s, one.backward_s)
            return Waits(passes=passes_s, tier=tier, waits_s=waits_s)
        there, back = one.behind
        fixed = both(name, there.fixed_s, back.fixed_s)
        hidden = both(name, there.hidden_s, back.hidden_s, behind=True)
        slack = both(name, there.slack_s, back.slack_s, behind=True)
        behind = (
            Overlap(fixed_s=fixed[0], hidden_s=hidden[0], slack_s=slack[0]),
            Overlap(fixed_s=fixed[1], hidden_s=hidden[1], slack_s=slack[1]),
        )
        return Waits(passes=behind, tier=tier, waits_s=waits_s)

    return tuple(waits_of(name, one) for name, one in tables.exchanges.by_name.items())


def send_seconds(plans: Plans, tables: Tables) -> Array:
    """Sends and receives of one micro-batch, all chunks of a rank; (plans, 1)."""
    one, size = tables.links.send, tables.parts.send_bytes[tables.shape]
    sends = np.asarray(one.latency_s)[tables.spot] + size * np.asarray(one.s_per_byte)[tables.spot]
    sends = sends + tables.exchanges.send_s[tables.group] * (plans.pp > 1)
    return np.asarray((2.0 * plans.vpp * sends)[:, None])
