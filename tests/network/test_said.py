"""Topologies by name, and what a fitted library leaves of what is stated of a network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.api.network import CollectiveAnswer, collective
from foretell.economics.ask_system import SystemQuestion, system_cost
from foretell.errors import BadInput

FILE = """chip = "h100-sxm"
[network.node]
size = 8
bandwidth_bytes_per_s = "450 GB/s"
latency_s = "2 us"
[network.cluster]
size = 64
bandwidth_bytes_per_s = "50 GB/s"
latency_s = "5 us"
topology = "{}"
"""
JOB: dict[str, Any] = {"gpus": 64, "global_batch": 64, "seq_len": 2048, "plan": "tp2 zero2"}


def own(folder: Path, topology: str) -> Path:
    path = folder / "own.toml"
    path.write_text(FILE.format(topology))
    return path


def reduced(system: str) -> CollectiveAnswer:
    return collective(system, collective="all-reduce", size="1MiB", group=64)


ASKED: dict[str, Callable[[Path], object]] = {
    "estimate": lambda path: foretell.estimate("llama-3.1-8b", system=path, **JOB),
    "search": lambda path: foretell.search("llama-3.1-8b", system=path, **JOB),
    "serve": lambda path: foretell.serve("llama-3.1-8b", system=path, gpus=8),
    "size": lambda path: foretell.size("llama-3.1-8b", system=path, rate=1.0),
    "network": lambda path: reduced(str(path)),
    "cost": lambda path: system_cost(SystemQuestion(system=str(path), gpus=64)),
}


@pytest.mark.parametrize("verb", ASKED)
def test_a_misspelt_topology_is_told_by_every_verb(verb: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="did you mean torus") as error:
        ASKED[verb](own(tmp_path, "toros-3d"))
    assert error.value.problems[0].path == "network.cluster.topology"
    ASKED[verb](own(tmp_path, "torus-3d"))


def test_a_topology_that_was_not_measured_is_said_to_be_scaled(tmp_path: Path) -> None:
    quiet = foretell.estimate("llama-3.1-8b", system=own(tmp_path, "fat-tree"), **JOB)
    assert not any("cluster tier" in text for text in quiet.assumptions)
    unlike = foretell.estimate("llama-3.1-8b", system=own(tmp_path, "torus-3d"), **JOB)
    assert any("cluster tier is a torus-3d" in text for text in unlike.assumptions)
    changes = {"network.cluster.topology": "dragonfly"}
    by_hand = foretell.estimate("llama-3.1-8b", system="h100-sxm", set=changes, **JOB)
    assert any("cluster tier is a dragonfly" in text for text in by_hand.assumptions)
    tree = {"network.cluster.topology": "clos"}
    same = foretell.estimate("llama-3.1-8b", system="h100-sxm", set=tree, **JOB)
    assert any("clos of the cluster tier is timed as" in text for text in same.assumptions)
    ring = {"network.pod.topology": "ring"}
    changed = foretell.estimate("llama-3.1-8b", system="tpu-v5p", set=ring, **JOB)
    assert not any("measured on another topology" in text for text in changed.assumptions)


@pytest.mark.parametrize(
    ("field", "value", "topology"),
    [
        ("groups", "4", "fat-tree"),
        ("routing", "static", "torus-3d"),
        ("routing", "static", "switch"),
        ("taper", "0.5", "fully-connected"),
        ("router_globals", "4", "dragonfly"),
        ("exchange_share", "0.5", "fat-tree"),
        ("efficiency", "0.5", "fat-tree"),
    ],
)
def test_a_field_that_moves_nothing_is_refused(
    field: str, value: str, topology: str, tmp_path: Path
) -> None:
    path = own(tmp_path, topology)
    with pytest.raises(BadInput, match="has no effect"):
        foretell.estimate(
            "llama-3.1-8b", system=path, set={f"network.cluster.{field}": value}, **JOB
        )


def test_impossible_links_are_refused_with_the_usual_range(tmp_path: Path) -> None:
    path = own(tmp_path, "fat-tree")
    for field, value in (("bandwidth_bytes_per_s", "100 B/s"), ("latency_s", "1e18")):
        with pytest.raises(BadInput, match="usual"):
            foretell.estimate(
                "llama-3.1-8b", system=path, set={f"network.cluster.{field}": value}, **JOB
            )
    changes = {"network.node.bandwidth_bytes_per_s": "900 GB/s"}
    odd = foretell.estimate("llama-3.1-8b", system=path, set=changes, **JOB)
    assert any("more than the 450 GB/s of the links of h100-sxm" in t for t in odd.assumptions)


def test_a_stated_efficiency_is_not_said_where_a_fit_takes_its_place() -> None:
    served = foretell.serve("llama-3.1-8b", system="h100-sxm", gpus=8)
    told = reduced("h100-sxm")
    for said in (served.assumptions, told.assumptions):
        assert not any("Large collectives" in text for text in said)


def test_what_was_assumed_before_a_setting_says_so_in_serving_too() -> None:
    changes = {"network.node.bandwidth_bytes_per_s": "900 GB/s"}
    served = foretell.serve("llama-3.1-8b", system="h100-sxm", gpus=8, set=changes)
    said = [text for text in served.assumptions if not text.startswith("unusual")]
    assert all(t.startswith("before --set") for t in said if "450 GB/s" in t)
