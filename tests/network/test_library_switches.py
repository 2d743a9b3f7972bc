"""PAT and sums in the switches between nodes: offered as NCCL offers them, and held to their messages."""

from dataclasses import replace

import numpy as np
import pytest

import foretell
from foretell.api.network import collective
from foretell.catalog.software import shipped_release
from foretell.catalog.systems import named_system
from foretell.errors import BadInput
from foretell.network.algorithms import find
from foretell.network.algorithms.base import NETWORK, Collective
from foretell.network.library import candidates, prepare
from foretell.network.library_catalog import library_for, pat_of
from foretell.network.library_curves import collnet_curve, pat_curve
from foretell.network.library_shapes import measure
from foretell.network.topologies import of_tier
from foretell.specs.system import Network, System

SHARP = {"network.cluster.in_network_reduction": "true"}
ALONE = {"placement": "node=1,cluster=64"}


def sharp_system() -> System:
    system = named_system("hgx-h100")
    node, cluster = system.network.tiers
    cluster = replace(cluster, in_network_reduction=True)
    return replace(system, network=Network(tiers=(node, cluster)))


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
@pytest.mark.parametrize("nodes", [4, 7, 16])
def test_pat_sends_what_its_messages_send(kind: Collective, nodes: int) -> None:
    """Hops and bytes of the closed form are those of the schedule that the simulation runs."""
    system = named_system("hgx-h100")
    library = library_for(system)
    assert library is not None
    assert library.pat is not None
    assert library.between is not None
    shape = measure(library, system.network.tiers, np.array([[1.0], [float(nodes)]]))
    curve = pat_curve(library, shape)[0]
    topology = of_tier(system.network.tiers[1], float(nodes))
    schedule = find("pat").schedule(kind, topology)
    sent = dict.fromkeys(range(nodes), 0.0)
    for step in schedule.steps:
        for message in step:
            sent[message.source] += schedule.share(message)
    rate = library.pat.bandwidth_share / shape.outer_s_per_byte[0]
    assert max(sent.values()) == pytest.approx(float(curve.wire_s_per_byte[0, 0]) * rate)
    hop = library.between.step_s[2] * library.pat.step_share
    linear = library.pat.rank_s * nodes
    assert (curve.latency_s[0, 0] - linear) / hop == pytest.approx(len(schedule.steps))


def test_sums_in_switches_send_what_their_messages_send() -> None:
    """An all-reduce goes up and down each port once: S, where a ring has 2 (N - 1) / N."""
    system = sharp_system()
    library = library_for(system)
    assert library is not None
    assert library.collnet is not None
    nodes = 8
    shape = measure(library, system.network.tiers, np.array([[1.0], [float(nodes)]]))
    curve = collnet_curve("all-reduce", library, shape)[0]
    schedule = find("in-network").schedule("all-reduce", of_tier(system.network.tiers[1], 8.0))
    up = sum(schedule.share(m) for s in schedule.steps for m in s if m.destination == NETWORK)
    rate = library.collnet.bandwidth_share / shape.outer_s_per_byte[0]
    assert up / nodes == pytest.approx(float(curve.wire_s_per_byte[0, 0]) * rate)


def test_pat_is_taken_for_small_gathers_of_one_rank_a_node() -> None:
    small = collective("hgx-h100", collective="all-gather", size="1MiB", group=64, **ALONE)
    large = collective("hgx-h100", collective="all-gather", size="1GiB", group=64, **ALONE)
    assert small.algorithm == "pat simple"
    assert large.algorithm == "ring simple"
    together = collective("hgx-h100", collective="all-gather", size="1MiB", group=64)
    assert "pat simple" not in together.candidates_s
    for kind in ("all-reduce", "broadcast", "all-to-all"):
        found = collective("hgx-h100", collective=kind, size="1MiB", group=64, **ALONE)
        assert "pat simple" not in found.candidates_s


def test_pat_goes_by_release_and_library() -> None:
    old = collective(
        "hgx-h100",
        collective="all-gather",
        size="1MiB",
        group=64,
        set={"system.nccl": "2.21"},
        **ALONE,
    )
    assert "pat simple" not in old.candidates_s
    assert pat_of("nccl", "2.23") is not None
    assert pat_of("nccl", "2.22.3") is None
    assert pat_of("rccl", "") is None
    assert shipped_release("2024-11") == "2.21"
    assert shipped_release("2026-01") == "2.26"


def test_a_grid_keeps_its_ring() -> None:
    found = collective(
        "hgx-h100",
        collective="all-gather",
        size="1MiB",
        group=64,
        set={"network.cluster.topology": "ring"},
        **ALONE,
    )
    assert "pat simple" not in found.candidates_s


@pytest.mark.parametrize("group", [16, 512, 4096])
def test_switches_that_add_up_help_and_never_beat_the_ports(group: int) -> None:
    plain = collective("hgx-h100", collective="all-reduce", size="1GiB", group=group)
    sharp = collective("hgx-h100", collective="all-reduce", size="1GiB", group=group, set=SHARP)
    assert plain.seconds / 2.0 < sharp.seconds <= plain.seconds
    assert sharp.seconds > 2**30 / (8 * 50e9)
    gathered = collective("hgx-h100", collective="all-gather", size="1GiB", group=group, set=SHARP)
    assert gathered.seconds > (group - 1) / group * 2**30 / (8 * 50e9)


def test_steps_of_long_rings_go_where_switches_multicast() -> None:
    times = [
        collective("hgx-h100", collective="reduce-scatter", size="16MiB", group=n, set=SHARP)
        for n in (1024, 8192)
    ]
    assert times[0].algorithm == times[1].algorithm == "collnet simple"
    assert times[1].seconds < 1.1 * times[0].seconds


def test_no_system_of_the_catalogue_adds_up_between_nodes_by_itself() -> None:
    library = library_for(named_system("hgx-h100"))
    assert library is not None
    assert library.collnet is None


def test_a_grid_has_no_switches_that_add_up() -> None:
    both = {**SHARP, "network.cluster.topology": "torus-3d"}
    with pytest.raises(BadInput, match="no switches"):
        collective("hgx-h100", collective="all-reduce", size="1GiB", group=512, set=both)


def test_a_batch_of_groups_is_each_of_them() -> None:
    system = sharp_system()
    library = library_for(system)
    assert library is not None
    counts = np.array([[1.0, 8.0, 8.0, 1.0], [64.0, 64.0, 1.0, 1.0]])
    for kind in ("all-gather", "all-reduce"):
        many = candidates(kind, 1e7, prepare(library, system.network, counts, (kind,)))
        for i in range(4):
            one = candidates(
                kind, 1e7, prepare(library, system.network, counts[:, i : i + 1], (kind,))
            )
            for name, times in one.items():
                assert many[name][i] == times[0]


def test_a_framework_brings_the_release_of_its_date() -> None:
    def said(framework: str, **more: object) -> str:
        found = foretell.estimate(
            "llama-3.2-1b",
            system="hgx-h100",
            gpus=128,
            global_batch=128,
            plan=f"tp8 zero1 {framework}",
            **more,
        )
        return next(text for text in found.assumptions if text.startswith("collectives as"))

    assert "nccl runs" in said("")
    assert "nccl-2.19 runs" in said("framework=nanotron")
    assert "nccl-2.26 runs" in said("framework=megatron-bridge")
    assert "nccl-2.23 runs" in said("framework=nanotron", set={"system.nccl": "2.23"})


def test_releases_that_are_none_are_refused() -> None:
    for system, release in (("tpu-v5p", "2.21"), ("hgx-h100", "new")):
        with pytest.raises(BadInput, match=r"system\.nccl"):
            foretell.estimate("llama-3.2-1b", system=system, gpus=8, set={"system.nccl": release})
