"""A ranking of systems as text: money first, then speed, then what the total cost is made of."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretell.report.console import table
from foretell.report.cost import number
from foretell.report.estimate import bullets
from foretell.report.posterior import compared_table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from foretell.studies.procurement.ranking import Ranking

IN, OUT = "usd_per_million_input_tokens", "usd_per_million_output_tokens"
"""The split prices of a service."""
PRICES = {"usd_per_request": "USD/request", "usd_per_run": "USD/run"}
"""Prices besides those of a million tokens, and their columns."""


def compare_text(found: "Ranking", *, why: bool = False) -> "RenderableType":
    """The verdict, the systems by cost, the total cost by part, and what each cluster runs; `why` adds the
    main uncertainties and how often each system beats each other."""
    from rich.console import Group
    from rich.text import Text

    told = found.to_dict()
    parts: list[RenderableType] = [Text(line, "bold") for line in told["conclusions"][:1]]
    parts += [Text(line) for line in told["conclusions"][1:]]
    parts += [Text(), _systems(told)]
    parts += [
        Text(f"{one['system']}: {one['problem'] or one['no_price']}", "red")
        for one in told["systems"]
        if one["problem"] or one["no_price"]
    ]
    if why:
        parts += _uncertainty(told)
    if any(one["total_cost"] for one in told["systems"]):
        parts += [Text(), _total_cost(told["systems"])]
    able = [one for one in told["systems"] if one["problem"] is None]
    parts += [Text(), _works(able)]
    if (measured := compared_table(able)) is not None:
        parts += [Text(), measured]
    if told["assumptions"]:
        parts += [Text(), bullets("Assumed", told["assumptions"])]
    return Group(*parts)


def _systems(told: Mapping[str, Any]) -> "Table":
    """One row per system: its cost with the 90 % interval, its speed, and how it is paid."""
    rows = told["systems"]
    prices = [name for name in PRICES if any(one[name] is not None for one in rows)]
    split = any(one[OUT] is not None for one in rows)
    money = ("USD/M blended", "90 %", "USD/M in / out") if split else ("USD/M tokens", "90 %")
    heads = (*money, *(PRICES[name] for name in prices), "tokens/s", "GPUs")
    made = table("#", "system", *heads, "paid", right=("#", *heads))
    for place, one in enumerate(rows, start=1):
        if one["problem"] is not None:
            made.add_row("", one["system"], *["-"] * len(heads), "no answer")
            continue
        usd = one["interval"]["usd_per_million_tokens"]
        made.add_row(
            str(place) if one["system"] in told["beats"] else "",
            one["system"],
            _cell(one["usd_per_million_tokens"]),
            "-" if usd is None else "-".join(map(number, usd["p90"])),
            *([f"{_cell(one[IN])} / {_cell(one[OUT])}"] if split else []),
            *(_cell(one[name]) for name in prices),
            number(one["tokens_per_s"]),
            f"{one['gpus']:,}",
            one["paid"],
        )
    return made


def _cell(value: float | None) -> str:
    return "-" if value is None else number(value)


def _total_cost(systems: Sequence[Mapping[str, Any]]) -> "Table":
    """Total cost over the years by part, in millions of USD, a column per system."""
    priced = [one for one in systems if one["total_cost"]]
    names = [f"{one['system']}, {one['years']:g} years" for one in priced]
    made = table("total cost, M USD", *names, right=tuple(names))
    for part in dict.fromkeys(part for one in priced for part in one["total_cost"]):
        cells = [one["total_cost"].get(part) for one in priced]
        made.add_row(part, *("-" if usd is None else f"{usd / 1e6:,.2f}" for usd in cells))
    made.add_row("total", *(f"{one['usd'] / 1e6:,.2f}" for one in priced))
    return made


def _uncertainty(told: Mapping[str, Any]) -> "list[RenderableType]":
    """What the certainty of the order rests on."""
    from rich.text import Text

    parts: list[RenderableType] = []
    if told["doubts"]:
        parts += [Text(), Text("Main uncertainties in this ranking", "bold")]
        parts += [Text(f"±{100 * d['half_width']:>3.0f} %  {d['cause']}") for d in told["doubts"]]
    if len(told["beats"]) > 1:
        what = "cheaper" if told["by"] == "usd" else "faster"
        title = f"Share of draws in which the row is {what} than the column"
        parts += [Text(), Text(title, "bold"), _beats(told)]
    return parts


def _beats(told: Mapping[str, Any]) -> "Table":
    names = list(told["beats"])
    made = table("", *names, right=tuple(names))
    for a in names:
        cells = ["" if a == b else f"{told['beats'][a][b]:.0%}" for b in names]
        made.add_row(a, *cells)
    return made


def _works(systems: Sequence[Mapping[str, Any]]) -> "Table":
    """What each cluster runs: its plan, and a run's days or a service's latencies."""
    mixed = any(name for one in systems for name in one["workloads"])
    heads = {_more(facts)[0] for one in systems for facts in one["workloads"].values()}
    last = heads.pop() if len(heads) == 1 else "what it gives"
    served = any("tpot_ms" in facts for one in systems for facts in one["workloads"].values())
    limit = "limited by" if served else "largest part"
    made = table("system", *(("workload",) if mixed else ()), "plan", limit, last)
    for one in systems:
        for name, facts in one["workloads"].items():
            words = (name,) if mixed else ()
            made.add_row(one["system"], *words, facts["plan"], facts["limited_by"], _more(facts)[1])
    return made


def _more(facts: Mapping[str, Any]) -> tuple[str, str]:
    """What a workload gives on a cluster: the head of its column, and the words."""
    if "run_days" in facts:
        days = f"{facts['run_days']:.3g} days"
        usd = "" if facts["run_usd"] is None else f", {number(facts['run_usd'])} USD"
        return "whole run", f"{days}{usd}"
    if "tpot_ms" in facts:
        load = f"concurrency {facts['concurrency']:,.0f}"
        return "load", f"{load}, TTFT {facts['ttft_ms']:.0f} ms, TPOT {facts['tpot_ms']:.1f} ms"
    return "MFU", f"MFU {facts['mfu']:.0%}"
