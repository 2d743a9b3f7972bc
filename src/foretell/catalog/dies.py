"""A package as a tier of the network: each of its dies a chip of its own, and back again."""

from dataclasses import replace

from foretell.specs.chip import Chip
from foretell.specs.system import Network, System, Tier

HOP_S = 0.5e-6
"""Latency that a kernel sees between two dies of a package: a stated constant, of which the wires are
nanoseconds and the rest is the handing over between programs."""
PACKAGE = "package"
"""Topology of a tier that joins the dies of one package."""


def package_tier(dies: int, bytes_per_s: float, latency_s: float = HOP_S) -> Tier:
    """The dies of one package as the innermost tier of a network."""
    return Tier(
        name="package",
        size=float(dies),
        bandwidth_bytes_per_s=bytes_per_s,
        latency_s=latency_s,
        topology="package",
    )


def system_of_dies(system: System, dies: int, bytes_per_s: float) -> System:
    """A system in which each die is a chip of its own, and packages are a tier.

    A die has its share of the package's units, memory, links and power; rates into further tiers are
    shared by the dies of a package.
    """
    share = 1.0 / dies
    tiers = [
        replace(tier, bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s * share)
        for tier in system.network.tiers
    ]
    said = f"Each of {dies} dies of a package is a chip of its own; the package is a tier."
    return replace(
        system,
        id=f"{system.id}-dies",
        chip=_one_die(system.chip, share),
        network=Network(tiers=(package_tier(dies, bytes_per_s), *tiers)),
        chips_per_node=system.chips_per_node * dies,
        assumptions=(*system.assumptions, said),
    )


def _one_die(chip: Chip, share: float) -> Chip:
    """A die's part of a package."""
    return replace(
        chip,
        id=f"{chip.id}-die",
        matrix_flop_per_s={d: r * share for d, r in chip.matrix_flop_per_s.items()},
        vector_flop_per_s=chip.vector_flop_per_s * share,
        vector_fp64_flop_per_s=chip.vector_fp64_flop_per_s * share,
        memory_bytes=chip.memory_bytes * share,
        memory_bandwidth_bytes_per_s=chip.memory_bandwidth_bytes_per_s * share,
        l2_bytes=chip.l2_bytes * share,
        cores=chip.cores * share,
        scale_up_bytes_per_s=chip.scale_up_bytes_per_s * share,
        host_bytes_per_s=chip.host_bytes_per_s * share,
        tdp_watts=chip.tdp_watts * share,
        rated_watts=chip.rated_watts * share,
        idle_watts=chip.idle_watts * share,
        compute_dies=1.0,
        transistors=chip.transistors * share,
        memory_stacks=chip.memory_stacks * share,
    )


def dies_apart(system: System) -> int:
    """Dies of a package that are chips of their own in this system; 1 where packages are."""
    first = system.network.tiers[0]
    apart = system.design is not None and first.topology == PACKAGE
    return round(float(first.size)) if apart else 1


def system_of_packages(system: System, chip: Chip) -> System:
    """The same system with each package as one chip: what `system_of_dies` was made of."""
    dies = dies_apart(system)
    tiers = [
        replace(tier, bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s * dies)
        for tier in system.network.tiers[1:]
    ]
    return replace(
        system,
        chip=chip,
        network=Network(tiers=tuple(tiers)),
        chips_per_node=system.chips_per_node / dies,
    )
