"""Rings over many nodes: what a port is paid for, how time grows with nodes, and how sure it is."""

import numpy as np
import pytest

from foretell.catalog.systems import named_system
from foretell.network.library import prepare, seconds
from foretell.network.library_catalog import doublings_beyond, fabrics, library_for
from foretell.uncertainty.evidence import fabric_spread

LAYER = 404e6
"""Bytes of one layer of Llama 2 7B in 16 bits."""


def gather_s(nodes: float, per_node: float = 8.0, size: float = LAYER) -> float:
    """Seconds of a ring: NCCL 2.21 has nothing else for a gather."""
    system = named_system("hgx-h100")
    library = library_for(system, version="2.21")
    assert library is not None
    counts = np.array([[per_node], [nodes]])
    prepared = prepare(library, system.network, counts, ("all-gather",))
    return float(seconds("all-gather", size, prepared)[0])


def test_a_long_ring_keeps_its_wire_and_its_steps() -> None:
    """256 nodes: 255 steps of some 14 us and the bytes of a port; no port is paid for inside a node."""
    wire = LAYER / (8 * 50e9)
    for nodes in (16.0, 64.0, 256.0):
        assert gather_s(nodes) > wire
    steps = 255 * 14e-6
    assert steps < gather_s(256.0) < 3.0 * steps


def test_time_grows_with_nodes_and_evenly() -> None:
    times = [gather_s(nodes) for nodes in (64.0, 128.0, 256.0, 512.0)]
    assert times == sorted(times)
    growth = np.diff(times) / np.diff([64.0, 128.0, 256.0, 512.0])
    assert growth.max() < 3.0 * growth.min()


def test_chips_inside_a_node_add_little_to_a_ring() -> None:
    """Seven more steps a node go over NVLink: far less than seven more ports."""
    assert gather_s(256.0, per_node=8.0) < 2.0 * gather_s(256.0, per_node=1.0, size=LAYER / 8.0)


@pytest.mark.parametrize("fabric", ["infiniband", "roce"])
def test_what_two_nodes_do_not_tell_comes_from_many(fabric: str) -> None:
    few = fabrics()[fabric].transports["verbs"]
    many = fabrics()["slingshot-11"].transports["ofi-tuned"]
    assert few.overlap[2] == many.overlap[2]
    assert few.inner_step_s[2] == many.inner_step_s[2]
    assert few.chunk_bytes[2] == many.chunk_bytes[2]


def test_beyond_what_was_held_intervals_widen() -> None:
    system = named_system("hgx-h100")
    assert doublings_beyond(system, 2048) == 0.0
    assert doublings_beyond(system, 8192) == 2.0
    near, far = (fabric_spread(system, gpus) for gpus in (2048, 8192))
    assert np.allclose(np.array(far), 2.0 * np.array(near))
    assert doublings_beyond(named_system("tpu-v5p"), 8192) == 0.0
