"""What is worth showing of one training step: estimated, simulated, explained, and its memory."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foretell.report.presentation.diagnosis_cards import measured_table
from foretell.report.presentation.numbers import (
    FITS,
    Presentation,
    ShownNumber,
    ShownTable,
    Told,
    bars_of,
    children,
    facts_of,
    listed,
    ninety,
    part_words,
    table_of,
    value_text,
)
from foretell.sharding.pipeline import stage_names
from foretell.specs.result import OUTPUTS
from foretell.training.feasibility import CLOSE_SHARE
from foretell.units import format as with_unit

_FIRST = (
    "step_s", "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu", "mfu_causal",
    "peak_memory_bytes", "memory_capacity_bytes", "allocated_bytes", "reserved_bytes", "energy_joules",
    "joules_per_token",
)  # fmt: skip
TRAINED = (*_FIRST, *(name for name in OUTPUTS if name not in _FIRST))
"""Numbers of a training step: those that people look for, then every other output."""
CONVENTIONS = (
    "MFU: 3 x the forward matrix multiplications, attention as the whole square, over the dense peak; HFU "
    "adds what is recomputed."
)
ENERGY_WORDS = "Energy: the chips alone, without hosts, switches and cooling."
MEMORY_WORDS = (
    "allocated: what tensors take at the peak of the simulated step; reserved: with what the allocator holds "
    "beyond them; total: what the process holds, with driver context and communicators."
)
ROOM = {
    "yes": f"fits: below {CLOSE_SHARE:.0%} of the memory",
    "too_close": "borderline: tensors fit, with little or no room for fragmentation",
    "no": "does not fit: not even the tensors do",
}
"""Whether it fits -> why."""
MOST_TENSORS = 6
"""Kept tensors of a stage that are named."""
SHOWN_OPS = 12
"""Operations that are shown."""
FAINT = 5e-4
"""Parts of a step below this share are left to the JSON."""
MOST_STAGES = 16
"""Simulated stages that are listed; of more, the first and the last half of as many."""


def place(told: Told) -> str:
    """The model, the GPUs and the system."""
    return f"{told['model']} on {told['gpus']:,} x {told['system']}"


def question(told: Told) -> str:
    """The same with the batch."""
    return f"{place(told)}, global batch {told['global_batch']:,} x {told['seq_len']:,} tokens"


def fits_words(told: Told) -> str:
    """Whether it fits, in words."""
    return FITS.get(str(told.get("fits")), "")


def step_title(told: Told, what: str = "") -> str:
    """The answer, then what was asked: seconds and whether it fits, or how much it lacks."""
    if told["fits"] == "no":
        return f"{_too_large(told)}: {question(told)}"
    head = what or f"{value_text('step_s', told['step_s'])} a step"
    return f"{head}, {fits_words(told)}: {question(told)}"


def _too_large(told: Told) -> str:
    held, room = (
        value_text(name, told[name]) for name in ("peak_memory_bytes", "memory_capacity_bytes")
    )
    return f"does not fit, {held} of {room} a GPU"


def headlines(told: Told, title: str) -> tuple[str, ...]:
    """Why the software that is named cannot run the plan, the answer, and the plan and who chose it."""
    chosen = "chosen, the best found" if told["plan_chosen"] else "as given"
    filled = told.get("filled_in") or ()
    chosen += f"; filled in: {' '.join(filled)}" if filled else ""
    lines = [title, f"plan  {told['plan']}  ({chosen})"]
    if refused := told.get("refusals"):
        software = next(w for w in told["plan"].split() if w.startswith("framework="))
        name = software.partition("=")[2].partition("@")[0]
        lines.insert(0, f"{name} cannot run this plan: {'; '.join(refused)}")
    return tuple(lines)


def room_note(told: Told) -> str:
    """Whether it fits by what is predicted, and how likely that is by the peak's interval."""
    likely, words = told.get("fit_probability"), ROOM[told["fits"]]
    if likely is None:
        return f"memory: {words}"
    edge = "below " if likely < 0.01 else "above " if likely > 0.99 else ""
    return f"memory: {words} ({edge}{min(max(likely, 0.01), 0.99):.0%} likely to)"


def largest_part(told: Told) -> ShownNumber:
    """The largest share of a step by its name."""
    return ShownNumber(name="limited_by", label="largest part", text=str(told["limited_by"]))


def set_by_hand(told: Told) -> Any:
    """Numbers that a question sets."""
    changed = told.get("overrides") or {}
    return listed("Set by hand", [f"{path}={value}" for path, value in changed.items()])


def estimate_card(told: Told) -> Presentation:
    """A training step: time, throughput, memory, where time and memory go; the whole run first."""
    run = told.get("run")
    title, *lines = headlines(told, step_title(told, _run_words(run) if run else ""))
    return Presentation(
        title=title,
        lines=tuple(lines),
        facts=(*_run_facts(run), *facts_of(told, *TRAINED), largest_part(told)),
        notes=(room_note(told),),
        tables=(
            *(_run_table(run) if run else ()),
            *measured_table(told, "step_s"),
            *_time_table(told.get("breakdown")),
            *_memory_table(told.get("memory_by_stage") or ()),
        ),
        lists=set_by_hand(told),
        meaning=(CONVENTIONS, ENERGY_WORDS, *_faint_words(told.get("breakdown"))),
        bars=bars_of(children(told.get("breakdown"))),
        bar_title="step time",
    )


def _run_words(run: Told) -> str:
    """Days of a whole run."""
    ends = (run.get("interval") or {}).get("p90")
    sure = ninety(*(f"{end:.3g}" for end in ends)) if ends else ""
    return f"{run['days']:.3g} days for {with_unit(run['tokens'], 'tokens')}{sure}"


def _run_facts(run: Told | None) -> tuple[ShownNumber, ...]:
    if not run:
        return ()
    known = {**run, "intervals": {**(run.get("intervals") or {}), "days": run.get("interval")}}
    return facts_of(known, "days", "gpu_hours", "goodput")


def _run_table(run: Told) -> tuple[ShownTable, ...]:
    """What else a whole run takes."""
    between = run["mean_time_between_failures_s"]
    every = "none" if between is None else f"one in {between / 3600.0:,.1f} hours"
    rows = {
        "tokens": f"{with_unit(run['tokens'], 'tokens')}, "
        f"{run['tokens_per_parameter']:,.1f} per active parameter",
        "steps": f"{run['steps']:,.0f}",
        "failures": f"{run['failures']:,.1f} expected, {every}",
        "time outside steps": f"checkpoints {1.0 - run['checkpoint_share']:.2%}, "
        f"work done again {1.0 - run['rework_share']:.2%}, restarts {1.0 - run['restart_share']:.2%}",
    }
    if run["energy_joules"] is not None:
        ends = ((run.get("intervals") or {}).get("energy_joules") or {}).get("p90")
        sure = ninety(*(f"{end / 3.6e9:,.1f}" for end in ends)) if ends else ""
        rows["energy"] = f"{run['energy_joules'] / 3.6e9:,.1f} MWh, chips alone{sure}"
    if run["checkpoint_interval_s"] is not None and run["checkpoint_interval_steps"] is not None:
        chosen = "the best" if run["checkpoint_interval_chosen"] else "as given"
        rows["checkpoints"] = (
            f"{with_unit(run['checkpoint_bytes'], 'bytes')} every "
            f"{run['checkpoint_interval_s']:,.0f} s, {run['checkpoint_interval_steps']:,.0f} steps "
            f"({chosen}), {run['checkpoint']}: chips wait {run['checkpoint_wait_s']:,.1f} s, "
            f"written after {run['checkpoint_write_s']:,.1f} s"
        )
    return (
        ShownTable(
            title="The whole run", headers=("", ""), rows=tuple(rows.items()), right=(False, False)
        ),
    )


def _time_table(tree: Told | None) -> tuple[ShownTable, ...]:
    """Parts of the step along its slowest stage, largest first, what is below another set in."""
    if not tree:
        return ()
    whole = tree["value"] or 1.0
    rows = [
        {**leaf, "name": f"{'  ' * depth}{leaf['name']}", "share": leaf["value"] / whole}
        for depth, leaf in _largest_first(tree, FAINT * whole)
    ]
    return table_of(
        rows, "name", "value:seconds", "share", "evidence", title="Time of the slowest stage",
        labels={"name": "part", "value:seconds": "time"},
    )  # fmt: skip


def _largest_first(tree: Told, least: float, depth: int = 0) -> Iterator[tuple[int, Told]]:
    """Everything below the root with its depth, but what is below the least."""
    for child in sorted(tree["children"], key=lambda leaf: -leaf["value"]):
        if child["value"] > least:
            yield depth, child
            yield from _largest_first(child, least, depth + 1)


def _faint_words(tree: Told | None) -> tuple[str, ...]:
    """Which small parts are left out, where some are."""
    names = ", ".join(_faint(tree, FAINT * tree["value"]) if tree else ())
    return (f"Omitted, each below {FAINT:.2%} of the step: {names}.",) if names else ()


def _faint(tree: Told, least: float) -> Iterator[str]:
    """Names of the parts that are no more than the least."""
    for child in tree["children"]:
        if 0.0 < child["value"] <= least:
            yield child["name"]
        else:
            yield from _faint({"children": (), **child}, least)


def _memory_table(stages: Sequence[Told]) -> tuple[ShownTable, ...]:
    """What each distinct stage holds, one stage a row."""
    rows: list[dict[str, Any]] = [
        {
            "stage": one["name"],
            "total": one["value"],
            **{part["name"]: part["value"] for part in one["children"]},
        }
        for one in stages
    ]
    parts = [f"{name}:total_bytes" for name in (rows[0] if rows else ()) if name != "stage"]
    labels = {name: part_words(name.partition(":")[0]) for name in parts}
    return table_of(rows, "stage", *parts, title="Memory by stage", labels=labels)


def explain_card(told: Told) -> Presentation:
    """Where time and memory go, in sentences and parts, and what would move them."""
    rows = [
        {
            **one,
            "now": with_unit(one["value"], one["unit"]) if one["unit"] else None,
            "what_if": one["what_if_ratio"] - 1.0,
        }
        for one in told["elasticities"]
    ]
    size = "value:peak_memory_bytes"
    ops = told["ops"][:SHOWN_OPS]
    memory = [{**one, "name": part_words(one["name"])} for one in told["memory"]]
    first, *rest = told["conclusions"] or [place(told)]
    return Presentation(
        title=first,
        lines=(f"{place(told)}: {told['plan']}", *rest),
        facts=(*facts_of(told, "step_s", "peak_memory_bytes"), largest_part(told)),
        tables=(
            *table_of(
                [one for one in told["time"] if one["share"] > FAINT],
                "name", "value:seconds", "share", "bound", "evidence",
                title="Time", labels={"value:seconds": "time"},
            ),
            *table_of(
                ops, "op", "part", "phase", "count", "seconds", "share", "bound",
                title=f"Operations ({len(ops)} of {len(told['ops'])})",
            ),
            *table_of(memory, "name", size, "share", title="Memory", labels={size: "size"}),
            *table_of(rows, "words", "now", "elasticity", "what_if", title="What would move it"),
        ),
        lists=set_by_hand(told),
        meaning=_faint_words({"value": told["step_s"], "children": told["time"]}),
        bars=bars_of({part["name"]: part["value"] for part in told["time"]}),
        bar_title="step time",
    )  # fmt: skip


def memory_card(told: Told) -> Presentation:
    """Memory of each stage."""
    fullest = next(s for s in told["stages"] if s["stage"] == told["fullest_stage"])
    stages = told["stages"]
    names = stage_names([one["stage"] for one in stages], [one["alike"] for one in stages])
    rows = [{**one, "stage": name} for one, name in zip(stages, names, strict=True)]
    kept = sorted(fullest["kept_at_peak"].items(), key=lambda part: -part[1])[:MOST_TENSORS]
    held = {**fullest["at_peak"], **{f"of what is kept: {name}": size for name, size in kept}}
    peak, room = (
        value_text(name, told[name]) for name in ("peak_memory_bytes", "memory_capacity_bytes")
    )
    title = _too_large(told) if told["fits"] == "no" else f"{peak} of {room}, {fits_words(told)}"
    first, *lines = headlines(told, f"{title}: {place(told)}")
    return Presentation(
        title=first,
        lines=tuple(lines),
        facts=facts_of(
            told, "peak_memory_bytes", "memory_capacity_bytes", "allocated_bytes", "reserved_bytes"
        ),
        notes=(room_note(told),),
        tables=(
            *table_of(
                rows, "stage", "allocated_bytes", "reserved_bytes", "framework_bytes",
                "total_bytes", "peak_at_s", title="Stages",
            ),
            *table_of(
                [{"name": part_words(name), "bytes": size} for name, size in held.items() if size],
                "name", "bytes:total_bytes", labels={"bytes:total_bytes": "size"},
                title=f"Stage {fullest['stage']} at its peak",
            ),
        ),
        meaning=(MEMORY_WORDS,),
        bars=bars_of(fullest["at_peak"]),
        bar_title="memory of the fullest stage",
    )  # fmt: skip


def simulate_card(told: Told) -> Presentation:
    """A simulated step beside the closed form, where they differ, every stage, and chance."""
    shares = [
        {**one, "apart": round(one["simulated_s"] - one["closed_s"], 9)}
        for one in told["shares"]
        if max(one["simulated_s"], one["closed_s"]) > FAINT * told["step_s"]
    ]
    shares.sort(key=lambda one: -abs(one["apart"]))
    if told["contention_s"] > 0.0:
        name = "of data_parallel, links and cores shared"
        shares.append({"name": name, "simulated_s": told["contention_s"]})
    stages = told["stages"]
    if len(stages) > MOST_STAGES:
        stages = [*stages[: MOST_STAGES // 2], *stages[-MOST_STAGES // 2 :]]
    written = told.get("trace")
    step = f"{value_text('step_s', told['step_s'])} a step, simulated"
    title, *lines = headlines(told, step_title(told, step))
    return Presentation(
        title=title,
        lines=tuple(lines),
        facts=facts_of(told, "step_s", "closed_step_s", "difference", "mfu", "peak_memory_bytes"),
        tables=(
            *table_of(
                shares, "name", "simulated_s", "closed_s", "apart:closed_s",
                title="Along the stage that sets the pace",
                labels={"name": "part", "closed_s": "closed form", "apart:closed_s": "difference"},
            ),
            *table_of(
                stages, "stage", "rank", "busy_s", "bubble_s", "data_parallel_s", "peak_memory_bytes",
                title="Stages",
            ),
            *_chance_table(told),
        ),
        lists=listed(
            "Written", [f"{written}: open it in ui.perfetto.dev"] if written else []
        ),
        bars=bars_of({part["name"]: part["simulated_s"] for part in told["shares"]}),
        bar_title="step time",
    )  # fmt: skip


def _chance_table(told: Mapping[str, Any]) -> tuple[ShownTable, ...]:
    """The distribution of the whole job's step over repeats."""
    found = told["step_percentiles_s"] or {}
    title = (
        f"Step of the whole job over {told['repeats']} repeats (jitter {told['jitter']:g}, "
        f"stragglers {told['stragglers']:g} x {told['slowdown']:g})"
    )
    return table_of([found], *(f"{name}:step_s" for name in found), title=title,
                    labels={f"{name}:step_s": name for name in found})  # fmt: skip
