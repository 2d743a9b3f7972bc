"""From chip, fast domain and port rate of a run to a system.

The catalogue's system of that chip whose name, fabric, node size and port rate agree best; where its node or
its ports still differ from the cells, the cells' numbers take their place. Blank cells are the system's own.
"""

from dataclasses import replace
from functools import lru_cache
from math import prod

from foretell.catalog.files import catalogue_table
from foretell.catalog.names import exists, find, load
from foretell.catalog.systems import named_system
from foretell.lab.validate.training_model import UnsupportedRun
from foretell.lab.validate.training_rows import TrainingRow
from foretell.network.library_catalog import fabric_named, fabric_of, inner_tiers
from foretell.specs.chip import Chip
from foretell.specs.system import Network, System, Tier

EARLIER, LATER, EARLY = "a100-sxm-40gb", "a100-sxm-80gb", ("2020",)
"""Runs of 2020 whose memory is not printed had the first A100, of 40 GB and slower memory."""
SAME = 0.02
"""Rates that differ by less are equal."""


def system_of(row: TrainingRow) -> tuple[System, tuple[str, ...]]:
    """The system of a row, and what was filled; Unsupported where the catalogue lacks the chip."""
    if not row.chip_id or not exists(row.chip_id, ("chip",)):
        raise UnsupportedRun(f"the chip {row.chip_id or '(blank)'} is not in the catalogue")
    chip = find(row.chip_id, ("chip",)).id
    if (
        chip == LATER
        and row.memory_gb is None
        and any(y in f"{row.framework} {row.source}" for y in EARLY)
    ):
        # The one with 80 GB came in November 2020.
        chip = EARLIER
    return _system(
        chip,
        row.domain,
        row.port_gbytes_per_s,
        row.interconnect,
        row.gpus or 1,
    )


@lru_cache(maxsize=256)
def _system(
    chip: str, domain: int | None, port: float | None, words: str, gpus: int
) -> tuple[System, tuple[str, ...]]:
    said: tuple[str, ...] = ()
    base = max(_candidates(chip), key=lambda s: _likeness(s, chip, domain, port, words))
    if gpus > 1 and base.id == chip:
        base = replace(base, chip=_in_machine(base.chip))
        if base.chip.tdp_watts != named_system(chip).chip.tdp_watts:
            said += (f"{float(base.chip.tdp_watts):g} W a chip: the limit of its reference system",)
    tiers = list(base.network.tiers)
    inner = inner_tiers(tuple(tier.name for tier in tiers))
    if domain and gpus > domain and _domain(base) != domain and inner == 1:
        tiers[0] = replace(tiers[0], size=float(domain), shape=())
        said += (f"{domain} chips in one domain of fast links",)
    outer = len(tiers) - 1
    if port and outer >= inner and not _same(_port(base), port * 1e9):
        tiers[outer] = replace(tiers[outer], bandwidth_bytes_per_s=port * 1e9)
        said += (f"{port:g} GB/s a chip between domains",)
    tiers = _large_enough(tiers, gpus)
    if port is None and gpus > (domain or gpus):
        said += (f"ports of {base.id}: {_port(base) / 1e9:g} GB/s a chip",)
    fabric = fabric_named(words) if words else None
    if fabric is not None and fabric_of(base.id).id != fabric.id and outer >= inner:
        # No system of the catalogue has this chip on this fabric: an id that names it has its library.
        base = replace(base, id=f"{base.id}-{fabric.id}")
        said += (f"between nodes {fabric.id}",)
    if tuple(tiers) != base.network.tiers:
        base = replace(base, network=Network(tiers=tuple(tiers)))
    return base, said


def _candidates(chip: str) -> tuple[System, ...]:
    """The chip's reference system, then every system of the catalogue that has this chip."""
    return (named_system(chip), *(s for s in _all_systems() if s.chip.id == chip))


def _in_machine(chip: Chip) -> Chip:
    """The chip under the power limit of its reference machine; as it is where that has none of its own."""
    machine = catalogue_table("chip", chip.id)["reference_system"].get("system")
    there = chip if machine is None else named_system(machine).chip
    return there if there.id == chip.id else chip


@lru_cache(maxsize=1)
def _all_systems() -> tuple[System, ...]:
    return tuple(named_system(name) for name in load().titles["system"])


def _likeness(
    system: System, chip: str, domain: int | None, port: float | None, words: str
) -> tuple[bool, ...]:
    """Name in the words, then fabric, its transport, node and port; the reference system among equals."""
    text = words.lower()
    parts = [part for part in system.id.split("-") if len(part) > 2 and part not in chip]
    fabric, own = fabric_named(words) if words else None, fabric_of(system.id)
    return (
        any(part in text for part in parts),
        fabric is not None and own.id == fabric.id,
        fabric is not None and own.default_transport == fabric.default_transport,
        domain is not None and _domain(system) == domain,
        port is not None and _same(_port(system), port * 1e9),
        system.id == chip,
    )


def _domain(system: System) -> int:
    """Chips inside the innermost tiers."""
    tiers = system.network.tiers
    inner = inner_tiers(tuple(tier.name for tier in tiers))
    return round(prod(float(tier.size) for tier in tiers[:inner]))


def _port(system: System) -> float:
    """What one chip can send into the outermost tier."""
    return float(system.network.tiers[-1].bandwidth_bytes_per_s)


def _same(one: float, other: float) -> bool:
    return abs(one / other - 1.0) < SAME


def _large_enough(tiers: list[Tier], gpus: int) -> list[Tier]:
    """With an outermost tier that has room for the run, which shows that there is."""
    room = prod(float(tier.size) for tier in tiers)
    if room >= gpus or len(tiers) < 2:
        return tiers
    more = -(-gpus // int(room / float(tiers[-1].size)))
    return [*tiers[:-1], replace(tiers[-1], size=float(more), shape=())]
