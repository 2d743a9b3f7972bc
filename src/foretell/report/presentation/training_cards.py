"""What is worth showing of plans beside each other, of sensitivities, launches, scaling and studies."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.presentation.labels import words_of
from foretell.report.presentation.numbers import (
    Presentation,
    Told,
    fact_of,
    facts_of,
    listed,
    table_of,
    value_text,
)
from foretell.report.presentation.step_cards import CONVENTIONS, place, question
from foretell.training.feasibility import CLOSE_SHARE
from foretell.units import format as with_unit

PLANS = (
    "place", "plan", "only_here", "step_s", "tokens_per_s_per_gpu", "mfu", "peak_memory_bytes", "fits",
    "limited_by",
)  # fmt: skip
"""Columns of plans."""
LEAST = 5e-4
"""Numbers that move nothing more than this are left out; JSON has them."""
MOST_PRICES = 5
"""Figures of a price that are shown."""
SCALED = (
    "exposed: waiting for collectives and sends; hidden: messages behind the passes; efficiency: tokens/s "
    "per GPU over those of the fewest GPUs that fit, were nothing waited for there."
)


def search_card(told: Told) -> Presentation:
    """The plans of a search; a mark where several are as fast as the first within 90 %."""
    plans, equal = told["plans"], told.get("equal") or ()
    marks = ["=" if sum(equal) > 1 and same else "" for same in equal]
    rows = [
        {**plan, "place": f"{i + 1}{marks[i] if marks else ''}"} for i, plan in enumerate(plans)
    ]
    many = f"{told['plans_feasible']:,} of {told['plans_evaluated']:,} plans fit"
    if not plans:
        return Presentation(title=many)
    best = plans[0]
    meaning = [
        (
            f"fits: up to {CLOSE_SHARE:.0%} of the chip's memory; borderline while its tensors fit; clear "
            "ones come first."
        ),
        CONVENTIONS,
        _launchers(plans),
    ]
    if sum(equal) > 1:
        meaning.append(
            f"{sum(equal)} plans are equal to the fastest within 90% (marked =); of them the simplest is "
            "first."
        )
    return Presentation(
        title=f"{value_text('step_s', best['step_s'])} a step with {best['plan']}: {question(best)}",
        lines=(*_counts(told), many),
        facts=facts_of(best, "plan", "step_s", "mfu", "peak_memory_bytes"),
        tables=table_of(rows, *PLANS),
        meaning=tuple(meaning),
    )


def _launchers(plans: Sequence[Told]) -> str:
    """Which plans each framework can run, by their places."""
    places: dict[str, list[str]] = {}
    for at, plan in enumerate(plans, start=1):
        for name in plan.get("launchable_with") or ("none known",):
            places.setdefault(name, []).append(str(at))
    said = (f"{name} {', '.join(those)}" for name, those in places.items())
    return f"launchable with: {'; '.join(said)}."


def _counts(told: Told) -> list[str]:
    """How many plans, how fast, and how many were invalid, by rule."""
    evaluated, pruned, took = (
        told[name] for name in ("plans_evaluated", "plans_pruned", "evaluation_seconds")
    )
    many = evaluated + pruned
    lines = [
        (
            f"{many:,} plans in {took:.2f} s ({many / max(took, 1e-9):,.0f} per second): {pruned:,} pruned "
            f"by a bound on their step, {evaluated:,} evaluated"
        )
    ]
    if rejected := told["rejected"]:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in rejected.items())
        lines.append(f"Skipped as invalid: {sum(rejected.values()):,} ({rules})")
    return lines


def sensitivity_card(told: Told) -> Presentation:
    """What would move a result: slopes, what becomes of it with each number better and worse."""
    if "elasticities" in told:  # of one result of an estimate
        title = f"{told['result']} = {value_text(told['result'], told['value'])}: {told['plan']}"
        return Presentation(
            title=title, tables=table_of(told["elasticities"], "path", "words", "elasticity")
        )
    names = tuple(told["results"])
    seen = [one for one in told["numbers"] if any(_strength(one, name) > LEAST for name in names)]
    prices = [one for one in seen if one["kind"] == "price"]
    shown = [one for one in seen if one["kind"] != "price"] + prices[:MOST_PRICES]
    idle = [one["words"] for one in told["numbers"] if one not in seen]
    chosen = "chosen anew" if told["replanned"] else "held"
    by = f"{told['factor']:g}"
    single = [one for one in seen if one["kind"] not in ("joint", "price")]
    first = max(single, key=lambda one: abs(one["elasticities"][names[0]]), default=None)
    head = "nothing moves it"
    if first is not None:
        slope = first["elasticities"][names[0]]
        head = f"{first['words']}: 1 % more is {slope:+.2f} % of {words_of(names[0])}"
    lines = [f"plan  {told['plan']}  ({'chosen' if told['plan_chosen'] else 'as given'})"]
    best = told["best_now"]
    if best is not None and best["ratios"] is not None:
        ratio = next(iter(best["ratios"].values()))
        if ratio < 1.0 - LEAST:
            lines.append(f"As it is, `{best['plan']}` takes {1.0 - ratio:.1%} less.")
    able = [one for one in shown if one["better"] is not None]
    rows = [
        {
            "words": one["words"],
            **{
                f"{name} {sign}": _change(one[key], name)
                for key, sign in (("better", f"x{by}"), ("worse", f"/{by}"))
                for name in names
            },
        }
        for one in able
    ]
    changes = [name for name in (rows[0] if rows else ()) if name != "words"]
    return Presentation(
        title=f"{head}: {place(told)}",
        lines=tuple(lines),
        facts=tuple(fact_of(name, value, None) for name, value in told["results"].items()),
        tables=(
            *table_of(
                [{**one, "now": with_unit(one["value"], one["unit"]) if one["unit"] else ""}
                 for one in shown],
                "words", "now", *(f"elasticities.{name}:elasticity" for name in names),
                title="Elasticities",
                labels={f"elasticities.{name}:elasticity": words_of(name) for name in names},
            ),
            *table_of(
                rows, "words", *changes, title=f"What if (plan {chosen})",
                labels={name: f"{words_of(name.split()[0])} {name.split()[1]}" for name in changes},
            ),
        ),
        lists=listed("No difference to speak of", [", ".join(idle)] if idle else []),
        meaning=(f"x{by}: better by the factor, a time shorter; /{by}: worse",),
    )  # fmt: skip


def _strength(moved: Told, result: str) -> float:
    """How much a number moves a result: the larger of its slope and its what-ifs; all of it where nothing
    fits any more."""
    ratios = [one["ratios"] for one in (moved["better"], moved["worse"]) if one is not None]
    changes = [1.0 if ratio is None else abs(ratio[result] - 1.0) for ratio in ratios]
    return float(max([abs(moved["elasticities"][result]), *changes]))


def _change(what_if: Told | None, name: str) -> str:
    if what_if is None or what_if["ratios"] is None:
        return "no fit"
    return value_text("change", what_if["ratios"][name] - 1.0)


def plans_card(told: Told) -> Presentation:
    """Two plans beside each other."""
    rows = [
        {**told[name], "place": name.upper(), "only_here": " ".join(told[f"only_{name}"])}
        for name in ("a", "b")
    ]
    first, *rest = told["conclusions"]
    return Presentation(
        title=first,
        lines=(f"{question(told['a'])}: A {told['a']['plan']}; B {told['b']['plan']}", *rest),
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


def improve_card(told: Told) -> Presentation:
    """A launch, a faster one, the flags to change, and what was read from the launch."""
    load = told["load"]
    speed = told["metric"]
    launch: dict[str, Any] = {
        "what": "launch", "plan": told["plan_before"], speed: told["before"],
        "peak_memory_bytes": told["memory_before"], **(told["latency_before"] or {}),
        "fits": "does not run" if told["before"] is None else _unless_fits(told["fits_before"]),
    }  # fmt: skip
    better = {
        "what": "better", "plan": told["plan_after"], speed: told["after"],
        "peak_memory_bytes": told["memory_after"], **(told["latency_after"] or {}),
    }  # fmt: skip
    changes = [
        {**one, "before": one["before"] or "-", "after": one["after"] or "leave out"}
        for one in told["changes"]
    ]
    first, *rest = told["conclusions"]
    lines = [place(told), *rest]
    if load is not None:
        prompt, answer, many = (f"{load[name]:,g}" for name in ("isl", "osl", "concurrency"))
        lines.append(
            f"load: prompts of {prompt} tokens, answers of {answer}, {many} requests at a time "
            "(--isl, --osl, --concurrency)"
        )
    times = ("peak_memory_bytes",) if load is None else ("ttft_ms", "tpot_ms")
    missing = told["export_notes"] if changes else ()
    return Presentation(
        title=first,
        lines=tuple(lines),
        tables=(
            *table_of(
                [launch, better] if changes else [launch], "what", "plan", speed, *times, "fits",
                labels={"what": ""},
            ),
            *table_of(changes, "flag", "before", "after"),
            *table_of(
                [{**row, "line": None if row["line"] is None else str(row["line"])}
                 for row in told["read_back"]],
                "name", "value", "origin", "key", "line",
                labels={"name": "read back", "value": "value", "origin": "from", "key": "argument"},
            ),
        ),
        lists=listed("Not expressed by it", missing),
    )  # fmt: skip


def _unless_fits(fits: str) -> str | None:
    return None if fits == "yes" else fits


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
    factors = dict.fromkeys(
        factor for curve in told["curves"] for p in curve["points"] for factor in p["by_bandwidth"]
    )
    slower = [
        {
            "model": curve["model"] if several else None,
            "strategy": curve["strategy"],
            "gpus": point["gpus"],
            "follows": point["follows"],
            **{
                f"x{float(f):g}": f"{1.0 / ratio:.2f}" for f, ratio in point["by_bandwidth"].items()
            },
        }
        for curve in told["curves"]
        if (point := _largest(curve)) is not None
    ]
    names = [f"x{float(factor):g}" for factor in factors]
    return Presentation(
        title=_scales(told["curves"]),
        lines=(
            f"{told['mode']} scaling on {told['system']}: {kind}, sequences of {told['seq_len']:,}",
        ),
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
            *table_of(
                slower, "model", "strategy", "gpus", *names, "follows",
                title="Tokens/s with other bandwidths between nodes, over those now",
                labels={name: name for name in names},
            ),
        ),
        meaning=(SCALED,),
    )  # fmt: skip


def _scales(curves: Sequence[Told]) -> str:
    """The strategy that scales to most GPUs, of each model."""
    found = []
    for model in dict.fromkeys(curve["model"] for curve in curves):
        able = [one for one in curves if one["model"] == model and one["scales_to"]]
        if not able:
            found.append(f"{model} does not fit at any of these numbers of GPUs")
            continue
        best = max(able, key=lambda one: (one["scales_to"], one["best_gpus"] or 0))
        found.append(f"{model} scales to {best['scales_to']:,} GPUs with {best['strategy']}")
    return "; ".join(found)


def _largest(curve: Told) -> Told | None:
    """The point of a curve with the most GPUs that fits."""
    able = [point for point in curve["points"] if point["by_bandwidth"]]
    return able[-1] if able else None


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
