"""Rents against the published rows, and the one that stands for a chip."""

from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from foretell import catalog
from foretell.catalog.files import ROOT
from foretell.catalog.prices import TERMS, Offer, operating, rent
from foretell.errors import BadInput
from tests.catalog.tables import rows

TERM = {
    "on-demand": "on-demand",
    "on-demand (cheapest listed)": "on-demand",
    "spot": "spot",
    "spot (median over zones)": "spot",
    "capacity block (pre-paid, days to weeks)": "capacity-block",
    "1y commitment": "1-year",
    "3y commitment": "3-year",
}
CHIPS = sorted(p.stem for p in (ROOT / "prices").glob("*.toml") if p.stem != "operating")


def _key(offer: Offer) -> tuple[str, ...]:
    return (offer.provider, offer.instance, offer.listed_as, offer.term, offer.region)


def test_every_published_row_is_kept(data_dir: Path) -> None:
    kept = {_key(offer): offer for chip in CHIPS for offer in catalog.offers(chip)}
    assert len(kept) == sum(len(catalog.offers(chip)) for chip in CHIPS)
    seen: dict[tuple[str, ...], set[str]] = {}
    count = 0
    for row in rows(data_dir / "hardware" / "prices.csv"):
        if row["item_type"] != "cloud":
            continue
        count += 1
        key = (row["provider"], row["instance"], row["chip"], TERM[row["term"]], row["region"])
        offer = kept[key]
        since = max(date for date in offer.usd_per_chip_hour if date <= row["date"])
        assert offer.usd_per_chip_hour[since] == float(row["usd_per_chip_hour"])
        assert offer.chips == int(row["chips"])
        assert ("unreliable" in row["notes"]) == (row["date"] in offer.doubtful)
        assert (offer.status == "recalled") == (row["status"] == "memory")
        seen.setdefault(key, set()).add(row["date"])
    assert count == 709
    assert seen.keys() == kept.keys()
    for key, dates in seen.items():
        assert max(dates) == kept[key].last_seen
        assert set(kept[key].usd_per_chip_hour) <= dates


@pytest.mark.parametrize("chip", CHIPS)
def test_offers_are_in_order(chip: str) -> None:
    assert catalog.chip(chip).id == chip
    for offer in catalog.offers(chip):
        dates, rents = list(offer.usd_per_chip_hour), list(offer.usd_per_chip_hour.values())
        assert dates == sorted(dates)
        assert dates[-1] <= offer.last_seen
        assert all(a != b for a, b in pairwise(rents)), "history shows changes"
        assert all(0.1 < rent < 20 for rent in rents)
        assert offer.term in TERMS
        assert len(offer.source) > 20 or offer.status == "recalled"


def test_a_price_names_its_offer() -> None:
    prices = catalog.price("H100", provider="aws")
    assert prices.usd_per_chip_hour == 6.88
    assert prices.source.startswith("aws p5.48xlarge, on-demand, us-east-1, 2026-08-22")
    assert catalog.price("h100-sxm", provider="AWS", term="spot").usd_per_chip_hour == 2.5923


def test_a_host_that_is_billed_apart_is_added() -> None:
    prices = catalog.price("h200-sxm", provider="gcp")
    assert prices.usd_per_chip_hour == pytest.approx(9.3117 + 12.27 / 8, abs=1e-12)
    assert "host's share" in prices.source


def test_without_a_provider_the_median_offer_stands() -> None:
    prices = catalog.price("h100-sxm")
    listed = [
        offer
        for offer in catalog.offers("h100-sxm")
        if offer.term == "on-demand" and offer.last_seen == "2026-08-22" and offer.chips == 8
    ]
    clouds = {offer.provider for offer in listed}
    current = [
        min(o.latest_usd_per_chip_hour for o in listed if o.provider == cloud) for cloud in clouds
    ]
    assert sum(rent < prices.usd_per_chip_hour for rent in current) <= len(current) // 2
    assert sum(rent > prices.usd_per_chip_hour for rent in current) <= len(current) // 2
    assert f"median of {len(current)} offers" in prices.source


@pytest.mark.parametrize("chip", CHIPS)
def test_a_spot_rent_is_below_the_on_demand_rent_beside_it(chip: str) -> None:
    spot = rent(chip, "spot")
    if spot is None:
        return
    low, middle, high, source = spot
    assert 0 < middle < catalog.price(chip).usd_per_chip_hour
    assert low <= middle <= high
    assert catalog.price(chip, term="spot").usd_per_chip_hour == middle
    assert catalog.price(chip, term="spot").source == source


def test_spot_of_few_clouds_is_what_it_takes_off_there() -> None:
    both = [
        (spot.latest_usd_per_chip_hour, full.latest_usd_per_chip_hour)
        for spot in catalog.offers("h100-sxm")
        for full in catalog.offers("h100-sxm")
        if (spot.term, full.term) == ("spot", "on-demand")
        and spot.last_seen == full.last_seen == "2026-08-22"
        and (spot.provider, spot.listed_as) == (full.provider, full.listed_as)
    ]
    assert len(both) == 3
    share = median(spot / full for spot, full in both)
    prices = catalog.price("h100-sxm", term="spot")
    assert prices.usd_per_chip_hour == pytest.approx(
        share * catalog.price("h100-sxm").usd_per_chip_hour
    )
    assert prices.source.startswith("64% of on-demand, 2026-08-22 (spot over on-demand of gcp")
    assert "listed from 2.59 to 7.06 USD" in prices.source


def test_spot_of_the_same_clouds_is_a_listed_offer() -> None:
    assert catalog.price("tpu-v5p", term="spot").source.startswith("gcp tpu-v5p-8, spot")


def test_a_doubtful_listing_is_not_taken() -> None:
    for chip in CHIPS:
        for offer in catalog.offers(chip):
            assert offer.last_seen not in offer.doubtful


def test_electricity_and_buildings_come_with_it() -> None:
    prices, site = catalog.price("h100-sxm"), operating()
    assert prices.usd_per_kwh == site["usd_per_kwh"]["value"] == 0.083
    assert prices.pue == site["pue"]["value"] == 1.25


def test_an_unknown_rent_says_so() -> None:
    prices = catalog.price("rubin")
    assert prices.usd_per_chip_hour == 0
    assert prices.source == "no on-demand rent of rubin is known"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"name": "h100-sxm", "provider": "awss"}, "prices.provider"),
        ({"name": "h100-sxm", "term": "weekly"}, "prices.term"),
        ({"name": "h100-sxm", "provider": "lambda", "term": "spot"}, "prices.term"),
        ({"name": "rubin", "provider": "aws"}, "prices.provider"),
        ({"name": "no such chip"}, "prices.chip"),
    ],
)
def test_what_is_not_offered_is_refused(given: dict[str, str], path: str) -> None:
    with pytest.raises(BadInput) as caught:
        catalog.price(**given)
    assert [problem.path for problem in caught.value.problems] == [path]
