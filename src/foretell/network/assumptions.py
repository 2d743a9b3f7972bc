"""What is assumed of a system's network, as sentences: less what a library's fit does not look at."""

from collections.abc import Iterable

import numpy as np

from foretell.network.library_catalog import library_for
from foretell.network.library_shapes import tier_ratios
from foretell.network.library_topology import MEASURED
from foretell.network.placement import with_groups
from foretell.network.tier_checks import unusual_links
from foretell.specs.system import System, Tier

EFFICIENCY_SENTENCE = "Large collectives are taken to reach"
"""How the catalogue says a stated efficiency; it holds where no library is known."""


def network_assumptions(
    system: System, assumed: Iterable[str], set_by_hand: Iterable[str] = ()
) -> list[str]:
    """Sentences about the system that hold for its collectives, and topologies that none was measured on.

    A library's fit takes the place of a stated efficiency. Where a tier is joined in another way than the
    links that it was fitted on, times are scaled by the ratio of both closed forms. A topology set by
    hand that is priced as the one that was measured says so.
    """
    library, unusual = library_for(system), unusual_links(system)
    if library is None:
        return [*assumed, *unusual]
    by_hand = {path.split(".")[1] for path in set_by_hand if path.endswith(".topology")}
    said = [text for text in assumed if EFFICIENCY_SENTENCE not in text] + unusual
    tiers = with_groups(system.network).tiers
    for i, tier in enumerate(tiers):
        inner, last = i < library.inner_tiers, i == len(tiers) - 1
        found = tier_ratios(tier, np.array([2.0]), library, inner=inner, last=last)
        if found is not MEASURED:
            said.append(
                f"the {tier.name} tier is a {tier.topology} ({tier.routing} routes): {library.id} was "
                "measured on another topology, and its times are scaled by the ratio of closed forms"
            )
        elif tier.name in by_hand:
            said.append(
                f"the {tier.topology} of the {tier.name} tier is timed as {library.id} was measured; "
                "with a taper or static routes it differs from other trees of switches"
            )
        said += rail_sentences(tier) if not inner else []
        if tier.in_network_reduction and not inner:
            said.append(
                f"switches of the {tier.name} tier add up (SHARP): NCCL takes them where its plug-in is "
                "installed and NCCL_COLLNET_ENABLE=1"
            )
    return said


def rail_sentences(tier: Tier) -> list[str]:
    """How messages reach chips on other rails, where that moves an all-to-all."""
    even = tier.routing == "adaptive" and np.all(np.asarray(tier.taper) == 1.0)
    if tier.topology != "rail-clos" or even:
        return []
    way = "over its own links first (PXN)" if tier.pxn else "across the spines (no PXN)"
    return [f"a node of the {tier.name} tier reaches other rails {way}"]
