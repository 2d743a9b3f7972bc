"""Conformance checks of collective algorithms.

    from foretell.testing.collective import check_algorithm
    check_algorithm(MINE, topology, play=lambda schedule, graph, size_bytes: ...)

A new algorithm is right when these pass: every rank ends with what the collective promises, nothing being
added twice; no closed form beats the bytes that must leave or reach a member, nor the latency between the
farthest two; time grows with bytes; and the simulation of the messages takes as long as claimed. The player
is the caller's own, so that the closed form has an independent judge.
"""

from collections.abc import Callable, Iterable

import numpy as np

from foretell.network.algorithms.base import NETWORK, Algorithm, Collective, MessageSchedule
from foretell.network.topologies.base import LinkGraph, Topology
from foretell.testing.topology import RELATIVE, claim, latencies_s, not_below

Play = Callable[[MessageSchedule, LinkGraph, float], float]
"""Seconds of a schedule on a graph for so many bytes."""
Held = dict[int, dict[int, frozenset[int]]]
"""Rank -> chunk -> ranks whose data are in it."""


def check_algorithm(
    algorithm: Algorithm,
    topology: Topology,
    play: Play | None = None,
    sizes_bytes: tuple[float, ...] = (0.0, 1e3, 1e9),
) -> None:
    """All checks of every collective it does, on one topology."""
    for collective in algorithm.collectives:
        cost = algorithm.cost(collective, topology)
        if not np.isfinite(cost.latency_s):
            continue  # this number of members is said to be impossible
        schedule = algorithm.schedule(collective, topology)
        check_promise(schedule)
        times = [float(cost.seconds(size)) for size in sizes_bytes]
        claim(times == sorted(times), algorithm.name, f"{collective} falls with bytes: {times}")
        check_floor(algorithm, collective, topology)
        if play is not None:
            for size, closed in zip(sizes_bytes, times, strict=True):
                check_play(algorithm, topology, closed, play(schedule, topology.graph(), size))


def check_floor(algorithm: Algorithm, collective: Collective, topology: Topology) -> None:
    """The information bound: bytes out of or into a member over all its links, and latency."""
    cost = algorithm.cost(collective, topology)
    members = float(topology.members)
    if members == 1:
        claim(float(cost.seconds(1e9)) == 0.0, algorithm.name, "a group of one is not free")
        return
    others = (members - 1.0) / members
    share = {
        "all-reduce": 1.0 if "reduction" in algorithm.patterns else 2.0 * others,
        "broadcast": 1.0,
        "reduce": 1.0,
        "send": 1.0,
        "barrier": 0.0,
    }.get(collective, others)
    out = float(topology.injection_s_per_byte())
    least, most = latencies_s(topology.graph())
    # Broadcast and reduce need not cross the farthest pair, only the farthest from rank 0.
    farthest = least if collective in ("send", "broadcast", "reduce") else most
    about = f"{algorithm.name} {collective} on {topology}"
    claim(not_below(cost.s_per_byte, share * out), about, "beats the information bound")
    claim(not_below(cost.latency_s, farthest), about, "beats the latency between members")


def check_play(algorithm: Algorithm, topology: Topology, closed_s: float, played_s: float) -> None:
    """The simulation relates to the closed form as claimed."""
    said = algorithm.claim_on(topology)
    near = RELATIVE * max(closed_s, played_s)
    holds = {
        "exact": abs(closed_s - played_s) <= near,
        "at most": played_s <= closed_s + near,
        "at least": played_s >= closed_s - near,
    }
    about = f"{algorithm.name} on {topology}"
    claim(said is not None, about, "is not at home there")
    if said is not None:
        claim(holds[said], about, f"play {played_s} is not {said} {closed_s}")


def check_promise(schedule: MessageSchedule) -> None:
    """Every rank ends with what the collective promises, and nothing is added twice."""
    held = _begin(schedule)
    for step in schedule.steps:
        before = {rank: dict(chunks) for rank, chunks in held.items()}
        for message in step:
            # The network passes on what came into it in a step before; so do members.
            has, into = before[message.source], held[message.destination]
            for chunk in message.chunks:
                claim(chunk in has, schedule.collective, f"{message.source} lacks chunk {chunk}")
                mine = into.get(chunk, frozenset())
                once = schedule.collective == "barrier" or not (mine & has[chunk])
                claim(once or not message.reduce, schedule.collective, f"{chunk} added twice")
                into[chunk] = mine | has[chunk] if message.reduce else has[chunk]
    for rank, chunk in _promised(schedule):
        got = held[rank].get(chunk, frozenset())
        full = got == frozenset(range(schedule.members))
        claim(full, schedule.collective, f"rank {rank} ends with {set(got)} of chunk {chunk}")


def _begin(schedule: MessageSchedule) -> Held:
    """Who has what before the first step."""
    ranks = range(schedule.members)
    held: Held = {r: {} for r in (*ranks, NETWORK)}
    for chunk, owner in enumerate(schedule.owners):
        if schedule.collective in ("all-to-all", "send"):
            held[schedule.sources[chunk]][chunk] = frozenset(ranks)
        elif schedule.collective in ("all-gather", "broadcast"):
            held[owner][chunk] = frozenset(ranks)
        else:
            for rank in ranks:
                held[rank][chunk] = frozenset({rank})
    return held


def _promised(schedule: MessageSchedule) -> Iterable[tuple[int, int]]:
    """(rank, chunk) that must be complete at the end."""
    to_all = schedule.collective in ("all-gather", "all-reduce", "broadcast", "barrier")
    for chunk, owner in enumerate(schedule.owners):
        for rank in range(schedule.members) if to_all else (owner,):
            yield rank, chunk
