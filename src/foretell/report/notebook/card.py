"""A card: a title, main numbers with their intervals, a table and a breakdown, as text with units."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.records import dataclass
from foretell.report.figures.look import words_of
from foretell.units import field_unit
from foretell.units import format as with_unit

Told = Mapping[str, Any]
"""The JSON of an answer."""

PERCENT = (
    "mfu",
    "hfu",
    "headroom",
    "gain",
    "efficiency",
    "idle_share",
    "difference",
    "gap",
    "change",
    "sure",
)
"""Numbers that are shares."""
WORDS = {
    "usd_per_million_work_tokens": "USD per million tokens",
    "work_tokens_per_s_per_gpu": "tokens/s per GPU",
    "name": "option",
    "step_s": "step time",
    "closed_step_s": "closed form",
    "mfu": "MFU",
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "allocated_bytes": "allocated by tensors",
    "peak_memory_bytes": "peak memory",
    "tokens_per_s": "throughput",
    "tokens_per_s_per_gpu": "per GPU",
    "output_tokens_per_s": "throughput",
    "usd_per_million_tokens": "USD per million tokens",
    "usd_per_million_input_tokens": "USD per million input tokens",
    "usd_per_million_output_tokens": "USD per million output tokens",
    "usd_per_request": "USD per request",
    "usd_per_run": "USD per run",
    "usd_per_gpu_hour": "USD per GPU-hour",
    "usd_per_hour": "USD per hour",
    "usd_per_step": "USD per step",
    "usd": "cost",
    "tco_usd": "total cost of ownership",
    "bus_bytes_per_s": "bus bandwidth",
    "energy_joules": "energy of a step",
    "joules_per_token": "energy of a token",
    "limited_by": "limited by",
    "predicted_s": "predicted",
    "measured_s": "measured",
    "gpus": "GPUs",
    "sure": "sure by the deadline",
    "within": "within the budget",
}
"""What people call some fields."""
MOST_ROWS = 12
"""Rows of a table that are shown."""
MOST_BARS = 9
"""Parts of a breakdown that are shown apart; the smaller ones are shown together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNumber:
    """One number, or word, of an answer."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What is shown of an answer."""

    title: str
    """One line."""
    lines: tuple[str, ...] = ()
    """Conclusions."""
    facts: tuple[ShownNumber, ...] = ()
    """Main numbers."""
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
    if name == "seconds":
        return with_unit(float(value), "s")
    if name.endswith("_ms"):
        return f"{value:,.4g} ms"
    if name.endswith("tokens_per_s") or "tokens_per_s_" in name:
        return f"{value:,.0f} tokens/s" if value >= 100 else f"{value:.3g} tokens/s"
    unit = field_unit(name)
    return with_unit(float(value), unit) if unit else f"{value:,.6g}"


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
    label = WORDS.get(name) or words_of(name)
    if isinstance(value, Mapping):  # percentiles of a latency
        value = value.get("p50", value.get("mean"))
    ends = None if interval is None else interval.get("p90")
    if ends is None or not isinstance(value, int | float):
        return ShownNumber(label=label, text=value_text(name, value))
    return ShownNumber(
        label=label,
        text=value_text(name, value),
        ends=(float(ends[0]), float(value), float(ends[1])),
        low=value_text(name, ends[0]),
        high=value_text(name, ends[1]),
    )


def table_of(rows: Sequence[Told], *names: str) -> dict[str, Any]:
    """Columns of some rows, those that no row has left away, as fields of a card."""
    kept = [name for name in names if any(row.get(name) is not None for row in rows)]
    return {
        "headers": tuple(WORDS.get(name) or words_of(name) for name in kept),
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
