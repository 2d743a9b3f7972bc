"""Questions about chips and packages: what is named, set, swept and refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell import catalog
from foretell.catalog.designs import build
from foretell.catalog.money import sheet
from foretell.catalog.technology import technology
from foretell.economics.ask import PackageQuestion, chip_cost, package_cost
from foretell.economics.ask_system import SystemQuestion, system_cost
from foretell.economics.interfaces import interface, package_tier, system_of_dies
from foretell.economics.products import package_of_design, partition
from foretell.economics.settings import combinations, parse_sweeps
from foretell.errors import BadInput, Infeasible
from foretell.specs.design import ChipDesign
from foretell.specs.system import System
from tests.economics.packages import CENTRAL, usd
from tests.economics.test_packages import leaves_sum


def cost(**flags: object) -> float:
    return package_cost(PackageQuestion(**flags)).usd  # type: ignore[arg-type]


def test_chiplets_pay_for_large_dies_at_new_nodes() -> None:
    """The published conclusion: four dies are cheaper than one of 800 mm2 at 5 nm, dearer when small."""
    assert cost(node="N5", area=800, dies=4) < cost(node="N5", area=800)
    assert cost(node="N5", area=100, dies=4) > cost(node="N5", area=100)
    assert cost(node="N28", area=400, dies=4) > cost(node="N28", area=400)


def test_the_area_of_chiplets() -> None:
    answer = package_cost(PackageQuestion(node="N7", area=800, dies=4))
    (die,) = answer.facts["dies"]
    assert die["area_mm2"] == pytest.approx(800 / 4 / 0.9)
    wide = package_cost(
        PackageQuestion(node="N7", area=800, dies=4, package="interposer", die_to_die="2 TB/s")
    )
    link = technology().links["ucie-advanced"]
    assert wide.facts["dies"][0]["area_mm2"] == pytest.approx(200 + 2e12 / link.bytes_per_s_per_mm2)
    told = wide.facts["die_to_die"]
    assert told["bytes_per_s"] == 2e12
    assert told["watts"] == pytest.approx(2 * 2e12 * link.joules_per_byte)
    assert told["tier"]["size"] == 4


def test_settings() -> None:
    base = cost(name="h100-sxm")
    wafer = "prices.processes.4N.wafer_usd=30000"
    assert cost(name="h100-sxm", set=(wafer,)) > base
    assert cost(name="h100-sxm", set=("package.memory_stacks=6",)) > base
    assert cost(name="h100-sxm", set=("package.dies.compute.area_mm2=400",)) < base
    old = cost(name="h100-sxm", set=("prices.wafer.rule=actuary", "prices.wafer.edge_mm=5"))
    assert old > base
    answer = package_cost(PackageQuestion(name="h100-sxm", set=(wafer,)))
    assert answer.overrides == {"prices.processes.4N.wafer_usd": "30000"}
    assert "processes.N4.wafer_usd" not in {driver.path for driver in answer.drivers}


def test_volume_spreads_nre() -> None:
    few, many = (cost(node="N5", area=400, volume=n) for n in ("10k", "10M"))
    none = cost(node="N5", area=400)
    assert few > many > none
    chip = chip_cost(PackageQuestion(node="N5", area=400, volume="10k"))
    nre = chip.breakdown.find("NRE")
    assert nre.value * 1e4 == pytest.approx(chip.facts["nre_usd"])


@pytest.mark.parametrize(
    ("flags", "paths"),
    [
        ({}, {"node", "area"}),
        ({"node": "N5"}, {"area"}),
        ({"node": "5x", "area": "100"}, {"node"}),
        ({"node": "N5", "area": "-3"}, {"area"}),
        ({"node": "N5", "area": "100", "dies": "1.5"}, {"dies"}),
        ({"node": "N5", "area": "100", "package": "box"}, {"package"}),
        ({"node": "N5", "area": "400", "dies": "2", "die_to_die": "-1"}, {"die_to_die"}),
        ({"node": "N5", "area": "400", "dies": "2", "die_to_die": "1e30"}, {"die_to_die"}),
        ({"name": "no-such-chip"}, {"chip"}),
        (
            {"name": "h100-sxm", "set": ("package.x=1", "prices.finish.y=2")},
            {"--set package.x", "--set prices.finish.y"},
        ),
        ({"name": "h100-sxm", "set": ("package.memory=DDR9",)}, {"package.memory"}),
        (
            {"name": "h100-sxm", "set": ("package.dies.compute.units=-1",)},
            {"package.dies.compute.units"},
        ),
        (
            {"name": "b200-sxm", "set": ("prices.packages.bridge.link=rope",)},
            {"prices.packages.bridge.link"},
        ),
        (
            {"name": "h100-sxm", "set": ("prices.processes.N5.aliases=a",)},
            {"--set prices.processes.N5.aliases"},
        ),
        (
            {"name": "h100-sxm", "set": ("package.dies.compute.units_share=0.99",)},
            {"package.dies.compute"},
        ),
        ({"name": "mi300x", "set": ("package.dies.compute.on=moon",)}, {"package.dies.compute.on"}),
    ],
)
def test_bad_input(flags: dict[str, object], paths: set[str]) -> None:
    with pytest.raises(BadInput) as error:
        cost(**flags)
    assert {problem.path for problem in error.value.problems} == paths


def test_what_cannot_be_printed_or_carried() -> None:
    with pytest.raises(Infeasible, match="one exposure"):
        cost(node="N5", area=900)
    with pytest.raises(Infeasible, match="larger than a wafer"):
        cost(node="N5", area=60_000, dies=100, package="interposer")


@given(
    st.sampled_from(("N7", "N5", "N4", "N3", "N2")),
    st.integers(1, 4),
    st.floats(150.0, 800.0),
    st.integers(1, 8),
    st.sampled_from(("organic", "interposer", "bridge", "glass", "fan-out")),
)
@settings(max_examples=40)
def test_random_designs(node: str, dies: int, area: float, stacks: int, kind: str) -> None:
    """Any design that can be built has a price that sums, and rises with its defects."""
    design = ChipDesign(
        node=node, compute_dies=dies, die_area_mm2=area, memory_type="HBM3e", memory_stacks=stacks
    )
    try:
        whole = build(design).design
    except BadInput:
        return  # too many stacks for its edge, and the like: not a design
    package, _ = package_of_design(whole, sheet(), kind)
    die = package.dies[0]
    assert float(die.area_mm2) == area
    assert 0 < die.units_share < 1
    answer = usd(package)
    assert np.isfinite(answer)
    spoiled = [f"prices.processes.{node}.defects_per_cm2={x}" for x in (0.02, 0.1, 0.4)]
    flags = {"node": node, "area": area * dies, "dies": dies, "package": kind}
    costs = [cost(**flags, set=(text,)) for text in spoiled] if area * 1.12 < 858 else []
    assert costs == sorted(costs)


def test_a_design_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        '[design]\nid = "two"\nnode = "N3"\ncompute_dies = 2\ndie_area_mm2 = 800\n'
        'memory_type = "HBM4"\nmemory_stacks = 8\ntdp_watts = "1500 W"\n'
        'scale_up_bytes_per_s = "1.8 TB/s"\nscale_up_link = "serdes-200g"\n'
        'die_to_die_bytes_per_s = "5 TB/s"\n'
    )
    answer = package_cost(PackageQuestion(name=str(path), package="bridge"))
    leaves_sum(answer.breakdown)
    assert answer.facts["memory"] == "HBM4"
    assert answer.facts["die_to_die"]["bytes_per_s"] == 5e12
    assert 5_000 < answer.usd < 20_000
    system = system_cost(
        SystemQuestion(system=str(path), gpus=64, set=("prices.server.gross_margin=0",))
    )
    made = system.breakdown.find("servers", "chips", "manufacture")
    assert made.value == pytest.approx(64 * package_cost(PackageQuestion(name=str(path))).usd)


def test_a_partition_of_one_has_no_interface() -> None:
    one, four = partition("N5", 800.0, 1, "organic"), partition("N5", 800.0, 4, "hybrid-3d")
    assert one.dies[0].area_mm2 == 800.0
    assert sum(float(die.count) for die in four.dies) == 4
    assert four.dies[1].on == "die"
    assert usd(four, CENTRAL) > 0


def test_sweeps() -> None:
    found = parse_sweeps(
        ("area=100:300:3", "dies=1,2", "prices.site.pue=1:100:3:log"), ("area", "dies")
    )
    assert found == {
        "area": ["100", "200", "300"],
        "dies": ["1", "2"],
        "prices.site.pue": ["1", "10", "100"],
    }
    assert len(combinations(found)) == 18
    for bad in ("area", "area=", "areas=1", "area=1:2", "area=1:2:x", "area=0:2:3:log"):
        with pytest.raises(BadInput):
            parse_sweeps((bad,), ("area", "dies"))
    with pytest.raises(BadInput, match="rows"):
        parse_sweeps(("area=1:2:2000", "dies=1:2:2"), ("area", "dies"))


def test_dies_as_a_tier() -> None:
    """A package of two dies as a network tier: a plan across them runs, and a wider link is no slower."""
    system: System = catalog.system("dgx-b200")
    link = technology().links["ucie-advanced"]
    rates = (1e12, 5e12)
    assert interface(link, rates[1]).area_mm2 == pytest.approx(5e12 / link.bytes_per_s_per_mm2)
    steps = []
    for rate in rates:
        split = system_of_dies(system, 2, rate)
        assert split.network.tiers[0] == package_tier(2, rate)
        assert split.chip.memory_bytes * 2 == system.chip.memory_bytes
        answer = foretell.estimate(
            "llama-3.1-8b", system=split, gpus=16, global_batch=64, seq_len=4096,
            plan="tp2 dp8 zero1 mbs1 recompute=full",
        )  # fmt: skip
        steps.append(answer.step_s)
    assert steps[1] < steps[0]
