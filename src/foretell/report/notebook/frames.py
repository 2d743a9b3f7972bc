"""An answer as a data frame: one row per plan, system, option or part; names of JSON joined by dots."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foretell.errors import BadInput, bad_input, unknown
from foretell.report.presentation.verbs import presentation

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
OWN_ROWS = ("scaling", "sensitivity", "cost")
"""Verbs whose rows are put together."""
LIBRARIES = ("polars", "pandas")
"""What a frame may be of."""
ENDS = ("p50", "p90")
"""Keys of an interval, whose two numbers become `.low` and `.high`."""


MOST_COLUMNS = 12
"""Of a frame for which no more were asked."""
ASKED = ("model", "system", "gpus", "plan")
"""Columns of what was asked."""
FIRST = (
    "step_s", "ttft_ms.p50", "tpot_ms.p50", "output_tokens_per_s", "mfu", "peak_memory_bytes", "fits",
)  # fmt: skip
"""Columns that come first of an answer that is one row."""


def answer_frame(
    verb: str, told: Mapping[str, Any], library: str = "polars", *, every: bool = False
) -> Any:
    """The rows of an answer as a frame of polars or pandas: the columns that are shown, or every one."""
    if library not in LIBRARIES:
        raise BadInput([unknown("library", library, LIBRARIES)])
    rows = [dict(_flat(row)) for row in answer_rows(verb, told)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    names = names if every else _shown(verb, told, names)
    columns = {name: [row.get(name) for row in rows] for name in names}
    try:
        if library == "pandas":
            import pandas as pd  # type: ignore[import-not-found,import-untyped,unused-ignore]

            return pd.DataFrame(columns)
        import polars as pl
    except ImportError:
        raise bad_input(library, None, f"is not installed. Run: pip install {library}") from None
    return pl.DataFrame(columns, strict=False)


def _shown(verb: str, told: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Columns that are shown of an answer, at most a dozen; those of an interval behind their number."""
    card = presentation(verb, told)
    one_row = verb not in ROWS and verb not in OWN_ROWS
    tables = [key for table in card.tables for key in table.keys]
    wanted = [*ASKED, *FIRST, *(f.name for f in card.facts)] if one_row else [*ASKED, *tables]
    shown: list[str] = []
    for name in dict.fromkeys([*wanted, *names]):
        if name in names and len(shown) < MOST_COLUMNS:
            ends = [f"intervals.{name}.p90.{end}" for end in ("low", "high")]
            shown += [name, *(end for end in ends if end in names and not shown[5:])]
    return shown[:MOST_COLUMNS]


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
