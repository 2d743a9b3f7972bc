"""What all records share: the numeric field type and the range marks that the door validates."""

import re
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar


class Ge:
    """Not below."""

    __slots__ = ("ge",)

    def __init__(self, ge: float) -> None:
        self.ge = ge

    def __repr__(self) -> str:
        return f"Ge({self.ge!r})"


class Le:
    """Not above."""

    __slots__ = ("le",)

    def __init__(self, le: float) -> None:
        self.le = le

    def __repr__(self) -> str:
        return f"Le({self.le!r})"


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Num = float | NDArray[np.float64]
else:
    # At run time a numeric field is annotated as a plain float: that is what files and flags give.
    # A batch is the same record with arrays in these fields (see docs/decisions.md).
    Num = float

Positive = Annotated[Num, Ge(1e-30), Le(1e30)]
"""A number above zero, or an array of them; the bounds keep every quotient of two finite."""
NotNegative = Annotated[Num, Ge(0), Le(1e30)]
"""A number not below zero, or an array of them."""
Fraction = Annotated[Num, Ge(1e-9), Le(1)]
"""A number in (0, 1], or an array of them."""
Amount = Annotated[float, Ge(0), Le(1e12)]
"""A number not below zero."""
Factor = Annotated[float, Ge(1e-6), Le(1e6)]
"""A number above zero."""
Share = Annotated[float, Ge(0), Le(1)]
"""A part of a whole."""
Count = Annotated[int, Ge(1), Le(10**12)]
"""A whole number from 1."""

Status = Literal["datasheet", "measured", "published", "inferred", "recalled"]
"""Where a number comes from: a vendor's sheet, a measurement, a paper, arithmetic, or memory."""

T = TypeVar("T")


def release_numbers(release: str) -> tuple[int, ...]:
    """The numbers of a release, in order: v1.3.0rc20 is (1, 3, 0, 20), 2022-05 is (2022, 5)."""
    return tuple(int(part) for part in re.findall(r"\d+", release))


def with_fields(record: T, **fields: object) -> T:
    """A copy of a slotted record with some fields replaced.

    `dataclasses.replace` without its checks and three times as fast: a graph cuts some hundred
    operations for every estimate.
    """
    copy = object.__new__(type(record))
    for name in record.__slots__:  # type: ignore[attr-defined]
        value = fields[name] if name in fields else getattr(record, name)
        object.__setattr__(copy, name, value)
    return copy
