"""One deployment on one screen, in the units that serving benchmarks print."""

from typing import TYPE_CHECKING, Any

from foretell.api.service_answers import ServeAnswer
from foretell.report.console import bar, table
from foretell.report.presentation.text import bullets, numbers_grid
from foretell.report.presentation.verbs import presentation
from foretell.specs.service import BenchmarkFigures, Percentiles

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

GIB = 2.0**30
CONVENTIONS = (
    "TTFT is from arrival to the first token. TPOT leaves the first token out: (e2e - TTFT) / (tokens - 1); "
    "with it, e2e / tokens."
)


def serve_text(found: ServeAnswer) -> "RenderableType":
    """Headline, latencies, rates, where a decode step goes, and what was assumed."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        *(Text(f"warning: {text}", "bold yellow") for text in found.warnings),
        headline(found),
        Text(),
        latencies(found),
        Text(CONVENTIONS, "dim"),
        Text(),
        rates(found),
        *(
            [Text(), bullets("Simulated", simulation_lines(found.simulation))]
            if found.simulation
            else []
        ),
        Text(),
        step_table(found),
    ]
    if found.overrides:
        parts += [Text(), bullets("Set by hand", [f"{k}={v}" for k, v in found.overrides.items()])]
    if found.fit is not None:
        parts += [Text(), fit_table(found)]
    parts += [Text(), bullets("Assumed", list(found.assumptions))]
    return Group(*parts)


def fit_table(found: ServeAnswer) -> "Table":
    """What each engine fits on the chips of an instance."""
    request = f"sequences of {_length(found.isl + found.osl)}"
    made = table("engine", "cache GiB", "longest context", request, "largest model on these chips")
    for one in found.fit or ():
        largest = ", ".join(f"{name} ({form})" for form, name in one.largest_models.items())
        cells = (f"{one.kv_bytes / GIB:,.1f}", f"{one.max_context:,}", f"{one.max_sequences:,}")
        since = f" {one.release}+" if one.release else ""
        made.add_row(f"{one.engine}{since}", *(cells if one.fits else ("no", "", "")), largest)
    return made


def simulation_lines(facts: dict[str, Any]) -> list[str]:
    """What only a simulation of requests tells."""
    mean, most = 100 * facts["kv_occupancy_mean"], 100 * facts["kv_occupancy_max"]
    told = [
        f"{facts['answered']:,} of {facts['requests']:,} requests in {facts['duration_s']:,.1f} s",
        f"engines busy {100 * facts['utilisation']:.0f} % of the time",
        f"queue {facts['queue_mean']:.1f} on the mean, {facts['queue_max']} at most",
        f"cache {mean:.0f} % full on the mean, {most:.0f} % at most; {facts['preempted']} preempted",
    ]
    if facts["queue_grows"]:
        told.append("more and more requests wait: they come faster than they are answered")
    if facts["refused"]:
        told.append(f"{facts['refused']} requests refused: longer than the cache, or a full queue")
    for name, times in facts["classes"].items():
        ttft = times["ttft_ms"]
        told.append(
            f"class {name}: TTFT {ttft['mean']:,.0f} ms on the mean, p99 {ttft['p99']:,.0f}"
        )
    if facts["prefix_hit_tokens"]:
        told.append(
            f"{facts['prefix_hit_tokens']:,.0f} prompt tokens found in the cache "
            f"({facts['prefix_hit_share']:.0%} of all)"
        )
    for name, tokens in facts["tier_hit_tokens"].items():
        told.append(f"{tokens:,.0f} of these came from {name}")
    told += scaled_lines(facts["autoscaling"])
    if facts["goodput_requests_per_s"] is not None:
        told.append(f"{facts['goodput_requests_per_s']:.3g} requests/s within the latency targets")
    return told


def scaled_lines(scaled: dict[str, Any] | None) -> list[str]:
    """What was started, stopped and paid for; of prefill apart in a line of its own."""
    if not scaled:
        return []
    pools = (
        {"decode: ": scaled, "prefill: ": scaled["prefill"]}
        if "prefill" in scaled
        else {"": scaled}
    )
    return [
        f"{name}{pool['replicas_mean']:.1f} replicas on the mean, {pool['replicas_max']} at most: "
        f"{pool['replica_hours']:,.1f} replica-hours, {pool['replica_hours_fixed']:,.1f} "
        "with as many all the time"
        + (f"; ${pool['usd']:,.2f} instead of ${pool['usd_fixed']:,.2f}" if "usd" in pool else "")
        for name, pool in pools.items()
    ]


def _length(tokens: float) -> str:
    """Tokens, whole where there are many."""
    return f"{tokens:g}" if tokens < 100.0 else f"{tokens:.0f}"


def _chips(found: ServeAnswer) -> str:
    """Chips of all instances, by kind where prefill has others."""
    front, many = found.prefill_system, found.prefill_gpus or 0
    if front is None or front == found.system:
        return f"{found.gpus} x {found.system}"
    return f"{found.gpus - many} x {found.system} + {many} x {front}"


def headline(found: ServeAnswer) -> "Text":
    """What was asked, and the plan."""
    from rich.text import Text

    load = (
        f"{found.rate:.4g} requests/s"
        if found.rate is not None
        else f"concurrency {found.concurrency:g}"
    )
    if found.batching == "offline":
        load = "an endless queue"
    elif found.batching == "static":
        load = f"static batches of {found.concurrency:g}"
    chosen = "chosen, the best found" if found.plan_chosen else "as given"
    apart = ""
    if found.prefill_plan is not None:
        apart = (
            f"\nprefill  {found.prefill_plan}  x {found.prefill_replicas}  ({found.prefill_gpus} x "
            f"{found.prefill_system}, busy {found.prefill_busy:.0%}; a cache moves in "
            f"{found.transfer_ms:,.1f} ms)"
        )
    return Text.assemble(
        (f"{found.model} on {_chips(found)}", "bold"),
        f", {_length(found.isl)} tokens in, {_length(found.osl)} out, {load}\nplan  ",
        (found.plan, "bold"),
        f"  x {found.replicas}  ({chosen}){apart}\nengine profile  ",
        (found.profile, "bold"),
        f"  ({found.evidence})",
    )


def latencies(found: ServeAnswer) -> "Table":
    """Means and percentiles."""
    made = table("ms", "mean", "p50", "p90", "p95", "p99", "90 % interval of the mean",
                 right=("mean", "p50", "p90", "p95", "p99"))  # fmt: skip
    rows: tuple[tuple[str, str, Percentiles], ...] = (
        ("TTFT", "ttft_ms", found.ttft_ms),
        ("TPOT", "tpot_ms", found.tpot_ms),
        ("TPOT with the first", "tpot_with_first_ms", found.tpot_with_first_ms),
        ("end to end", "e2e_ms", found.e2e_ms),
    )
    intervals = found.intervals
    for name, key, value in rows:
        interval = intervals.get(key)
        told = "" if interval is None else f"{interval['p90'][0]:,.1f} to {interval['p90'][1]:,.1f}"
        cells = (value.mean, value.p50, value.p90, value.p95, value.p99)
        made.add_row(name, *(f"{cell:,.1f}" for cell in cells), told)
    return made


def rates(found: ServeAnswer) -> "Table":
    """Rates, cost and energy; memory, batch and rent."""
    more = []
    if found.benchmark is not None:
        more.append(("benchmark", benchmark_text(found.benchmark, found.rate)))
    if found.goodput_requests_per_s is not None:
        share = found.goodput_requests_per_s / max(found.requests_per_s, 1e-12)
        good = f"{found.goodput_requests_per_s:,.2f} requests/s within both targets ({share:.0%})"
        more.append(("goodput", good))
    rent = (
        "unknown: "
        if found.usd_per_chip_hour is None
        else f"${found.usd_per_chip_hour:,.2f} a GPU-hour: "
    )
    batch = f"{found.batch:,.0f} sequences at once, {found.max_batch:,} at most; "
    held = f"weights {found.weight_bytes / GIB:,.1f}, cache {found.kv_bytes / GIB:,.1f} of "
    cache = f"GPU KV cache size: {found.kv_cache_tokens:,} tokens; maximum concurrency for "
    more += [
        ("batch", f"{batch}up to {found.max_context:,} tokens in one"),
        ("memory", f"{held}{found.memory_bytes / GIB:,.1f} GiB a GPU"),
        (
            "cache",
            f"{cache}{found.max_model_len:,} tokens per request: {found.max_concurrency:,.2f}x",
        ),
        ("rent", f"{rent}{found.price_source}"),
    ]
    return numbers_grid(presentation("serve", found.to_dict()), *more, but=("ttft_ms", "tpot_ms"))


def benchmark_text(told: BenchmarkFigures, rate: float | None) -> str:
    """What a benchmark prints."""
    latencies = "; ".join(
        f"{name} {value.mean:,.1f} ms on the mean, median {value.p50:,.1f}, p90 {value.p90:,.1f}, "
        f"p99 {value.p99:,.1f}"
        for name, value in (("TTFT", told.ttft_ms), ("TPOT", told.tpot_ms))
    )
    without = f", the first {told.warmup:,} not counted" if told.warmup else ""
    begun = "begun all at once" if rate is None else f"{rate:g} a second"
    return (
        f"{told.requests:,} requests, {begun}{without}: {latencies}; "
        f"{told.output_tokens_per_s:,.0f} output tokens/s"
    )


def step_table(found: ServeAnswer) -> "Table":
    """A decode step by its parts, largest first."""
    whole = sum(found.step_ms.values()) or 1.0
    made = table("decode step", "ms", "share", "", right=("ms", "share"))
    for name, value in sorted(found.step_ms.items(), key=lambda item: -item[1]):
        made.add_row(name, f"{value:,.3f}", f"{value / whole:.1%}", bar(value / whole))
    return made
