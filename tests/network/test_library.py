"""The collective library's model: identities and bounds first, then published figures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.systems import named_system
from foretell.errors import BadInput
from foretell.network.library import candidates, choice, empty_s, prepare, seconds
from foretell.network.library_catalog import (
    fabric_named,
    fabric_of,
    fabrics,
    inner_tiers,
    inside_link,
    library_for,
    links_by_chip,
    transport_of,
)
from foretell.network.library_records import KINDS

SYSTEMS = ("hgx-h100", "perlmutter", "polaris-ss11", "gb200-nvl72", "hgx-mi300x", "l40s", "aws-p5")
GIB = 2.0**30


def at(system_id, inside, nodes, kinds=KINDS, **choices):
    """Groups of a system: members per node, and nodes, both arrays."""
    system = named_system(system_id)
    library = library_for(system, **choices)
    counts = np.ones((len(system.network.tiers), len(np.atleast_1d(inside))))
    counts[0], counts[1] = inside, nodes
    return library, prepare(library, system.network, counts, kinds)


@pytest.mark.parametrize(
    ("names", "inside"),
    [
        (("node", "cluster"), 1),
        (("package", "node", "cluster"), 2),
        (("pair", "socket", "node", "pod", "rack"), 3),
        (("pod", "cluster"), 1),  # whatever its name, the first is inside
        (("node", "rack"), 2),
    ],
)
def test_tiers_inside_a_node(names, inside):
    assert inner_tiers(names) == inside


@given(
    system=st.sampled_from(SYSTEMS),
    kind=st.sampled_from(KINDS),
    inside=st.sampled_from([1, 2, 4]),
    nodes=st.sampled_from([1, 2, 3, 8, 64]),
    size=st.floats(1.0, 1e11),
    factor=st.floats(1.0, 100.0),
)
def test_time_grows_with_the_message(system, kind, inside, nodes, size, factor):
    _, prepared = at(system, inside, nodes, (kind,))
    small, large = seconds(kind, np.array([[size], [size * factor]]), prepared)[:, 0]
    assert 0.0 <= small <= large * (1 + 1e-12)
    assert np.isfinite(large)


@given(system=st.sampled_from(SYSTEMS), kind=st.sampled_from(KINDS), size=st.floats(0.0, 1e11))
def test_a_group_of_one_and_nothing_to_send_are_free(system, kind, size):
    _, prepared = at(system, np.array([1.0, 4.0]), np.array([1.0, 2.0]), (kind,))
    assert seconds(kind, size, prepared)[0] == 0.0
    assert seconds(kind, 0.0, prepared)[1] == 0.0


@given(
    system=st.sampled_from(SYSTEMS),
    kind=st.sampled_from(("all-reduce", "all-gather", "reduce-scatter", "all-to-all")),
    inside=st.sampled_from([1, 2, 4]),
    nodes=st.sampled_from([1, 2, 8, 64]),
    size=st.floats(1.0, 1e11),
)
def test_no_collective_beats_the_information_bound(system, kind, inside, nodes, size):
    """What must leave a member, or a node, over the nominal bandwidth; in-network sums send S once."""
    if inside * nodes == 1:
        return
    _, prepared = at(system, inside, nodes, (kind,))
    tiers = named_system(system).network.tiers
    members = inside * nodes
    through_node = (members - inside) / members if nodes > 1 else 0.0
    rate_out = tiers[1].bandwidth_bytes_per_s * inside
    must_leave_node = through_node * (inside if kind == "all-to-all" else 1.0)
    if kind == "all-reduce":
        must_leave_node = 1.0 if nodes > 1 else 0.0  # the node's sum goes out once
    bound = size * must_leave_node / rate_out
    if inside > 1:
        share = (members - 1) / members if nodes == 1 else 0.0
        bound = max(bound, size * share / tiers[0].bandwidth_bytes_per_s)
    assert seconds(kind, size, prepared)[0] >= bound * (1 - 1e-9)


@given(
    kind=st.sampled_from(KINDS),
    rows=st.lists(
        st.tuples(
            st.sampled_from([1.0, 2.0, 4.0, 8.0]),
            st.sampled_from([1.0, 2.0, 16.0]),
            st.floats(1.0, 1e10),
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_a_batch_equals_its_rows(kind, rows):
    inside, nodes, size = (np.array(column) for column in zip(*rows, strict=True))
    _, together = at("hgx-h100", inside, nodes, (kind,))
    batch = seconds(kind, size, together)
    for i, (a, b, s) in enumerate(rows):
        _, alone = at("hgx-h100", a, b, (kind,))
        assert seconds(kind, s, alone)[0] == batch[i]


def test_the_least_candidate_is_taken_and_named():
    _, prepared = at("hgx-h100", np.array([8.0, 8.0, 2.0]), np.array([1.0, 4.0, 1.0]))
    size = np.array([GIB, 4096.0, 1e6])
    every = candidates("all-reduce", size, prepared)
    least = np.min(list(every.values()), axis=0)
    np.testing.assert_array_equal(least, seconds("all-reduce", size, prepared))
    names = choice("all-reduce", size, prepared)
    for i, name in enumerate(names):
        assert every[str(name)][i] == least[i]
    assert names[0] == "in-network simple"


def test_in_network_reduction_shows_from_five_members_on_and_gains_a_fifth_to_a_third():
    _, prepared = at("hgx-h100", np.array([4.0, 8.0]), np.ones(2), ("all-reduce",))
    every = candidates("all-reduce", 4 * GIB, prepared)
    assert np.isinf(every["in-network simple"][0])
    gain = every["ring simple"][1] / every["in-network simple"][1]
    assert 1.15 < gain < 1.45


def test_a_fully_connected_node_gives_two_members_one_link_of_three():
    _, direct = at("perlmutter", 2.0, 1.0, ("all-reduce",))
    _, behind = at("dgx-a100", 2.0, 1.0, ("all-reduce",))
    ratio = seconds("all-reduce", 8 * GIB, direct) / seconds("all-reduce", 8 * GIB, behind)
    assert 2.3 < ratio[0] < 3.0


def test_software_is_a_choice():
    slow = at("polaris-ss11", 4.0, 8.0, transport="sockets")[1]
    fast = at("polaris-ss11", 4.0, 8.0, transport="ofi-tuned")[1]
    assert seconds("all-reduce", GIB, slow)[0] > 5 * seconds("all-reduce", GIB, fast)[0]
    with pytest.raises(BadInput, match="ofi-tuned"):
        at("polaris-ss11", 4.0, 8.0, transport="ofi-tund")
    plain = at("hgx-h100", 8.0, 1.0)[1]
    custom = at("hgx-h100", 8.0, 1.0, software="trtllm", version="1.3.0")[1]
    sizes = np.array([[2048.0], [GIB]])
    ratio = seconds("all-reduce", sizes, custom) / seconds("all-reduce", sizes, plain)
    assert ratio[0, 0] < 0.4
    assert ratio[1, 0] == 1.0


def test_a_call_with_nothing_to_send_has_its_own_time():
    library, prepared = at("polaris-ss11", 4.0, 2.0, version="2.18")
    assert 7e-6 < empty_s("all-gather", library, prepared)[0] < 10e-6
    library, prepared = at("polaris-ss11", 4.0, 2.0, version="2.21")
    assert empty_s("all-gather", library, prepared)[0] < 1e-6
    assert 15e-6 < empty_s("all-to-all", library, prepared)[0] < 40e-6


def test_latency_and_bandwidth_of_a_tier_can_be_set():
    """A tier twice as fast in both respects halves what is not the library's own start."""
    from dataclasses import replace

    system = named_system("hgx-h100")
    library = library_for(system)
    tiers = system.network.tiers
    fast = tuple(
        replace(t, bandwidth_bytes_per_s=t.bandwidth_bytes_per_s * 2, latency_s=t.latency_s / 2)
        for t in tiers
    )
    counts = np.array([[8.0], [4.0]])
    for size in (1e3, 1e6, 1e9):
        slow = seconds("all-gather", size, prepare(library, tiers, counts))[0]
        quick = seconds("all-gather", size, prepare(library, fast, counts))[0]
        assert quick < slow
    assert slow / quick > 1.8


def test_every_file_has_its_source_and_every_chip_one_link():
    for name, fabric in fabrics().items():
        assert fabric.default_transport in fabric.transports
        assert fabric.words, name
    for chip, link in links_by_chip().items():
        assert inside_link(link).efficiency <= 1.0, chip
    assert fabric_of("perlmutter").id == "slingshot-11"
    assert fabric_of("hgx-h100").id == "infiniband"
    assert fabric_named("Slingshot-11 (Polaris TDS)").id == "slingshot-11"
    assert fabric_named("Slingshot-10").id == "slingshot-10"
    assert fabric_named("8x NDR InfiniBand").id == "infiniband"
    assert fabric_named("two tin cans") is None
    assert library_for(named_system("tpu-v4-pod")) is None
    assert transport_of(fabrics()["ethernet"]).efficiency is None
    assert fabric_of("my-cluster-on-roce").id == "roce"


# Bus bandwidth at 1 GiB in print (NCCL tests of ALCF). InfiniBand's efficiency is taken from the same 178 of
# 200 GB/s, so this holds the form together; it is no blind prediction.
PRINTED = (
    ("thetagpu-sophia", "all-reduce", 8, 2, 178e9),
    ("thetagpu-sophia", "all-gather", 8, 2, 177e9),
)


@pytest.mark.parametrize(("system", "kind", "inside", "nodes", "bus"), PRINTED)
def test_bus_bandwidth_in_print(system, kind, inside, nodes, bus):
    _, prepared = at(system, float(inside), float(nodes), (kind,))
    members = inside * nodes
    moved = (2.0 if kind == "all-reduce" else 1.0) * (members - 1) / members
    predicted = moved * GIB / seconds(kind, GIB, prepared)[0]
    assert predicted == pytest.approx(bus, rel=0.15)


@pytest.mark.parametrize(
    ("system", "ranks", "size_bytes", "us"),
    [
        ("hgx-mi300x", 2, 2**15, 7.3),
        ("hgx-mi300x", 2, 2**20, 28.2),
        ("hgx-mi300x", 2, 2**23, 181.4),
        ("hgx-mi300x", 4, 2**14, 7.3),
        ("hgx-mi300x", 4, 2**20, 22.9),
        ("hgx-mi300x", 4, 2**23, 118.3),
        ("mi355x", 8, 24 * 2**10, 6.3),
        ("mi355x", 8, 768 * 2**10, 16.0),
    ],
)
def test_engines_have_an_all_reduce_of_their_own_on_infinity_fabric(
    system: str, ranks: int, size_bytes: int, us: float
) -> None:
    """vLLM's kernels in print: github.com/ROCm/aiter 801, github.com/vllm-project/vllm 19744 and 39080."""
    from foretell.catalog.engines import profile
    from foretell.catalog.systems import named_system
    from foretell.network.collectives import collective_s
    from foretell.serving.links import links_of
    from foretell.specs.deployment import Deployment

    found = named_system(system)
    links = links_of(found, Deployment(tp=ranks), profile("vllm", found.chip))
    ours = 1e6 * float(
        collective_s("all-reduce", np.array([[float(size_bytes)]]), links.tensor)[0, 0]
    )
    assert 0.75 < ours / us < 1.25


def test_an_all_to_all_over_efa_gains_nothing_from_faster_ports_and_an_all_reduce_does():
    size = 256.0 * 2**20

    def of(system_id, kind):
        return float(seconds(kind, size, at(system_id, 8, 4)[1])[0])

    assert of("aws-p6-b300", "all-to-all") > 0.95 * of("aws-p5", "all-to-all")
    assert of("aws-p6-b300", "all-reduce") < 0.7 * of("aws-p5", "all-reduce")
