"""What is worth showing of a training step, and of plans, stages, parts and sensitivities of it."""

from collections.abc import Mapping
from typing import Any

from foretell.report.presentation.labels import part_words
from foretell.report.presentation.numbers import (
    FITS,
    Presentation,
    ShownNumber,
    Told,
    bars_of,
    children,
    fact_of,
    facts_of,
    table_of,
    value_text,
)
from foretell.sharding.pipeline import stage_names
from foretell.specs.outputs import OUTPUTS
from foretell.units import format as with_unit

_FIRST = (
    "step_s", "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu", "mfu_causal",
    "peak_memory_bytes", "memory_capacity_bytes", "allocated_bytes", "reserved_bytes", "energy_joules",
)  # fmt: skip
TRAINED = (*_FIRST, *(name for name in OUTPUTS if name not in _FIRST))
"""Numbers of a training step: those that people look for, then every other output."""
PLANS = (
    "place", "plan", "only_here", "step_s", "tokens_per_s_per_gpu", "mfu", "peak_memory_bytes", "fits",
    "limited_by",
)  # fmt: skip
"""Columns of plans."""
MOST_TENSORS = 6
"""Kept tensors of a stage that are named."""
SHOWN_OPS = 12
"""Operations that are shown."""


def place(told: Told) -> str:
    """The model, the GPUs and the system."""
    return f"{told['model']} on {told['gpus']:,} x {told['system']}"


def question(told: Told) -> str:
    """The same with the batch."""
    return f"{place(told)}, global batch {told['global_batch']:,} x {told['seq_len']:,} tokens"


def fits_words(told: Told) -> str:
    """Whether it fits, in words."""
    return FITS.get(str(told.get("fits")), "")


def largest_part(told: Told) -> ShownNumber:
    """The largest share of a step by its name."""
    return ShownNumber(name="limited_by", label="largest part", text=str(told["limited_by"]))


def estimate_card(told: Told) -> Presentation:
    """A training step: time, throughput, memory, where the time goes."""
    run = told.get("run")
    lines = [] if not run else [f"whole run: {run['days']:.3g} days for {run['tokens']:.3g} tokens"]
    return Presentation(
        title=f"{place(told)}: {told['plan']} ({fits_words(told)})",
        lines=tuple(lines),
        facts=(*facts_of(told, *TRAINED), largest_part(told)),
        bars=bars_of(children(told.get("breakdown"))),
        bar_title="step time",
    )


def search_card(told: Told) -> Presentation:
    """The plans of a search; a mark where several are as fast as the first within 90 %."""
    plans, equal = told["plans"], told.get("equal") or ()
    marks = ["=" if sum(equal) > 1 and same else "" for same in equal]
    rows = [
        {**plan, "place": f"{i + 1}{marks[i] if marks else ''}"} for i, plan in enumerate(plans)
    ]
    many = f"{told['plans_feasible']:,} of {told['plans_evaluated']:,} plans fit"
    title = many
    if plans:
        step = value_text("step_s", plans[0]["step_s"])
        title = f"{question(plans[0])}: {plans[0]['plan']}, {step} a step; {many}"
    return Presentation(
        title=title,
        facts=facts_of(plans[0], "plan", "step_s", "mfu", "peak_memory_bytes") if plans else (),
        tables=table_of(rows, *PLANS),
    )


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
    return Presentation(
        title=f"{place(told)}: {told['plan']}",
        lines=tuple(told["conclusions"]),
        facts=(*facts_of(told, "step_s", "peak_memory_bytes"), largest_part(told)),
        tables=(
            *table_of(
                told["time"], "name", "value:seconds", "share", "bound", "evidence",
                title="Time", labels={"value:seconds": "time"},
            ),
            *table_of(
                ops, "op", "part", "phase", "count", "seconds", "share", "bound",
                title=f"Operations ({len(ops)} of {len(told['ops'])})",
            ),
            *table_of(
                memory, "name", size, "share", title="Memory", labels={size: "size"}
            ),
            *table_of(rows, "words", "now", "elasticity", "what_if", title="What would move it"),
        ),
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
    return Presentation(
        title=f"{place(told)}: {told['plan']} ({fits_words(told)})",
        facts=facts_of(
            told, "peak_memory_bytes", "memory_capacity_bytes", "allocated_bytes", "reserved_bytes"
        ),
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
        bars=bars_of(fullest["at_peak"]),
        bar_title="memory of the fullest stage",
    )  # fmt: skip


def simulate_card(told: Told) -> Presentation:
    """A simulated step beside the closed form."""
    return Presentation(
        title=f"{place(told)}: {told['plan']}, simulated",
        facts=facts_of(told, "step_s", "closed_step_s", "difference", "mfu", "peak_memory_bytes"),
        bars=bars_of({part["name"]: part["simulated_s"] for part in told["shares"]}),
        bar_title="step time",
    )


def sensitivity_card(told: Told) -> Presentation:
    """What would move a result."""
    if "elasticities" in told:  # of one result of an estimate
        title = f"{told['result']} = {value_text(told['result'], told['value'])}: {told['plan']}"
        return Presentation(
            title=title, tables=table_of(told["elasticities"], "path", "words", "elasticity")
        )
    first = next(iter(told["results"]))
    rows = [{**n, "elasticity": n["elasticities"][first]} for n in told["numbers"]]
    chosen = " (chosen)" if told["plan_chosen"] else ""
    return Presentation(
        title=f"{place(told)}: {told['plan']}{chosen}",
        facts=tuple(fact_of(name, value, None) for name, value in told["results"].items()),
        tables=table_of(rows, "path", "words", "elasticity"),
    )


def plans_card(told: Told) -> Presentation:
    """Two plans beside each other."""
    rows = [
        {**told[name], "place": name.upper(), "only_here": " ".join(told[f"only_{name}"])}
        for name in ("a", "b")
    ]
    return Presentation(
        title=f"{question(told['a'])}: A {told['a']['plan']}; B {told['b']['plan']}",
        lines=tuple(told["conclusions"]),
        facts=(fact_of("difference_s", told["difference_s"], told["interval"]),),
        tables=(
            *table_of(rows, *PLANS),
            *_leaves(told["time"], "seconds", "Time"),
            *_leaves(told["memory"], "peak_memory_bytes", "Memory"),
        ),
    )


def _leaves(leaves: list[Mapping[str, Any]], unit: str, title: str) -> Any:
    """Parts of both plans with their difference, and the sum."""
    ends = ("a", "b", "difference")
    every = {"name": "all", **{end: sum(one[end] for one in leaves) for end in ends}}
    names = [f"{end}:{unit}" for end in ends]
    labels = dict(zip(names, ("A", "B", "B - A"), strict=True))
    return table_of([*leaves, every], "name", *names, title=title, labels=labels)


def diagnose_card(told: Told) -> Presentation:
    """Measured runs beside their prediction."""
    causes = [cause["mechanism"] for run in told["runs"] for cause in run["causes"]]
    told_of = [name for run in told["runs"] for name in run]
    measured = (
        ("measured_s", "predicted_s")
        if "measured_s" in told_of
        else ("metric", "measured", "predicted")
    )
    return Presentation(
        title=f"{told['model']} on {told['system']}: {len(told['runs'])} measured runs",
        lines=tuple(f"likely cause: {cause}" for cause in dict.fromkeys(causes))[:3],
        tables=table_of(told["runs"], "source", "plan", *measured, "gap"),
    )


def trace_card(told: Told) -> Presentation:
    """A measured trace beside its prediction."""
    first = told["ranks"][0]["mean"] if told["ranks"] else {}
    return Presentation(
        title=f"{len(told['ranks'])} ranks, {len(told['steps'])} steps",
        lines=tuple(told["notes"]),
        bars=bars_of({name: value for name, value in first.items() if name != "step_s"}),
        bar_title="measured step",
    )


def improve_card(told: Told) -> Presentation:
    """A launch, and a faster one."""
    rows = [
        {**one, "before": one["before"] or "-", "after": one["after"] or "leave out"}
        for one in told["changes"]
    ]
    return Presentation(
        title=place(told),
        lines=tuple(told["conclusions"]),
        tables=table_of(rows, "flag", "before", "after"),
    )


def changed_card(told: Told) -> Presentation:
    """Predictions that moved between two versions."""
    return Presentation(
        title=told["title"],
        lines=tuple(told["conclusions"]),
        tables=table_of(told["moved"], "name", "metric", "before", "after", "change", "cause"),
    )


def scaling_card(told: Told) -> Presentation:
    """Strategies over GPUs: where each stops, and every point."""
    several = len({curve["model"] for curve in told["curves"]}) > 1
    points = [
        {**point, "model": curve["model"] if several else None,
         "why": point["reason"] or point["limited_by"]}
        for curve in told["curves"]
        for point in curve["points"]
    ]  # fmt: skip
    kind = "the batch grows with the GPUs" if told["mode"] == "weak" else "the batch is held"
    return Presentation(
        title=f"{told['mode']} scaling on {told['system']}: {kind}, sequences of {told['seq_len']:,}",
        tables=(
            *table_of(
                told["curves"], "model", "strategy", "fits_from", "scales_to", "best_gpus", "why",
                title="Where it stops",
            ),
            *table_of(
                points, "model", "strategy", "gpus", "step_s", "interval.p90:step_s", "compute_s",
                "exposed_communication_s", "hidden_communication_s", "bubble_s",
                "tokens_per_s_per_gpu", "efficiency", "peak_memory_bytes", "fits", "why",
                title="Every point",
            ),
        ),
    )  # fmt: skip


def codesign_card(told: Told) -> Presentation:
    """Designs, those on the front."""
    rows = [{**one["values"], **one["mix"]} for one in told["front"]]
    flat = [{name.replace(".", " "): value for name, value in row.items()} for row in rows]
    varied = dict.fromkeys(name for one in told["front"] for name in one["values"])
    names = [name.replace(".", " ") for name in (*varied, *told["objectives"])]
    possible = f"{told['possible']:,} of {told['points']:,} designs possible"
    return Presentation(
        title=f"{possible}, {len(rows)} on the Pareto front", tables=table_of(flat, *names)
    )


def sweep_card(told: Told) -> Presentation:
    """How far a sweep is."""
    state = "complete" if told["complete"] else "running" if told["running"] else "incomplete"
    done = f"{told['points_done']:,} of {told['points']:,} points"
    return Presentation(title=f"sweep in {told['folder']}: {state}, {done}")
