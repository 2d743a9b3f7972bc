"""What is worth showing of what something costs: systems ranked, a purchase, a run, tokens, parts."""

from typing import Any

from foretell.catalog.prices import OF_ON_DEMAND
from foretell.report.presentation.diagnosis_cards import measured_systems
from foretell.report.presentation.numbers import (
    Presentation,
    ShownTable,
    Told,
    bars_of,
    children,
    fact_of,
    facts_of,
    listed,
    table_of,
    value_text,
)
from foretell.units import format as with_unit

PIECES = (
    ("gpus", "GPU", "s"), ("nodes", "node", "s"), ("racks", "rack", "s"), ("switches", "switch", "es"),
    ("links", "link", "s"), ("transceivers", "transceiver", "s"),
)  # fmt: skip
"""What a cluster is counted in: key, word, and its plural's ending."""
LEAST_PART = 0.001
"""Parts of a whole below this share are left out; the JSON has them."""
SWEPT = ("days", "tokens_per_s", "tokens_per_s_per_user", "mfu", "energy_mwh", "carbon_kg")
"""Columns of a sweep over runs or services."""
DRIVERS = 6
"""Figures shown that move a cost; the JSON has more."""
RANKED = (
    "system", "usd_per_million_tokens", "interval.usd_per_million_tokens.p90:usd_per_million_tokens",
    "usd_per_million_input_tokens", "usd_per_million_output_tokens", "usd_per_request", "usd_per_run",
    "tokens_per_s", "gpus", "usd", "paid", "problem", "no_price",
)  # fmt: skip
"""Columns of systems."""
BOUGHT = (
    "name", "usd", "usd_interval:usd", "days", "days_interval:days", "sure", "price", "within",
)  # fmt: skip
"""Columns of what may be got."""


OFFERED = ("provider", "usd_per_gpu_hour", "term", "instance", "region", "listed")
"""Columns of rents."""


def compare_card(told: Told) -> Presentation:
    """Systems by cost: what each costs and gives, the total by part, and what each runs."""
    systems = told["systems"]
    first = systems[0]
    priced = [one for one in systems if one["total_cost"]]
    parts = dict.fromkeys(part for one in priced for part in one["total_cost"])
    totals = [
        {"part": part, **{str(i): one["total_cost"].get(part) for i, one in enumerate(priced)}}
        for part in parts
    ]
    totals.append({"part": "total", **{str(i): one["usd"] for i, one in enumerate(priced)}})
    names = [f"{i}:usd" for i in range(len(priced))]
    heads = [f"{one['system']}, {one['years']:g} years" for one in priced]
    runs = [
        {"system": one["system"], "workload": name, **facts}
        for one in systems
        for name, facts in one["workloads"].items()
    ]
    why = told.get("with_reasons", True)
    doubts = [f"±{100 * one['half_width']:.0f} %  {one['cause']}" for one in told["doubts"]]
    able = [one for one in systems if one["problem"] is None]
    return Presentation(
        title=told["conclusions"][0],
        lines=tuple(told["conclusions"][1:]),
        facts=facts_of(first, "system", "usd_per_million_tokens", "tokens_per_s"),
        tables=(
            *table_of(systems, *RANKED),
            *table_of(
                totals if priced else [], "part", *names, title="Total cost",
                labels=dict(zip(names, heads, strict=True)),
            ),
            *table_of(
                runs, "system", "workload", "plan", "limited_by", "mfu", "run_days", "run_usd",
                "concurrency", "ttft_ms", "tpot_ms", title="What each runs",
            ),
            *(_beats(told) if why else ()),
            *measured_systems(able),
        ),
        lists=listed("Main uncertainties in this ranking", doubts if why else ()),
        bars=bars_of(first["total_cost"] or {}),
        bar_title=f"total cost of {first['system']}",
    )  # fmt: skip


def _beats(told: Told) -> tuple[ShownTable, ...]:
    """How often each system is ahead of each other, over draws."""
    what = "cheaper" if told["by"] == "usd" else "faster"
    rows = [
        {"system": name, **{other: f"{share:.0%}" for other, share in others.items()}}
        for name, others in told["beats"].items()
    ]
    title = f"Share of draws in which the row is {what} than the column"
    labels = {name: name for name in told["beats"]}
    return table_of(rows if len(rows) > 1 else [], "system", *labels, title=title, labels=labels)


def buy_card(told: Told) -> Presentation:
    """What to get for a budget and a deadline."""
    best = told["options"][0]
    plan = [f"Plan of training: {best['plan']}"] if best["plan"] else []
    return Presentation(
        title=told["headline"][0],
        lines=tuple(told["headline"][1:]),
        facts=(
            *facts_of({**best, "intervals": _spans(best)}, "gpus", "usd", "days", "sure"),
            *facts_of(told, "energy_mwh", "carbon_kg"),
        ),
        tables=(
            *table_of(told["options"], *BOUGHT, labels={"name": "what to get"}),
            *table_of(
                [one for one in told["rents"]
                 if (one["system"], one["term"]) == (best["system"], best["paid"])],
                *OFFERED, title="Who rents it out",
            ),
        ),
        lists=(
            *listed("What would change the choice", told["changes"]),
            *listed("Not possible", told["problems"]),
        ),
        assumptions=(*plan, *best["assumptions"]),
    )  # fmt: skip


def _spans(option: Told) -> dict[str, Any]:
    """Intervals of a way to get the work done."""
    spans = {name: option[f"{name}_interval"] for name in ("usd", "days")}
    return {name: {"p90": span} for name, span in spans.items() if span is not None}


def cost_card(told: Told) -> Presentation:
    """Money by part."""
    names = (
        "usd_per_million_tokens", "usd_per_gpu_hour", "gpu_hours", "tco_usd", "days", "goodput",
        "energy_mwh", "carbon_kg", "peak_watts", "nodes",
    )  # fmt: skip
    what = "a million tokens" if told["what"] == "token" else f"a {told['what']}"
    paid = told.get("paid")
    how = {None: "", "no price": "", "own": ", on chips of one's own"}.get(
        paid, f", rented ({paid})"
    )
    ends = value_text("usd", [told["low_usd"], told["high_usd"]])
    span = f" (90%: {ends})" if ends else ""
    listed = told.get("terms") or told.get("renting") or []
    ways = [{**one, "source": _lister(one["source"])} for one in listed]
    moved = ("path", "value", "low", "high", "usd_at_low", "usd_at_high")
    trees = {"Cost": "breakdown", "Energy at the meter": "energy", "Carbon": "carbon"}
    if "hour" in told:
        trees["An hour of a chip's work"] = "hour"
    return Presentation(
        title=f"{value_text('usd', told['usd'])}{span}: cost of {what}, {told['name']}{how}",
        lines=tuple(_work_lines(told) if "carbon" in told else _made_of(told)),
        facts=(
            fact_of("usd", told["usd"], {"p90": (told["low_usd"], told["high_usd"])}),
            *facts_of(told, *names),
        ),
        tables=(
            *table_of(
                ways, "term", "usd_per_gpu_hour", "usd", "usd_per_million_tokens", "own_over_rent",
                "break_even_years", "break_even_utilisation", "source", title="Ways to pay",
            ),
            *table_of((told.get("drivers") or [])[:DRIVERS], *moved, title="What moves it"),
            *(
                table
                for title, name in trees.items()
                if told.get(name)
                for table in _tree_table(told[name], title)
            ),
        ),
        bars=bars_of(children(told["breakdown"])),
        bar_title="cost",
    )  # fmt: skip


def _tree_table(tree: Told, title: str) -> tuple[ShownTable, ...]:
    """A whole and its parts with their range, what is below another set in."""
    whole = tree["value"] or 1.0
    rows: list[dict[str, Any]] = []

    def add(part: Told, depth: int) -> None:
        if depth and abs(part["value"]) < LEAST_PART * abs(whole):
            return
        cells = {name: amount(part[name]) for name in ("value", "low", "high")}
        share = part["value"] / whole
        rows.append(
            {"name": "  " * depth + part["name"], **cells, "share": share, "note": part["note"]}
        )
        for child in part["children"]:
            add(child, depth + 1)

    add(tree, 0)
    labels = {"name": "part", "value": tree["unit"], "low": "from", "high": "to", "note": "note"}
    return table_of(
        rows, "name", "value", "low", "high", "share", "note", title=title, labels=labels
    )


def _work_lines(told: Told) -> list[str]:
    """What a run or a million tokens is done on, what its money and energy are worth."""

    def ranged(name: str) -> str:
        low, value, high = (amount(told[p + name]) for p in ("low_", "", "high_"))
        return f"{value} ({low} to {high})"

    place = f"{told['gpus']:,} GPUs of {told['system']}, {told['plan']}"
    if told["what"] == "run":
        lines = [
            f"{with_unit(told['tokens'], 'tokens')} in {told['days']:.4g} days on {place}",
            f"MFU {told['mfu']:.1%}: one point is worth {ranged('usd_per_mfu_point')} USD",
        ]
    else:
        split = ", ".join(
            f"{ranged(f'usd_per_million_{way}_tokens')} {way}" for way in ("input", "output")
        )
        read = f"{told['input_tokens_per_output_token']:g} read for each written"
        lines = [
            f"a million output tokens, {read}, on {place}: {told['tokens_per_s']:,.0f} tokens/s",
            f"USD per million tokens: {split}",
        ]
    tokens, work = (
        with_unit(told["tokens_per_usd"], "tokens"),
        with_unit(told["flop_per_usd"], "flop"),
    )
    return [
        *lines,
        (
            f"{tokens} and {work} for a USD, {told['tokens_per_joule']:.3g} tokens and "
            f"{told['flop_per_joule'] / 1e9:,.4g} GFLOP for a joule; grid of {told['region']}: "
            f"{told['grams_per_kwh']:g} g CO2e/kWh"
        ),
    ]


def _made_of(told: Told) -> list[str]:
    """Numbers on the way, a line for each kind of die or for the cluster."""
    lines = [
        f"{die['count']:g} x {die['name']}: {die['area_mm2']:.4g} mm2 of {die['node']}, "
        f"{die['dies_per_wafer']:.4g} a wafer, {die['perfect_share']:.1%} perfect, "
        f"{die['good_share']:.1%} good, {amount(die['usd_each'])} USD each"
        for die in told.get("dies", ())
    ]
    if "package_yield" in told:
        carrier = f", carrier {told['carrier_mm2']:.4g} mm2" if told["carrier_mm2"] else ""
        lines.append(f"{told['kind']}{carrier}, {told['package_yield']:.1%} of packages good")
    if link := told.get("die_to_die"):
        lines.append(
            f"{link['link']} between dies: {link['bytes_per_s'] / 1e12:.3g} TB/s out of each, "
            f"{link['area_mm2']:.3g} mm2, {link['watts']:.3g} W"
        )
    if "usd_per_gpu_hour" in told:
        span = f"{told['low_usd_per_gpu_hour']:.2f} to {told['high_usd_per_gpu_hour']:.2f}"
        lines += [
            ", ".join(
                f"{told[name]:,} {word}{'' if told[name] == 1 else ending}"
                for name, word, ending in PIECES
            )
            + f", {told['peak_watts'] / 1e6:.3g} MW",
            (
                f"{amount(told['usd_per_gpu'])} USD per GPU; {told['usd_per_gpu_hour']:.2f} USD per GPU-hour "
                f"({span}) at {told['utilisation']:.0%} use; {amount(told['tco_usd'])} USD "
                f"over {told['tco_years']:g} years"
            ),
        ]
    return lines


def cost_sweep_card(told: Told) -> Presentation:
    """A cost over values of fields; runs and services with their speed, a star on the front of both."""
    names = list(told["sweep"])
    rows = [
        {**row, **{name: _cell(row[name]) for name in names},
         "front": "*" if row.get("pareto") else "", "range": [row.get("low_usd"), row.get("high_usd")]}
        for row in told["rows"]
    ]  # fmt: skip
    able = [row["usd"] for row in rows if row["usd"] is not None]
    title = "none of these can be built"
    if able:
        title = f"{value_text('usd', [min(able), max(able)]) or value_text('usd', able[0])}"
    what = f"cost of a {told['what']} over {len(rows)} points"
    return Presentation(
        title=f"{title}: {what}",
        tables=table_of(
            rows,
            *names,
            "usd",
            "range:usd",
            "usd_per_gpu_hour",
            *SWEPT,
            "front",
            "problem",
            labels={name: name for name in names} | {"range:usd": "90 % interval"},
        ),
    )


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def amount(value: float) -> str:
    """An amount with as many digits as it deserves."""
    size = abs(value)
    if size >= 1e9:
        return f"{value / 1e9:,.4g}B"
    if size >= 1e6:
        return f"{value / 1e6:,.4g}M"
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.3f}" if size >= 0.1 or not size else f"{value:.3g}"


def _lister(source: str) -> str:
    """Who lists a rent and when: the first word and the last of what is before the citation.

    A spot rent that is a share of another says so.
    """
    head = source.split(" (")[0]
    if OF_ON_DEMAND in head:
        return head
    words = head.replace(",", "").split()
    return f"{words[0]}, {words[-1]}" if len(words) > 3 else source
