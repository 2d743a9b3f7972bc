"""What is worth showing of a service, its size, a fleet, a post-training step and a collective."""

from collections.abc import Mapping

from foretell.report.presentation.diagnosis_cards import measured_table
from foretell.report.presentation.numbers import (
    Presentation,
    ShownTable,
    Told,
    bars_of,
    facts_of,
    listed,
    part_words,
    plain_table,
    table_of,
    value_text,
)
from foretell.report.presentation.step_cards import fits_words, place, set_by_hand
from foretell.specs.post_training import ALGORITHMS
from foretell.units import format as with_unit

SERVED = (
    "ttft_ms", "tpot_ms", "output_tokens_per_s", "output_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_user", "requests_per_s", "usd_per_million_input_tokens",
    "usd_per_million_output_tokens", "joules_per_token", "limited_by",
)  # fmt: skip
"""Main numbers of a service."""
OF_ANSWERS = (
    "tpot_ms", "tpot_with_first_ms", "output_tokens_per_s", "output_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_user", "usd_per_million_output_tokens",
)  # fmt: skip
"""Numbers that say nothing where a request ends with its prompt, as an embedding does."""
SIZED = (
    "name", "gpus", "usd_per_hour", "usd_per_million_input_tokens", "usd_per_million_output_tokens",
    "ttft_ms", "tpot_ms", "output_tokens_per_s_per_gpu", "headroom",
)  # fmt: skip
"""Columns of ways to serve a rate."""
TUNED = (
    "step_s", "tokens_per_s_per_gpu", "idle_share", "usd_per_step", "run_s", "usd_per_run", "plan",
    "micro_tokens",
)  # fmt: skip
"""Main numbers of a post-training step."""
GENERATED = ("tail_share", "cut_share", "staleness", "rollout_plan")
"""Those of one that generates its answers."""
PARTS = 4
"""Largest parts of a phase's memory that are named."""


LATENCIES = {
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "tpot_with_first_ms": "TPOT with the first",
    "e2e_ms": "end to end",
}
"""Latencies of a service, each a row of means and percentiles."""
PERCENTILES = ("mean", "p50", "p90", "p95", "p99")
LATENCY_WORDS = (
    "TTFT is from arrival to the first token. TPOT leaves the first token out: (e2e - TTFT) / (tokens - 1); "
    "with it, e2e / tokens."
)
FRONT = 12
"""Points of a front that are shown."""


def serve_card(told: Told) -> Presentation:
    """A service under load: latencies, rates, what a GPU holds, where a decode step goes."""
    intervals, silent = told["intervals"], OF_ANSWERS if told["osl"] <= 1.0 else ()
    latencies = [
        {"name": name, **told[key], "ends": (intervals.get(key) or {}).get("p90")}
        for key, name in LATENCIES.items()
        if key not in silent
    ]
    whole = sum(told["step_ms"].values()) or 1.0
    steps = [
        {"name": part_words(name), "ms": value, "share": value / whole}
        for name, value in sorted(told["step_ms"].items(), key=lambda item: -item[1])
        if not silent
    ]
    asked = f"{_chips(told)}, {_length(told['isl'])} tokens in"
    asked += "" if silent else f", {_length(told['osl'])} out"
    simulation = told["simulation"] or {}
    shown = [f"{name}:ttft_ms" for name in PERCENTILES]
    return Presentation(
        title=f"{_answer(told, simulation)}: {asked}, {_load(told)}",
        lines=(*(f"warning: {text}" for text in told["warnings"]), *_plan_lines(told)),
        facts=facts_of(told, *(name for name in SERVED if name not in silent)),
        notes=tuple(_held(told)),
        tables=(
            *table_of(
                latencies, "name", *shown, "ends:ttft_ms", title="Latencies",
                labels={"name": "latency", "ends:ttft_ms": "90 % interval of the mean",
                        **dict(zip(shown, PERCENTILES, strict=True))},
            ),
            *measured_table(told, "ttft_ms", "tpot_ms"),
            *table_of(
                steps, "name", "ms:ttft_ms", "share", title="Decode step",
                labels={"name": "part", "ms:ttft_ms": "time"},
            ),
            *_fit_table(told),
        ),
        lists=(
            *listed("Simulated", _simulated(simulation) if simulation else ()),
            *set_by_hand(told),
        ),
        meaning=(LATENCY_WORDS,),
        bars=bars_of({part_words(name): value for name, value in told["step_ms"].items()}),
        bar_title="decode step",
    )  # fmt: skip


def _answer(told: Told, simulation: Told) -> str:
    """Latencies and rate of the service, or that its queue grows; and the share that it refuses."""
    if simulation and simulation["queue_grows"]:
        return (
            f"no: saturated, {told['requests_per_s']:.3g} requests/s are answered, fewer than arrive, "
            "and the queue grows"
        )
    if batch := told["offline"]:
        return _written(batch)
    first, token = (value_text(name, told[name]["p50"]) for name in ("ttft_ms", "tpot_ms"))
    rate = value_text("output_tokens_per_s", told["output_tokens_per_s"])
    text = f"TTFT {first}, TPOT {token}, {rate} output tokens/s"
    if told["osl"] <= 1.0:
        text = f"{first} a request, {told['requests_per_s']:,.4g} requests/s"
    refused = simulation.get("refused", 0)
    return f"{text}, {refused / simulation['requests']:.1%} refused" if refused else text


def _written(batch: Told) -> str:
    """When a batch of tokens is done, and what it costs."""
    tokens, done = f"{batch['tokens']:,.0f}", with_unit(batch["done_s"], "s")
    usd = "" if batch["usd"] is None else f" for ${batch['usd']:,.2f}"
    late = "" if batch["in_time"] else "no, too late: "
    until = "" if batch["within_s"] is None else f" of {with_unit(batch['within_s'], 's')}"
    return f"{late}{tokens} tokens written in {done}{until}{usd}"


def _length(tokens: float) -> str:
    """Tokens, whole where there are many."""
    return f"{tokens:g}" if tokens < 100.0 else f"{tokens:.0f}"


def _chips(told: Told) -> str:
    """The model on the chips of all instances, by kind where prefill has others."""
    front, many = told["prefill_system"], told["prefill_gpus"] or 0
    if front is None or front == told["system"]:
        return place(told)
    rest = told["gpus"] - many
    return f"{told['model']} on {rest:,} x {told['system']} + {many:,} x {front}"


def _load(told: Told) -> str:
    if told["batching"] == "offline":
        return "an endless queue"
    if told["batching"] == "static":
        return f"static batches of {told['concurrency']:g}"
    rate = told["rate"]
    return f"concurrency {told['concurrency']:g}" if rate is None else f"{rate:.4g} requests/s"


def _plan_lines(told: Told) -> list[str]:
    """Layouts of decode and of prefill, and the engine's profile."""
    chosen = "chosen, the best found" if told["plan_chosen"] else "as given"
    lines = [f"plan  {told['plan']}  x {told['replicas']}  ({chosen})"]
    if told["prefill_plan"] is not None:
        lines.append(
            f"prefill  {told['prefill_plan']}  x {told['prefill_replicas']}  ({told['prefill_gpus']} x "
            f"{told['prefill_system']}, busy {told['prefill_busy']:.0%}; a cache moves in "
            f"{told['transfer_ms']:,.1f} ms)"
        )
    return [*lines, f"engine profile  {told['profile']}  ({told['evidence']})"]


def _held(told: Told) -> list[str]:
    """What a benchmark prints, batch, memory and cache of a GPU, and rent."""
    notes = []
    if bench := told["benchmark"]:
        begun = "begun all at once" if told["rate"] is None else f"{told['rate']:g} a second"
        notes.append(_benchmark(bench, begun))
    if offline := told["offline"]:
        # Where no interval of the rate is stated, the prediction alone is.
        rates = told["intervals"].get("output_tokens_per_s", {}).get("p90", ())
        ends = [with_unit(offline["tokens"] / rate, "s") for rate in reversed(rates)]
        notes += (
            [f"batch of tokens: 90 % interval of its time {ends[0]} to {ends[1]}"] if ends else []
        )
    if (good := told["goodput_requests_per_s"]) is not None:
        share = good / max(told["requests_per_s"], 1e-12)
        notes.append(f"goodput: {good:,.2f} requests/s within both targets ({share:.0%})")
    weights, cache, room = (
        told[name] / 2**30 for name in ("weight_bytes", "kv_bytes", "memory_bytes")
    )
    rent = told["usd_per_chip_hour"]
    return [
        *notes,
        (
            f"batch: {told['batch']:,.0f} sequences at once, {told['max_batch']:,} at most; up to "
            f"{told['max_context']:,} tokens in one"
        ),
        f"memory: weights {weights:,.1f}, cache {cache:,.1f} of {room:,.1f} GiB a GPU",
        (
            f"cache: GPU KV cache size: {told['kv_cache_tokens']:,} tokens; maximum concurrency for "
            f"{told['max_model_len']:,} tokens per request: {told['max_concurrency']:,.2f}x"
        ),
        f"rent: {'unknown: ' if rent is None else f'${rent:,.2f} a GPU-hour: '}{told['price_source']}",
    ]


def _benchmark(bench: Told, begun: str) -> str:
    """What a benchmark prints."""
    times = "; ".join(
        f"{name} {bench[key]['mean']:,.1f} ms on the mean, median {bench[key]['p50']:,.1f}, "
        f"p90 {bench[key]['p90']:,.1f}, p99 {bench[key]['p99']:,.1f}"
        for name, key in (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"))
    )
    warm = f", the first {bench['warmup']:,} not counted" if bench["warmup"] else ""
    return (
        f"benchmark: {bench['requests']:,} requests, {begun}{warm}: {times}; "
        f"{bench['output_tokens_per_s']:,.0f} output tokens/s"
    )


def _fit_table(told: Told) -> tuple[ShownTable, ...]:
    """What each engine fits on the chips of an instance."""
    rows = [
        {
            "engine": one["engine"] + (f" {one['release']}+" if one["release"] else ""),
            "cache": value_text("kv_bytes", one["kv_bytes"]) if one["fits"] else "no",
            "longest context": f"{one['max_context']:,}" if one["fits"] else "",
            f"sequences of {_length(told['isl'] + told['osl'])}": f"{one['max_sequences']:,}"
            if one["fits"]
            else "",
            "largest model on these chips": ", ".join(
                f"{name} ({form})" for form, name in one["largest_models"].items()
            ),
        }
        for one in told["fit"] or ()
    ]
    return plain_table(rows, "What engines fit")


def _simulated(facts: Told) -> list[str]:
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
    told += _scaled(facts["autoscaling"])
    if facts["goodput_requests_per_s"] is not None:
        told.append(f"{facts['goodput_requests_per_s']:.3g} requests/s within the latency targets")
    return told


def _scaled(scaled: Told | None) -> list[str]:
    """What was started, stopped and paid for; of prefill apart in a line of its own."""
    if not scaled:
        return []
    apart = "prefill" in scaled
    pools = {"decode: ": scaled, "prefill: ": scaled["prefill"]} if apart else {"": scaled}
    return [
        f"{name}{pool['replicas_mean']:.1f} replicas on the mean, {pool['replicas_max']} at most: "
        f"{pool['replica_hours']:,.1f} replica-hours, {pool['replica_hours_fixed']:,.1f} "
        "with as many all the time"
        + (f"; ${pool['usd']:,.2f} instead of ${pool['usd_fixed']:,.2f}" if "usd" in pool else "")
        for name, pool in pools.items()
    ]


def size_card(told: Told) -> Presentation:
    """The cheapest ways to serve a rate, or to write a batch in time."""
    best, rate = told["best"], told["rate"]
    chips = f"{told['gpus']:,} x {told['system']}"
    if best["prefill_chip"]:
        other = told["gpus"] - best["prefill_gpus"]
        chips = f"{best['prefill_gpus']:,} x {best['prefill_chip']} + {other:,} x {told['system']}"
    load = f"{told['model']} ({told['isl']:g} tokens in, {told['osl']:g} out)"
    targets = f"TTFT {told['ttft_target_ms']:g} ms and TPOT {told['tpot_target_ms']:g} ms"
    reached = " and ".join(value_text(name, best[name]) for name in ("ttft_ms", "tpot_ms"))
    met = f"{'meets' if best['meets'] else 'misses'} {targets} at {told['percentile']}: {reached}"
    capacity = (
        f"capacity {best['requests_per_s']:.3g} requests/s, {best['headroom']:.0%} above the rate"
    )
    lines = [met, f"{best['name']}, at most {best['max_batch']:,} sequences at once in each"]
    lines.append(f"{capacity}: there a queue begins to grow")
    title = f"{chips} serve {rate:.4g} requests/s of {load}"
    if batch := told["offline"]:
        lines = [f"{best['name']}, with a queue that never ends"]
        title = f"{chips}: {_written(batch)}: {load}"
    if bench := told["benchmark"]:
        lines.append(_benchmark(bench, "begun all at once"))
    if told["beyond_measured"]:
        lines.append(f"beyond every measured service: {'; '.join(told['beyond_measured'])}")
    if best["borderline"]:
        lines.append(f"borderline: {best['borderline']}")
    rows = [
        {**one, "name": f"{'* ' if one['simulated'] else ''}{one['name']}{_late(one)}"}
        for one in told["options"]
    ]
    named = ("gpus", "usd_per_hour", "ttft_ms", "tpot_ms", "usd_per_million_output_tokens")
    step = max(len(told["pareto"]) // FRONT, 1)
    front = told["pareto"][::step] if told.get("with_front") else []
    return Presentation(
        title=title,
        lines=tuple(lines),
        facts=facts_of(best, *named, "headroom"),
        tables=(
            *table_of(rows, *SIZED),
            *table_of(
                front, "plan", "output_tokens_per_s_per_user", "output_tokens_per_s_per_gpu",
                "gpus", "batch", "ttft_ms", title="Pareto front",
            ),
        ),
        lists=listed("Other ways", _other_ways(told)),
        assumptions=(
            f"rent: {told['price_source']}",
            f"{told['evaluated']:,} layouts x loads in closed form; options marked * were simulated",
        ),
    )  # fmt: skip


def _other_ways(told: Told) -> list[str]:
    """Plain instances beside the best one, and a cheaper way that the engine does not launch."""
    lines = []
    for one in told["alternatives"]:
        usd = "" if one["usd_per_hour"] is None else f", {one['usd_per_hour']:,.2f} $/h"
        lines.append(
            f"{one['what']}: {one['name']}, {one['gpus']} GPUs{usd}, TTFT {one['ttft_ms']:,.0f} ms, TPOT "
            f"{one['tpot_ms']:.1f} ms{'' if one['simulated'] else ' (means)'}"
        )
    if no := told["cannot_launch"]:
        lines.append(
            f"cheaper, but it cannot launch: {no['name']}, {no['gpus']} GPUs ({no['refusal']})"
        )
    if other := told["without_prefill_chips"]:
        said = f"without the prefill chips asked for: {other['name']}, {other['gpus']} GPUs"
        best = told["best"]["usd_per_hour"]
        if best is not None and other["usd_per_hour"] is not None:
            said += f", {other['usd_per_hour']:,.2f} $/h beside {best:,.2f} $/h"
        lines.append(said)
    return lines


def _late(option: Told) -> str:
    """What an option's name has behind it where a target is missed, or nearly so."""
    return " (borderline)" if option["borderline"] else "" if option["meets"] else " (misses)"


def fleet_card(told: Told) -> Presentation:
    """Several models on one fleet."""
    pools = [
        {**pool, "pool": place + 1, "plans": "; ".join(pool["plans"])}
        for place, pool in enumerate(told["pools"])
    ]
    models = [
        {
            **model,
            "pool": model["pool"] + 1,
            **{
                name: f"{value_text(name, model[name])} of {model[f'{name[:4]}_target_ms']:,g}"
                for name in ("ttft_ms", "tpot_ms")
            },
        }
        for model in told["models"]
    ]
    lines = [f"each on its own: {told['gpus_apart']:,} GPUs, {told['gpus_saved']:,} more"]
    if told["available"] is not None:
        word = "suffice" if told["gpus"] <= told["available"] else "do not suffice"
        lines.append(f"{told['available']:,} GPUs are available: they {word}")
    return Presentation(
        title=f"{told['gpus']:,} GPUs serve {len(told['models'])} models at {told['percentile']}",
        lines=tuple(lines),
        facts=facts_of(told, "gpus", "usd_per_hour", "gpus_apart", "usd_per_hour_apart"),
        tables=(
            *table_of(
                models, "name", "rate", "isl", "osl", "ttft_ms", "tpot_ms", "meets", "alone.gpus",
                "stretch", "pool", labels={"alone.gpus": "GPUs alone"},
            ),
            *table_of(pools, "pool", "gpus", "usd_per_hour", "name", "plans"),
        ),
    )  # fmt: skip


def post_train_card(told: Told) -> Presentation:
    """A step of fine-tuning or reinforcement learning."""
    apart = told["rollout_plan"] and told["placement"] != "colocated"
    pools = f"{told['trainer_gpus']:,} x {told['trainer_system']}"
    pools += f" + {told['rollout_gpus']:,} x {told['rollout_system']}" if apart else ""
    named = "no framework named" if told["framework"] == "generic" else told["framework"]
    placed = f"{told['placement']}, " if told["rollout_plan"] else ""
    tokens = float(f"{told['tokens']:.3g}")
    tokens_text = with_unit(tokens, "tokens") if tokens >= 1e6 else f"{tokens:,.0f} tokens"
    many = f"{_batch(told)}, {tokens_text} a step"
    memory = [
        {
            **one,
            "phase": part_words(one["phase"]),
            "largest": ", ".join(
                f"{name} {size / 2**30:,.1f} GiB"
                for name, size in sorted(one["parts"].items(), key=lambda part: -part[1])[:PARTS]
            ),
        }
        for one in told["memory"]["phases"]
    ]
    phases = [{**one, "name": part_words(one["name"])} for one in told["phases"]]
    where = f" in {told['fails_in']}" if told["fits"] == "no" and told["fails_in"] else ""
    known = {**told, "intervals": {"step_s": told["interval"]}}
    notes = []
    if told["waiting_pool"]:
        notes.append(f"pipeline: the {told['waiting_pool']} pool waits")
    if told["rollout_plan"] and told["tail_requests"]:
        notes.append(f"generation: its tail is that of {told['tail_requests']} answers")
    step = f"{value_text('step_s', told['step_s'])} a step"
    head = f"{fits_words(told)}{where}" if told["fits"] == "no" else f"{step}, {fits_words(told)}"
    return Presentation(
        title=f"{head}: {told['algorithm'].upper()} of {told['model']} on {pools}",
        lines=(f"{placed}{named}; {many}",),
        notes=tuple(notes),
        facts=facts_of(known, *TUNED, *(GENERATED if told["rollout_plan"] else ())),
        tables=(
            *table_of(
                phases, "name", "seconds", "interval:seconds", "exposed:seconds", "pool",
                title="Phases", labels={"exposed:seconds": "exposed", "name": "phase"},
            ),
            *table_of(
                memory, "phase", "pool", "bytes:total_bytes", "capacity_bytes", "fits", "largest",
                title="Memory", labels={"bytes:total_bytes": "used"},
            ),
            *table_of(
                told["alternatives"], "placement", "trainer_gpus", "rollout_gpus", "step_s",
                "idle_share", title="Placements",
            ),
            *measured_table(told, "step_s"),
            *_tunable(told),
        ),
        lists=(
            *listed("What fits", told["ways_to_fit"]),
            *listed("Placement", told["placement_reasons"]),
        ),
        bars=bars_of({phase["name"]: phase["exposed"] for phase in told["phases"]}),
        bar_title="step time",
    )  # fmt: skip


def _tunable(told: Told) -> tuple[ShownTable, ...]:
    """What the chips can tune, by way."""
    rows = [
        {
            "way": one["way"],
            "longest sequence": f"{one['max_context']:,}",
            f"sequences of {one['sequence_tokens']:,}": f"{one['max_sequences']:,}",
            "largest model": one["largest_model"] or "none",
        }
        for one in told["fit"] or ()
    ]
    return plain_table(rows, "What these chips tune")


def _batch(told: Told) -> str:
    """What a step passes, in words; a pair is two sequences."""
    many = told["trajectories"]
    if told["rollout_plan"]:
        return f"{many:,} trajectories"
    each = round(ALGORITHMS[told["algorithm"]].sequences)
    return f"{many:,} sequences" if each == 1 else f"{many:,} pairs ({each * many:,} sequences)"


def network_card(told: Told) -> Presentation:
    """A collective over sizes, and every algorithm."""
    ways = sorted(told["candidates_s"].items(), key=lambda pair: pair[1])
    rows = [{"algorithm": name, "seconds": seconds} for name, seconds in ways]
    asked = f"{told['collective']} of {with_unit(told['size_bytes'], 'bytes')}"
    where = placement_text(told["placement"])
    took, rate = (value_text(name, told[name]) for name in ("seconds", "bus_bytes_per_s"))
    return Presentation(
        title=f"{took}, bus bandwidth {rate}: {asked} among {told['group']:,} chips of {told['system']} "
        f"({where})",
        notes=(f"algorithm: {told['algorithm']}: {told['reason']}",),
        facts=facts_of(told, "size_bytes", "seconds", "bus_bytes_per_s"),
        tables=(
            *table_of(told["sizes"], "size_bytes", "seconds", "bus_bytes_per_s", "algorithm"),
            *table_of(rows, "algorithm", "seconds", title="Algorithms offered here"),
        ),
    )


def placement_text(placement: Mapping[str, float]) -> str:
    """Where a group is: `8 chips a node, 4 nodes`."""
    below, words = "chip", list[str]()
    for at, (tier, count) in enumerate(placement.items(), start=1):
        outermost = 1 < at == len(placement)
        many = f"{count:g} {below}{'' if count == 1 else 's'}"
        words.append(many if outermost else f"{many} a {tier}")
        below = tier
    return ", ".join(words)
