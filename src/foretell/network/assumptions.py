"""What is assumed of a system's network, as sentences: less what a library's fit does not look at."""

from collections.abc import Iterable

from foretell.network.library_catalog import library_for
from foretell.network.topologies import plain_name
from foretell.specs.system import System

EFFICIENCY_SENTENCE = "Large collectives are taken to reach"
"""How the catalogue says a stated efficiency; it holds where no library is known."""
FITTED = frozenset({
    "switch", "clos", "rail-clos", "roce-clos", "fat-tree", "fully-connected", "dragonfly",
    "dragonfly-plus", "hybrid-cube-mesh",
})  # fmt: skip
"""Topologies of the systems that libraries were measured on."""


def network_assumptions(
    system: System, assumed: Iterable[str], set_by_hand: Iterable[str] = ()
) -> list[str]:
    """Sentences about the system that hold for its collectives, and which topologies they do not look at.

    A library's fit takes the place of a stated efficiency and of the tiers' topologies: one that no library
    was measured on, or that was set by hand, is said to move nothing but the bill.
    """
    library = library_for(system)
    if library is None:
        return [*assumed]
    by_hand = {path.split(".")[1] for path in set_by_hand if path.endswith(".topology")}
    return [text for text in assumed if EFFICIENCY_SENTENCE not in text] + [
        f"the {tier.topology} of the {tier.name} tier moves the bill alone: messages are timed as "
        f"{library.id} was measured, on the networks of real systems"
        for tier in system.network.tiers
        if tier.name in by_hand or plain_name(tier.topology) not in FITTED
    ]
