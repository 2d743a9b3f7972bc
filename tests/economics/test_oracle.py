"""Packages and nodes once more, in plain Python from the words of docs/cost.md, and bills in print."""

import math

import pytest

from foretell import catalog
from foretell.catalog.money import sheet
from foretell.economics.cluster import node_of_parts, priced_chip
from foretell.economics.fabric import clos
from foretell.economics.interfaces import system_of_dies
from foretell.economics.packages import price_package
from foretell.economics.silicon import die_cost, grid_count
from foretell.economics.tree import leaf
from foretell.specs.package import Die, Package, Probe, Process, Wafer
from tests.economics.packages import CENTRAL

FIGURES = sheet().figures


def figure(path: str) -> float:
    return FIGURES[path].value


def bad_share(area: float, defects: float, alpha: float) -> float:
    """Dies with a defect, by the negative binomial."""
    return 1.0 - (1.0 + area * defects / 100.0 / alpha) ** -alpha


def one_die(node: str, area: float, bumps: float) -> tuple[float, float]:
    """(cost, quality) of a die that passed its test."""
    bad = bad_share(area, figure(f"processes.{node}.defects_per_cm2"), 10.0)
    passed = 1.0 - bad * figure("probe.probe_coverage")
    raw = figure(f"processes.{node}.wafer_usd") / grid_count(area, Wafer())
    probe = figure("probe.probe_usd_per_mm2") * area
    return (raw + probe) / passed + bumps * area, (1.0 - bad) / passed


def whole(node: str, area: float, dies: int, kind: str, stacks: int, first: bool = False) -> float:
    """A package of equal dies and HBM3 on a carrier, recurring cost without a module."""
    at = f"packages.{kind}."
    die, quality = one_die(node, area, figure(at + "bump_usd_per_mm2"))
    memory = stacks * 16 * figure("memories.HBM3.usd_per_gib")
    good = quality**dies * figure("memories.HBM3.quality") ** stacks
    parts_mm2 = dies * area + stacks * figure("memories.HBM3.stack_mm2")
    carrier_mm2 = parts_mm2 * figure(at + "carrier_area_factor")
    bridges = dies - 1 + stacks
    bridge_usd = FIGURES[at + "bridge_usd"].value if at + "bridge_usd" in FIGURES else 0.0
    carrier = figure(at + "carrier_wafer_usd") / grid_count(carrier_mm2, Wafer())
    carrier += carrier_mm2 * figure(at + "carrier_bump_usd_per_mm2") + bridges * bridge_usd
    alpha = figure(at + "carrier_clustering")
    y1 = 1.0 - bad_share(carrier_mm2, figure(at + "carrier_defects_per_cm2"), alpha)
    y1 *= figure(at + "stitch_yield") ** (math.ceil(carrier_mm2 / 858) - 1)
    y2 = figure(at + "bond_yield") ** (dies + stacks)
    y3 = figure(at + "substrate_bond_yield")
    substrate = carrier_mm2 * figure(at + "substrate_area_factor")
    substrate *= figure(at + "substrate_usd_per_mm2")
    yearly = figure("machine.machine_usd") / 5 + figure("machine.technician_usd_per_year")
    second = yearly / (365 * 24 * 3600) / figure("machine.uptime")
    placing = (dies + stacks) * figure(at + "place_s") * second
    until = (y1 if first else y2) * y3 * good
    on = (dies * die + memory + placing) / until
    below = carrier / (y1 * y3 * good if first else y1 * y2 * y3 * good)
    return on + below + substrate / (y3 * good) + figure("finish.test_usd") / good


@pytest.mark.parametrize("kind", ["interposer", "bridge", "fan-out"])
@pytest.mark.parametrize(("dies", "area", "stacks"), [(1, 400.0, 0), (2, 700.0, 8), (4, 150.0, 4)])
@pytest.mark.parametrize("first", [False, True])
def test_packages(kind: str, dies: int, area: float, stacks: int, first: bool) -> None:
    package = Package(
        kind=kind,
        dies=(Die(name="a", node="N5", area_mm2=area, count=float(dies)),),
        chip_first=first,
        memory="HBM3" if stacks else "",
        memory_stacks=float(stacks),
        memory_stack_bytes=2.0**34,
        on_module=False,
    )
    expected = whole("N5", area, dies, kind, stacks, first)
    assert float(price_package(package, CENTRAL).tree.usd) == pytest.approx(expected, rel=1e-9)


def test_stacks_of_dies() -> None:
    """Two pairs of a compute die on a base die: what bonding costs, and the pairs that it loses."""
    top = Die(name="top", node="N5", area_mm2=100.0, count=4.0, on="base")
    base = Die(name="base", node="N6", area_mm2=300.0, count=2.0)
    package = Package(kind="interposer", dies=(top, base))
    found = price_package(package, CENTRAL).tree
    stacking = next(part for part in found.children if part.name == "stacking")
    at = "stackings.hybrid-bonding."
    bond = 2 * 100.0 * figure(at + "bond_usd_per_mm2")
    face = figure(at + "align_yield") / (1 + 100.0 * figure(at + "bond_defects_per_cm2") / 100.0)
    good = face**2 * figure(at + "via_yield")
    bumps = figure("packages.interposer.bump_usd_per_mm2")
    pair = 2 * one_die("N5", 100.0, 0.0)[0] + one_die("N6", 300.0, bumps)[0] + bond
    assert float(stacking.usd) == pytest.approx(2 * bond + 2 * pair * (1 / good - 1), rel=1e-9)


def test_a_test_that_misses_some() -> None:
    """Of the bad dies a tenth pass: the price of those that pass falls, and so does their quality."""
    process = Process(wafer_usd=10000.0, defects_per_cm2=0.1)
    die, wafer = Die(node="", area_mm2=400.0), Wafer()
    exact = die_cost(die, process, wafer)
    poor = die_cost(die, process, wafer, probe=Probe(probe_coverage=0.9))
    good = float(exact.good_share)
    assert float(poor.passed_share) == pytest.approx(1 - 0.9 * (1 - good))
    assert float(poor.quality * poor.passed_share) == pytest.approx(good)
    assert float(poor.total_usd) == pytest.approx(float(exact.raw_usd / poor.passed_share))
    assert float(exact.quality) == pytest.approx(1.0)


def test_a_server_in_print() -> None:
    """DGX H100 (SemiAnalysis, May 2023): 195,000 for eight GPUs on their board, 269,010 in all."""
    parts = CENTRAL.entry("server")
    cards = leaf("network cards", 8 * 400 * figure("fabric.nic_usd_per_gbit_s"))
    board = leaf("chips", 195_000 / 8 - figure("server.scale_up_usd_per_chip"))
    assert float(node_of_parts(board, 8.0, cards, parts).usd) == pytest.approx(269_010, rel=1e-3)


def test_a_margin_in_print() -> None:
    """H100 at 28,000 with a margin of 88.1 % on 3,320; B200 at 40,000 with 84 % on 6,400."""
    assert float(priced_chip(leaf("a", 3320.0), 0.881).usd) == pytest.approx(28_000, rel=0.01)
    assert float(priced_chip(leaf("a", 6400.0), 0.84).usd) == pytest.approx(40_000, rel=0.01)


def test_tapered_leaves() -> None:
    """Two to one: 42 of 64 ports of a leaf go down, half as many links go up."""
    switches, links = clos(1024.0, 64.0, 0.5)
    assert float(links) == 512
    assert float(switches) == math.ceil(1024 / (64 / 1.5)) + 512 / 64


def test_dies_share_what_their_package_had() -> None:
    system = catalog.system("dgx-b200")
    split = system_of_dies(system, 2, 5e12)
    for old, new in zip(system.network.tiers, split.network.tiers[1:], strict=True):
        assert 2 * new.bandwidth_bytes_per_s == old.bandwidth_bytes_per_s
    assert 2 * split.chip.tdp_watts == system.chip.tdp_watts
    assert split.chip.matrix_flop_per_s["bf16"] * 2 == system.chip.matrix_flop_per_s["bf16"]
    assert split.chips_per_node == 16
