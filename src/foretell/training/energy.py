"""Joules of a step's leaves: base watts as long as the step takes, and what the chips do on top of them.

Every chip draws its base watts from the beginning of the step to its end, whether it computes or waits.
Products and bytes cost joules on top (kernels/power.py): those of the passes, of the sums of gradients and of
the update, on every rank of every stage. Every rank of a replica runs its part of each layer once a
micro-batch, wherever the stages are.
"""

from dataclasses import fields

import numpy as np

from foretell.kernels.optimizer import MEMORY_SHARE
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Mask
from foretell.specs.plan import Plans
from foretell.specs.plan_forms import recompute_layers
from foretell.training.ledger import Ledger
from foretell.training.memory import LISTED, block_share
from foretell.training.tables import Tables, gather


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveJoules:
    """Joules beyond base watts in a step, of one rank of every stage; (plans,)."""

    passes: Array
    """Operations of all passes."""
    optimizer: Array
    """The optimizer's update."""
    gradient_sums: Array
    """Adding up gradients."""

    @property
    def total(self) -> Array:
        """All of them."""
        found = self.passes
        for leaf in fields(self)[1:]:
            found = found + getattr(self, leaf.name)
        return found


def active_joules(plans: Plans, tables: Tables, ledger: Ledger) -> Array:
    """Joules of all chips beyond their base watts in one step; (plans,)."""
    return np.asarray(ranks_of(plans) * rank_joules(plans, tables, ledger).total)


def ranks_of(plans: Plans) -> Array:
    """Ranks of each stage; (plans,)."""
    return np.asarray(plans.tp * plans.dp * plans.cp)


def rank_joules(plans: Plans, tables: Tables, ledger: Ledger) -> ActiveJoules:
    """What one rank of every stage spends beyond base watts."""
    return ActiveJoules(
        passes=ledger.micro_batches * model_joules(plans, tables, ledger),
        optimizer=update_joules(tables, ledger),
        gradient_sums=sum_joules(tables, ledger),
    )


def update_joules(tables: Tables, ledger: Ledger) -> Array:
    """What the update of one rank of every stage spends beyond base watts; (plans,)."""
    update_s = (ledger.seconds.optimizer * ledger.multiplicity).sum(axis=1)
    return np.asarray(streamed_joules(update_s, tables))


def sum_joules(tables: Tables, ledger: Ledger) -> Array:
    """What the sums of gradients of one rank of every stage spend beyond base watts; (plans,)."""
    sums_s = (ledger.sums_s * ledger.multiplicity).sum(axis=1)
    return np.asarray(streamed_joules(ledger.micro_batches * sums_s, tables))


def model_joules(plans: Plans, tables: Tables, ledger: Ledger) -> Array:
    """Joules of one micro-batch's operations over the whole model, at the clock held; (plans,)."""
    parts, at, fall = tables.parts, tables.shape, ledger.core_fall[:, None]
    repeated = repeated_share(plans, tables)
    again = 1.0 + repeated
    core = parts.forward.core_joules[at] * again + parts.backward.core_joules[at]
    memory = parts.forward.memory_joules[at] * again + parts.backward.memory_joules[at]
    core = core - repeated * parts.stop.core_joules[at]
    memory = memory - repeated * parts.stop.memory_joules[at]
    if parts.again is not None:
        listed = (plans.recompute == LISTED)[:, None] * layers_of(tables)
        core = core + listed * parts.again.core_joules[at]
        memory = memory + listed * parts.again.memory_joules[at]
    return np.asarray((parts.counts * (core * fall + memory)).sum(axis=1))


def layers_of(tables: Tables) -> Mask:
    """Which parts are layers; (parts,)."""
    return np.arange(len(tables.parts.names)) < tables.parts.kinds


def repeated_share(plans: Plans, tables: Tables) -> Array:
    """Share of each part, over all stages, that is computed again whole; (plans, parts)."""
    whole = (plans.recompute == 2.0)[:, None] * layers_of(tables)
    if not recompute_layers(plans.base.recompute):
        return np.asarray(whole, float)
    shares = block_share(plans, np.arange(len(plans)), tables)
    if shares is None:
        return np.asarray(whole, float)
    counts = gather(tables.stages.counts, tables.pair)
    many = gather(tables.stages.multiplicity, tables.pair)
    repeated = np.einsum("ns,nsp->np", many * shares, counts) / tables.parts.counts
    return np.asarray(whole + repeated * layers_of(tables))


def streamed_joules(seconds: Num, tables: Tables) -> Num:
    """Joules beyond base watts of seconds in which a kernel streams memory."""
    numbers = tables.power.coefficients
    per_byte = numbers.core_joules_per_byte + numbers.memory_joules_per_byte
    return per_byte * (MEMORY_SHARE * tables.bytes_per_s * seconds)
