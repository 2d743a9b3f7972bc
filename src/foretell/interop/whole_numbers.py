"""Whole numbers in text that someone else wrote: ASCII digits, and not very many of them."""

import re

_DIGITS = re.compile(r"[0-9]{1,12}")


def whole_number(text: object) -> int | None:
    """The number that a text is; None where it is none ("²" is a digit to Python) or has 5,000 digits."""
    found = str(text).strip()
    return int(found) if _DIGITS.fullmatch(found) else None
