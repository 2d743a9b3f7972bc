"""The systems against the rows of the published table that they were written from."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from foretell import catalog
from foretell.specs.system import System
from tests.catalog.tables import plain, rows

# Rows with more than one chip: row -> the systems made of it, each with its chip.
SEVERAL = {
    "dgx-1v": {"dgx-1v": "v100-sxm-32gb", "dgx-1v-16gb": "v100-sxm-16gb"},
    "dgx-a100": {"dgx-a100": "a100-sxm-80gb", "dgx-a100-40gb": "a100-sxm-40gb"},
    "azure-nd-a100-v4": {
        "azure-nd-a100-v4": "a100-sxm-80gb",
        "azure-nd-a100-v4-40gb": "a100-sxm-40gb",
    },
    "perlmutter": {"perlmutter": "a100-sxm-40gb", "perlmutter-80gb": "a100-sxm-80gb"},
    "thetagpu-sophia": {
        "thetagpu-sophia": "a100-sxm-40gb",
        "thetagpu-sophia-80gb": "a100-sxm-80gb",
    },
    "xai-colossus": {"xai-colossus": "h100-sxm", "xai-colossus-h200": "h200-sxm"},
}
# Nodes that the outer tiers join where the cell says more than a number, or a part of it holds.
NODES = {
    "azure-nd-h100-v5": 1800,
    "selene": 560,
    "xai-colossus": 25000,
    "xai-colossus-h200": 25000,
    "perlmutter": 1536,
    "perlmutter-80gb": 256,
    "thetagpu-sophia": 22,
    "thetagpu-sophia-80gb": 2,
    "leonardo": 3600,  # twenty cells of 180, the last of them not full
}
TAPER = {"frontier": 1 / 1.753, "aurora": 1 / 1.552, "meta-24k-roce": 1 / 7, "meta-24k-ib": 1 / 7}


@pytest.fixture(scope="module")
def table(data_dir: Path) -> list[dict[str, str]]:
    return rows(data_dir / "hardware" / "systems.csv")


def _made(row: dict[str, str]) -> dict[str, str | None]:
    return dict(SEVERAL.get(row["id"], {row["id"]: None}))


def _inner(system: System, row: dict[str, str]) -> tuple[float, list[Any]]:
    """Chips inside the scale-up domain, and the tiers outside it."""
    chips, tiers = 1.0, list(system.network.tiers)
    while tiers and chips < float(row["scale_up_domain_chips"]):
        chips *= float(tiers.pop(0).size)
    return chips, tiers


def test_every_row_is_a_system(table: list[dict[str, str]]) -> None:
    assert len(table) == 45
    for row in table:
        for name, chip in _made(row).items():
            system = catalog.system(row["id"] if chip is None else name)
            assert system.id == name
            if chip is None:
                chip = catalog.chip(row["chip_id"].split(" (")[0]).id
            assert system.chip.id == chip


def test_sizes_are_those_of_the_table(table: list[dict[str, str]]) -> None:
    for row in table:
        for name in _made(row):
            system = catalog.system(name)
            chips, outer = _inner(system, row)
            assert chips == float(row["scale_up_domain_chips"]), name
            assert system.chips_per_node == float(row["chips_per_node"]), name
            if row["id"].startswith(("tpu", "gb")):
                continue  # nodes_max counts hosts or trays inside the domain
            nodes = chips * math.prod(float(t.size) for t in outer) / system.chips_per_node
            if name in NODES:
                assert nodes == NODES[name]
            elif plain(row["nodes_max"]) is not None:
                assert nodes == plain(row["nodes_max"]), name
            else:
                assert not row["nodes_max"]
                assert nodes == 16384
                assert "No largest size" in " ".join(system.assumptions)


def test_pods_and_racks_hold_their_hosts(table: list[dict[str, str]]) -> None:
    for row in table:
        if row["id"].startswith(("tpu", "gb")):
            system = catalog.system(row["id"])
            hosts = float(re.match(r"\d+", row["nodes_max"])[0])  # type: ignore[index]
            assert system.network.tiers[0].size == hosts * system.chips_per_node


def test_links_are_those_of_the_table(table: list[dict[str, str]]) -> None:
    for row in table:
        for name in _made(row):
            system = catalog.system(name)
            _, outer = _inner(system, row)
            if row["inter_node_gbytes_per_s_per_chip_one_direction"]:
                share = float(row["inter_node_gbytes_per_s_per_chip_one_direction"]) * 1e9
                outside = [t for t in outer if t.name != "node"]
                assert outside, name
                for tier in outside:
                    assert tier.bandwidth_bytes_per_s == pytest.approx(share, rel=1e-12), name
            if row["nic_count_per_node"]:
                assert system.nics_per_node == float(row["nic_count_per_node"])
                assert system.nic_bytes_per_s == float(row["nic_gbit_s"]) * 1e9 / 8
            tapers = [float(t.taper) for t in system.network.tiers if t.taper != 1.0]
            assert tapers == pytest.approx([TAPER[name]] if name in TAPER else [], rel=1e-3)


def test_power_and_price_are_those_of_the_table(table: list[dict[str, str]]) -> None:
    for row in table:
        for name in _made(row):
            system, values = catalog.system(name), catalog.show(name)["values"]
            rack = 18 if "rack" in row["node_power_w"] else 1
            watts = [float(x) for x in re.findall(r"\d{3,}", row["node_power_w"])]
            if watts and name != "gb300-nvl72":
                fact = values["node_watts"]
                assert fact.get("low", fact["value"]) == pytest.approx(watts[0] / rack, rel=1e-3)
            elif not watts:
                assert system.node_watts == 0
            dollars = [float(x) for x in re.findall(r"\d{5,}", row["node_price_usd"])]
            if dollars:
                fact = values["node_price_usd"]
                ends = fact.get("low", fact["value"]), fact.get("high", fact["value"])
                unit = 18 if "rack" in row["node_price_usd"] else 1
                assert ends[0] == pytest.approx(min(dollars) / unit, rel=1e-3), name
                assert ends[1] == pytest.approx(max(dollars) / unit, rel=1e-3), name
            else:
                assert system.node_price_usd == 0


def test_what_was_recalled_says_so(table: list[dict[str, str]]) -> None:
    named = {
        "nic_count_per_node": "nics_per_node",
        "nic_gbit_s": "nic_bytes_per_s",
        "chips_per_node": "chips_per_node",
        "node_power_w": "node_watts",
        "node_price_usd": "node_price_usd",
    }
    for row in table:
        cells = set(row["memory_cells"].split(";"))
        if row["status"] == "memory":
            cells |= set(named)
        for name in _made(row):
            values = catalog.show(name)["values"]
            for column in cells & set(named):
                if named[column] in values:
                    assert values[named[column]]["status"] == "recalled", (name, column)


def test_shapes_of_the_tori() -> None:
    shapes = {
        "tpu-v3-pod": (32, 32),
        "tpu-v4-pod": (16, 16, 16),
        "tpu-v5e-pod": (16, 16),
        "tpu-v5p-pod": (16, 20, 28),
        "tpu-v6e-pod": (16, 16),
        "tpu-v7x-pod": (),
    }
    for name, shape in shapes.items():
        tier = catalog.system(name).network.tiers[0]
        assert (tier.shape, tier.topology[:5], tier.latency_s) == (shape, "torus", 1e-6)


def test_a_mesh_divides_its_links() -> None:
    for name, pair in (("hgx-mi300x", 64e9), ("perlmutter", 100e9), ("alps", 150e9)):
        tier = catalog.system(name).network.tiers[0]
        assert tier.topology == "fully-connected"
        assert float(tier.bandwidth_bytes_per_s) / (float(tier.size) - 1) == pair
