"""Clusters: capital sums, the published formula for an hour, and buying against renting."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.economics.ask_system import SystemQuestion, system_cost
from foretell.economics.total_cost import (
    HOURS,
    break_even_utilisation,
    break_even_years,
    charge_usd,
    interest_usd,
    yearly_share,
)
from foretell.errors import BadInput
from tests.economics.test_packages import leaves_sum

RATES = st.floats(0.0, 0.3)
YEARS = st.floats(1.0, 40.0)


@given(RATES, YEARS)
def test_payments_are_worth_what_was_borrowed(rate: float, years: float) -> None:
    share = float(yearly_share(rate, years))
    worth = years if rate < 1e-9 else (1 - (1 + rate) ** -years) / rate
    assert share * worth == pytest.approx(1.0, rel=1e-6)
    assert share >= 1.0 / years * (1 - 1e-6)
    assert float(interest_usd(100.0, rate, years)) >= -1e-4


@given(RATES, YEARS, st.floats(0.0, 1.0))
def test_what_is_left_lowers_the_charge(rate: float, years: float, left: float) -> None:
    assert float(charge_usd(100.0, rate, years, left)) <= float(charge_usd(100.0, rate, years))


def test_no_interest() -> None:
    assert float(yearly_share(0.0, 5.0)) == pytest.approx(0.2)
    assert float(yearly_share(np.array([0.0, 0.08]), 5.0)[1]) == pytest.approx(0.250456, rel=1e-5)


@pytest.mark.parametrize("gpus", [8, 1024, 16384])
def test_an_hour_is_the_published_formula(gpus: int) -> None:
    """[C_srv crf + C_net crf + P (c_pow + c_cool) crf + M] / (8760 u) + P_avg PUE p_e."""
    none = (
        "site.shell_usd_per_watt=0", "site.rack_usd=0", "site.rack_cooling_usd_per_watt=0",
        "site.storage_bytes_per_chip=0", "site.storage_watts_per_chip=0", "site.idle_load=0",
        "site.network_maintenance_share=0", "site.building_maintenance_share=0",
        "site.staff_per_1000_nodes=0",
    )  # fmt: skip
    settings = tuple(f"prices.{text}" for text in none)
    found = system_cost(SystemQuestion(system="hgx-h100", gpus=gpus, set=settings))
    parts = {child.name: child.value for child in found.breakdown.children}
    rate, u = 0.08, 0.8
    watts = float(found.facts["peak_watts"])
    network_watts = watts - gpus / 8 * 10200
    charges = (
        parts["servers"] * float(yearly_share(rate, 5.0))
        + parts.get("network", 0.0) * float(yearly_share(rate, 7.0))
        + watts * (7.0 + 2.5) * float(yearly_share(rate, 20.0))
        + 5000.0 * gpus / 8
    )
    mean_kw = (gpus / 8 * 10200 * 0.75 + network_watts) / 1000.0
    hour = charges / (HOURS * u * gpus) + mean_kw * 1.25 * 0.083 / gpus
    assert found.facts["usd_per_gpu_hour"] == pytest.approx(hour, rel=1e-9)


def test_a_published_cluster() -> None:
    """128 nodes of eight H100 (tech-talk-cto sheet, August 2024): switches and cables to the dollar.

    Its switch is 36,000, and a link 1,320 to a node and 1,240 between switches: 1,280 on the mean.
    """
    settings = (
        "prices.fabric.switch_usd_per_gbit_s=1.40625",
        "prices.fabric.optics_usd_per_gbit_s=1.6",
        "prices.fabric.fibre_usd=0",
        "system.node_price_usd=310000",
    )
    found = system_cost(SystemQuestion(system="hgx-h100", gpus=1024, set=settings))
    tier = found.breakdown.find("network", "cluster")
    assert tier.find("switches").value == pytest.approx(1_728_000)
    assert tier.find("optics").value == pytest.approx(2_621_440)
    assert found.breakdown.find("servers").value == pytest.approx(39_680_000)
    assert found.breakdown.find("servers").low == found.breakdown.find("servers").high


def test_our_own_figures_are_near_it() -> None:
    found = system_cost(SystemQuestion(system="hgx-h100", gpus=1024))
    network = found.breakdown.find("network")
    assert network.value == pytest.approx(1_728_000 + 2_621_440, rel=0.10)
    assert network.low < 1_728_000 + 2_621_440 < network.high
    assert 1.5 < found.facts["usd_per_gpu_hour"] < 3.0


@pytest.mark.parametrize(
    "name", ["hgx-h100", "perlmutter", "gb200-nvl72", "mi355x", "tpu-v4-pod", "dgx-b300", "aurora"]
)
def test_trees_sum(name: str) -> None:
    found = system_cost(SystemQuestion(system=name))
    for tree in (found.breakdown, *found.trees.values()):
        leaves_sum(tree)
    year, hour = found.trees["year"].value, found.trees["hour"].value
    used = HOURS * found.facts["utilisation"] * found.facts["gpus"]
    assert hour * used == pytest.approx(year, rel=1e-9)
    assert found.low_usd < found.usd < found.high_usd
    json.dumps(found.to_dict(), allow_nan=False)


@given(st.sampled_from((64, 512, 4096)), st.floats(0.5, 40.0))
def test_buying_and_renting_meet_where_they_are_said_to(gpus: int, rent: float) -> None:
    def asked(use: float) -> dict[str, float]:
        question = SystemQuestion(
            system="hgx-h100", gpus=gpus, price=rent, utilisation=max(min(use, 1.0), 1e-6)
        )
        facts = system_cost(question).facts
        return {**facts["renting"][0], "hour": facts["usd_per_gpu_hour"]}

    use = asked(0.8)["break_even_utilisation"]
    if use is not None and use <= 1.0:
        there = asked(use)
        assert there["hour"] == pytest.approx(rent, rel=1e-6)
        assert there["own_over_rent"] == pytest.approx(1.0, rel=1e-6)


def test_when_buying_never_pays() -> None:
    assert float(break_even_years(1e6, 1e5, 2e5)) == np.inf
    assert float(break_even_utilisation(1e6, 0.01, 0.02)) == np.inf
    found = system_cost(SystemQuestion(system="hgx-h100", gpus=64, price=0.05))
    assert found.facts["renting"][0]["break_even_years"] is None


def test_cheaper_power_longer_use_and_more_use_cost_less() -> None:
    def hour(**flags: object) -> float:
        return float(
            system_cost(SystemQuestion(system="dgx-b200", gpus=256, **flags)).facts[  # type: ignore[arg-type]
                "usd_per_gpu_hour"
            ]
        )

    base = hour()
    assert hour(years=3) > base > hour(years=8)
    assert hour(utilisation=0.5) > base > hour(utilisation=0.95)
    assert hour(set=("prices.usd_per_kwh=0.2",)) > base > hour(set=("prices.pue=1.1",))
    assert hour(watts=14300) > base > hour(watts=5000)


def test_a_torus_has_links_and_no_switches() -> None:
    """4,096 TPU v4: three links a chip, a quarter of them between racks."""
    found = system_cost(SystemQuestion(system="tpu-v4-pod", gpus=4096))
    assert (found.facts["switches"], found.facts["links"]) == (0, 3 * 4096)
    assert found.facts["transceivers"] == 2 * 3 * 4096 / 4
    assert found.breakdown.find("network", "pod", "copper").value > 0


def test_more_taper_takes_fewer_switches() -> None:
    full = system_cost(SystemQuestion(system="hgx-h100", gpus=4096))
    half = system_cost(
        SystemQuestion(system="hgx-h100", gpus=4096, set=("network.cluster.taper=0.5",))
    )
    assert half.facts["switches"] < full.facts["switches"]
    assert half.usd < full.usd


@pytest.mark.parametrize(
    ("flags", "path"),
    [
        ({"gpus": "0"}, "gpus"),
        ({"gpus": "1.5"}, "gpus"),
        ({"gpus": "9999999"}, "gpus"),
        ({"utilisation": "1.5"}, "finance.utilisation"),
        ({"years": "0"}, "finance.server_years"),
        ({"set": ("prices.site.puee=1",)}, "--set prices.site.puee"),
        ({"set": ("plan.tp=2",)}, "--set plan.tp"),
    ],
)
def test_bad_input(flags: dict[str, object], path: str) -> None:
    with pytest.raises(BadInput) as error:
        system_cost(SystemQuestion(system="hgx-h100", **flags))  # type: ignore[arg-type]
    assert [problem.path for problem in error.value.problems] == [path]
