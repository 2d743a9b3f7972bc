"""Every algorithm on every topology that prices it, against the play of its messages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.network import algorithms
from foretell.network.algorithms.base import Collective, Message, MessageSchedule
from foretell.network.algorithms.direct import gather_direct
from foretell.network.topologies import Topology, names, of_tier
from foretell.specs._base import with_fields
from foretell.testing.collective import check_algorithm, check_promise
from tests.network.player import play
from tests.network.topologies.groups import (
    LARGE,
    SMALL,
    dragonfly_groups,
    fat_tree,
    fully_connected,
    grid,
    switch,
    tier,
)

CASES = [
    pytest.param(name, topology, id=f"{name}: {topology_name}", marks=marks)
    for group, marks in ((SMALL, ()), (LARGE, pytest.mark.full))
    for topology_name, topology in group.items()
    for name in algorithms.names()
    if algorithms.find(name).claim_on(topology) is not None
]
ASKED: tuple[Collective, ...] = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "broadcast",
    "reduce",
    "send",
    "barrier",
)


@pytest.mark.parametrize(("name", "topology"), CASES)
def test_closed_form_and_play(name: str, topology: Topology) -> None:
    check_algorithm(algorithms.find(name), topology, play)


@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("direct", grid(4, 4, 4, wraps=True)),
        ("bucket-rotated", grid(4, 4, 4, wraps=True)),
        ("bucket", grid(8, 8)),
        ("halving-doubling", grid(2, 2, 2, 2, 2, 2)),
        ("double-binary-tree", switch(64.0)),
        ("ring-both", grid(64, wraps=True)),
        ("direct", fat_tree(64.0, 8.0, 0.5)),
    ],
)
def test_sixty_four(name: str, topology: Topology) -> None:
    """A few of the large groups always; the rest with the long checks."""
    check_algorithm(algorithms.find(name), topology, play, sizes_bytes=(1e6,))


@pytest.mark.parametrize("topology", list(SMALL.values())[::7])
def test_every_algorithm_is_found(topology: Topology) -> None:
    at_home = {a.name for c in ASKED for a in algorithms.home(c, topology)}
    assert at_home <= set(algorithms.names())
    assert at_home


def test_all_collectives_are_done_on_a_switch() -> None:
    for collective in ASKED:
        assert algorithms.home(collective, switch(8.0))


def test_an_unknown_name() -> None:
    with pytest.raises(BadInput, match="did you mean ring"):
        algorithms.find("rimg")


@pytest.mark.parametrize("factory", [switch, fully_connected, fat_tree, dragonfly_groups])
@pytest.mark.parametrize("collective", ASKED)
def test_batch_is_each_number(factory: object, collective: Collective) -> None:
    sizes = np.array([1.0, 2.0, 4.0, 8.0])
    bytes_ = np.array([[1e3], [1e9]])
    for algorithm in algorithms.home(collective, factory(sizes)):  # type: ignore[operator]
        batch = algorithm.cost(collective, factory(sizes)).seconds(bytes_)  # type: ignore[operator]
        alone = [
            [float(algorithm.cost(collective, factory(n)).seconds(b)) for n in sizes]  # type: ignore[operator]
            for b in bytes_[:, 0]
        ]
        assert batch == pytest.approx(np.array(alone), rel=1e-12), algorithm.name


@pytest.mark.parametrize("name", names())
def test_perturbed_links_are_a_batch(name: str) -> None:
    """A batch may be of systems too: arrays of rates and latencies with one number of members."""
    rates, latencies = np.array([1e9, 2e9, 3e9]), np.array([1e-6, 2e-6, 3e-6])
    level = tier(name, 8)
    batch = of_tier(with_fields(level, bandwidth_bytes_per_s=rates, latency_s=latencies), 8.0)
    for collective in ASKED:
        for algorithm in algorithms.home(collective, batch):
            together = algorithm.cost(collective, batch).seconds(1e6) + np.zeros(3)
            for i in range(3):
                one = with_fields(level, bandwidth_bytes_per_s=rates[i], latency_s=latencies[i])
                alone = algorithm.cost(collective, of_tier(one, 8.0)).seconds(1e6)
                assert together[i] == pytest.approx(float(alone), rel=1e-12), algorithm.name


@pytest.mark.parametrize("collective", ASKED)
def test_more_members_take_longer_on_a_switch(collective: Collective) -> None:
    """But for the trees' and halvings' powers of two, which only some sizes hit."""
    sizes = np.arange(2.0, 40.0)
    uneven = {"halving-doubling", "recursive-doubling", "bruck"}
    for algorithm in algorithms.home(collective, switch(sizes)):
        if algorithm.name in uneven:
            continue
        seconds = algorithm.cost(collective, switch(sizes)).seconds(1e6)
        assert (np.diff(seconds) >= -1e-15).all(), algorithm.name


@given(st.permutations(range(6)), st.sampled_from(algorithms.names()))
def test_renaming_ranks_changes_nothing(order: list[int], name: str) -> None:
    """On a switch any rank may stand anywhere."""
    topology, algorithm = switch(6.0), algorithms.find(name)
    if algorithm.claim_on(topology) is None:
        return
    for collective in algorithm.collectives:
        if not np.isfinite(algorithm.cost(collective, topology).latency_s):
            continue
        schedule = algorithm.schedule(collective, topology)
        new = dict(enumerate(order)) | {-1: -1}
        renamed = MessageSchedule(
            collective=schedule.collective,
            members=schedule.members,
            weights=schedule.weights,
            owners=tuple(new[r] for r in schedule.owners),
            sources=tuple(new[r] for r in schedule.sources),
            steps=tuple(
                tuple(
                    Message(
                        source=new[m.source],
                        destination=new[m.destination],
                        chunks=m.chunks,
                        reduce=m.reduce,
                    )
                    for m in step
                )
                for step in schedule.steps
            ),
            flows=schedule.flows,
            barriers=schedule.barriers,
        )
        check_promise(renamed)
        same = play(renamed, topology.graph(), 1e6)
        assert same == pytest.approx(play(schedule, topology.graph(), 1e6), rel=1e-12)


def test_a_wrong_schedule_is_caught() -> None:
    """The checks can fail: a missing message, a chunk sent before it is there, one added twice."""
    ring = algorithms.find("ring").schedule("all-reduce", switch(4.0))
    broken = [
        ring.steps[:-1],
        ring.steps[1:],
        (ring.steps[0], *ring.steps),
        (*ring.steps[:2], ring.steps[2][1:], *ring.steps[3:]),
    ]
    for steps in broken:
        with pytest.raises(AssertionError):
            check_promise(
                MessageSchedule(
                    collective="all-reduce",
                    members=4,
                    weights=ring.weights,
                    owners=ring.owners,
                    steps=steps,
                )
            )
    assert len(gather_direct(3)[0]) == 6
