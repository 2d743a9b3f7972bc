"""Data parallelism in time: what of its messages a step waits for, and which of these waits pass on."""

from dataclasses import replace

import numpy as np

from foretell.network.collectives import outermost
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.schedules.base import Schedule
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Mask
from foretell.specs.plan import Plans
from foretell.specs.scenario import Scenario
from foretell.training.data_parallel import (
    GroupWeights,
    Messages,
    copy_seconds,
    data_messages,
    kinds_alike,
)
from foretell.training.exposed_messages import (
    LINK_SHARE,
    ExposedMessages,
    Exposure,
    HidingPasses,
    exposure_of,
    times,
)
from foretell.training.part_costs import BothPasses
from foretell.training.shapes import sum_of
from foretell.training.tables import Stages, Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWaits:
    """Data-parallel communication that a step waits for; arrays are (plans, stages)."""

    step_s: Array
    """In the whole step."""
    forward_s: Num = 0.0
    """Of one micro-batch, what its forward pass waits for before it can send its result to the next stage:
    weights that ZeRO 3 gathers. Other stages wait for this too."""
    backward_s: Num = 0.0
    """The same of its backward pass; gradients that it sends itself hold nothing up but the next pass."""
    usual_s: Num = 0.0
    """The same of the backward pass of every micro-batch but the last, which may send gradients besides."""
    weight_s: Num = 0.0
    """Where the pass to the weights runs apart, what it waits for gradients of each micro-batch."""
    gather_s: Num = 0.0
    """Of one micro-batch, weights that ZeRO 3 gathers and its forward pass waits for, copies included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesBeside:
    """Messages of one micro-batch that data parallelism is beside; (plans, stages)."""

    sends_s: Array
    """Sends between stages."""
    sums_s: Array
    """Sums of gradients."""


def data_waits(
    scenario: Scenario,
    plans: Plans,
    tables: Tables,
    stages: Stages,
    shares: tuple[GroupWeights, ...],
    beside: MessagesBeside,
    host_s: BothPasses | None = None,
) -> DataWaits:
    """What a step waits for data parallelism; `host_s` are the copies to and from the host.

    Layer by layer, gradients are reduced behind the rest of the backward pass of a micro-batch and
    weights gathered behind the forward pass; what is longer than the pass, and at least one layer's
    share, is exposed; what is hidden takes cores. Where the pass's own exchanges use the same links, both
    take longer.
    Spread experts have a group of their own, whose messages follow those of the others. A pass that copies
    hold up hides more; where ZeRO 3 waits in every pass, copies go on meanwhile (training/micro_batch.py).
    """
    alike = kinds_alike(plans, tables)
    messages = [data_messages(plans, tables, share, alike) for share in shares]
    software, traffic = scenario.software, shares[0].traffic
    exposed = exposure_of(plans.base, software, plans.zero[:, None])
    forward = forward_pass(plans, stages, beside.sends_s, exposed.gathers)
    backward = backward_pass(plans, stages, beside, exposed.reductions)
    if host_s is not None:
        waits = plans.zero >= 3
        forward = held_up(forward, waits, host_s.forward_s)
        copies_s = copies_beside(plans, stages, host_s.backward_s)
        backward = held_up(backward, waits & plans.base.reshard, copies_s)
    shown_s = ExposedMessages(
        chip=scenario.system.chip,
        spot=tables.spot,
        needs=tables.links.needs / LINK_SHARE,
        pipe_tier=outermost(tables.links.counts["pp"])[tables.spot],
        tiers=[w.tier for w in stages.waits],
        messages=messages,
    )
    back = backward_messages(plans, stages, beside, exposed, (shown_s, backward))
    gathered = shown_s.of("gather", forward, exposed.gathers)
    step_s = (traffic.all_reduces + traffic.scatters)[:, None] * back.reduced_s
    if ((plans.zero >= 3) & ~each_sends(plans)).any():
        # ZeRO 3 gathers weights for every micro-batch and reduces gradients with the last alone.
        more = np.maximum(traffic.gathers_backward - traffic.scatters, 0.0)[:, None]
        step_s = step_s + more * back.again_s
    step_s = step_s + traffic.gathers_forward[:, None] * gathered
    copied_s: Num = 0.0
    if software.gather_copies:
        copied_s = sum_of([copy_seconds(scenario, plans, share) for share in shares])
        step_s = step_s + copied_s
        copied_s = copied_s / np.maximum(traffic.gathers_forward, 1.0)[:, None]
    # Nobody asks for these of a single stage whose copies to the host they do not hide.
    asked = plans.pp > 1 if plans.base.offload == "none" else plans.pp > 0
    three = ((plans.zero >= 3) & asked)[:, None]
    if not three.any():
        alone_s = (plans.zero >= 3)[:, None] * (gathered + copied_s / 3.0)
        return DataWaits(step_s=step_s, weight_s=back.weight_s, gather_s=alone_s)
    each = three / schedule_named(plans.base.schedule).weight_copies
    # Gradients that are sent once a step are sent with the last micro-batch, whose backward passes are those
    # that other stages wait for at the end.
    last_s, usual_s = back.passed_on(plans, messages, exposed.reductions)
    # Weights are copied out of their messages in both passes, gradients into theirs backward.
    gathered = each * (gathered + copied_s / 3.0)
    return DataWaits(
        step_s=step_s,
        forward_s=gathered,
        backward_s=each * (last_s + 2.0 * copied_s / 3.0),
        usual_s=each * (usual_s + 2.0 * copied_s / 3.0),
        weight_s=back.weight_s,
        gather_s=gathered,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardWaits:
    """What a backward pass waits for the messages of one micro-batch; arrays are (plans, stages)."""

    reduced_s: Array
    """For gradients, and for weights that are gathered with them."""
    again_s: Num
    """For weights alone, where micro-batches gather them and send no gradients."""
    weight_s: Num
    """For gradients, in the pass to the weights, where that runs apart for micro-batches that send theirs."""

    def passed_on(self, plans: Plans, messages: list[Messages], shown: Num) -> tuple[Num, Num]:
        """Of these, what the last micro-batch and each other wait for before they can send on: all but the
        gradients that are sent when the pass is through: the last piece, or every one where nothing is
        overlapped or the pass to the weights comes later."""
        if not plans.base.reshard:
            return 0.0, 0.0
        if weights_apart(schedule_named(plans.base.schedule)):
            return self.again_s, self.again_s
        last_s = self.reduced_s
        for m in messages:
            late_s = m.reduce_s - m.again_s
            if np.any(shown):
                late_s = (shown * m.pieces + (1.0 - shown)) * late_s
            last_s = last_s - late_s
        return last_s, np.where(each_sends(plans)[:, None], last_s, self.again_s)


def backward_messages(
    plans: Plans,
    stages: Stages,
    beside: MessagesBeside,
    exposed: Exposure,
    behind: tuple[ExposedMessages, HidingPasses],
) -> BackwardWaits:
    """What backward passes wait for; `behind` are the messages, and the whole pass that hides them."""
    shown_s, backward = behind
    shared, each = plans.zero >= 3, each_sends(plans)
    reduced_s = shown_s.of("reduce", backward, exposed.together(shown_s.messages))
    again_s: Num = 0.0
    if not weights_apart(schedule_named(plans.base.schedule)):
        if (shared & ~each).any():
            again_s = shown_s.of("again", backward, exposed.gathers_again)
        return BackwardWaits(reduced_s=reduced_s, again_s=again_s, weight_s=0.0)
    weight_s = reduced_s
    if shared.any():
        # Weights are gathered for the pass to the inputs, gradients come out of the one to the weights.
        inputs, weights = split_passes(plans, stages, beside, exposed)
        again_s = shown_s.of("again", inputs, exposed.gathers_again)
        scattered_s = shown_s.of("scatter", weights, exposed.reductions)
        reduced_s = np.where(shared[:, None], again_s + scattered_s, reduced_s)
        weight_s = np.where(shared[:, None], scattered_s, weight_s)
    return BackwardWaits(reduced_s=reduced_s, again_s=again_s, weight_s=each[:, None] * weight_s)


def split_passes(
    plans: Plans, stages: Stages, beside: MessagesBeside, exposed: Exposure
) -> tuple[HidingPasses, HidingPasses]:
    """The backward pass of a micro-batch to the inputs, and the one to the weights, without exchanges."""
    own = [w.passes[1] for w in stages.waits]
    inputs = HidingPasses(
        pass_s=np.asarray(stages.backward_s - stages.weight_s),
        sums_s=None,
        exchanges=own,
        sends_s=beside.sends_s,
    )
    weights = HidingPasses(
        pass_s=np.asarray(stages.weight_s + np.zeros_like(stages.backward_s)),
        sums_s=beside.sums_s,
        exchanges=[times(one, 0.0) for one in own],
        sends_s=0.0 * beside.sends_s,
    )
    shared = plans.zero >= 3
    return (
        of_each(inputs, plans, shared, exposed.gathers_again),
        of_each(weights, plans, shared, exposed.reductions),
    )


def forward_pass(plans: Plans, stages: Stages, sends_s: Array, shown: Num) -> HidingPasses:
    """The forward pass that gathered weights hide behind, of every copy that a rank holds with ZeRO 3."""
    own = [w.passes[0] for w in stages.waits]
    found = HidingPasses(pass_s=stages.forward_s, sums_s=None, exchanges=own, sends_s=sends_s)
    return of_each(found, plans, plans.zero >= 3, shown)


def backward_pass(plans: Plans, stages: Stages, beside: MessagesBeside, shown: Num) -> HidingPasses:
    """What reduced gradients hide behind: one backward pass.

    Messages of every micro-batch hide behind its sums too; where the pass to the weights runs apart, the
    gradients among them come out of that alone.
    """
    schedule = schedule_named(plans.base.schedule)
    own = [w.passes[1] for w in stages.waits]
    pass_s, sends_s = stages.backward_s, beside.sends_s
    each = each_sends(plans)
    if weights_apart(schedule):
        alone = (each & (plans.zero < 3))[:, None]
        pass_s = np.where(alone, stages.weight_s, pass_s)
        # That pass has no exchanges of its own.
        own = [times(w, np.where(alone, 0.0, 1.0)) for w in own]
        sends_s = np.where(alone, 0.0, sends_s)
    each = each | (plans.zero >= 3)
    sums_s = each[:, None] * beside.sums_s if each.any() else None
    found = HidingPasses(pass_s=pass_s, sums_s=sums_s, exchanges=own, sends_s=sends_s)
    return of_each(found, plans, each, shown)


def copies_beside(plans: Plans, stages: Stages, copies_s: Array) -> Array:
    """Seconds of which a backward pass lasts no less, with copies to and from the host; (plans, stages).

    Where messages hide behind the pass to the weights alone, the one to the inputs has had its share.
    """
    if not weights_apart(schedule_named(plans.base.schedule)):
        return copies_s
    alone = (each_sends(plans) & (plans.zero < 3))[:, None]
    return np.asarray(copies_s - alone * (stages.backward_s - stages.weight_s))


def held_up(one: HidingPasses, waits: Mask, copies_s: Array) -> HidingPasses:
    """What a pass hides where copies to and from the host are longer, unless it `waits` by itself."""
    sums_s: Num = 0.0 if one.sums_s is None else one.sums_s
    many: Num = 1.0 if one.passes is None else one.passes
    still_s = np.maximum(many * copies_s - sums_s - one.pass_s, 0.0) * ~waits[:, None]
    return replace(one, pass_s=one.pass_s + still_s, still_s=still_s)


def each_sends(plans: Plans) -> Mask:
    """Whether each micro-batch sends its gradients: with ZeRO 2 and 3 below no pipeline, unless stated."""
    alone = (plans.zero >= 2) & (plans.pp <= 1)
    often = {"auto": alone, "step": plans.zero < 0, "micro-batch": plans.zero >= 0}
    return often[plans.base.reduce]


def weights_apart(schedule: Schedule) -> bool:
    """Whether the pass to the weights is a task of its own for every micro-batch."""
    return schedule.splits_backward and schedule.weight_copies == 1.0


def of_each(one: HidingPasses, plans: Plans, each: Mask, shown: Num) -> HidingPasses:
    """What hides messages that each micro-batch sends: the passes of as many micro-batches as there are
    copies of the weights, and meeting no exchange where a framework sends while no pass runs."""
    copies = schedule_named(plans.base.schedule).weight_copies
    whole = np.asarray(shown >= 1.0).reshape(-1)
    if copies == 1.0 and not whole.any():
        return one
    many = np.where(each, copies, 1.0)[:, None]
    meets = np.where(each & whole, 0.0, many[:, 0])[:, None]
    return HidingPasses(
        pass_s=many * one.pass_s,
        sums_s=None if one.sums_s is None else many * one.sums_s,
        exchanges=[times(own, meets) for own in one.exchanges],
        sends_s=meets * one.sends_s,
        passes=many,
    )
