"""An answer as a few lines of text, as HTML with intervals and a breakdown bar, and as a data frame: one row
per plan, system, option or part; names of JSON joined by dots."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from foretell.errors import BadInput, bad_input, unknown
from foretell.report.figure_svg import figure_svg
from foretell.report.figures.look import COLOURS, figure
from foretell.report.presentation.numbers import Presentation, ShownNumber, ShownTable
from foretell.report.presentation.verbs import presentation

MOST_FACTS = 10
"""Numbers beside which the short text has no table."""
TEXT_ROWS = 5
"""Rows of a table that the short text has."""
MOST_ROWS = 12
"""Rows of a table that a notebook shows."""
SPAN = 132
"""Pixels of the drawing of an interval."""
LEAST_SHARE = 0.06
"""Parts of the bar below this share have their name in the legend alone."""
SHORT = 18
"""Characters up to which a cell stays on one line."""
STYLE = "style='text-align:left;padding:2px 10px 2px 0;border:none;vertical-align:middle'"
"""Of a cell, whatever the notebook's own theme says of tables."""


def _style(cell: str) -> str:
    """How a cell of a table looks: a number stays with its unit."""
    return (
        STYLE.replace("border:none", "border:none;white-space:nowrap")
        if len(cell) < SHORT
        else STYLE
    )


def answer_text(verb: str, told: Mapping[str, Any]) -> str:
    """The title, the main numbers with their 90 % intervals, and the first rows."""
    card = presentation(verb, told)
    lines = [card.title, *card.lines[:3]]
    width = max((len(fact.label) for fact in card.facts), default=0)
    for fact in card.facts:
        span = f"   90%: {fact.low} to {fact.high}" if fact.ends else ""
        lines.append(f"{fact.label:<{width}}  {fact.text}{span}")
    lines += _columns(card) if len(card.facts) < MOST_FACTS else []
    return "\n".join(lines)


def _columns(card: Presentation) -> list[str]:
    """The first rows of the table, aligned."""
    if not card.tables:
        return []
    one = card.tables[0]
    shown = [one.headers, *one.rows[:TEXT_ROWS]]
    widths = [max(len(row[i]) for row in shown) for i in range(len(one.headers))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
    left = len(one.rows) - TEXT_ROWS
    return [*lines, *([f"... {left} more"] if left > 0 else [])]


def answer_html(verb: str, told: Mapping[str, Any]) -> str:
    """The title, conclusions, main numbers with drawn intervals, a table, and the breakdown as a bar."""
    card = presentation(verb, told)
    parts = [f"<p><b>{escape(card.title)}</b></p>"]
    if card.lines:
        parts.append("<ul>" + "".join(f"<li>{escape(line)}</li>" for line in card.lines) + "</ul>")
    if card.facts:
        rows = "".join(f"<tr>{_fact_cells(fact)}</tr>" for fact in card.facts)
        parts.append(f"<table><tbody>{rows}</tbody></table>")
    parts += map(_table, card.tables[:1])
    if card.bars:
        parts.append(breakdown_svg(card))
    return f"<div class='foretell-answer'>{''.join(parts)}</div>"


def _fact_cells(fact: ShownNumber) -> str:
    drawn = words = ""
    if fact.ends:
        drawn = interval_svg(*fact.ends)
        words = f"90 %: {escape(fact.low)} to {escape(fact.high)}"
    cells = (escape(fact.label), f"<b>{escape(fact.text)}</b>", drawn, words)
    return "".join(f"<td {STYLE}>{cell}</td>" for cell in cells)


def interval_svg(low: float, value: float, high: float) -> str:
    """A line from the low to the high end on an axis from zero, with a dot at the value."""
    top = max(high, value, 1e-300) * 1.02
    x0, at, x1 = (round(SPAN * max(one, 0.0) / top, 1) for one in (low, value, high))
    return (
        f"<svg width='{SPAN}' height='12' viewBox='0 0 {SPAN} 12' role='img' "
        f"aria-label='90 % interval'>"
        f"<line x1='0' x2='{SPAN}' y1='6' y2='6' stroke='currentColor' stroke-opacity='0.15'/>"
        f"<line x1='{x0}' x2='{x1}' y1='6' y2='6' stroke='{COLOURS[0]}' stroke-width='3'/>"
        f"<circle cx='{at}' cy='6' r='4' fill='{COLOURS[0]}'/></svg>"
    )


def _table(shown: ShownTable) -> str:
    heads = "".join(f"<th {STYLE}>{escape(head)}</th>" for head in shown.headers)
    rows = "".join(
        "<tr>" + "".join(f"<td {_style(cell)}>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in shown.rows[:MOST_ROWS]
    )
    left = len(shown.rows) - MOST_ROWS
    more = f"<p>{left:,} more; see to_frame()</p>" if left > 0 else ""
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{more}"


def breakdown_svg(card: Presentation) -> str:
    """One bar of shares in percent, by the engine that draws every figure."""
    whole = sum(value for _, value in card.bars)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": f"{name.replace('_', ' ')} ({value / whole:.0%})",
            "y": [""],
            "x": [100.0 * value / whole],
            "text": [f"{value / whole:.0%}" if value / whole >= LEAST_SHARE else ""],
            "textposition": "inside",
            "marker": {"color": COLOURS[i % len(COLOURS)]},
        }
        for i, (name, value) in enumerate(card.bars)
    ]
    drawn = figure(
        traces, f"Where the {card.bar_title} goes", {"text": "%", "range": [0.0, 100.0]},
        {"text": "", "type": "category"}, barmode="stack", bargap=0.2, width=760,
        height=150 + 14 * len(traces), margin={"l": 24, "r": 24, "t": 48, "b": 56}, showlegend=True,
    )  # fmt: skip
    return figure_svg(drawn)


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
