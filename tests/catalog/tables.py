"""The published tables that the catalogue was written from, read plainly."""

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

# Rows of chips.csv -> catalogue ids, where they differ.
CHIP_IDS = {
    "v100-sxm2-16gb": "v100-sxm-16gb",
    "v100-sxm2-32gb": "v100-sxm-32gb",
    "h100-sxm-80gb": "h100-sxm",
    "h100-pcie-80gb": "h100-pcie",
    "h100-nvl-94gb": "h100-nvl",
    "h100-sxm-96gb-meta": "h100-sxm-96gb",
    "h800-sxm-80gb": "h800-sxm",
    "h20-sxm-96gb": "h20-sxm",
    "h200-sxm-141gb": "h200-sxm",
    "b200-sxm-180gb": "b200-sxm",
    "b300-sxm-288gb": "b300-sxm",
}


def rows(path: Path) -> list[dict[str, str]]:
    """A CSV file, compressed or not."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


def plain(cell: str) -> float | None:
    """The number that a cell is, or None where it says more than a number."""
    try:
        return float(cell)
    except ValueError:
        return None


def facts(table: dict[str, object], path: str = "") -> Iterator[tuple[str, dict[str, object]]]:
    """Every table with a value in it, and its path."""
    for key, held in table.items():
        if isinstance(held, dict):
            here = f"{path}.{key}" if path else key
            if "value" in held:
                yield here, held
            else:
                yield from facts(held, here)
