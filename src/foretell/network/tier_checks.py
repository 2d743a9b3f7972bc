"""What is wrong with a network, unusual about it, or assumed of it, for every verb.

A tier's topology has a file, a field set by hand moves a result, and every rate and latency lies where a
machine could have it. What is merely unusual, and what a library's fit does not look at, is stated with the
result.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from foretell.errors import Problem, wrong
from foretell.network.library_catalog import library_for
from foretell.network.library_shapes import MEASURED, SWITCHED, is_grid, tier_ratios
from foretell.network.placement import with_groups
from foretell.network.topologies import plain_name, unknown
from foretell.network.topologies.dragonfly import NAMES as DRAGONFLIES
from foretell.specs.chip import chip_problems, unusual_numbers
from foretell.specs.system import Network, System, Tier
from foretell.units import format as show

POSSIBLE_RATES = (1e6, 1e15)
"""Bytes a second of a chip's links that are taken at all: a modem's to a thousand times NVLink's."""
USUAL_RATES = (1e8, 1e13)
"""Those in use: 1 Gbit/s Ethernet to the links between dies of a package."""
LONGEST_S = 1.0
"""Latency of a hop that is taken at all: beyond a way to the moon and back it is a wrong unit."""
USUAL_LATENCIES_S = (1e-8, 1e-3)
"""Those in use: a few clocks between dies to a long way between sites."""
ROUNDED = 1.05
"""How far two datasheets may round one rate apart."""
FEWER_LINKS = 2.0
"""Links of a chip over those that its node has, up to which nothing is stated: 1.75 in Frontier's
packages."""
DRAGONFLY_FIELDS = ("groups", "group_routers", "router_globals")
"""Fields that dragonflies alone have."""


def network_problems(system: System, set_by_hand: Mapping[str, object]) -> list[Problem]:
    """Every problem of a system's network: unknown topologies, impossible rates, settings without effect."""
    return [
        *unknown(system.network.tiers),
        *chip_problems(system.chip),
        *_impossible(system.network),
        *_without_effect(system, set_by_hand),
    ]


def unusual_links(system: System) -> list[str]:
    """Sentences about rates and latencies that no machine in use has, with the usual range."""
    said = unusual_numbers(system.chip)
    for tier in system.network.tiers:
        rate, latency = _ends(tier.bandwidth_bytes_per_s), _ends(tier.latency_s)
        if rate[0] < USUAL_RATES[0] or rate[1] > USUAL_RATES[1]:
            low, high = (show(x, "bytes_per_s") for x in USUAL_RATES)
            said.append(
                f"unusual: {show(rate[0], 'bytes_per_s')} into the {tier.name} tier; "
                f"links in use have {low} to {high} a chip"
            )
        if latency[1] > USUAL_LATENCIES_S[1] or 0.0 < latency[0] < USUAL_LATENCIES_S[0]:
            low, high = (show(x, "s") for x in USUAL_LATENCIES_S)
            said.append(
                f"unusual: a hop of the {tier.name} tier takes {show(latency[1], 's')}; "
                f"{low} to {high} is usual"
            )
    own, first = float(system.chip.scale_up_bytes_per_s), system.network.tiers[0]
    into = _ends(first.bandwidth_bytes_per_s)[0]
    if own and into > ROUNDED * own:
        said.append(
            f"unusual: {show(into, 'bytes_per_s')} into the {first.name} tier, more than the "
            f"{show(own, 'bytes_per_s')} of the links of {system.chip.id}"
        )
    if own > FEWER_LINKS * _ends(first.bandwidth_bytes_per_s)[1]:
        said.append(
            f"unusual: links of {system.chip.id} with {show(own, 'bytes_per_s')}, of which the "
            f"{first.name} tier has {show(into, 'bytes_per_s')}: messages go at the tier's rate"
        )
    pairs = zip(system.network.tiers, system.network.tiers[1:], strict=False)
    for inner, outer in pairs:
        slow = _ends(inner.bandwidth_bytes_per_s)[0]
        fast = _ends(outer.bandwidth_bytes_per_s)[0]
        if fast > slow:
            said.append(
                f"unusual: the {outer.name} tier takes {show(fast, 'bytes_per_s')} from a chip, "
                f"more than the {show(slow, 'bytes_per_s')} of the {inner.name} inside it"
            )
    return said


def _ends(value: object) -> tuple[float, float]:
    """Least and largest of a number, or of an array over systems."""
    if isinstance(value, float):
        return value, value
    numbers = np.asarray(value, float)
    return float(numbers.min()), float(numbers.max())


def _impossible(network: Network) -> list[Problem]:
    """Rates and latencies that are a wrong unit rather than a machine."""
    low, high = POSSIBLE_RATES
    problems = [
        wrong(
            f"network.{tier.name}.bandwidth_bytes_per_s",
            show(_ends(tier.bandwidth_bytes_per_s)[0], "bytes_per_s"),
            "no link between chips has such a rate",
            f"{_range(POSSIBLE_RATES, 'bytes_per_s')}; usual: {_range(USUAL_RATES, 'bytes_per_s')}",
        )
        for tier in network.tiers
        if _ends(tier.bandwidth_bytes_per_s)[0] < low or _ends(tier.bandwidth_bytes_per_s)[1] > high
    ]
    return problems + [
        wrong(
            f"network.{tier.name}.latency_s",
            f"{_ends(tier.latency_s)[1]:.6g} s",
            "no hop takes so long",
            f"up to {show(LONGEST_S, 's')}; usual: {_range(USUAL_LATENCIES_S, 's')}",
        )
        for tier in network.tiers
        if _ends(tier.latency_s)[1] > LONGEST_S
    ]


def _range(ends: tuple[float, float], unit: str) -> str:
    """Two ends as words."""
    return " to ".join(show(x, unit) for x in ends)


def _without_effect(system: System, set_by_hand: Mapping[str, object]) -> list[Problem]:
    """Settings of a tier that no time follows."""
    library = library_for(system)
    tiers = {tier.name: tier for tier in system.network.tiers}
    problems = []
    for path, value in set_by_hand.items():
        parts = path.split(".")
        if path == "system.nccl" and (found := _no_release(system.nccl, library is not None)):
            problems.append(wrong(f"--set {path}", value, *found))
        tier = tiers.get(parts[1]) if parts[0] == "network" and len(parts) == 3 else None
        if tier is None:
            continue
        why, allowed = _inert(tier, parts[2], library is not None)
        if why and library is not None and parts[2] in FITTED:
            why = f"{why} {library.id}"
        if why:
            problems.append(wrong(f"--set {path}", value, f"has no effect: {why}", allowed))
    return problems


def _no_release(release: str, known: bool) -> tuple[str, str] | None:
    """What is wrong with a release of NCCL that was set, and what is allowed; None where nothing is."""
    if not known:
        return "has no effect: these chips run no NCCL", "chips of NVIDIA and AMD"
    if release and not all(part.isdecimal() for part in release.split(".")):
        return "no release of NCCL", "numbers such as 2.21, or nothing for today's"
    return None


FITTED = ("efficiency", "gather_share", "scatter_share", "exchange_share")
"""Fields whose place the fit of a collective library takes."""


def _inert(tier: Tier, field: str, fitted: bool) -> tuple[str, str]:
    """Why a field of a tier moves nothing, and what does; two empty texts where it does."""
    name = plain_name(tier.topology)
    if fitted and field in FITTED:
        return "collectives follow the fit of", "bandwidth_bytes_per_s, latency_s, taper, topology"
    if field == "routing" and name not in (*SWITCHED[1:], *DRAGONFLIES):
        way = "one way" if is_grid(tier) else "no ways to choose from"
        return f"a {tier.topology} has {way}", "fat-tree, clos, rail-clos or dragonfly as topology"
    if field == "in_network_reduction" and is_grid(tier) and tier.in_network_reduction:
        return f"a {tier.topology} has no switches that could add up", "switch, fat-tree or clos"
    if field == "pxn":
        return _inert_rails(tier)
    if field in DRAGONFLY_FIELDS and name not in DRAGONFLIES:
        return f"a {tier.topology} has no groups", "topology=dragonfly or dragonfly-plus"
    if field == "router_globals" and not float(tier.group_routers):
        return "how many routers have them is not given", f"network.{tier.name}.group_routers too"
    if field == "taper" and name == "fully-connected":
        return "links between every two members cannot be tapered", "bandwidth_bytes_per_s"
    return "", ""


def _inert_rails(tier: Tier) -> tuple[str, str]:
    """Why it moves nothing whether messages keep to their rails; two empty texts where it does."""
    if tier.topology != "rail-clos":
        return f"a {tier.topology} has no rails", "topology=rail-clos"
    if tier.routing == "adaptive" and np.all(np.asarray(tier.taper) == 1.0):
        return "spines without taper carry everything", f"network.{tier.name}.taper below 1 too"
    return "", ""


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
