"""A sized service on one screen."""

from typing import TYPE_CHECKING

from foretell.api.sizing_answer import Choice, Sizing
from foretell.report.console import table
from foretell.report.estimate import bullets
from foretell.serving.sizing_records import ServiceTargets
from foretell.units import format as format_value

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

FRONT = 12
"""Points of the front that are shown in text."""


def size_text(found: Sizing, *, pareto: bool = False) -> "RenderableType":
    """The best option, all options by cost, and what was assumed; `pareto` adds the Pareto front."""
    from rich.console import Group
    from rich.text import Text

    w, best = found.wanted, found.best
    told = "meets" if best.meets else "misses"
    load = f" serve {w.rate:.4g} requests/s of" if found.batch is None else offline_text(found)
    head = Text.assemble(
        (chips_text(found), "bold"),
        f"{load} {found.model} ({w.isl:g} tokens in, {w.osl:g} out)\n",
        ("best  ", "dim"),
        (best.option.name(), "bold"),
        f", at most {best.option.instance.batch} sequences at once in each\n",
        ("      ", "dim"),
        f"TTFT {best.ttft_ms:,.0f} ms, TPOT {best.tpot_ms:.1f} ms with a queue that never ends\n"
        if found.batch is not None
        else f"{told} TTFT {w.ttft_ms:g} ms and TPOT {w.tpot_ms:g} ms at {found.percentile}: "
        f"{best.ttft_ms:,.0f} ms and {best.tpot_ms:.1f} ms\n"
        f"      capacity {best.option.requests_per_s:.3g} requests/s, {100 * best.headroom:.0f} % above "
        "the rate: there a queue begins to grow\n"
        + (f"      borderline: {best.borderline}\n" if best.borderline else ""),
        ("90%:  ", "dim"),
        interval_text(found),
    )
    parts: list[RenderableType] = [head, *beside_lines(found), Text(), options_table(found)]
    if found.elsewhere is not None:
        parts += [Text(), Text(without_text(found, found.elsewhere))]
    if pareto:
        parts += [Text(), front_table(found)]
    said = [
        *found.assumptions,
        f"rent: {found.price_source}",
        f"{found.evaluated:,} layouts x loads in closed form; options marked * were simulated",
    ]
    return Group(*parts, Text(), bullets("Assumed", said))


def offline_text(found: Sizing) -> str:
    """When an offline batch is done, and what it costs."""
    told = found.finish
    assert told is not None
    usd = "" if told["usd"] is None else f" for ${told['usd']:,.2f}"
    done, until = (
        format_value(told["done_s"] or 0.0, "s"),
        format_value(told["within_s"] or 0.0, "s"),
    )
    tokens = format_value(told["tokens"] or 0.0, "")
    return f" write {tokens} tokens in {done} of {until}{usd}:"


def beside_lines(found: Sizing) -> "list[Text]":
    """Plain instances beside the best one, and a cheaper way that the engine does not launch."""
    from rich.text import Text

    lines = []
    for choice in found.alternatives:
        rent = "" if choice.usd_per_hour is None else f", {choice.usd_per_hour:,.2f} $/h"
        lines.append(
            f"{choice.what}: {choice.option.name()}, {choice.option.gpus} GPUs{rent}, "
            f"TTFT {choice.ttft_ms:,.0f} ms, TPOT {choice.tpot_ms:.1f} ms"
            + ("" if choice.simulated else " (means)")
        )
    if found.cannot_launch is not None:
        o = found.cannot_launch.option
        lines.append(f"cheaper, but it cannot launch: {o.name()}, {o.gpus} GPUs ({o.refusal})")
    return [Text(line, "dim") for line in lines]


def chips_text(found: Sizing) -> str:
    """Chips of the best option, by kind where there are two."""
    o = found.best.option
    if not o.prefill_chip:
        return f"{o.gpus} x {found.system}"
    return f"{o.prefill_gpus} x {o.prefill_chip} + {o.gpus - o.prefill_gpus} x {found.system}"


def without_text(found: Sizing, other: Choice) -> str:
    """The cheapest way without the prefill chips that were asked for, beside the best one with them."""
    best = found.best
    said = f"without the prefill chips asked for: {other.option.name()}, {other.option.gpus} GPUs"
    if best.usd_per_hour is None or other.usd_per_hour is None:
        return said
    return f"{said}, {other.usd_per_hour:,.2f} $/h beside {best.usd_per_hour:,.2f} $/h"


def interval_text(found: Sizing) -> str:
    """Where the chips for this rate, the latencies and the price lie in nine cases of ten."""

    def ends(name: str, form: str) -> str:
        low, high = (format(end, form) for end in intervals[name]["p90"])
        return low if low == high else f"{low} to {high}"

    intervals = found.intervals
    said = f"{ends('gpus', ',.0f')} GPUs; TTFT {ends('ttft_ms', ',.0f')} ms, "
    said += f"TPOT {ends('tpot_ms', ',.1f')} ms"
    if "usd_per_million_output_tokens" in intervals:
        said += f"; {ends('usd_per_million_output_tokens', ',.2f')} $/M out"
    return said


def options_table(found: Sizing) -> "Table":
    """Options by cost, the cheapest that meets the targets first."""
    right = (
        "$/h", "$/M in", "$/M out", "$/request", "GPUs", "TTFT ms", "TPOT ms", "tokens/s/GPU",
        "headroom",
    )  # fmt: skip
    made = table("option", *right, right=right)
    for choice in found.choices:
        made.add_row(*_cells(choice, found.wanted))
    return made


def _cells(choice: Choice, wanted: ServiceTargets) -> tuple[str, ...]:
    star = "* " if choice.simulated else "  "
    late = " (borderline)" if choice.borderline else "" if choice.meets else " (misses)"

    def usd(value: float | None) -> str:
        return "-" if value is None else f"{value:,.2f}"

    return (
        f"{star}{choice.option.name()}{late}",
        usd(choice.usd_per_hour),
        usd(choice.usd_per_million_input_tokens),
        usd(choice.usd_per_million_output_tokens),
        _request_usd(choice, wanted),
        str(choice.option.gpus),
        f"{choice.ttft_ms:,.0f}",
        f"{choice.tpot_ms:.1f}",
        f"{choice.option.tokens_per_s_per_gpu(wanted.osl):,.0f}",
        f"{100 * choice.headroom:.0f} %",
    )


def _request_usd(choice: Choice, wanted: ServiceTargets) -> str:
    """What a request costs at the wanted rate: the rent of the chips over the requests."""
    if choice.usd_per_hour is None:
        return "-"
    return f"{choice.usd_per_hour / 3600.0 / wanted.rate:#.2g}"


def front_table(found: Sizing) -> "Table":
    """The Pareto front of single instances, thinned."""
    right = ("tokens/s/user", "tokens/s/GPU", "GPUs", "batch", "TTFT ms")
    made = table("Pareto front", *right, right=right)
    step = max(len(found.pareto) // FRONT, 1)
    for point in found.pareto[::step]:
        told = point.to_dict()
        made.add_row(
            told["plan"],
            f"{told['output_tokens_per_s_per_user']:,.1f}",
            f"{told['output_tokens_per_s_per_gpu']:,.0f}",
            str(told["gpus"]),
            str(told["batch"]),
            f"{told['ttft_ms']:,.0f}",
        )
    return made
