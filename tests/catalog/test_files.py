"""Every file of the catalogue: sources, statuses, round trip through the strict reader, balance."""

import tomllib
from pathlib import Path
from typing import get_args

import pytest

from foretell import catalog
from foretell.catalog.files import ROOT
from foretell.catalog.values import FACT_KEYS
from foretell.specs._base import Status
from foretell.specs.check import problems_of
from tests.catalog.tables import facts

CHIPS = sorted((ROOT / "chips").glob("*.toml"))
SYSTEMS = sorted((ROOT / "systems").glob("*.toml"))
FILES = [*CHIPS, *SYSTEMS, ROOT / "prices" / "operating.toml"]
CPUS = {"grace", "xeon-8480"}
GIB = 2.0**30


def _id(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _read(path: Path) -> dict[str, object]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=_id)
def test_every_value_has_a_source_and_a_status(path: Path) -> None:
    table = _read(path)
    sources = table["sources"]
    assert isinstance(sources, dict)
    used = set()
    for where, fact in facts({key: held for key, held in table.items() if key != "sources"}):
        assert set(fact) <= FACT_KEYS, where
        assert fact.get("status") in get_args(Status), where
        assert fact.get("source") in sources, where
        used.add(fact["source"])
        assert (fact["source"] == "recalled") <= (fact["status"] in ("recalled", "inferred")), where
    assert used == set(sources), "a source that no value names"
    assert all(isinstance(text, str) and len(text) > 8 for text in sources.values())


@pytest.mark.parametrize("path", [*CHIPS, *SYSTEMS], ids=_id)
def test_no_number_stands_without_a_source(path: Path) -> None:
    def bare(table: dict[str, object]) -> list[str]:
        found = []
        for key, held in table.items():
            if isinstance(held, int | float):
                found.append(key)
            elif isinstance(held, dict) and "value" not in held:
                found += bare(held)
        return found

    assert bare(_read(path)) == []


@pytest.mark.parametrize("path", [*CHIPS, *SYSTEMS], ids=_id)
def test_no_value_is_outside_its_printed_ends(path: Path) -> None:
    for where, fact in catalog.show(path.stem)["values"].items():
        low, high = fact.get("low", fact["value"]), fact.get("high", fact["value"])
        assert low <= fact["value"] <= high, where


@pytest.mark.parametrize("path", CHIPS, ids=_id)
def test_a_chip_is_read_back_as_its_file_has_it(path: Path) -> None:
    chip = catalog.chip(path.stem)
    assert problems_of(chip, "chip") == []
    assert chip.id == path.stem
    for where, fact in catalog.show(path.stem)["values"].items():
        name, _, dtype = where.partition(".")
        held = getattr(chip, name)
        assert (held[dtype] if dtype else held) == fact["value"]


@pytest.mark.parametrize("path", SYSTEMS, ids=_id)
def test_a_system_is_read_back_as_its_file_has_it(path: Path) -> None:
    system = catalog.system(path.stem)
    assert problems_of(system, "system") == []
    assert system.id == path.stem
    tiers = {tier.name: tier for tier in system.network.tiers}
    for where, fact in catalog.show(path.stem)["values"].items():
        *parents, field = where.split(".")
        if parents[:1] == ["network"]:
            held = getattr(tiers[parents[1]], field)
        else:
            held = getattr(system.chip if parents else system, field)
        value = tuple(fact["value"]) if isinstance(fact["value"], list) else fact["value"]
        assert held == value, where


@pytest.mark.parametrize("path", CHIPS, ids=_id)
def test_a_chip_is_in_balance(path: Path) -> None:
    chip = catalog.chip(path.stem)
    peaks = {dtype: float(peak) for dtype, peak in chip.matrix_flop_per_s.items()}
    half = peaks.get("bf16") or peaks.get("fp16") or peaks["fp32"]
    if chip.id in CPUS:
        assert 64 * GIB <= chip.memory_bytes <= 2048 * GIB
    else:
        assert GIB <= chip.memory_bytes <= 512 * GIB
        assert 2 * peaks.get("fp32", 0) >= peaks.get("fp64", 0)
        assert half >= float(chip.vector_flop_per_s)
    if chip.vendor == "Apple":
        # Memory of laptops and desktops, shared with the CPU: much of it for its bandwidth.
        assert 20 < half / chip.memory_bandwidth_bytes_per_s < 60
        assert chip.scale_up_bytes_per_s < chip.memory_bandwidth_bytes_per_s
    elif chip.id != "wse3" and chip.id not in CPUS:
        # FLOP for each byte: 54 on the V100's successor for inference, 590 on TPU v6e.
        assert 30 < half / chip.memory_bandwidth_bytes_per_s < 700
        # Memory that is shared with a CPU takes longer to read.
        longest = 0.6 if chip.memory_type.startswith("LPDDR") else 0.15
        assert 0.005 < chip.memory_bytes / chip.memory_bandwidth_bytes_per_s < longest
        assert 0.05e12 < half / chip.tdp_watts < 3e12
        assert chip.scale_up_bytes_per_s < chip.memory_bandwidth_bytes_per_s
    if "fp8" in peaks:
        assert peaks["fp8"] >= peaks["bf16"]
    if "fp4" in peaks:
        assert peaks["fp4"] >= peaks["fp6"] >= peaks["fp8"] > peaks["bf16"]
    if "fp16" in peaks and "bf16" in peaks and chip.id != "gaudi3":
        assert peaks["fp16"] == peaks["bf16"]
    assert chip.measured_matmul_flop_per_s < half
    assert chip.idle_watts < chip.tdp_watts
    assert chip.price_usd_low <= chip.price_usd_high
    assert 1900 < chip.release_year < 2100 or chip.release_year == 0


@pytest.mark.parametrize("path", SYSTEMS, ids=_id)
def test_a_system_is_in_balance(path: Path) -> None:
    system = catalog.system(path.stem)
    tiers = system.network.tiers
    speeds = [float(tier.bandwidth_bytes_per_s) for tier in tiers]
    assert speeds == sorted(speeds, reverse=True), "an outer tier is not faster"
    assert (
        speeds[0] <= system.chip.scale_up_bytes_per_s * 1.25
    )  # with the outer links of trn2-ultra
    latencies = [float(tier.latency_s) for tier in tiers]
    assert latencies == sorted(latencies)
    assert 5e-7 <= latencies[0] <= latencies[-1] <= 1e-4
    assert all(0.1 <= float(tier.efficiency) <= 1 for tier in tiers)
    if system.nics_per_node and tiers[-1].name == "cluster":
        share = system.nics_per_node * system.nic_bytes_per_s / system.chips_per_node
        assert speeds[-1] == pytest.approx(share, rel=0.09)  # Summit states what is usable of it
    if system.node_watts:
        assert system.node_watts > 0.9 * system.chips_per_node * system.chip.tdp_watts
    assert system.assumptions


def test_topologies_are_of_one_vocabulary() -> None:
    known = {
        "switch", "fully-connected", "ring", "hybrid-cube-mesh", "torus-2d", "torus-3d", "clos",
        "fat-tree", "rail-clos", "roce-clos", "dragonfly", "dragonfly-plus",
    }  # fmt: skip
    named = [entry.id for kind in ("chips", "systems") for entry in catalog.entries(kind)]
    used = {tier.topology for name in named for tier in catalog.system(name).network.tiers}
    assert used == known


def test_nothing_speaks_of_where_it_was_written() -> None:
    for path in ROOT.rglob("*.toml"):
        text = path.read_text(encoding="utf-8").lower()
        for word in ("from memory", "see notes", "TODO"):
            assert word not in text, f"{word} in {path.name}"
