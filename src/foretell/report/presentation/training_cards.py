"""What is worth showing of plans beside each other, of sensitivities, launches, scaling and studies."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.presentation.numbers import (
    Presentation,
    ShownTable,
    Told,
    fact_of,
    facts_of,
    listed,
    table_of,
    value_text,
    words_of,
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
            *read_back_table(told["read_back"]),
        ),
        lists=listed("Not expressed by it", missing),
    )  # fmt: skip


def read_back_table(rows: Sequence[Told]) -> tuple[ShownTable, ...]:
    """Every value of a question that was read from a launch, and where it comes from."""
    return table_of(
        [{**row, "line": "" if row["line"] is None else row["line"]} for row in rows],
        "name", "value", "origin", "key", "line",
        labels={"name": "read back", "value": "value", "origin": "from", "key": "argument"},
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
