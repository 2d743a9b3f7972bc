"""What is worth showing of what something costs: systems ranked, a purchase, a run, tokens, parts."""

from foretell.catalog.prices import OF_ON_DEMAND
from foretell.report.presentation.numbers import (
    Presentation,
    Told,
    bars_of,
    children,
    facts_of,
    table_of,
    value_text,
)

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
        ),
        bars=bars_of(first["total_cost"] or {}),
        bar_title=f"total cost of {first['system']}",
    )  # fmt: skip


def buy_card(told: Told) -> Presentation:
    """What to get for a budget and a deadline."""
    return Presentation(
        title=told["headline"][0],
        lines=tuple(told["headline"][1:]),
        facts=facts_of(told["options"][0], "gpus", "usd", "days", "sure"),
        tables=table_of(told["options"], *BOUGHT, labels={"name": "what to get"}),
    )


def cost_card(told: Told) -> Presentation:
    """Money by part."""
    names = (
        "usd", "usd_per_million_tokens", "usd_per_gpu_hour", "gpu_hours", "tco_usd", "days", "goodput",
        "energy_mwh", "carbon_kg", "peak_watts", "nodes",
    )  # fmt: skip
    what = "a million tokens" if told["what"] == "token" else f"a {told['what']}"
    paid = told.get("paid")
    how = {None: "", "no price": "", "own": ", on chips of one's own"}.get(
        paid, f", rented ({paid})"
    )
    span = f"90 %: {value_text('usd', [told['low_usd'], told['high_usd']])}"
    listed = told.get("terms") or told.get("renting") or []
    ways = [{**one, "source": _lister(one["source"])} for one in listed]
    moved = ("path", "value", "low", "high", "usd_at_low", "usd_at_high")
    return Presentation(
        title=f"cost of {what}: {told['name']}{how}: {value_text('usd', told['usd'])}, {span}",
        facts=facts_of(told, *names),
        tables=(
            *table_of(
                ways, "term", "usd_per_gpu_hour", "usd", "usd_per_million_tokens", "own_over_rent",
                "break_even_years", "break_even_utilisation", "source", title="Ways to pay",
            ),
            *table_of((told.get("drivers") or [])[:DRIVERS], *moved, title="What moves it"),
        ),
        bars=bars_of(children(told["breakdown"])),
        bar_title="cost",
    )  # fmt: skip


def _lister(source: str) -> str:
    """Who lists a rent and when: the first word and the last of what is before the citation.

    A spot rent that is a share of another says so.
    """
    head = source.split(" (")[0]
    if OF_ON_DEMAND in head:
        return head
    words = head.replace(",", "").split()
    return f"{words[0]}, {words[-1]}" if len(words) > 3 else source
