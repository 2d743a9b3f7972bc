"""Rents of chips: published offers with their dates, the one that stands for a chip today, and a user's own
list.

`--prices FILE.csv` is a price list in SkyPilot's form, whose offers take the place of the catalogue's.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from foretell.catalog.files import ROOT, Table, catalogue_file, read_table
from foretell.catalog.names import find, is_id, normalise
from foretell.errors import BadInput, bad_input, nearest_name
from foretell.interop.skypilot import LARGEST_TEXT, PriceRow, read_prices
from foretell.interop.user_files import user_file
from foretell.records import dataclass
from foretell.specs.cost import Prices

TERMS = ("on-demand", "spot", "capacity-block", "1-year", "3-year")
"""How a chip may be rented."""
OF_ON_DEMAND = "of on-demand"
"""What the source of a spot rent says that is a share of another."""
Rent = tuple[float, float, float, str]
"""Lowest, standing and highest rent in USD per chip and hour, and where they come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One instance type at one provider in one region on one term."""

    provider: str
    """Who rents it out: aws, gcp, lambda, ..."""
    instance: str
    """The provider's name of it."""
    listed_as: str
    """How the provider or SkyPilot spells the chip."""
    chips: int
    """Chips in it."""
    term: str
    """One of the terms."""
    region: str
    """Where."""
    usd_per_chip_hour: Mapping[str, float]
    """Rent of one chip from each date on, oldest first."""
    last_seen: str
    """Date of the last listing."""
    source: str
    """Where the listing is, in full."""
    status: str
    """published or recalled."""
    basis: str = ""
    """What the number is of, where several were listed: cheapest region, median over zones."""
    host_usd_per_hour: float = 0.0
    """What the host of all chips costs on top, where it is billed apart."""
    doubtful: tuple[str, ...] = ()
    """Dates whose listing is not to be trusted."""
    note: str = ""
    """What else there is to say."""

    @property
    def latest_usd_per_chip_hour(self) -> float:
        """Rent at the last listing, with the chip's share of a host that is billed apart."""
        return list(self.usd_per_chip_hour.values())[-1] + self.host_usd_per_hour / self.chips


@lru_cache(maxsize=64)
def offers(chip_id: str) -> tuple[Offer, ...]:
    """Every offer of the catalogue for a chip, by id; none where none is known."""
    path = catalogue_file("price", chip_id)
    # What a user's file calls its chip is any text: it must not lead to another file.
    if not is_id(chip_id) or not path.is_file():
        return ()
    table = read_table(path)
    return tuple(_offer(row, table["sources"]) for row in table["offers"])


@lru_cache(maxsize=1)
def operating() -> Table:
    """What running a site costs: electricity, power usage effectiveness and prices of parts."""
    return read_table(ROOT / "prices" / "operating.toml")


def price(
    name: str,
    provider: str | None = None,
    term: str = "on-demand",
    listed: tuple[Offer, ...] | None = None,
) -> Prices:
    """What a chip rents for today.

    Of the cheapest offers of each provider at the latest date the one with the median rent (the
    lower of two), whole nodes before single chips; its provider, date, region and term are the
    source. Spot is rented out by few clouds, and these are dearer ones: where more clouds rent out
    on demand it is that rent times the median of spot over on-demand among instances with both at
    one place and date. Where nothing is known the rent is 0 and the source says so; a provider or
    term without offers is bad input. `listed` are offers in the place of the catalogue's
    (`rent_in`).
    """
    chip_id = find(name, ("chip",), "prices.chip").id
    known = offers(chip_id) if listed is None else listed
    if term not in TERMS:
        raise _unknown("prices.term", term, TERMS)
    if provider is not None:
        providers = sorted({offer.provider for offer in known})
        if provider.lower() not in providers:
            raise _unknown("prices.provider", provider, providers)
        known = tuple(offer for offer in known if offer.provider == provider.lower())
    found = _standing(known, term, many_clouds=provider is None)
    if provider is not None and found is None:
        raise _unknown("prices.term", term, sorted({offer.term for offer in known}))
    site = operating()
    power = {"usd_per_kwh": site["usd_per_kwh"]["value"], "pue": site["pue"]["value"]}
    if found is None:
        return Prices(source=f"no {term} rent of {chip_id} is known", **power)
    return Prices(
        usd_per_chip_hour=found[1],
        low_usd_per_chip_hour=found[0],
        high_usd_per_chip_hour=found[2],
        source=found[3],
        **power,
    )


def rent(chip_id: str, term: str, listed: tuple[Offer, ...] | None = None) -> Rent | None:
    """Lowest, median and highest rent of a chip at the latest date of a term, and the source; or none.

    The middle is that of `price`. Where it lies outside the listed rents the range is stretched to it.
    """
    return _standing(offers(chip_id) if listed is None else listed, term, many_clouds=True)


def provider_offers(chip_id: str, term: str) -> list[Offer]:
    """The cheapest offer of each provider at the latest date of a term, cheapest first: what `rent` takes the
    median of."""
    return _of_providers(_latest([offer for offer in offers(chip_id) if offer.term == term]))


def provider_rents(chip_id: str, term: str) -> dict[str, float]:
    """Provider -> its lowest rent of a chip at the latest date of a term."""
    return {one.provider: one.latest_usd_per_chip_hour for one in provider_offers(chip_id, term)}


def _standing(known: tuple[Offer, ...], term: str, *, many_clouds: bool) -> Rent | None:
    """The rent that stands for a term; a spot rent of many clouds by what spot takes off (`price`)."""
    current = _of_providers(_latest([offer for offer in known if offer.term == term]))
    if not current:
        return None
    chosen = current[(len(current) - 1) // 2]
    low, middle, high = (
        offer.latest_usd_per_chip_hour for offer in (current[0], chosen, current[-1])
    )
    full = _of_providers(_latest([offer for offer in known if offer.term == "on-demand"]))
    same_clouds = {offer.provider for offer in current} == {offer.provider for offer in full}
    shares = _spot_shares(known) if term == "spot" and many_clouds and not same_clouds else []
    if not shares:
        return low, middle, high, _said(chosen, current)
    base = full[(len(full) - 1) // 2]
    share, pair = shares[(len(shares) - 1) // 2]
    middle = share * base.latest_usd_per_chip_hour
    said = f"{share:.0%} {OF_ON_DEMAND}, {pair.last_seen} (spot over on-demand of "
    said += f"{pair.provider} {pair.instance}, {pair.region}: {pair.source}"
    if len(shares) > 1:
        said += f"; the median of {len(shares)} from {shares[0][0]:.0%} to {shares[-1][0]:.0%}"
    said += f") times the rent of {_said(base, full)}; spot itself is listed from "
    said += f"{low:.2f} to {high:.2f} USD"
    return min(low, middle), middle, max(high, middle), said


def _of_providers(found: list[Offer]) -> list[Offer]:
    """The cheapest offer of each provider, cheapest first: a cloud counts once, in however many regions."""
    return list({offer.provider: offer for offer in reversed(found)}.values())[::-1]


def _spot_shares(known: tuple[Offer, ...]) -> list[tuple[float, Offer]]:
    """Spot over on-demand of every instance with both at the latest date of spot, smallest first."""
    full = {_place(offer): offer for offer in known if offer.term == "on-demand"}
    newest = {offer.last_seen for offer in _latest([o for o in known if o.term == "spot"])}
    shares = [
        (offer.latest_usd_per_chip_hour / full[_place(offer)].latest_usd_per_chip_hour, offer)
        for offer in known
        if offer.term == "spot" and offer.last_seen in newest and _place(offer) in full
    ]
    return sorted(shares, key=lambda pair: pair[0])


def _place(offer: Offer) -> tuple[str, str, str, str, str]:
    """What a spot and an on-demand offer of one thing share: who, what, as what, where and when."""
    return offer.provider, offer.instance, offer.listed_as, offer.region, offer.last_seen


def _latest(found: list[Offer]) -> list[Offer]:
    """The trusted offers of the latest date, whole nodes where there are any, cheapest first."""
    trusted = [offer for offer in found if offer.last_seen not in offer.doubtful]
    newest = max((offer.last_seen for offer in trusted), default="")
    current = [offer for offer in trusted if offer.last_seen == newest]
    most = max((offer.chips for offer in current), default=0)
    nodes = [offer for offer in current if offer.chips == most]
    return sorted(nodes, key=lambda offer: offer.latest_usd_per_chip_hour)


def _said(chosen: Offer, current: list[Offer]) -> str:
    """Provider, region, term and date, and how the offer was chosen, as one sentence."""
    said = f"{chosen.provider} {chosen.instance}, {chosen.term}, {chosen.region}, "
    said += f"{chosen.last_seen} ({chosen.source})"
    if chosen.host_usd_per_hour:
        said += ", the host's share included"
    if len(current) > 1:
        low, high = (current[end].latest_usd_per_chip_hour for end in (0, -1))
        said += f"; the median of {len(current)} offers from {low:.2f} to {high:.2f} USD"
    return said


def _offer(row: Table, sources: Mapping[str, str]) -> Offer:
    """One row of a price file."""
    fields = {**row, "source": sources[row["source"]]}
    fields["doubtful"] = tuple(row.get("doubtful", ()))
    return Offer(**fields)


def _unknown(path: str, value: str, allowed: tuple[str, ...] | list[str]) -> BadInput:
    near = nearest_name(value, allowed)
    said = ", ".join(allowed) or "none: no offer is known"
    return bad_input(path, value, "has no offers", said, near)


SPELLED: Mapping[str, str] = {
    "a100": "a100-sxm-40gb", "a10080gb": "a100-sxm-80gb", "a10080gbsxm": "a100-sxm-80gb",
    "v100": "v100-sxm-16gb", "v10032gb": "v100-sxm-32gb", "h100": "h100-sxm", "h100mega": "h100-sxm",
    "h100sxm": "h100-sxm", "h100nvlink": "h100-sxm", "h10080gbhbm3": "h100-sxm", "h200": "h200-sxm",
    "h200sxm": "h200-sxm", "rtxpro6000": "rtx-pro-6000-bw", "trainium": "trainium1",
}  # fmt: skip
"""SkyPilot's names that mean another chip than the catalogue's aliases would: A100 is the one of 40 GB."""
TERM = {"on-demand": "usd_per_hour", "spot": "spot_usd_per_hour"}
"""Terms of a row and their columns."""


def price_file(path: str | Path) -> Mapping[str, tuple[Offer, ...]]:
    """Offers by chip id; chips that the catalogue does not know are left out."""
    file = user_file(path, "prices", "the catalogue's own offers, or a price")
    try:
        if file.stat().st_size > LARGEST_TEXT:
            raise _bad(path, f"is longer than {LARGEST_TEXT} bytes")
        text = file.read_text(encoding="utf-8-sig")
        day = datetime.fromtimestamp(file.stat().st_mtime, UTC).date().isoformat()
    except FileNotFoundError:
        raise _bad(path, "there is no such file") from None
    except UnicodeDecodeError:
        raise _bad(path, "is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _bad(path, f"cannot be read: {reason}") from None
    return offers_of(read_prices(text, file.name), file.name, day)


def offers_of(rows: tuple[PriceRow, ...], name: str, day: str) -> Mapping[str, tuple[Offer, ...]]:
    """Rows as offers, by chip."""
    found: dict[str, list[Offer]] = {}
    ids: dict[str, str | None] = {}
    for row in rows:
        if row.accelerator not in ids:
            ids[row.accelerator] = chip_named(row.accelerator)
        chip = ids[row.accelerator]
        if chip is None:
            continue
        for term, column in TERM.items():
            usd = getattr(row, column)
            if usd:
                found.setdefault(chip, []).append(_listed_offer(row, term, usd, name, day))
    return {chip: tuple(offers) for chip, offers in found.items()}


def chip_named(accelerator: str) -> str | None:
    """The chip that SkyPilot's spelling means; None where the catalogue has none."""
    plain = normalise(accelerator)
    if plain in SPELLED:
        return SPELLED[plain]
    stem = accelerator.rpartition("-")[0] if plain.startswith("tpu") else accelerator
    for name in (accelerator, stem.replace("litepod", "e")):
        try:
            return find(name, ("chip",)).id
        except BadInput:
            continue
    return None


def rent_in(path: str | Path, chip: str) -> tuple[Offer, ...]:
    """Offers of one chip in a file; BadInput with what the file has where there are none."""
    offers = price_file(path)
    if chip not in offers:
        known = ", ".join(sorted(offers)) or "no chip that is known here"
        raise bad_input("prices", str(path), f"has no offer of {chip}", known)
    return offers[chip]


def _listed_offer(row: PriceRow, term: str, usd: float, name: str, day: str) -> Offer:
    return Offer(
        provider=name,
        instance=row.instance or f"{row.accelerator}:{row.chips}, the host billed apart",
        listed_as=row.accelerator,
        chips=row.chips,
        term=term,
        region=row.region,
        usd_per_chip_hour={day: usd / row.chips},
        last_seen=day,
        source=f"file of {day}",
        status="published",
    )


def _bad(path: str | Path, message: str) -> BadInput:
    shown = str(path).encode("utf-8", "backslashreplace").decode()
    return bad_input("prices", shown, message, "a CSV file")
