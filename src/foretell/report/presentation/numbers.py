"""What is shown of an answer: headline, main numbers with their intervals, a table, a breakdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.records import dataclass
from foretell.report.presentation.labels import words_of
from foretell.specs.outputs import OUTPUTS
from foretell.units import field_unit
from foretell.units import format as with_unit

Told = Mapping[str, Any]
"""The JSON of an answer."""

PERCENT = frozenset(
    {
        *(name for name, output in OUTPUTS.items() if output.unit == "share"),
        *"headroom gain efficiency idle_share tail_share difference gap change sure goodput".split(),
    }
)
"""Numbers that are shares."""
MOST_ROWS = 12
"""Rows of a table that are shown."""
MOST_BARS = 9
"""Parts of a breakdown that are shown apart; the smaller ones are shown together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNumber:
    """One number, or word, of an answer."""

    name: str
    """Its key in the JSON."""
    label: str
    """What it is."""
    text: str
    """The value with its unit."""
    ends: tuple[float, float, float] | None = None
    """Low end, value and high end of its 90 % interval."""
    low: str = ""
    """The low end with its unit."""
    high: str = ""
    """The high end with its unit."""

    def to_dict(self) -> dict[str, Any]:
        """Name, label and text, and the 90 % interval where there is one."""
        plain = {"name": self.name, "label": self.label, "text": self.text}
        return plain | ({"90%": f"{self.low} to {self.high}"} if self.ends else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    """What is shown of an answer, made once: terminal, page, notebook, assistant and report draw it."""

    title: str
    """The headline."""
    verdict: str = ""
    """Whether it fits, or is reached, in a word or two."""
    lines: tuple[str, ...] = ()
    """Conclusions."""
    facts: tuple[ShownNumber, ...] = ()
    """Main numbers."""
    reasons: tuple[str, ...] = ()
    """Why the answer is no."""
    notes: tuple[str, ...] = ()
    """How sure it is, and what bears on it."""
    assumptions: tuple[str, ...] = ()
    """Every default and guess."""
    headers: tuple[str, ...] = ()
    """Columns of the table."""
    rows: tuple[tuple[str, ...], ...] = ()
    """Its rows."""
    more_rows: int = 0
    """Rows that are not shown."""
    bars: tuple[tuple[str, float], ...] = ()
    """Parts of the breakdown."""
    bar_title: str = ""
    """What they are parts of."""

    def to_dict(self) -> dict[str, Any]:
        """What the page and assistants draw; tables and assumptions are in the answer beside it."""
        told = {"headline": self.title, "verdict": self.verdict, "lines": list(self.lines)}
        rest = {"reasons": list(self.reasons), "notes": list(self.notes)}
        numbers = [fact.to_dict() for fact in self.facts]
        return {name: one for name, one in (told | {"numbers": numbers} | rest).items() if one}


def value_text(name: str, value: Any) -> str:
    """A value as people write it: with its unit, shares in percent, money with a few digits."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if name in PERCENT:
        return f"{100.0 * value:.1f} %"
    if "usd" in name:
        money = f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:#.3g}"
        return money if "usd_per" in name else f"{money} USD"
    if "per_s" in name and "bytes" not in name:
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # the label has the unit
    if name.endswith("_ms"):
        return f"{value:,.4g} ms"
    unit = "s" if name == "seconds" else field_unit(name)
    if unit == "s" and 60.0 <= abs(value) < 1e4:
        return f"{value:,.1f} s"
    if not unit or name.endswith("per_gpu"):
        return f"{value:,.6g}" if not unit else f"{value:,.1f}"
    return with_unit(float(value), unit)


def facts_of(told: Told, *names: str) -> tuple[ShownNumber, ...]:
    """Some fields of an answer, each with its 90 % interval where it has one."""
    intervals = told.get("intervals") or {}
    return tuple(
        fact_of(name, told[name], intervals.get(name))
        for name in names
        if told.get(name) is not None
    )


def fact_of(name: str, value: Any, interval: Told | None) -> ShownNumber:
    """One field with its interval."""
    label = words_of(name)
    if isinstance(value, Mapping):  # percentiles of a latency
        value = value.get("p50", value.get("mean"))
    ends = None if interval is None else interval.get("p90")
    if ends is None or ends[0] == ends[1] or not isinstance(value, int | float):
        return ShownNumber(name=name, label=label, text=value_text(name, value))
    low, high = (value_text(name, end) for end in ends)
    unit = low.partition(" ")[2]
    return ShownNumber(
        name=name,
        label=label,
        text=value_text(name, value),
        ends=(float(ends[0]), float(value), float(ends[1])),
        low=low.removesuffix(f" {unit}") if unit and high.endswith(f" {unit}") else low,
        high=high,
    )


def table_of(rows: Sequence[Told], *names: str) -> dict[str, Any]:
    """Columns of some rows, those that no row has left away, as fields of a presentation."""
    kept = [name for name in names if any(row.get(name) is not None for row in rows)]
    return {
        "headers": tuple(words_of(name) for name in kept),
        "rows": tuple(
            tuple(value_text(name, _plain(row.get(name))) for name in kept)
            for row in rows[:MOST_ROWS]
        ),
        "more_rows": max(len(rows) - MOST_ROWS, 0),
    }


def _plain(value: Any) -> Any:
    return value.get("p50", value.get("mean")) if isinstance(value, Mapping) else value


def bars_of(parts: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Parts of a whole, the largest first, small ones together."""
    ordered = sorted(((k, float(v)) for k, v in parts.items() if v > 0.0), key=lambda p: -p[1])
    shown, rest = ordered[:MOST_BARS], ordered[MOST_BARS:]
    return (*shown, *([("other", sum(value for _, value in rest))] if rest else []))


def children(tree: Told | None) -> dict[str, float]:
    """The first level of a tree, or its leaves where that has one child alone."""
    while tree and len(tree.get("children") or ()) == 1:
        tree = tree["children"][0]
    return {child["name"]: child["value"] for child in (tree or {}).get("children") or ()}
