"""One collective on a system: its time, bandwidths, the algorithm taken and why, and a table over sizes.

Where a system's library is known, as that library runs it; elsewhere as the topologies of the tiers allow.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from foretell import units
from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.inputs.overrides import parse_settings
from foretell.inputs.question import as_texts, collect
from foretell.inputs.system import of_system, system_of
from foretell.network.library import candidates, prepare, seconds
from foretell.network.library_catalog import library_for
from foretell.network.library_records import KINDS, Library
from foretell.network.placement import (
    built_for,
    shared_taper,
    slice_torus,
    tier_counts,
    with_groups,
)
from foretell.network.placement import units as filled_units
from foretell.network.stack import stack_of
from foretell.network.tier_checks import network_assumptions, network_problems
from foretell.records import Answer, as_json, dataclass
from foretell.specs.arrays import Array
from foretell.specs.questions.flags import asks
from foretell.specs.questions.network import NetworkQuestion
from foretell.specs.system import Network, System
from foretell.uncertainty.evidence import fabric_spread
from foretell.uncertainty.intervals import Interval, inverse_cause
from foretell.uncertainty.intervals import times as with_cause

NEVER_S = 1e9
"""A candidate that takes longer than this is not offered."""
ASKED = (*KINDS, "barrier")
"""Collectives that can be asked for."""
SIZES = tuple(float(2**k) for k in range(10, 34, 2))
"""Sizes of the table: 1 KiB to 8 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveAnswer(Answer):
    """What one message costs a group."""

    verb = "network"

    system: str
    """System id."""
    collective: str
    """Which collective."""
    size_bytes: float
    """The full buffer of one rank, as nccl-tests counts it."""
    group: int
    """Members."""
    placement: Mapping[str, float]
    """Tier -> members of the level below inside one unit of it."""
    seconds: float
    """Time of the collective."""
    algorithm_bytes_per_s: float
    """Size over time."""
    bus_bytes_per_s: float
    """The same, times what every link must carry: comparable with the link's rate."""
    algorithm: str
    """The candidate that is taken."""
    reason: str
    """Why it is taken."""
    candidates_s: Mapping[str, float]
    """Time of every candidate that is offered here."""
    sizes: tuple[Mapping[str, Any], ...]
    """The same over sizes."""
    assumptions: tuple[str, ...]
    """What was assumed."""
    intervals: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    """p50 and p90 of the time and of both bandwidths, by what the fabric's times rest on."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a collective meets."""

    algorithm: str = ""
    """The algorithm or candidate to take, else the fastest."""
    neighbours: int = 0
    """Further groups alike that send at the same time and share tapered links."""
    imbalance: float = 1.0
    """All-to-all: what the busiest member gets over the mean (uneven experts)."""
    assumed: tuple[str, ...] = ()
    """What was assumed of the system."""
    changed: tuple[str, ...] = ()
    """Paths of its fields that were set by hand."""


PLACES = ("system", "network", "chip")
"""Where the path of a setting may begin."""


@asks(NetworkQuestion)
def collective(question: NetworkQuestion) -> CollectiveAnswer:
    """Time, bandwidths and algorithm of one collective among a group of a system's chips.

    `set` changes fields of the system, as in network.node.latency_s=2us.
    """
    q, problems = question, list[Problem]()
    chosen = collect(lambda: parse_settings(as_texts(q.set), PLACES), problems) or ()
    the_system = collect(lambda: system_of(q.system, chosen, {}), problems)
    if q.collective not in ASKED:
        near = nearest_name(q.collective, ASKED)
        problems.append(wrong("collective", q.collective, "unknown", ", ".join(ASKED), near))
    size_bytes = 0.0
    try:
        size_bytes = units.parse(q.size, "bytes", "bytes")
    except BadInput as error:
        problems += error.problems
    if type(q.group) is not int or not 1 <= q.group <= 10**7:
        problems.append(wrong("group", q.group, "not a whole number of members", "1 to 10000000"))
    if type(q.neighbours) is not int or not 0 <= q.neighbours <= 10**7:
        problems.append(Problem(path="neighbours", value=q.neighbours, message="not a whole number of groups",
                                allowed="0 to 10000000"))  # fmt: skip
    if not _usable(q.imbalance, q.collective):
        problems.append(Problem(path="imbalance", value=q.imbalance, message="no share of an all-to-all",
                                allowed="1 or more, of an all-to-all"))  # fmt: skip
    if size_bytes < 0:
        problems.append(wrong("bytes", q.size, "below zero"))
    if problems or the_system is None:
        raise BadInput(problems)
    room = math.prod(float(tier.size) for tier in the_system.network.tiers)
    if q.group > room:
        raise BadInput([Problem(path="group", value=q.group, message=f"{the_system.id} has {room:.0f} chips",
                                allowed=f"1 to {room:.0f}")])  # fmt: skip
    counts = _counts(the_system, q.group, q.placement)
    how = Circumstances(
        algorithm=q.algorithm,
        neighbours=q.neighbours,
        imbalance=q.imbalance,
        assumed=tuple(of_system(the_system, chosen)),
        changed=tuple(setting.path for setting in chosen),
    )
    return _answer(the_system, q.collective, size_bytes, counts, how)


network = collective
"""The public name: `foretell.network`."""


def _usable(imbalance: object, collective: str) -> bool:
    """Whether a number is what the busiest member of a collective can get over the mean."""
    if not isinstance(imbalance, int | float) or not 1.0 <= imbalance <= 1e6:
        return False
    return imbalance == 1.0 or collective == "all-to-all"


def _counts(system: System, group: int, placement: str) -> Array:
    """Members per tier: as close together as they fit, or as `node=2,cluster=8` says."""
    tiers = system.network.tiers
    if not placement:
        return tier_counts(
            np.array([float(group)]), np.ones(1), filled_units(system.network, group), group
        )
    names = [tier.name for tier in tiers]
    given: dict[str, float] = {}
    for word in placement.replace(" ", ",").split(","):
        name, _, text = word.partition("=")
        if name not in names or not text.isdecimal() or int(text[:9]) < 1:
            raise BadInput([Problem(path="placement", value=word, message="not of the form tier=count",
                                    allowed=", ".join(f"{n}=N" for n in names))])  # fmt: skip
        given[name] = float(text)
    over = [t for t in tiers if given.get(t.name, 1.0) > float(t.size)]
    if over:
        raise BadInput([Problem(path=f"placement.{t.name}", value=given[t.name], message="more than it joins",
                                allowed=f"1 to {float(t.size):g}") for t in over])  # fmt: skip
    counts = np.array([[given.get(name, 1.0)] for name in names])
    if counts.prod() != group:
        raise BadInput([Problem(path="placement", value=placement, allowed=f"factors of {group}",
                                message=f"gives {counts.prod():.0f} members, not {group}")])  # fmt: skip
    return counts


def _answer(
    system: System, kind: str, size_bytes: float, counts: Array, how: Circumstances
) -> CollectiveAnswer:
    if problems := network_problems(system, dict.fromkeys(how.changed)):
        raise BadInput(problems)
    built = with_groups(built_for(system.network, counts[:, 0].tolist()))
    network = _shared(built, counts, how.neighbours)
    tiers = zip(network.tiers, counts[:, 0].tolist(), strict=True)
    cut = Network(
        tiers=tuple(slice_torus(tier, count) if count > 1 else tier for tier, count in tiers)
    )
    system = replace(system, network=cut)
    library = library_for(system)
    group = int(counts.prod())
    times = (
        _library_times(system, library, kind, counts)
        if library
        else _stack_times(system, kind, counts)
    )
    offered = sorted(times(1e6))
    if how.algorithm and how.algorithm not in offered:
        near = nearest_name(how.algorithm, offered)
        raise bad_input("algorithm", how.algorithm, "is not offered here", ", ".join(offered), near)

    def row(size: float) -> dict[str, Any]:
        each = times(size * how.imbalance) if group > 1 and (size > 0 or kind == "barrier") else {}
        some = {name: each[name] for name in each if not how.algorithm or name == how.algorithm}
        best = min(some, key=lambda name: some[name]) if some else "none"
        time = some.get(best, 0.0)
        rate = size / time if time > 0 else 0.0
        return {
            "size_bytes": size,
            "seconds": time,
            "algorithm_bytes_per_s": rate,
            "bus_bytes_per_s": rate * bus_factor(kind, group),
            "algorithm": best,
            "reason": _reason(best, each, how.algorithm),
            "candidates_s": each,
        }

    asked = row(size_bytes)
    time = fabric_cause(system, group)
    rates = ("algorithm_bytes_per_s", "bus_bytes_per_s")
    intervals = {"seconds": with_cause(asked["seconds"], time)}
    intervals |= {name: with_cause(asked[name], inverse_cause(time)) for name in rates}
    brief = ("size_bytes", "seconds", "algorithm_bytes_per_s", "bus_bytes_per_s", "algorithm")
    sizes = () if kind == "barrier" else SIZES
    names = [tier.name for tier in system.network.tiers]
    return CollectiveAnswer(
        system=system.id,
        collective=kind,
        group=group,
        placement=dict(zip(names, counts[:, 0].tolist(), strict=True)),
        sizes=tuple({key: found[key] for key in brief} for found in map(row, sizes)),
        assumptions=(*network_assumptions(system, how.assumed, how.changed), *_basis(library, how)),
        intervals=intervals,
        **asked,
    )


Times = Callable[[float], dict[str, float]]
"""Size in bytes -> seconds of every algorithm that is offered, by name."""


def _library_times(system: System, library: Library, kind: str, counts: Array) -> Times:
    """As the library's candidates; a barrier is an all-reduce of one number."""
    real: Any = "all-reduce" if kind == "barrier" else kind
    prepared = prepare(library, system.network, counts, (real,))

    def times(size: float) -> dict[str, float]:
        if real == "send":
            return {"neighbour": float(np.squeeze(seconds(real, size, prepared)))}
        offered = candidates(real, 4.0 if kind == "barrier" else size, prepared)
        each = {name: float(np.squeeze(time)) for name, time in offered.items()}
        return {name: time for name, time in each.items() if time < NEVER_S}

    return times


def _stack_times(system: System, kind: str, counts: Array) -> Times:
    """As the topologies of the tiers under every mix of their best algorithms."""
    asked: Any = kind
    found = stack_of(counts, system.network, (asked,)).kinds[asked]

    def times(size: float) -> dict[str, float]:
        bytes_sent = 0.0 if kind == "barrier" else size
        each = found.latency_s[:, 0] + bytes_sent * found.s_per_byte[:, 0]
        pairs = zip(found.names[:, 0].tolist(), each.tolist(), strict=True)
        return {name: time for name, time in pairs if time < NEVER_S}

    return times


def _shared(network: Network, counts: Array, neighbours: int) -> Network:
    """Tapers as this group and its neighbours share them: one group alone may find links free."""
    inside, whole, tiers = 1.0, 1.0, []
    for tier, count in zip(network.tiers, counts[:, 0].tolist(), strict=True):
        sending = min(inside * (1.0 + neighbours), whole)
        tiers.append(replace(tier, taper=float(shared_taper(tier.taper, whole, sending))))
        inside, whole = inside * count, whole * float(tier.size)
    return Network(tiers=tuple(tiers))


def _reason(best: str, each: Mapping[str, float], named: str) -> str:
    """Why this algorithm."""
    if not each:
        return "nothing is sent"
    if named:
        return "named"
    others = sorted((time, name) for name, time in each.items() if name != best)
    if not others:
        return "the only one offered here"
    time, name = others[0]
    return f"the fastest of {len(each)}; {name} would take {time / each[best]:.2f} x as long"


def _basis(library: Library | None, how: Circumstances) -> tuple[str, ...]:
    """What the times rest on."""
    beside = (
        f"{how.neighbours} further groups alike send at the same time" if how.neighbours else ""
    )
    basis = "closed forms of the tiers' topologies" if library is None else f"library {library.id}"
    return tuple(text for text in (basis, beside) if text)


def fabric_cause(system: System, group: float = 1.0) -> Interval:
    """The time of a collective as factors around 1: the residuals of the multi-node tables."""
    low90, low50, _, high50, high90 = (math.exp(end) for end in fabric_spread(system, group))
    return {"p50": (low50, high50), "p90": (low90, high90)}


def bus_factor(kind: str, members: int) -> float:
    """What nccl-tests multiplies by: the share of the size that every link carries in a ring."""
    if members == 1:
        return 1.0
    share = (members - 1) / members
    return {"all-reduce": 2.0 * share, "all-gather": share, "reduce-scatter": share,
            "all-to-all": share}.get(kind, 1.0)  # fmt: skip
