"""What the passes of one micro-batch take: each part's time forward, backward and again, at the clock held.

A part takes the chip's time or the host's, whichever is longer; under the power limit the clock falls until
the joules of the whole fit, and clocked work takes longer by as much.
"""

from dataclasses import replace

import numpy as np

from foretell.kernels.power import clock_of
from foretell.records import dataclass
from foretell.sharding.recompute import full_share
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index, Mask
from foretell.specs.plan import Plans
from foretell.specs.plan_forms import recompute_layers
from foretell.training.exchanges import tensor_launch_s
from foretell.training.layer_costs import beside_host, chip_share
from foretell.training.memory import LISTED
from foretell.training.part_costs import BothPasses, Parts, PassSeconds
from foretell.training.tables import Tables, distinct, gather
from foretell.workload.roles import OpRole

FORWARD = 1.0 / 3.0
"""Of what the host takes besides for a layer, the forward pass's share."""
INPUTS = 2.0 / 3.0
"""Of what the host takes for a backward pass, the share of the pass to the inputs: it has a kernel for each
forward one, where the pass to the weights has products alone."""


def repeats_of(plans: Plans, first: Index, tables: Tables) -> Array:
    """Share of the whole model's layers that is computed again whole; (combinations, 1)."""
    mode, blocks = plans.recompute[first][:, None], recompute_layers(plans.base.recompute)
    whole = np.where(mode == 2.0, 1.0, 0.0)
    if not blocks:
        return whole
    many = full_share(float(len(tables.parts.order)), blocks * plans.pp[first])[:, None]
    return np.where(mode == LISTED, many, whole)


def late_launches(plans: Plans, tables: Tables) -> list[Array]:
    """Microseconds that the host takes besides to start a layer of each plan, one column; none: no column.

    With ZeRO 3, hooks may fetch the modules of a layer one by one (`Software.shared_operations`), and the
    matrices of its adapters (`Software.adapter_operations`).
    """
    software, ops = tables.software, tables.parts.ops[0]
    matrices = sum(op.role is OpRole.ADAPTER for op in ops)
    many = software.shared_operations + software.adapter_operations * matrices
    if not many:
        return []
    hooked = (plans.zero >= 3) & (plans.dp * plans.cp > 1)
    each_s = tables.host.operation_s + tables.host.kernel_s
    return [np.rint(1e6 * many * each_s * hooked)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """What the passes of one micro-batch take on distinct combinations of shape, placement and stages."""

    tables: Tables
    """Of the whole batch."""
    shape: Index
    """Shape of each combination."""
    group: Index
    """Shape and placement of each."""
    host_s: BothPasses
    """Host's time of each part forward and backward; (combinations, parts)."""

    def chip_s(self, slower: Num) -> tuple[Array, Array]:
        """The chip's time of each part forward and backward, clocked work `slower`; (combinations, parts)."""
        parts, waited = self.tables.parts, self.tables.exchanges
        forward, backward = (
            spent.seconds[self.shape] + slower * spent.clocked_s[self.shape]
            for spent in (parts.forward, parts.backward)
        )
        return forward + waited.forward_s[self.group], backward + waited.backward_s[self.group]

    def of(self, slower: Num) -> tuple[Array, Array]:
        """Time of each part forward and backward: the chip's or the host's, whichever is longer."""
        forward, backward = self.chip_s(slower)
        return beside_host(forward, self.host_s.forward_s), beside_host(
            backward, self.host_s.backward_s
        )

    def weight_s(self, slower: Num) -> Array | None:
        """What products for weights' gradients add to each part's backward pass; None where no plan asks."""
        found = self.tables.parts.weight_s
        if found is None:
            return None
        products = found[0][self.shape] + slower * found[1][self.shape]
        chip_s, host_s = self.chip_s(slower)[1], self.host_s.backward_s
        return beside_host(chip_s, host_s) - beside_host(chip_s - products, INPUTS * host_s)

    def shows(self, slower: Num) -> tuple[Array, Array, Array]:
        """Slopes of a part's times to the chip's: forward, backward, and modules computed again."""
        forward, backward = self.chip_s(slower)
        found = (
            chip_share(forward, self.host_s.forward_s),
            chip_share(backward, self.host_s.backward_s),
        )
        spent = self.tables.parts.again
        if spent is None:
            return *found, found[0]
        return *found, chip_share(self.again_chip_s(slower), spent.host_s[self.shape])

    def rerun(self, slower: Num) -> tuple[Array, Array]:
        """A part computed again: the chip's time less the operations at its end, and the pass's."""
        stop = self.tables.parts.stop
        stopped_s = stop.seconds[self.shape] + slower * stop.clocked_s[self.shape]
        chip_s = self.chip_s(slower)[0] - stopped_s
        return chip_s, beside_host(chip_s, self.host_s.forward_s)

    def again_chip_s(self, slower: Num) -> Array:
        """The chip's time of the modules that a plan computes again, exchanges included."""
        parts, spent = self.tables.parts, self.tables.parts.again
        if spent is None:
            return np.zeros(1)
        chip_s = spent.seconds[self.shape] + slower * spent.clocked_s[self.shape]
        for name, exchange in self.tables.exchanges.by_name.items():
            chip_s = chip_s + parts.waits_again[name] * exchange.forward_s[self.group]
        return chip_s

    def again(self, slower: Num) -> Array:
        """Time of these modules: the chip's or the host's, whichever is longer."""
        spent = self.tables.parts.again
        chip_s = self.again_chip_s(slower)
        return chip_s if spent is None else beside_host(chip_s, spent.host_s[self.shape])


def pass_times(
    tables: Tables, shape: Index, group: Index, late_us: list[Array], pp: Array
) -> PassTimes:
    """The passes on some combinations, of so many stages; `late_us` as late_launches gives it for them."""
    parts = tables.parts
    launch_s, speed = (
        tensor_launch_s(parts, shape, tables.host.collective_s),
        tables.host_speed[shape][:, None],
    )
    is_layer = np.arange(len(parts.names)) < parts.kinds

    def host_s(spent: PassSeconds, share: float) -> Array:
        more_s = launch_s
        for column in late_us:
            more_s = more_s + 1e-6 * share * column[:, None] * is_layer
        return spent.host_s[shape] + more_s / speed

    both = BothPasses(
        forward_s=host_s(parts.forward, FORWARD),
        backward_s=host_s(parts.backward, 1.0 - FORWARD),
    )
    if tables.software.modules:
        # The head is on the last stage: hosts of others have none to run ahead of.
        ahead_s = lead_s(parts, shape, both) * (pp <= 1)[:, None]
        both = replace(both, backward_s=np.maximum(both.backward_s - ahead_s * is_layer, 0.0))
    return PassTimes(tables=tables, shape=shape, group=group, host_s=both)


def lead_s(parts: Parts, shape: Index, host_s: BothPasses) -> Array:
    """Each layer's share of the chip's time for the head beyond the host's; (combinations, 1)."""
    chip_s = parts.forward.seconds[shape, -1] + parts.backward.seconds[shape, -1]
    ahead = np.maximum(chip_s - host_s.forward_s[:, -1] - host_s.backward_s[:, -1], 0.0)
    return np.asarray(ahead / max(len(parts.order), 1))[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPasses:
    """The passes of one micro-batch at the clock that the step holds."""

    forward_s: Array
    """Forward pass of each part; (combinations, parts)."""
    backward_s: Array
    """Backward pass of each part, with what of it is computed again; (combinations, parts)."""
    clock: Array
    """Clock held, over that of short bursts; (combinations,)."""
    core_fall: Array
    """Factor on the cores' joules there; (combinations,)."""
    rerun_s: Array
    """Computing a layer again whole; zero for other parts; (combinations, parts)."""
    weight_s: Array | None
    """Of the backward pass, the pass to the weights; None where no plan asks; (combinations, parts)."""
    shows: tuple[Array, Array, Array] | None
    """Of a second that the chip takes longer for a part, forward, backward and in what a plan computes again
    of it, what the pass does, which may wait for the host; None where no exchange can be hidden;
    (combinations, parts)."""


def held_passes(plans: Plans, tables: Tables, first: Index, late_us: list[Array]) -> HeldPasses:
    """The passes of some plans (`first`), each computed once for what it depends on: not on the stages."""
    # full:N computes so many layers of every stage again, so that the clock depends on how many there are.
    staged = recompute_layers(plans.base.recompute) or tables.software.modules
    stages = [plans.pp[first]] if staged else []
    late = [column[first] for column in late_us]
    few, key = distinct(tables.group[first], plans.recompute[first], *stages, *late)
    own = first[few]
    mode = plans.recompute[own][:, None]
    is_layer = np.arange(len(tables.parts.names)) < tables.parts.kinds
    late = [column[few] for column in late]
    spent = pass_times(tables, tables.shape[own], tables.group[own], late, plans.pp[own])
    clock, fall = sustained_clock(repeats_of(plans, own, tables) * is_layer, mode, spent)
    forward, backward, rerun = part_seconds(mode, is_layer, spent, clock)
    slower = (tables.pace / clock - 1.0)[:, None]
    weight_s, shows = spent.weight_s(slower), None
    if any(one.behind is not None for one in tables.exchanges.by_name.values()):
        there, back, once_more = spent.shows(slower)
        once_more = np.where(mode == LISTED, once_more, there)
        shows = gather(there, key), gather(back, key), gather(once_more, key)
    return HeldPasses(
        forward_s=gather(forward, key),
        backward_s=gather(backward, key),
        clock=clock[key],
        core_fall=fall[key],
        rerun_s=gather(rerun, key),
        weight_s=None if weight_s is None else gather(weight_s, key),
        shows=shows,
    )


def sustained_clock(repeats: Array, mode: Array, spent: PassTimes) -> tuple[Array, Array]:
    """Clock that a step holds under the power limit, and the factor on its cores' joules; (combinations,).

    From sums over the whole model of one micro-batch: what stretches when the clock falls, what does not
    (memory traffic, exchanges, waiting for the host), and what is spent.
    """
    parts, shape = spent.tables.parts, spent.shape
    again = 1.0 + repeats
    many = parts.counts

    def total(forward: Array, backward: Array, stopped: Array) -> Array:
        spent_s = forward * again + backward - stopped[shape] * repeats
        return np.asarray((spent_s * many).sum(axis=1))

    names = ("clocked_s", "core_joules", "memory_joules")
    sums = [
        total(
            getattr(parts.forward, n)[shape],
            getattr(parts.backward, n)[shape],
            getattr(parts.stop, n),
        )
        for n in names
    ]
    forward_s, backward_s = spent.of(0.0)
    all_s = total(forward_s, backward_s, parts.stop.seconds)
    if parts.again is not None:
        listed = mode[:, 0] == LISTED
        more = [(getattr(parts.again, n)[shape] * many).sum(axis=1) * listed for n in names]
        sums = [s + m for s, m in zip(sums, more, strict=True)]
        all_s = all_s + (spent.again(0.0) * many).sum(axis=1) * listed
    clocked_s, core_j, memory_j = sums
    return clock_of(all_s - clocked_s, clocked_s, core_j, memory_j, spent.tables.power)


def part_seconds(
    mode: Array, is_layer: Mask, spent: PassTimes, clock: Array
) -> tuple[Array, Array, Array]:
    """Forward and backward time of each part for one micro-batch, and that of layers computed again whole;
    (combinations, parts).

    Full recomputation (mode 2) runs the layers' forward pass with its communication again, selective
    (mode 1) the attention core, a list of modules what it names; embedding and head are never recomputed.
    full:N, which depends on the stage, comes on top of it.
    """
    parts = spent.tables.parts
    slower = (spent.tables.pace / clock - 1.0)[:, None]
    forward, backward = spent.of(slower)
    rerun = spent.rerun(slower)[1] * is_layer
    again = np.where(mode == 2.0, rerun, np.where(mode == 1.0, parts.core_s[spent.shape], 0.0))
    if parts.again is not None:
        again = np.where(mode == LISTED, spent.again(slower) * is_layer, again)
    return forward, backward + again, rerun
