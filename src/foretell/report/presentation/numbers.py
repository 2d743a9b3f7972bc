"""What is shown of an answer: headline, main numbers with their intervals, a table, a breakdown."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from foretell.records import dataclass
from foretell.specs.result import OUTPUTS
from foretell.units import field_unit
from foretell.units import format as with_unit

LABELS: Mapping[str, str] = {
    **{name: output.label for name, output in OUTPUTS.items()},
    "closed_step_s": "closed form",
    "gpus": "GPUs",
    "isl": "prompt",
    "osl": "answer",
    "seq_len": "sequence length",
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "tokens_per_s_per_user": "tokens/s per user",
    "output_tokens_per_s": "output tokens/s",
    "output_tokens_per_s_per_gpu": "output tokens/s per GPU",
    "output_tokens_per_s_per_user": "output tokens/s per user",
    "requests_per_s": "requests/s",
    "work_tokens_per_s_per_gpu": "tokens/s per GPU",
    "usd": "cost",
    "tco_usd": "total cost of ownership",
    "usd_per_million_tokens": "USD per million tokens",
    "usd_per_million_work_tokens": "USD per million tokens",
    "usd_per_million_input_tokens": "USD per million input tokens",
    "usd_per_million_output_tokens": "USD per million output tokens",
    "usd_per_request": "USD per request",
    "usd_per_run": "USD per run",
    "usd_per_step": "USD per step",
    "usd_per_hour": "USD per hour",
    "usd_per_gpu_hour": "USD per GPU-hour",
    "carbon_g_per_million_work_tokens": "g CO2e per million tokens",
    "joules_per_token": "energy of a token",
    "seconds": "time",
    "bus_bytes_per_s": "bus bandwidth",
    "algorithm_bytes_per_s": "algorithm bandwidth",
    "images_per_s": "samples/s",
    "images_per_s_per_gpu": "samples/s per GPU",
    "listed": "listed on",
    "limited_by": "largest part",
    "idle_share": "idle",
    "tail_share": "tail of the generation",
    "kv_bytes": "KV cache",
    "sure": "sure by the deadline",
    "within": "within the budget",
    "place": "#",
    "exposed_communication_s": "exposed",
    "hidden_communication_s": "hidden",
    "best_gpus": "best on",
    "rate": "requests/s",
    "gpus_apart": "GPUs, each on its own",
    "usd_per_hour_apart": "USD per hour, each on its own",
    "difference_s": "B - A",
    "bound": "follows",
    "op": "operation",
    "count": "runs",
    "words": "number",
    "what_if": "twice as good",
    "ttft_target_ms": "TTFT target",
    "tpot_target_ms": "TPOT target",
    "cut_share": "answers cut at the limit",
    "micro_tokens": "tokens of a micro-batch",
    "capacity_bytes": "of",
    "largest": "largest parts",
    "run_s": "whole run",
    "run_days": "days of the run",
    "run_usd": "cost of the run",
    "trainer_gpus": "trainer GPUs",
    "rollout_gpus": "rollout GPUs",
    "gpu_hours": "GPU-hours",
    "peak_watts": "peak power",
    "break_even_years": "buying pays after",
    "break_even_utilisation": "from a use of",
    "usd_at_low": "cost at the low end",
    "usd_at_high": "cost at the high end",
    "value": "taken as",
    "source": "listed by",
    "path": "figure",
}
"""Fields whose own words, in snake case, would not read well."""


PARTS: Mapping[str, str] = {
    "lost": "fragmentation",
    "exchanges": "communication",
    "matrices": "matrix multiplications",
    "head": "output head",
    "adv": "advantages",
    "logprob": "log-probabilities",
    "old_logprob": "log-probabilities",
    "ref_logprob": "reference log-probabilities",
    "weight_sync": "weight synchronisation",
}
"""Parts and phases whose names are no words."""


def part_words(name: str) -> str:
    """What a part or phase is called."""
    return PARTS.get(name, name.replace("_", " "))


def words_of(field: str) -> str:
    """What a field or a `--set` path is called, without its unit."""
    if field in LABELS:
        return LABELS[field]
    name = field.rsplit(".", 1)[-1]
    unit = field_unit(name)
    bare = name.removesuffix(unit).rstrip("_") if unit else name
    above = " ".join(field.split(".")[1:-1])
    return " ".join(part for part in (above, bare.replace("_", " ")) if part) or field


Told = Mapping[str, Any]
"""The JSON of an answer."""

PERCENT = frozenset(
    {
        *(name for name, output in OUTPUTS.items() if output.unit == "share"),
        *"headroom gain efficiency idle_share tail_share cut_share sure goodput share".split(),
        "break_even_utilisation",
    }
)
"""Numbers that are shares."""
SIGNED = frozenset(("difference", "gap", "change", "what_if"))
"""Shares with their sign: what is more or less than another."""
FITS = {"yes": "fits", "no": "does not fit", "too_close": "borderline"}
"""Whether it fits -> in words."""
WRITTEN = re.compile(r"[+-]?[\d.,]+ ?%")
"""A share that is written out."""
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
class ShownTable:
    """Rows of an answer under labelled columns."""

    title: str
    """What they are."""
    headers: tuple[str, ...]
    """Labels of the columns."""
    rows: tuple[tuple[str, ...], ...]
    """Values with their units."""
    right: tuple[bool, ...]
    """Which columns are numbers."""
    keys: tuple[str, ...] = ()
    """Keys of the columns in the JSON's rows."""

    def to_dict(self) -> dict[str, Any]:
        """What the page draws."""
        return {name: getattr(self, name) for name in ("title", "headers", "rows", "right")}


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
    tables: tuple[ShownTable, ...] = ()
    """Tables, the one that says most first."""
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Sentences under a title."""
    meaning: tuple[str, ...] = ()
    """What the labels mean."""
    bars: tuple[tuple[str, float], ...] = ()
    """Parts of the breakdown."""
    bar_title: str = ""
    """What they are parts of."""

    def to_dict(self, *, tables: bool = False) -> dict[str, Any]:
        """What the page and assistants draw, the page with its tables; the answer beside it has all."""
        told = {"headline": self.title, "verdict": self.verdict, "lines": list(self.lines)}
        rest = {"reasons": list(self.reasons), "notes": list(self.notes)}
        numbers = [fact.to_dict() for fact in self.facts]
        made = [one.to_dict() for one in self.tables] if tables else []
        lists = [{"title": title, "lines": list(lines)} for title, lines in self.lists]
        shown = (
            told | {"numbers": numbers} | rest | {"tables": made, "lists": lists if tables else []}
        )
        return {name: one for name, one in shown.items() if one}


def value_text(name: str, value: Any) -> str:
    """A value as people write it: with its unit, shares in percent, money with a few digits."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return _range_text(name, value)
    if name == "fits":
        return FITS.get(value, str(value))
    if not isinstance(value, int | float):
        return str(value)
    if name in SIGNED:
        return f"{round(100.0 * value, 1) + 0.0:+.1f} %"
    if name == "elasticity":
        return f"{round(value, 3) + 0.0:+.3f}"
    if name in PERCENT:
        return f"{100.0 * value:.1f} %"
    if "usd" in name:
        money = f"{value:,.0f}" if abs(value) >= 100.0 or not value else f"{value:#.3g}"
        money = f"{value / 1e6:,.4g}M" if abs(value) >= 1e6 else money
        return money if "usd_per" in name else f"{money} USD"
    if "per_s" in name and "bytes" not in name:
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # the label has the unit
    if name.endswith("_ms") and abs(value) >= 1e4:
        return f"{value / 1e3:,.4g} s"
    if name.endswith("_ms"):
        return f"{value:,.4g} ms"
    if name.endswith("days"):
        return f"{value:,.3g} days"
    if name == "gpu_hours":
        return f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"
    if name.endswith("_mwh") and abs(value) < 0.1:
        return f"{1e3 * value:,.3g} kWh"
    if name.endswith(("_mwh", "_kg")):
        kilos = f"{value:,.4g} kg CO2e" if abs(value) < 1e3 else f"{value / 1e3:,.4g} t CO2e"
        return kilos if name.endswith("_kg") else f"{value:,.4g} MWh"
    unit = "s" if name == "seconds" else field_unit(name)
    if unit == "tokens" and isinstance(value, int):
        return f"{value:,} tokens"
    if unit == "s" and 60.0 <= abs(value) < 1e4:
        return f"{value:,.1f} s"
    if name.endswith("_years"):
        return f"{value:.3g} years"
    if not unit:
        whole = isinstance(value, int) or abs(value) >= 1e4
        return f"{value:,.0f}" if whole else f"{value:,.4g}"
    if name.endswith("per_gpu"):
        return f"{value:,.1f}"
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
    ends = None if interval is None else interval.get("p90")
    if isinstance(
        value, Mapping
    ):  # percentiles of a latency: the median, where ends are of the mean
        mean, value = value.get("mean"), value.get("p50", value.get("mean"))
        if ends is not None and mean and value:
            ends = [end * value / mean for end in ends]
    if ends is None or ends[0] == ends[1] or not isinstance(value, int | float):
        return ShownNumber(name=name, label=label, text=value_text(name, value))
    low, _, high = _range_text(name, ends).partition(" to ")
    low = low or value_text(name, ends[0])
    return ShownNumber(
        name=name,
        label=label,
        text=value_text(name, value),
        ends=(float(ends[0]), float(value), float(ends[1])),
        low=low,
        high=high or low,
    )


def table_of(
    rows: Sequence[Told], *names: str, title: str = "", labels: Mapping[str, str] | None = None
) -> tuple[ShownTable, ...]:
    """Columns of some rows, those that no row has left away; no table where there are no rows.

    A name is a key, a dotted path of keys, or `path:key`, which has its unit from the latter.
    """
    kept = [name for name in names if any(_at(row, name) not in (None, "") for row in rows)]
    if not kept:
        return ()
    keys = [name.rpartition(":")[2].rpartition(".")[2] for name in kept]
    cells = [[_at(row, name) for name in kept] for row in rows]
    numbers = zip(*([_is_number(one) for one in row] for row in cells), strict=True)
    table = ShownTable(
        title=title,
        headers=tuple((labels or {}).get(name) or _head(name) for name in kept),
        rows=tuple(tuple(map(value_text, keys, row)) for row in cells),
        right=tuple(any(some) for some in numbers),
        keys=tuple(name.partition(":")[0] for name in kept),
    )
    return (table,)


def _is_number(cell: Any) -> bool:
    """Whether a cell is a number, a range, or a share that is written out."""
    return isinstance(cell, int | float | list) or bool(WRITTEN.fullmatch(str(cell)))


def plain_table(rows: Sequence[Told], title: str) -> tuple[ShownTable, ...]:
    """Rows whose keys are what their columns are called."""
    names = tuple(rows[0]) if rows else ()
    return table_of(rows, *names, title=title, labels={name: name for name in names})


def _head(name: str) -> str:
    path = name.partition(":")[0]
    return "90 % interval" if "interval" in path else words_of(path.rpartition(".")[2])


def _at(row: Told, name: str) -> Any:
    """What a row has at a path; of percentiles the median."""
    value: Any = row
    for key in name.partition(":")[0].split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value.get("p50", value.get("mean")) if isinstance(value, Mapping) else value


def _range_text(name: str, ends: Sequence[Any]) -> str:
    """Texts in a row, or two ends of a range, with their unit once."""
    low, high = (value_text(name, end) for end in ends) if len(ends) == 2 else ("", "")
    if not low or any(isinstance(end, str) for end in ends):
        return ", ".join(map(str, ends))
    unit = low.partition(" ")[2]
    same = unit and high.endswith(f" {unit}")
    return "" if low == high else f"{low.removesuffix(f' {unit}') if same else low} to {high}"


def listed(title: str, lines: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Sentences under a title; nothing where there are none."""
    found = tuple(dict.fromkeys(lines))
    return ((title, found),) if found else ()


def ninety(low: str, high: str) -> str:
    """A 90 % interval behind a number of a sentence."""
    return f" (90%: {low} to {high})"


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
