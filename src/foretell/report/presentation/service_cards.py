"""What is worth showing of a service, its size, a fleet, a post-training step and a collective."""

from collections.abc import Mapping

from foretell.report.presentation.labels import part_words
from foretell.report.presentation.numbers import (
    Presentation,
    Told,
    bars_of,
    facts_of,
    table_of,
    value_text,
)
from foretell.report.presentation.training_cards import fits_words, place
from foretell.specs.post_training import ALGORITHMS
from foretell.units import format as with_unit

SERVED = (
    "ttft_ms", "tpot_ms", "output_tokens_per_s", "output_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_user", "requests_per_s", "usd_per_million_input_tokens",
    "usd_per_million_output_tokens", "joules_per_token", "limited_by",
)  # fmt: skip
"""Main numbers of a service."""
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


def serve_card(told: Told) -> Presentation:
    """A service under load."""
    load = f"{told['isl']:g} tokens in, {told['osl']:g} out"
    return Presentation(
        title=f"{place(told)}: {told['plan']}, {load}",
        facts=facts_of(told, *SERVED),
        bars=bars_of(told["step_ms"]),
        bar_title="decode step",
    )


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
        tokens, done, until = (
            with_unit(batch[name] or 0.0, unit)
            for name, unit in (("tokens", ""), ("done_s", "s"), ("within_s", "s"))
        )
        usd = "" if batch["usd"] is None else f" for ${batch['usd']:,.2f}"
        title = f"{chips} write {tokens} tokens in {done} of {until}{usd}: {load}"
    if best["borderline"]:
        lines.append(f"borderline: {best['borderline']}")
    rows = [
        {**one, "name": f"{'* ' if one['simulated'] else ''}{one['name']}{_late(one)}"}
        for one in told["options"]
    ]
    named = ("gpus", "usd_per_hour", "ttft_ms", "tpot_ms", "usd_per_million_output_tokens")
    return Presentation(
        title=title,
        lines=tuple(lines),
        facts=facts_of(best, *named, "headroom"),
        tables=table_of(rows, *SIZED),
    )


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
    return Presentation(
        title=f"{told['algorithm'].upper()} of {told['model']} on {pools} ({fits_words(told)}{where})",
        lines=(f"{placed}{named}; {many}",),
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
        ),
        bars=bars_of({phase["name"]: phase["exposed"] for phase in told["phases"]}),
        bar_title="step time",
    )  # fmt: skip


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
    return Presentation(
        title=f"{asked} among {told['group']:,} chips of {told['system']} ({where})",
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
