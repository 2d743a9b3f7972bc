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
    parts = {}
    for place, (field, usual) in enumerate(HEAD):
        first, code = distinct(getattr(plans, field))
        values = getattr(plans, field)[first].astype(int)
        space = " " if place else ""
        words = [f"{space}{DEGREE_WORDS[field]}{v}" if v != usual else "" for v in values]
        if any(words):
            parts[field] = pl.Series(words).gather(code)
    shown = np.asarray(plans.tp > 1, float), np.asarray(plans.vpp > 1, float)
    first, code = distinct(*shown, plans.sp, plans.recompute, plans.order, plans.tp2)
    tails = [_tail(str(plans.plan(int(row)))) for row in first]
    parts["rest"] = pl.Series(tails).gather(code)
    return pl.DataFrame(parts).select(pl.concat_str(pl.all()).alias("plan"))["plan"]


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
