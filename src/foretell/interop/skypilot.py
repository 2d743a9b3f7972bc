"""A price list in SkyPilot's form: a CSV with a row for each instance type, region and zone.

Columns: InstanceType, AcceleratorName, AcceleratorCount, vCPUs, MemoryGiB, Price, SpotPrice, Region and on
some clouds AvailabilityZone. Price and SpotPrice are USD an hour of the whole instance; a blank cell means
that there is no such offer. Rows without an accelerator are hosts alone and are left out.
"""

import csv
import io
import re
from collections.abc import Iterator

from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.records import dataclass

NEEDED = ("AcceleratorName", "AcceleratorCount", "Price", "Region")
"""Columns without which a file is no price list."""
COLUMNS = (*NEEDED, "InstanceType", "SpotPrice", "AvailabilityZone")
"""Columns that are read."""
LARGEST_TEXT = 1 << 26
"""Characters of a file; the largest catalogue has some 10 million."""
HIGHEST_USD = 1e6
"""An hour of an instance above this is a typing error."""
MOST_PROBLEMS = 20
"""Faulty rows that are named."""
_TPU = re.compile(r"tpu-?(v\d+\w*?)(litepod)?-(\d{1,5})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """One row with an accelerator."""

    instance: str
    """The provider's name of the instance; empty where the host is billed apart."""
    accelerator: str
    """How SkyPilot spells the chip."""
    chips: int
    """Chips of the instance."""
    region: str
    """Region, with the zone where the file has one."""
    usd_per_hour: float | None
    """Of the whole instance on demand."""
    spot_usd_per_hour: float | None
    """Of the same as a spot instance."""


def read_prices(text: str, name: str = "prices") -> tuple[PriceRow, ...]:
    """Rows with an accelerator and a price; every fault up to `MOST_PROBLEMS` at once."""
    if len(text) > LARGEST_TEXT:
        raise _bad(name, f"is longer than {LARGEST_TEXT} characters")
    problems: list[Problem] = []
    try:
        rows = tuple(_rows(text, name, problems))
    except csv.Error as error:
        raise _bad(name, f"is not CSV: {error}") from None
    if problems:
        raise BadInput(problems[:MOST_PROBLEMS])
    if not rows:
        raise _bad(name, "has no row with an accelerator and a price")
    return rows


def _rows(text: str, name: str, problems: list[Problem]) -> Iterator[PriceRow]:
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff"), newline=""))
    header = [column.strip() for column in reader.fieldnames or ()]
    reader.fieldnames = header
    for column in NEEDED:
        if column not in header:
            near = nearest_name(column, header)
            problems.append(
                wrong(f"{name}: {column}", None, "is no column of the file", ", ".join(NEEDED), near)
            )  # fmt: skip
    if problems:
        return
    for number, row in enumerate(reader, start=2):
        cells = {key: (row.get(key) or "").strip() for key in COLUMNS}
        if not cells["AcceleratorName"] or len(problems) > MOST_PROBLEMS:
            continue
        where = f"{name}: line {number}"
        count = _number(cells["AcceleratorCount"], f"{where} AcceleratorCount", problems)
        prices = [_number(cells[key], f"{where} {key}", problems) for key in ("Price", "SpotPrice")]
        if count is None or count < 1 or all(price is None for price in prices):
            continue  # a share of a chip, or nothing on offer
        zone = cells["AvailabilityZone"]
        yield PriceRow(
            instance=cells["InstanceType"],
            accelerator=cells["AcceleratorName"],
            chips=chips_of(cells["AcceleratorName"], int(count)),
            region=zone or cells["Region"] or "any region",
            usd_per_hour=prices[0],
            spot_usd_per_hour=prices[1],
        )


def chips_of(accelerator: str, count: int) -> int:
    """Chips: of a TPU slice the number in its name, which counts cores up to v5p and chips after."""
    match = _TPU.fullmatch(accelerator)
    if match is None:
        return count
    cores = match[1].lower() in ("v2", "v3", "v4", "v5p")
    return max(int(match[3]) // (2 if cores else 1), 1) * count


def _number(text: str, path: str, problems: list[Problem]) -> float | None:
    """A number of a cell; None where it is blank."""
    if text.lower() in ("", "nan", "none", "null"):
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= HIGHEST_USD:
        problems.append(
            wrong(path, text[:100], "is not a usable number", f"0 to {HIGHEST_USD:g}, or blank")
        )  # fmt: skip
        return None
    return value


def _bad(name: str, message: str) -> BadInput:
    return bad_input(name, None, message, ", ".join(COLUMNS))
