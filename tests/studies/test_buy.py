"""The buyer's answer: whole nodes and racks, three first lines, ways to pay, and one printable page."""

from pathlib import Path

import pytest

import foretell
from foretell.catalog.prices import provider_rents, rent
from foretell.errors import BadInput
from foretell.report.purchase import page, report_file, write_report
from foretell.studies.procurement.buy import Purchase, unit_of
from tests.surfaces.command import foretell as command

ASKED = {"tokens": "200B", "budget": "5M", "deadline": "60days"}


@pytest.fixture(scope="module")
def found() -> Purchase:
    return foretell.buy("llama-3.1-8b", systems="hgx-h100,gb200-nvl72", **ASKED)


def test_the_first_three_lines_are_the_answer(found: Purchase) -> None:
    what, cost, when = found.headline
    assert what.startswith(("Buy ", "Rent "))
    assert "GPUs)" in what
    assert "USD" in cost
    assert "sure by the deadline of 60 days" in when


def test_nodes_and_racks_are_whole(found: Purchase) -> None:
    assert unit_of("gb200-nvl72") == (72, "rack")
    assert unit_of("hgx-h100") == (8, "node")
    for one in found.options:
        assert one.gpus == one.units * unit_of(one.system)[0]


def test_the_best_is_within_the_means_and_cheapest_of_those(found: Purchase) -> None:
    able = [one for one in found.options if one.within and (one.sure or 0) >= 0.5]
    assert found.options[0] == min(able, key=lambda one: one.usd)
    assert found.options[0].sure is not None
    assert found.options[0].sure >= 0.5


def test_a_later_deadline_is_surer_and_a_smaller_budget_dearer_to_keep() -> None:
    early, late = (
        foretell.buy("llama-3.1-8b", systems="hgx-h100", pay="rent", tokens="2T", deadline=deadline)
        for deadline in ("30days", "300days")
    )
    assert early.options[0].gpus > late.options[0].gpus
    poor = foretell.buy("llama-3.1-8b", systems="hgx-h100", pay="buy", tokens="10T", budget="600k")
    assert not poor.options[0].within
    assert any(one.within for one in poor.options)


def test_a_service_is_paid_for_too() -> None:
    asked = {"systems": "hgx-h100", "pay": "rent"}
    both = foretell.buy("llama-3.1-8b", **asked, tokens="200B", rate=5.0)
    alone = foretell.buy("llama-3.1-8b", **asked, tokens="200B")
    assert both.options[0].usd > alone.options[0].usd
    assert foretell.buy("llama-3.1-8b", **asked, rate=5.0).options[0].days is None


def test_users_are_a_rate_and_a_region_is_its_grid() -> None:
    asked = {"systems": "hgx-h100", "pay": "rent", "isl": 512, "osl": 200}
    users = foretell.buy("llama-3.1-8b", **asked, users=120)
    assert users.options == foretell.buy("llama-3.1-8b", **asked, rate=10.0).options
    assert users.carbon_kg is None
    with pytest.raises(BadInput, match="users: is the rate"):
        foretell.buy("llama-3.1-8b", **asked, rate=1.0, users=2)
    clean, coal = (
        foretell.buy("llama-3.1-8b", systems="hgx-h100", tokens="200B", region=region)
        for region in ("france", "poland")
    )
    assert (clean.energy_mwh, clean.options) == (coal.energy_mwh, coal.options)
    assert 0.0 < (clean.carbon_kg or 0.0) < 0.5 * (coal.carbon_kg or 0.0)


def test_bought_chips_have_a_range_and_a_small_budget_says_what_would_do() -> None:
    poor = foretell.buy("llama-3.1-8b", systems="hgx-h100", pay="buy", tokens="10T", budget="600k")
    low, high = poor.options[0].usd_interval
    assert low < poor.options[0].usd < high
    assert any(line.startswith("A budget of ") for line in poor.changes)
    assert any(line.startswith("Within the budget: Buy ") for line in poor.changes)


def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(BadInput) as error:
        foretell.buy("llama-3.1-8b", pay="steal", deadline="soon")
    assert [problem.path for problem in error.value.problems] == ["tokens", "pay", "deadline"]


def test_the_page_is_one_file_that_needs_nothing(found: Purchase, tmp_path: Path) -> None:
    told = found.to_dict()
    text = page(told)
    assert "http-equiv" not in text
    assert "src=" not in text
    assert all(one["name"] in text for one in told["options"])
    assert "Assumptions and sources" in text
    write_report(told, tmp_path / "buy.html")
    assert (tmp_path / "buy.html").read_text() == text
    with pytest.raises(BadInput, match="no kind of report"):
        report_file("buy.txt")


def test_the_command_says_no_where_the_budget_is_too_small() -> None:
    words = ("buy", "llama-3.1-8b", "--tokens", "2T", "--systems", "hgx-h100", "--pay", "buy")
    done = command(*words, "--budget", "500k")
    assert done.code == 1
    assert "above the budget" in done.out


def test_a_cloud_counts_once_in_a_rent_however_many_regions_it_lists() -> None:
    for chip in ("h100-sxm", "h200-sxm", "b200-sxm"):
        found = rent(chip, "on-demand")
        assert found is not None
        asked = sorted(provider_rents(chip, "on-demand").values())
        assert found[1] == pytest.approx(asked[(len(asked) - 1) // 2])
    h100, h200 = (rent(chip, "on-demand") for chip in ("h100-sxm", "h200-sxm"))
    assert h100 is not None
    assert h200 is not None
    assert h100[1] < h200[1]


def test_the_first_line_of_a_run_says_how_its_chips_are_paid() -> None:
    run = ("cost", "run", "llama-3.1-8b", "--gpus", "64xH100", "--tokens", "1T")
    assert ", rented (on-demand)" in command(*run).out.splitlines()[0]
    assert ", on chips of one's own" in command(*run, "--rent", "own").out.splitlines()[0]


def test_every_term_of_rent_is_an_option_with_its_offers() -> None:
    """On demand, ahead and spot; a spot rent has no probability, and never leads beside a firm one."""
    asked = {"systems": "hgx-h100", "tokens": "200B"}
    found = foretell.buy("llama-3.1-8b", **asked)
    by_term = {one.paid: one for one in found.options}
    assert {"own", "on-demand", "capacity-block", "spot"} == set(by_term)
    assert by_term["spot"].usd < by_term["on-demand"].usd < by_term["capacity-block"].usd
    assert by_term["spot"].sure is None
    assert found.options[0].paid == "on-demand"
    assert any("may take the GPUs back" in line for line in found.changes)
    for one in found.rents:
        assert one["provider"]
        assert one["listed"] >= "2024"
        assert one["listing"]
    offers = [one["usd_per_gpu_hour"] for one in found.rents if one["term"] == "on-demand"]
    assert offers == sorted(offers)
    spot = foretell.buy("llama-3.1-8b", **asked, pay="spot")
    assert {one.paid for one in spot.options} == {"spot"}
    assert "takes no GPUs back" in spot.headline[2]
    reserved = foretell.buy("llama-3.1-8b", systems="tpu-v5p-pod", tokens="200B", pay="reserved")
    (one,) = reserved.options
    hours = one.usd / one.gpus / 8766.0
    assert one.paid == "1-year"
    assert hours == pytest.approx(
        reserved.rents[0]["usd_per_gpu_hour"], rel=0.5
    )  # whole years are paid


def test_the_certainty_of_a_comparison_is_in_its_first_line() -> None:
    found = foretell.compare(
        ("hgx-h100", "dgx-b200"), model="llama-3.1-70b", gpus=64, rent="on-demand"
    )
    told = found.to_dict()
    first, second = (row["system"] for row in told["systems"])
    share = told["beats"][first][second]
    word = "certain" if told["certain"] else "not certain"
    assert told["conclusions"][0].endswith(f"({word}: cheaper in {share:.0%} of draws).")
