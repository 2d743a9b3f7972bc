"""Messages behind a pass: what of them shows, given what else the chip's cores and links do meanwhile.

Which share shows though a pass could hide it comes from the plan or its software:

    grad_overlap    reductions of gradients; auto: `Software.overlap_stage`
    param_overlap   gathers of weights; auto: the same, or all of them after an update (`gather_waits`)
"""

from collections.abc import Callable

import numpy as np

from foretell.network.collectives import contention_s
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index
from foretell.specs.chip import Chip
from foretell.specs.plan import Plan
from foretell.specs.software import Software
from foretell.training.data_parallel import MessageKind, Messages
from foretell.training.overlap import Overlap, contention_of, scaled
from foretell.training.shapes import sum_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Shares of messages that are waited for whatever could hide them; numbers, or (plans, 1)."""

    reductions: Num
    """Of reductions of gradients."""
    gathers: Num
    """Of gathers of weights forward, or after the update."""
    gathers_again: Num
    """Of gathers backward."""

    def together(self, messages: list[Messages]) -> Num:
        """Of reductions that have a gather with them, by the seconds of each."""
        if self.gathers_again is self.reductions:
            return self.reductions
        again_s = sum_of([m.pieces * m.again_s for m in messages])
        both_s = sum_of([m.pieces * m.reduce_s for m in messages])
        more = self.gathers_again - self.reductions
        return self.reductions + more * again_s / np.maximum(both_s, 1e-30)


def exposure_of(plan: Plan, software: Software, zero: Num) -> Exposure:
    """As the plan's words have it, else as its software, which may go by the ZeRO stage."""
    late = np.asarray(zero) < software.overlap_stage
    own: Num = np.where(late, 1.0, 0.0)
    # What ZeRO 3 gathers is gathered in the passes.
    waits = software.gather_waits & (np.asarray(zero) < 3)
    after: Num = np.where(waits, 1.0, own)

    def share(word: str, usual: Num) -> Num:
        return {"on": 0.0, "off": 1.0}.get(word, usual)

    return Exposure(
        reductions=share(plan.grad_overlap, own),
        gathers=share(plan.param_overlap, after),
        gathers_again=share(plan.param_overlap, own),
    )


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
class HidingPasses:
    """What one message of all weights hides behind; arrays are (plans, stages)."""

    pass_s: Array
    """The pass of a micro-batch, or the passes of two where each goes over one of two copies."""
    sums_s: Array | None
    """Adding up gradients in it; None: none are."""
    exchanges: list[Array | Overlap]
    """Exchanges of the pass itself by parallelism: what it waits for, or what can hide them too."""
    sends_s: Array
    """Its sends to the next stage."""
    passes: Array | None = None
    """How many passes that is, (plans, 1); None: one."""
    still_s: Array | None = None
    """Of `pass_s`, what its kernels and exchanges stand still for copies to and from the host; None: nothing
    is copied."""


def times(own: Array | Overlap, factor: Num) -> Array | Overlap:
    """So much of the exchanges of a parallelism."""
    return scaled(own, factor) if isinstance(own, Overlap) else np.asarray(factor * own)


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
        self,
        kind: MessageKind,
        behind: HidingPasses,
        shown: Num,
    ) -> Array:
        """What shows of all messages of a kind behind a pass, at least the share `shown`; (plans, stages)."""
        ones = [m.of(kind)[0] for m in self.messages]
        all_s = sum_of([m.pieces * one_s for m, one_s in zip(self.messages, ones, strict=True)])
        used = self._rate(kind, ones)

        def use(tier: Index | int) -> Array:
            return np.asarray(np.minimum(self.needs[tier, self.spot] * used, 1.0)[:, None])

        # Collectives that keep the links inside a node busy keep cores busy, those that wait for ports few.
        taken = cores_taken(self.chip, use(0))
        least_s = sum_of(ones) if behind.passes is None else behind.passes * sum_of(ones)
        used_s, longer_s = self._contention(behind, all_s, use)
        hides_s = used_s if behind.sums_s is None else used_s + behind.sums_s
        beyond_s = np.maximum(least_s, all_s - hides_s)
        hidden_s = all_s - beyond_s
        beyond_s = beyond_s + (shown + (1.0 - shown) * taken) * hidden_s
        if behind.still_s is not None:
            # Cores and links that messages keep from a pass prolong its own work, not copies to the host.
            slower_s = (1.0 - shown) * taken * hidden_s + longer_s
            longer_s = longer_s - np.minimum(slower_s, behind.still_s)
        return np.asarray(beyond_s + longer_s)

    def _contention(
        self, behind: HidingPasses, all_s: Array, use: Callable[[Index], Array]
    ) -> tuple[Array, Array]:
        """Of a pass what messages of `all_s` get, and what it is longer; `use`: share of a tier's time."""
        fixed_s, pass_s = 0.5 * behind.sends_s * use(self.pipe_tier), behind.pass_s
        hidden: list[Array] = []
        slack: list[Array] = []
        for own, tier in zip(behind.exchanges, self.tiers, strict=True):
            share = use(tier)
            if isinstance(own, Overlap):
                hidden.append(own.hidden_s * share)
                slack.append(np.minimum(own.slack_s, hidden[-1]))
                own = own.fixed_s
            fixed_s = fixed_s + own * share
        if behind.still_s is None and not hidden:
            return pass_s, contention_s(fixed_s, all_s, pass_s)
        nothing = [np.zeros((1, 1))]
        hidden_s, slack_s = sum_of(hidden or nothing), sum_of(slack or nothing)
        if len(hidden) > 1:  # work that hides two of them is there once
            slack_s = np.minimum(slack_s, np.maximum(pass_s - hidden_s, 0.0))
        exchanges = Overlap(fixed_s=fixed_s, hidden_s=hidden_s, slack_s=slack_s)
        found = contention_of(pass_s, all_s, exchanges, behind.still_s)
        return found.used_s, found.longer_s

    def _rate(self, kind: MessageKind, ones: list[Array]) -> Array:
        """Bytes/s of all messages of a kind together: each group's, by the time that it takes; (plans,)."""
        rates = [m.of(kind)[1] for m in self.messages]
        if len(rates) == 1:
            return rates[0]
        pairs = zip(self.messages, ones, strict=True)
        spent = [np.asarray(m.pieces * one_s).sum(axis=-1) for m, one_s in pairs]
        sent = sum_of([time * rate for time, rate in zip(spent, rates, strict=True)])
        return np.asarray(sent / np.maximum(sum_of(spent), 1e-30))
