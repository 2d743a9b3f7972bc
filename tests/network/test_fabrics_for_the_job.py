"""A fabric between nodes is built for the job's nodes: for its time, for one collective, and for its bill."""

import pytest

import foretell
from foretell.catalog import system as catalogue_system
from foretell.network.placement import built_for, members_of

JOB = {
    "model": "llama-3.1-8b",
    "system": "hgx-h100",
    "gpus": 512,
    "global_batch": 512,
    "seq_len": 8192,
    "plan": "tp2 dp256 zero1 mbs1",
}
TOPOLOGIES = (
    *("fat-tree", "rail-clos", "ring", "torus-2d", "torus-3d", "mesh-3d", "hypercube"),
    *("hyperx-2d", "fully-connected", "dragonfly", "dragonfly-plus"),
)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_time_is_that_of_a_fabric_of_the_jobs_nodes(topology: str) -> None:
    chosen = [f"network.cluster.topology={topology}"]
    sized = [*chosen, "network.cluster.size=64"]
    usual, built = (foretell.estimate(**JOB, set=words) for words in (chosen, sized))
    assert usual.step_s == built.step_s
    asked = {"collective": "all-to-all", "size": "64MiB", "group": 512}
    usual_s, built_s = (
        foretell.network("hgx-h100", **asked, set=words).seconds for words in (chosen, sized)
    )
    assert usual_s == built_s


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_bill_is_that_of_the_same_fabric(topology: str) -> None:
    chosen = f"network.cluster.topology={topology}"
    asked = {"system": "hgx-h100", "gpus": 512}
    usual = foretell.cost("system", **asked, set=[chosen])
    built = foretell.cost("system", **asked, set=[chosen, "network.cluster.size=64"])
    assert usual.usd == built.usd


def test_what_a_machine_states_stands() -> None:
    for name, chips in (("perlmutter", 512), ("tpu-v5p-pod", 256), ("frontier", 1024)):
        network = catalogue_system(name).network
        assert built_for(network, members_of(network, chips)) == network
    network = catalogue_system("hgx-mi300x").network
    assert built_for(network, members_of(network, 4)) == network, "a node is bought as it is"
