"""A user's own price list as offers of chips: `--prices FILE.csv` in SkyPilot's form."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from foretell.catalog.names import find, normalise
from foretell.catalog.prices import Offer
from foretell.errors import BadInput, bad_input
from foretell.interop.skypilot import LARGEST_TEXT, PriceRow, read_prices
from foretell.interop.user_files import user_file

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
                found.setdefault(chip, []).append(_offer(row, term, usd, name, day))
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
        message = f"has no offer of {chip}"
        raise bad_input("prices", str(path), message, known)
    return offers[chip]


def _offer(row: PriceRow, term: str, usd: float, name: str, day: str) -> Offer:
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
