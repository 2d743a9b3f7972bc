"""Systems in their order as text."""

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


def compare_text(found: "Ranking") -> "RenderableType":
    """The ranking, how sure it is, and what each cluster runs."""
    from rich.console import Group
    from rich.text import Text

    told = found.to_dict()
    parts: list[RenderableType] = [Text(line, "bold") for line in told["conclusions"][:1]]
    parts += [Text(line) for line in told["conclusions"][1:]]
    parts += [Text(), _systems(told)]
    able = [one for one in told["systems"] if one["problem"] is None]
    if len(told["beats"]) > 1:
        parts += [Text(), Text("How often one (row) beats another (column)", "bold"), _beats(told)]
    parts += [Text(), _works(able)]
    if (measured := compared_table(able)) is not None:
        parts += [Text(), measured]
    if told["doubts"]:
        parts += [Text(), Text("What decides between the first two", "bold")]
        parts += [Text(f"{100 * d['half_width']:>4.0f} %  {d['cause']}") for d in told["doubts"]]
    parts += [
        Text(f"{one['system']}: {one['problem'] or one['no_price']}", "red")
        for one in told["systems"]
        if one["problem"] or one["no_price"]
    ]
    if told["assumptions"]:
        parts += [Text(), bullets("Assumed", told["assumptions"])]
    return Group(*parts)


def _systems(told: Mapping[str, Any]) -> "Table":
    heads = ("GPUs", "M USD", "years", "tokens/s", "from", "to", "USD/M tokens", "low", "high")
    made = table("#", "system", *heads, "paid", right=("#", *heads))
    able = [one for one in told["systems"] if one["problem"] is None]
    for place, one in enumerate(able, start=1):
        speed, usd = (
            one["interval"]["tokens_per_s"]["p90"],
            one["interval"]["usd_per_million_tokens"],
        )
        priced = one["no_price"] is None
        made.add_row(
            str(place) if one["system"] in told["beats"] else "",
            one["system"],
            f"{one['gpus']:,}",
            f"{one['usd'] / 1e6:,.2f}" if priced else "",
            f"{one['years']:g}" if priced else "",
            number(one["tokens_per_s"]),
            *map(number, speed),
            *map(number, (one["usd_per_million_tokens"], *usd["p90"]) if priced else ()),
            *([] if priced else [""] * 3),
            one["paid"],
        )
    return made


def _beats(told: Mapping[str, Any]) -> "Table":
    names = list(told["beats"])
    made = table("", *names, right=tuple(names))
    for a in names:
        cells = ["" if a == b else f"{told['beats'][a][b]:.0%}" for b in names]
        made.add_row(a, *cells)
    return made


def _works(systems: Sequence[Mapping[str, Any]]) -> "Table":
    """What each cluster runs: its plan, and a run's days or a service's latencies."""
    made = table("system", "workload", "plan", "limited by", "")
    for one in systems:
        for name, facts in one["workloads"].items():
            made.add_row(one["system"], name, facts["plan"], facts["limited_by"], _more(facts))
    return made


def _more(facts: Mapping[str, Any]) -> str:
    if "run_days" in facts:
        days = f"{facts['run_days']:.3g} days"
        return days if facts["run_usd"] is None else f"{days}, {number(facts['run_usd'])} USD"
    if "tpot_ms" in facts:
        load = f"{facts['concurrency']:,.0f} in flight"
        return f"{load}, TTFT {facts['ttft_ms']:.0f} ms, TPOT {facts['tpot_ms']:.1f} ms"
    return f"MFU {facts['mfu']:.0%}"
