"""Fields of plans as words of a plan's text, for one plan and for a whole batch."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from foretell.specs.plan import Plans
from foretell.training.tables import distinct

if TYPE_CHECKING:
    from polars import Series

DEGREE_WORDS = {
    "tp": "tp", "pp": "pp", "vpp": "vpp", "dp": "dp", "cp": "cp", "ep": "ep", "etp": "etp",
    "zero": "zero", "micro_batch": "mbs", "mbs": "mbs",
}  # fmt: skip
"""Fields whose word is a name and a number."""


def word_of(field: str, value: Any) -> str:
    """One field of a plan as a word: tp8, no-sp, precision=fp8."""
    if isinstance(value, bool):
        return field if value else f"no-{field}"
    if field in DEGREE_WORDS:
        whole = isinstance(value, float) and value.is_integer()
        return f"{DEGREE_WORDS[field]}{int(value) if whole else value}"
    if field == "order" and not isinstance(value, str):
        return f"order={','.join(value)}"
    return f"{field}={value}"


def with_words(plan: str, values: Iterable[tuple[str, Any]]) -> str:
    """A plan's text with further words."""
    return " ".join([plan, *(word_of(name, value) for name, value in values)]).strip()


def plan_texts(plans: Plans) -> "Series":
    """`str(plan)` of every plan of a batch.

    A text begins with the degrees; what comes after them is the same for plans that share their other
    choices, and is taken from the text of one of these.
    """
    import polars as pl

    if len(plans) == 0:
        return pl.Series("plan", [], dtype=pl.String)
    # Few combinations of half the words are distinct: two texts are joined for each plan, not ten.
    front, back = HEAD[:5], HEAD[5:]
    first, code = distinct(*(getattr(plans, field) for field, _ in front))
    heads = [" ".join(_degrees(plans, front, int(row))) for row in first]
    shown = np.asarray(plans.tp > 1, float), np.asarray(plans.vpp > 1, float)
    others = (*shown, plans.sp, plans.recompute, plans.order, plans.tp2)
    second, rest = distinct(*(getattr(plans, field) for field, _ in back), *others)
    known: dict[tuple[float, ...], str] = {}
    tails = []
    for row in second.tolist():
        key = tuple(values[row] for values in others)
        if key not in known:
            known[key] = _tail(str(plans.plan(row)))
        tails.append("".join(f" {word}" for word in _degrees(plans, back, row)) + known[key])
    parts = pl.DataFrame({"a": pl.Series(heads).gather(code), "b": pl.Series(tails).gather(rest)})
    return parts.select(pl.concat_str("a", "b").alias("plan"))["plan"]


def _degrees(plans: Plans, fields: Iterable[tuple[str, int | None]], row: int) -> list[str]:
    """Words of some degrees of one plan of a batch."""
    found = ((field, int(getattr(plans, field)[row]), usual) for field, usual in fields)
    return [f"{DEGREE_WORDS[field]}{value}" for field, value, usual in found if value != usual]


HEAD = (
    ("tp", None), ("pp", None), ("vpp", 1), ("dp", None), ("cp", 1), ("ep", 1), ("etp", 1),
    ("zero", None), ("micro_batch", None),
)  # fmt: skip
"""The degrees in the order of a plan's text, with the value that is left out."""


def _tail(text: str) -> str:
    """What follows the degrees in a plan's text."""
    words = text.split()
    last = next(place for place, word in enumerate(words) if word.startswith("mbs"))
    return "".join(f" {word}" for word in words[last + 1 :])
