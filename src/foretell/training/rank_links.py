"""Where the ranks of plans are on the network and what joins them: what depends on degrees and order."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from foretell.network.collectives import Group, link_needs, place, send_cost, slower_by
from foretell.network.library_records import Kind
from foretell.network.placement import as_filled, group_counts
from foretell.network.topologies.base import Cost
from foretell.records import Keyed, dataclass
from foretell.sharding.data import sharing_group, sharing_of, split_counts
from foretell.specs.arrays import Array
from foretell.specs.plan import BATCH_FIELDS, Plan, Plans
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software
from foretell.specs.system import System


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLinks:
    """Ranks that hold the same weights, placed on the network and ready to be asked; one group a spot."""

    everyone: Group
    """All of them."""
    sharing: Group
    """Those that share what ZeRO shares."""
    backward: Group
    """Those that backward gathers run over."""
    replicas: Group | None
    """Those that hold the same share; None where all ranks share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLinks:
    """The groups of plans on the network; arrays are (tiers, spots) unless stated otherwise."""

    system: System
    """The system as the job finds it."""
    counts: Mapping[str, Array]
    """Group -> where its members stay in place."""
    data: DataLinks
    """The ranks that reduce gradients, placed."""
    experts: DataLinks | None
    """The same for spread experts; None where no plan spreads any."""
    send: Cost
    """Seconds of a message to the next stage; (spots,)."""
    needs: Array
    """Seconds that each tier's links are in use for a byte of gradients reduced."""


def rank_links(
    scenario: Scenario, spots: Plans, kinds: tuple[Kind, ...], *, experts: bool
) -> RankLinks:
    """Plans of distinct degrees and orders, placed, for the kinds that replicas will send."""
    if len(spots) == 1:
        # A placement recurs from estimate to estimate: with another batch, ZeRO stage or recomputation.
        numbers = tuple(getattr(spots, name).item() for name in _PLACED)
        own = spots.orders, sharing_of(spots.base), kinds, experts
        key = (scenario.system, scenario.job.gpus, *numbers, *own)
        try:
            return _known_links(Keyed(key, scenario, spots, kinds, experts))
        except TypeError:  # numbers that are arrays have no hash
            pass
    return _new_links(scenario, spots, kinds, experts)


_PLACED = tuple(
    name for name in BATCH_FIELDS if name not in ("vpp", "zero", "micro_batch", "sp", "recompute")
)
"""Fields of a plan that its placement depends on."""


@lru_cache(maxsize=1024)
def _known_links(asked: Keyed) -> RankLinks:
    return _new_links(*asked.values)


def _new_links(
    scenario: Scenario, spots: Plans, kinds: tuple[Kind, ...], experts: bool
) -> RankLinks:
    system, sent = system_as_filled(scenario), (spots.base, kinds)
    counts = group_counts(spots, system.network, scenario.job.gpus)
    replicas = counts["dp"] * counts["cp"]
    slower = slower_by(system.corrections.pipeline_parallel, counts["pp"], system)
    return RankLinks(
        system=system,
        counts=counts,
        data=links_of(replicas, spots.dp * spots.cp, sent, system),
        experts=links_of(counts["edp"], edp_of(spots), sent, system) if experts else None,
        send=send_cost(counts["pp"], system.network).times(slower),
        needs=link_needs(replicas, scenario.system.network),
    )


def edp_of(plans: Plans) -> Array:
    """Replicas of spread experts: what their degrees leave of a stage's ranks; (plans,)."""
    return np.asarray(plans.dp * plans.cp * plans.tp / (plans.ep * plans.etp))


def data_kinds(zero: Array, software: Software) -> tuple[Kind, ...]:
    """What replicas of such ZeRO stages send."""
    kinds: tuple[Kind, ...] = ("reduce-scatter", "all-gather") if (zero >= 1).any() else ()
    whole = zero < (3 if software.zero_sums == "all-reduce" else 1)
    return (*kinds, "all-reduce") if whole.any() else kinds


def links_of(
    counts: Array, ranks: Array, sent: tuple[Plan, tuple[Kind, ...]], system: System
) -> DataLinks:
    """Groups of `ranks` replicas (by spot) placed as `counts` says, for the kinds that plans send."""
    base, kinds = sent

    def placed(where: Array, sent: tuple[Kind, ...]) -> Group:
        return place(
            where, system, sent, slower_by(system.corrections.data_parallel, where, system)
        )

    everyone = sharing = backward = placed(counts, kinds)
    if not base.shard and not base.secondary:
        return DataLinks(everyone=everyone, sharing=sharing, backward=backward, replicas=None)
    replicas, group = None, sharing_group(ranks, sharing_of(base))
    if base.shard:
        here, there = split_counts(counts, group)
        sharing = backward = placed(here, kinds)
        replicas = placed(there, ("all-reduce",))
    if base.secondary:
        near = np.minimum(float(base.secondary), group)
        backward = placed(split_counts(counts, near)[0], kinds)
    return DataLinks(everyone=everyone, sharing=sharing, backward=backward, replicas=replicas)


def system_as_filled(scenario: Scenario) -> System:
    """The system as the job finds it, its links shared by all of the job's chips."""
    try:
        return _known_filled(scenario.system, scenario.job.gpus)
    except (TypeError, ValueError):  # arrays have no hash, and are not equal as one
        return _filled(scenario.system, scenario.job.gpus)


def _filled(system: System, gpus: int) -> System:
    network = as_filled(system.network, gpus)
    return system if network is system.network else replace(system, network=network)


_known_filled = lru_cache(maxsize=64)(_filled)
