"""Data parallelism with ZeRO stages 0 to 3 (Rajbhandari et al. 2020), whole or in groups.

Every replica computes its micro-batches; gradients are reduced over the replicas. Stage 1 shares the
optimizer's states, stage 2 the gradients too, stage 3 the weights too (FSDP).

    shard g      stages 1 to 3 share over groups of g ranks; the dp / g replicas of a share reduce it among
                 themselves (HSDP; the zero groups of InternEvo; MiCS)
    no-reshard   weights gathered for the forward pass stay until the backward pass has used them
    secondary s  a second copy of the weights, shared by s near ranks, feeds the backward gathers (hpZ of
                 ZeRO++, Wang et al. 2023)
    reduce       once a step over full gradients, or once a micro-batch; auto with a pipeline: once a step,
                 since stages pass through all micro-batches before they send (torchtitan, Llama 3)
"""

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.plan import DTYPE_BYTES, Plan
from foretell.specs.plan_words import Reduce


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How the data-parallel ranks share; numbers may be arrays over plans."""

    shard: Num = 0.0
    """Ranks that ZeRO shares over; 0: all."""
    secondary: Num = 0.0
    """Ranks of the second copy of the weights; 0: none."""
    reshard: bool = True
    """Whether gathered weights are freed after the forward pass."""
    reduce: Reduce = "auto"
    """How often gradients are reduced."""


WHOLE = Sharing()
"""Over all ranks, as ZeRO was published."""


def sharing_of(plan: Plan) -> Sharing:
    """The sharing of one plan, or of the plans of a batch that have it as their base."""
    return Sharing(
        shard=float(plan.shard),
        secondary=float(plan.secondary),
        reshard=plan.reshard,
        reduce=plan.reduce,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTraffic:
    """How often each collective runs in one step, over how many ranks, and who shares what."""

    all_reduces: Array
    """All-reduces of the gradients over all ranks (stage 0)."""
    scatters: Array
    """Reduce-scatters of the gradients in the sharing group (stages 1 to 3)."""
    gathers_forward: Array
    """All-gathers of the weights that meet the forward pass (stages 1 and 2: after the update)."""
    gathers_backward: Array
    """All-gathers of the weights in the backward pass (stage 3)."""
    weight_parts: Array
    """Ranks that a weight is shared by; less where it is held twice."""
    gradient_parts: Array
    """Ranks that a gradient is shared by."""
    state_parts: Array
    """Ranks that master copy and states are shared by."""
    group: Array
    """Ranks of a sharing group: scatters and gathers run over these."""
    replicas: Array
    """Sharing groups: a share is reduced over these."""
    replica_reduces: Array
    """All-reduces of one rank's share of the gradients over the replicas; 0 where there is one group."""
    backward_group: Array
    """Ranks that backward gathers run over."""


def sharing_group(dp: Num, sharing: Sharing = WHOLE) -> Array:
    """Ranks that share one copy of what ZeRO shares."""
    shard = np.asarray(sharing.shard, float)
    return np.where(shard > 0, np.minimum(shard, dp), dp)


def sharing_holds(dp: Num, sharing: Sharing = WHOLE) -> NDArray[np.bool_]:
    """Where the groups divide the ranks: shard divides dp, secondary the sharing group."""
    group, secondary = sharing_group(dp, sharing), np.asarray(sharing.secondary, float)
    inner = np.mod(group, np.maximum(secondary, 1.0)) == 0
    return np.asarray((np.mod(dp, group) == 0) & inner & (sharing.shard <= np.asarray(dp)))


def data_parallel(
    dp: Array, zero: Array, micro_batches: Array, sharing: Sharing = WHOLE, pp: Num = 1.0
) -> DataTraffic:
    """Stages 0 and 1 reduce once per step; 2 and 3, which keep no full gradients, once per micro-batch,
    but once per step where there is a pipeline of `pp` stages.

    `reduce` overrides this: with step, stages 2 and 3 add up full gradients until the last micro-batch (the
    no_sync of PyTorch), with micro-batch, stages 0 and 1 send every micro-batch's.
    """
    three, two, one = zero >= 3, zero >= 2, zero >= 1
    group = sharing_group(dp, sharing)
    replicas = dp / group
    secondary = np.asarray(sharing.secondary, float)
    near = three & (secondary > 0) & (secondary < group)
    alone = two & (np.asarray(pp) <= 1)
    each = {"auto": alone, "step": np.zeros_like(two), "micro-batch": np.ones_like(two)}
    often = np.where(each[sharing.reduce], micro_batches, 1.0)
    split = two & each[sharing.reduce]
    again = three & sharing.reshard
    copies = 1.0 / group + np.where(near, 1.0 / np.maximum(secondary, 1.0), 0.0)
    return DataTraffic(
        all_reduces=np.where(one, 0.0, often),
        scatters=np.where(one, often, 0.0),
        gathers_forward=np.where(three, micro_batches, np.where(one, 1.0, 0.0)),
        gathers_backward=np.where(again, micro_batches, 0.0),
        weight_parts=np.where(again, np.where(near, 1.0 / copies, group), 1.0),
        gradient_parts=np.where(split, group, 1.0),
        state_parts=np.where(one, group, 1.0),
        group=group,
        replicas=replicas,
        replica_reduces=np.where(one & (replicas > 1), often, 0.0),
        backward_group=np.where(near, secondary, group),
    )


def split_counts(counts: Array, group: Num) -> tuple[Array, Array]:
    """Where the members of a sharing group are, and where its replicas; both (tiers, plans).

    `counts` (tiers, plans) says how all data-parallel ranks divide over the tiers, innermost first; the first
    `group` of them are one sharing group, so that it takes as much of each inner tier as there is.
    """
    inner = np.empty_like(counts)
    left = np.asarray(group, float) * np.ones(counts.shape[1])
    for tier, here in enumerate(counts):
        inner[tier] = np.minimum(here, left)
        left = left / inner[tier]
    return inner, counts / inner


def wire_bytes(plan: Plan) -> tuple[float, float]:
    """Bytes per weight that reducing gradients and gathering weights send.

    Gathering in fp8 casts each rank's share first, half the bytes of 16 bits (torchtitan's fp8 all-gather).
    """
    gradient = plan.gradients if plan.wire == "auto" else plan.wire
    weight = plan.weights if plan.gather == "auto" else plan.gather
    return DTYPE_BYTES[gradient], DTYPE_BYTES[weight]
