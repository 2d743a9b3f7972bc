"""What something costs as text: the whole, its parts with bars, what moves it, and renting beside it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foretell import units
from foretell.records import with_values
from foretell.report.console import bar, table
from foretell.report.presentation.text import card_text
from foretell.report.presentation.verbs import presentation

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

SMALL = 0.001
"""Parts below this share of the whole are not shown as text."""
WORK_TREES = {
    "energy": "Energy at the meter",
    "carbon": "Carbon",
}
"""Trees of work that are shown besides its money."""
RUN_COLUMNS = {
    "USD": ("usd", 1.0), "from": ("low_usd", 1.0), "to": ("high_usd", 1.0),
    "USD/M tokens": ("usd_per_million_tokens", 1.0), "tokens/s": ("tokens_per_s", 1.0),
    "days": ("days", 1.0), "MWh": ("energy_mwh", 1.0), "t CO2e": ("carbon_kg", 1e-3),
}  # fmt: skip
"""What a sweep over runs shows: where it is, and times what."""
TOKEN_COLUMNS = {
    "USD/M tokens": ("usd", 1.0), "from": ("low_usd", 1.0), "to": ("high_usd", 1.0),
    "tokens/s": ("tokens_per_s", 1.0), "of a user": ("tokens_per_s_per_user", 1.0),
    "kWh": ("energy_mwh", 1e3), "g CO2e": ("carbon_kg", 1e3),
}  # fmt: skip
"""What a sweep over services shows."""


def cost_text(found: Mapping[str, Any]) -> "RenderableType":
    """The JSON of a `cost` verb as text."""
    from rich.console import Group
    from rich.text import Text

    shown = presentation("cost", found)
    trees = {"Cost": found["breakdown"]}
    if "carbon" in found:
        trees |= {title: found[name] for name, title in WORK_TREES.items()}
    if "hour" in found:
        trees["An hour of a chip's work"] = found["hour"]
    drawn = [Group(Text(title, "bold"), _tree(tree)) for title, tree in trees.items()]
    return card_text(with_values(shown, lines=tuple(_facts(found))), beside=drawn)


def work_lines(found: Mapping[str, Any]) -> list[str]:
    """What a run or a million tokens is done on, what its money and energy are worth."""

    def ranged(name: str) -> str:
        low, value, high = (number(found[p + name]) for p in ("", "low_", "high_"))
        return f"{low} ({value} to {high})"

    place = f"{found['gpus']:,} GPUs of {found['system']}, {found['plan']}"
    if found["what"] == "run":
        lines = [
            f"{units.format(found['tokens'], 'tokens')} in {found['days']:.4g} days on {place}",
            f"MFU {found['mfu']:.1%}: one point is worth {ranged('usd_per_mfu_point')} USD",
        ]
    else:
        split = ", ".join(
            f"{ranged(f'usd_per_million_{way}_tokens')} {way}" for way in ("input", "output")
        )
        read = f"{found['input_tokens_per_output_token']:g} read for each written"
        lines = [
            f"a million output tokens, {read}, on {place}: {found['tokens_per_s']:,.0f} tokens/s",
            f"USD per million tokens: {split}",
        ]
    return [
        *lines,
        (
            f"{found['tokens_per_usd']:,.4g} tokens and {found['flop_per_usd']:.3g} FLOP for a USD, "
            f"{found['tokens_per_joule']:.3g} tokens and {found['flop_per_joule']:.3g} FLOP for a joule; "
            f"grid of {found['region']}: {found['grams_per_kwh']:g} g CO2e/kWh"
        ),
    ]


def sweep_text(found: Mapping[str, Any]) -> "RenderableType":
    """A sweep as a table; rows that cannot be built say why."""
    names = list(found["sweep"])
    if any("tokens_per_s" in row for row in found["rows"]):
        return _work_sweep(found)
    hourly = any("usd_per_gpu_hour" in row for row in found["rows"])
    more = ("USD per GPU-hour",) if hourly else ()
    heads = (*names, "USD", "from", "to", *more, "")
    made = table(*heads, right=tuple(head for head in heads if head))
    most = max((row["usd"] or 0.0 for row in found["rows"]), default=0.0) or 1.0
    for row in found["rows"]:
        head = [
            f"{cell:g}" if isinstance(cell := row[name], float) else str(cell) for name in names
        ]
        if row["usd"] is None:
            made.add_row(*head, "-", "-", "-", *("-" for _ in more), row["problem"])
            continue
        cells = [number(row[key]) for key in ("usd", "low_usd", "high_usd")]
        hours = [f"{row['usd_per_gpu_hour']:.3f}"] if hourly else []
        made.add_row(*head, *cells, *hours, bar(row["usd"] / most))
    return made


def _work_sweep(found: Mapping[str, Any]) -> "Table":
    """A sweep over runs or services; a star marks the front of speed and price."""
    names = list(found["sweep"])
    columns = TOKEN_COLUMNS if found["what"] == "token" else RUN_COLUMNS
    heads = (*names, *columns, "front")
    made = table(*heads, "", right=heads)
    for row in found["rows"]:
        head = [f"{row[name]:g}" if _real(row[name]) else str(row[name]) for name in names]
        if row["usd"] is None:
            made.add_row(*head, *("-" for _ in columns), "", row["problem"])
            continue
        cells = [number(row[key] * scale) for key, scale in columns.values()]
        made.add_row(*head, *cells, "*" if row["pareto"] else "")
    return made


def _real(value: object) -> bool:
    return isinstance(value, float)


def _facts(found: Mapping[str, Any]) -> list[str]:
    """Numbers on the way, a line for each kind of die or for the cluster."""
    if "carbon" in found:
        return work_lines(found)
    lines = [
        f"{die['count']:g} x {die['name']}: {die['area_mm2']:.4g} mm2 of {die['node']}, "
        f"{die['dies_per_wafer']:.4g} a wafer, {die['perfect_share']:.1%} perfect, "
        f"{die['good_share']:.1%} good, {usd(die['usd_each'])} each"
        for die in found.get("dies", ())
    ]
    if "package_yield" in found:
        carrier = f", carrier {found['carrier_mm2']:.4g} mm2" if found["carrier_mm2"] else ""
        lines.append(f"{found['kind']}{carrier}, {found['package_yield']:.1%} of packages good")
    if link := found.get("die_to_die"):
        lines.append(
            f"{link['link']} between dies: {link['bytes_per_s'] / 1e12:.3g} TB/s out of each, "
            f"{link['area_mm2']:.3g} mm2, {link['watts']:.3g} W"
        )
    if "usd_per_gpu_hour" in found:
        span = f"{found['low_usd_per_gpu_hour']:.2f} to {found['high_usd_per_gpu_hour']:.2f}"
        lines.append(
            f"{found['gpus']:,} GPUs in {found['nodes']:,} nodes and {found['racks']:,} racks, "
            f"{found['peak_watts'] / 1e6:.3g} MW; {found['switches']:,} switches, "
            f"{found['links']:,} links, {found['transceivers']:,} transceivers"
        )
        lines.append(
            f"{usd(found['usd_per_gpu'])} per GPU; {found['usd_per_gpu_hour']:.2f} USD per GPU-hour "
            f"({span}) at {found['utilisation']:.0%} use; {usd(found['tco_usd'])} "
            f"over {found['tco_years']:g} years"
        )
    return lines


def _tree(tree: Mapping[str, Any]) -> "Table":
    made = table("part", tree["unit"], "from", "to", "", "", right=(tree["unit"], "from", "to"))
    whole = tree["value"] or 1.0

    def add(part: Mapping[str, Any], depth: int) -> None:
        if depth and abs(part["value"]) < SMALL * abs(whole):
            return
        cells = [number(part[key]) for key in ("value", "low", "high")]
        made.add_row("  " * depth + part["name"], *cells, bar(part["value"] / whole), part["note"])
        for child in part["children"]:
            add(child, depth + 1)

    add(tree, 0)
    return made


def usd(value: float) -> str:
    """An amount for a headline."""
    return f"{number(value)} USD"


def number(value: float) -> str:
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
