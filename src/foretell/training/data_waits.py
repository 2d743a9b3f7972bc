"""Data parallelism in time: what of its messages a step waits for, and which of these waits pass on."""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.network.collectives import contention_s, outermost
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.schedules.base import Schedule
from foretell.specs._base import Num
from foretell.specs.chip import Chip
from foretell.specs.plan import Plans
from foretell.specs.scenario import Scenario
from foretell.training.data_parallel import (
    GroupWeights,
    Messages,
    copy_seconds,
    data_messages,
    kinds_alike,
    slice_seconds,
)
from foretell.training.exposure import exposure_of
from foretell.training.shapes import sum_of
from foretell.training.tables import Stages, Tables

Array = NDArray[np.float64]
Index = NDArray[np.intp]

LINK_SHARE = 0.6
"""Share of its nominal rate at which a link carries a collective's bytes while it is in use: so that training
runs come out as with links in use by the slowest's measured rate, which made faster links slow some steps."""
CORES_TAKEN = 0.2
"""Share of a GPU's cores that a collective keeps from the pass that hides it, at the full rate of the links
inside a node: NCCL runs it as a kernel of 16 to 32 blocks on 108 to 148 cores."""
NO_ENGINES = ("cpu",)
"""Architectures whose messages are copied and added up by the cores that compute: nothing is hidden."""
OWN_ENGINES = ("tpu", "trainium", "wafer")
"""Architectures, by how their names begin, whose links need no cores."""


def cores_taken(chip: Chip, use: Array) -> Array:
    """Share of the cores that a collective keeps, which uses so much of the links inside a node."""
    if chip.architecture.startswith(NO_ENGINES):
        return np.ones_like(use)
    return (0.0 if chip.architecture.startswith(OWN_ENGINES) else CORES_TAKEN) * use


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWaits:
    """Data-parallel communication that a step waits for; arrays are (plans, stages)."""

    step_s: Array
    """In the whole step."""
    forward_s: Num
    """Of one micro-batch, what its forward pass waits for before it can send its result to the next stage:
    weights that ZeRO 3 gathers. Other stages wait for this too."""
    backward_s: Num
    """The same of its backward pass; gradients that it sends itself hold nothing up but the next pass."""
    gather_s: Num = 0.0
    """Of one micro-batch, weights that ZeRO 3 gathers and its forward pass waits for, copies included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HidingPasses:
    """What one message of all weights hides behind; arrays are (plans, stages)."""

    pass_s: Array
    """The pass of a micro-batch, or the passes of two where each goes over one of two copies."""
    sums_s: Array | None
    """Adding up gradients in it; None: none are."""
    waits_s: list[Array]
    """Exchanges that the pass itself waits for, by parallelism."""
    sends_s: Array
    """Its sends to the next stage."""
    passes: Array | None = None
    """How many passes that is, (plans, 1); None: one."""


def data_waits(
    scenario: Scenario,
    plans: Plans,
    tables: Tables,
    stages: Stages,
    shares: tuple[GroupWeights, ...],
    beside: tuple[Array, Array],
    host_s: tuple[Array, Array] | None = None,
) -> DataWaits:
    """What a step waits for data parallelism; `beside` are the sends between stages and the sums of
    gradients of one micro-batch, `host_s` the copies to and from the host in each pass.

    Layer by layer, gradients are reduced behind the rest of the backward pass of a micro-batch and
    weights gathered behind the forward pass; what is longer than the pass, and at least one layer's
    share, is exposed; what is hidden takes cores. Where the pass's own exchanges use the same links, both
    take longer.
    Spread experts have a group of their own, whose messages follow those of the others. A pass that copies
    hold up hides more; where ZeRO 3 waits in every pass, copies go on meanwhile (training/offload.py).
    """
    alike = kinds_alike(plans, tables)
    messages = [data_messages(plans, tables, share, alike) for share in shares]
    software, traffic = scenario.software, shares[0].traffic
    exposed = exposure_of(plans.base, software, plans.zero[:, None])
    forward = forward_pass(plans, stages, beside[0], exposed.gathers)
    backward = backward_pass(plans, stages, beside, exposed.reductions)
    if host_s is not None:
        waits = plans.zero >= 3
        forward = held_up(forward, waits, host_s[0])
        backward = held_up(backward, waits & plans.base.reshard, host_s[1])
    shown_s = ExposedMessages(
        chip=scenario.system.chip,
        spot=tables.spot,
        needs=tables.link_needs / LINK_SHARE,
        pipe_tier=outermost(tables.pipe_counts)[tables.spot],
        tiers=[w.tier for w in stages.waits],
        messages=messages,
    )
    reduced = shown_s.of("reduce", backward, exposed.together(messages))
    gathered = shown_s.of("gather", forward, exposed.gathers)
    step_s = (traffic.all_reduces + traffic.scatters)[:, None] * reduced
    again: Num = 0.0
    once = (plans.zero >= 3) & ~each_sends(plans)
    if once.any():
        # ZeRO 3 gathers weights for every micro-batch and reduces gradients with the last alone.
        more = np.maximum(traffic.gathers_backward - traffic.scatters, 0.0)[:, None]
        again = shown_s.of("again", backward, exposed.gathers_again)
        step_s = step_s + more * again
    step_s = step_s + traffic.gathers_forward[:, None] * gathered
    copied_s: Num = 0.0
    if software.gather_copies:
        copied_s = sum_of([copy_seconds(scenario, plans, share) for share in shares])
        step_s = step_s + copied_s
        copied_s = copied_s / np.maximum(traffic.gathers_forward, 1.0)[:, None]
    if software.slice_copy_s:
        step_s = step_s + slice_seconds(scenario, plans, tables, traffic.group)
    # Nobody asks for these of a single stage whose copies to the host they do not hide.
    asked = plans.pp > 1 if plans.base.offload == "none" else plans.pp > 0
    three = ((plans.zero >= 3) & asked)[:, None]
    if not three.any():
        alone_s = (plans.zero >= 3)[:, None] * (gathered + copied_s / 3.0)
        return DataWaits(step_s=step_s, forward_s=0.0, backward_s=0.0, gather_s=alone_s)
    back_s: Num = 0.0
    if plans.base.reshard:
        # Gradients that are sent once a step are sent with the last micro-batch, whose backward passes are
        # those that other stages wait for at the end.
        back_s = backward_waits(plans, reduced, messages, exposed.reductions)
    each = three / schedule_named(plans.base.schedule).weight_copies
    # Weights are copied out of their messages in both passes, gradients into theirs backward.
    return DataWaits(
        step_s=step_s,
        forward_s=each * (gathered + copied_s / 3.0),
        backward_s=each * (back_s + 2.0 * copied_s / 3.0),
        gather_s=each * (gathered + copied_s / 3.0),
    )


def forward_pass(plans: Plans, stages: Stages, sends_s: Array, shown: Num) -> HidingPasses:
    """What gathered weights hide behind: one forward pass, of every copy that a rank holds with ZeRO 3. A
    framework that shows all of them (`shown` 1) hides none."""
    waits = [w.forward_s for w in stages.waits]
    found = HidingPasses(pass_s=stages.forward_s, sums_s=None, waits_s=waits, sends_s=sends_s)
    return of_each(found, plans, plans.zero >= 3, shown)


def backward_pass(
    plans: Plans, stages: Stages, beside: tuple[Array, Array], shown: Num
) -> HidingPasses:
    """What reduced gradients hide behind: one backward pass.

    Messages of every micro-batch hide behind its sums too; where the pass to the weights runs apart, the
    gradients among them come out of that alone.
    """
    schedule = schedule_named(plans.base.schedule)
    waits, pass_s, sends_s = [w.backward_s for w in stages.waits], stages.backward_s, beside[0]
    each = each_sends(plans)
    if weights_apart(schedule):
        alone = (each & (plans.zero < 3))[:, None]
        pass_s = np.where(alone, stages.weight_s, pass_s)
        # That pass has no exchanges of its own.
        waits, sends_s = [np.where(alone, 0.0, w) for w in waits], np.where(alone, 0.0, sends_s)
    each = each | (plans.zero >= 3)
    sums_s = each[:, None] * beside[1] if each.any() else None
    found = HidingPasses(pass_s=pass_s, sums_s=sums_s, waits_s=waits, sends_s=sends_s)
    return of_each(found, plans, each, shown)


def held_up(one: HidingPasses, waits: NDArray[np.bool_], copies_s: Array) -> HidingPasses:
    """The same where copies to and from the host take longer than the pass, unless it `waits` by itself."""
    sums_s: Num = 0.0 if one.sums_s is None else one.sums_s
    many: Num = 1.0 if one.passes is None else one.passes
    longer_s = np.maximum(one.pass_s, many * copies_s - sums_s)
    return replace(one, pass_s=np.where(waits[:, None], one.pass_s, longer_s))


def each_sends(plans: Plans) -> NDArray[np.bool_]:
    """Whether each micro-batch sends its gradients: with ZeRO 2 and 3 below no pipeline, unless told."""
    alone = (plans.zero >= 2) & (plans.pp <= 1)
    often = {"auto": alone, "step": plans.zero < 0, "micro-batch": plans.zero >= 0}
    return often[plans.base.reduce]


def weights_apart(schedule: Schedule) -> bool:
    """Whether the pass to the weights is a task of its own for every micro-batch."""
    return schedule.splits_backward and schedule.weight_copies == 1.0


def of_each(one: HidingPasses, plans: Plans, each: NDArray[np.bool_], shown: Num) -> HidingPasses:
    """The same where each micro-batch sends its own: beside the passes of as many micro-batches as there are
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
        waits_s=[meets * wait_s for wait_s in one.waits_s],
        sends_s=meets * one.sends_s,
        passes=many,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedMessages:
    """What of the messages of a batch of plans shows."""

    chip: Chip
    """The chip."""
    spot: Index
    """Degrees and placement of each plan, numbered."""
    needs: Array
    """Seconds that each tier's links are in use for a byte; (tiers, spots)."""
    pipe_tier: Index
    """Outermost tier that sends between stages touch; (plans,)."""
    tiers: list[Index]
    """The same of the passes' own exchanges, by parallelism."""
    messages: list[Messages]
    """Messages of each kind of group."""

    def of(
        self, kind: Literal["reduce", "gather", "again"], behind: HidingPasses, shown: Num
    ) -> Array:
        """What shows of all pieces of one kind behind a pass, of which a framework shows a share anyway;
        (plans, stages)."""
        ones = [getattr(m, f"{kind}_s") for m in self.messages]
        all_s = sum_of([m.pieces * one_s for m, one_s in zip(self.messages, ones, strict=True)])
        used = self._rate(kind, ones)

        def use(tier: Index | int) -> Array:
            return np.asarray(np.minimum(self.needs[tier, self.spot] * used, 1.0)[:, None])

        # Collectives that keep the links inside a node busy keep cores busy, those that wait for ports few.
        taken = cores_taken(self.chip, use(0))
        least_s = sum_of(ones) if behind.passes is None else behind.passes * sum_of(ones)
        hides_s = behind.pass_s if behind.sums_s is None else behind.pass_s + behind.sums_s
        beyond_s = np.maximum(least_s, all_s - hides_s)
        beyond_s = beyond_s + (shown + (1.0 - shown) * taken) * (all_s - beyond_s)
        pairs = zip(behind.waits_s, self.tiers, strict=True)
        own_s = sum_of([wait_s * use(tier) for wait_s, tier in pairs])
        own_s = own_s + 0.5 * behind.sends_s * use(self.pipe_tier)
        return np.asarray(beyond_s + contention_s(own_s, all_s, behind.pass_s))

    def _rate(self, kind: str, ones: list[Array]) -> Array:
        """Bytes/s of all messages of a kind together: each group's, by the time that it takes; (plans,)."""
        rates = [np.asarray(getattr(m, f"{kind}_bytes_per_s")) for m in self.messages]
        if len(rates) == 1:
            return rates[0]
        pairs = zip(self.messages, ones, strict=True)
        spent = [np.asarray(m.pieces * one_s).sum(axis=-1) for m, one_s in pairs]
        sent = sum_of([time * rate for time, rate in zip(spent, rates, strict=True)])
        return np.asarray(sent / np.maximum(sum_of(spent), 1e-30))


def backward_waits(plans: Plans, reduced: Array, messages: list[Messages], shown: Num) -> Array:
    """Of what a backward pass waits for, all but the gradients that are sent when it is through: the last
    piece, or every one where nothing is overlapped or the pass to the weights comes later;
    (plans, stages)."""
    if weights_apart(schedule_named(plans.base.schedule)):
        again_s = sum_of([m.pieces * m.again_s for m in messages])
        all_s = sum_of([m.pieces * m.reduce_s for m in messages])
        return np.asarray(reduced * again_s / np.maximum(all_s, 1e-30))
    for m in messages:
        late_s = m.reduce_s - m.again_s
        if np.any(shown):
            late_s = (shown * m.pieces + (1.0 - shown)) * late_s
        reduced = reduced - late_s
    return reduced
