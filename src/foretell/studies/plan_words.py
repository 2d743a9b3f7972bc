"""Fields of plans as words of a plan's text, for one plan and for a whole batch."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretell.specs.plan import BATCH_FIELDS, Plans
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

    Questions of a sweep that differ in a length or a batch have the same plans: texts of the last batch are
    kept, and taken again where every plan is equal.
    """
    kept = _KEPT.get("last")
    if kept is None or not _alike(kept[0], plans):
        kept = _KEPT["last"] = (plans, _new_texts(plans))
    return kept[1]


_KEPT: "dict[str, tuple[Plans, Series]]" = {}
"""The last batch of plans and its texts. One entry is replaced whole, so that threads may share it."""


def _alike(some: Plans, others: Plans) -> bool:
    """Whether two batches have the same plans in the same order."""
    return (
        len(some) == len(others)
        and some.orders == others.orders
        and some.base == others.base
        and all(np.array_equal(getattr(some, n), getattr(others, n)) for n in BATCH_FIELDS)
    )


def _new_texts(plans: Plans) -> "Series":
    """The texts of a batch.

    A text begins with the degrees; what comes after them is the same for plans that share their other
    choices, and is taken from the text of one of these.
    """
    import polars as pl

    if len(plans) == 0:
        return pl.Series("plan", [], dtype=pl.String)
    # Few combinations of half the words are distinct: two texts are joined for each plan, not ten.
    front, back = HEAD[:5], HEAD[5:]
    first, code = distinct(*(getattr(plans, field) for field, _ in front))
    heads = [text.removeprefix(" ") for text in _degrees(plans, front, first)]
    shown = np.asarray(plans.tp > 1, float), np.asarray(plans.vpp > 1, float)
    others = (*shown, plans.sp, plans.recompute, plans.order, plans.tp2)
    second, rest = distinct(*(getattr(plans, field) for field, _ in back), *others)
    one, same = distinct(*(values[second] for values in others))
    known = [_tail(str(plans.plan(int(row)))) for row in second[one]]
    degrees = _degrees(plans, back, second)
    tails = [text + known[place] for text, place in zip(degrees, same.tolist(), strict=True)]
    parts = pl.DataFrame({"a": pl.Series(heads).gather(code), "b": pl.Series(tails).gather(rest)})
    return parts.select(pl.concat_str("a", "b").alias("plan"))["plan"]


def _degrees(
    plans: Plans, fields: Iterable[tuple[str, int | None]], rows: NDArray[np.intp]
) -> list[str]:
    """Words of some degrees of some plans of a batch, each with a space before it."""
    words = [
        ["" if value == usual else f" {DEGREE_WORDS[field]}{value}" for value in column]
        for field, usual in fields
        for column in [getattr(plans, field)[rows].astype(int).tolist()]
    ]
    return ["".join(parts) for parts in zip(*words, strict=True)]


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
