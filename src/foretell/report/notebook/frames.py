"""An answer as a data frame: one row per plan, system, option or part; names of JSON joined by dots."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foretell.errors import BadInput, bad_input, unknown

ROWS = {
    "search": "plans",
    "explain": "time",
    "memory": "stages",
    "simulate": "shares",
    "compare-plans": "time",
    "diagnose": "runs",
    "size": "options",
    "fleet": "models",
    "post-train": "phases",
    "compare": "systems",
    "buy": "options",
    "network": "sizes",
    "codesign": "rows",
    "optimise": "rows",
    "improve": "changes",
    "characterize": "steps",
    "changed": "moved",
}
"""Verb -> the key of its answer that has rows; other answers are one row, or rows of their own."""
LIBRARIES = ("polars", "pandas")
"""What a frame may be of."""
ENDS = ("p50", "p90")
"""Keys of an interval, whose two numbers become `.low` and `.high`."""


def answer_frame(verb: str, told: Mapping[str, Any], library: str = "polars") -> Any:
    """The rows of an answer as a frame of polars or pandas."""
    if library not in LIBRARIES:
        raise BadInput([unknown("library", library, LIBRARIES)])
    rows = [dict(_flat(row)) for row in answer_rows(verb, told)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    try:
        if library == "pandas":
            import pandas as pd  # type: ignore[import-not-found,import-untyped,unused-ignore]

            return pd.DataFrame(columns)
        import polars as pl
    except ImportError:
        raise bad_input(library, None, f"is not installed. Run: pip install {library}") from None
    return pl.DataFrame(columns, strict=False)


def answer_rows(verb: str, told: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The rows of an answer, as JSON has them."""
    if verb == "scaling":
        return [
            {"model": curve["model"], "strategy": curve["strategy"], **point}
            for curve in told["curves"]
            for point in curve["points"]
        ]
    if verb == "sensitivity":
        rows: Sequence[Mapping[str, Any]] = told.get("elasticities") or told["numbers"]
        return rows
    if verb == "cost":
        return list(_tree_rows(told["breakdown"]))
    return told[ROWS[verb]] if verb in ROWS else [told]


def _tree_rows(leaf: Mapping[str, Any], above: str = "") -> Iterator[dict[str, Any]]:
    """Every part of a tree with its path."""
    path = f"{above}/{leaf['name']}" if above else str(leaf["name"])
    yield {"path": path, **{k: v for k, v in leaf.items() if k not in ("name", "children")}}
    for child in leaf.get("children") or ():
        yield from _tree_rows(child, path)


def _flat(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Scalars under dotted names; lists other than intervals and trees are left to `to_dict()`."""
    for name, one in value.items():
        key = f"{before}{name}"
        if name in ENDS and isinstance(one, list | tuple) and len(one) == 2:
            yield from ((f"{key}.low", one[0]), (f"{key}.high", one[1]))
        elif isinstance(one, Mapping):
            if "children" not in one:
                yield from _flat(one, f"{key}.")
        elif not isinstance(one, list | tuple):
            yield key, one
