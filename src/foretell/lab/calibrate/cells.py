"""Cells of a table of measurements as numbers, and columns that say which one is missing."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from foretell.errors import bad_input, nearest_name
from foretell.units import as_number

LARGEST = 1e12
"""No size of a kernel and no time is above this: a larger cell is a slip, and would overflow."""


class CellColumns(dict[str, list[str]]):
    """The columns of a table by name; one that is not there is bad input rather than a fault."""

    def __init__(self, name: str, columns: Iterable[tuple[str, list[str]]]) -> None:
        super().__init__(columns)
        self.name = name

    def __missing__(self, column: str) -> list[str]:
        near = nearest_name(column, self)
        raise bad_input(f"{self.name}: {column}", None, "is no column of the table", nearest=near)


def numbers(cells: list[str]) -> NDArray[np.float64]:
    """Cells as numbers; nan where a cell is none, or none that a table can have."""
    try:
        found = np.asarray(cells, dtype=np.float64)
    except ValueError:
        found = np.asarray([as_number(cell) for cell in cells], dtype=np.float64)
    return np.where(np.abs(found) <= LARGEST, found, np.nan)
