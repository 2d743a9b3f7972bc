"""What is worth showing of measured runs beside their prediction: gaps, likely causes, what to do next."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foretell.report.presentation.numbers import (
    Presentation,
    ShownTable,
    Told,
    listed,
    plain_table,
    table_of,
    value_text,
    words_of,
)
from foretell.specs.measurement import HELD, PART_NAMES
from foretell.uncertainty.words import REST, SHARED

WORDS = {
    "gemm": "matrix multiplications",
    "experts": "expert matrix multiplications",
    "attention": "attention",
    "memory_bound": "memory-bound work",
    "tensor_parallel": "tensor-parallel communication",
    "context_parallel": "context-parallel communication",
    "expert_parallel": "expert-parallel communication",
    "pipeline_parallel": "sends between stages",
    "data_parallel": "data-parallel communication",
    "host": "host",
    "fixed": "fixed time of a step",
    "unexplained": "not explained by a mechanism",
    "activations": "bytes of activations",
    "overhead": "bytes of allocator and framework",
    "prefill": "prefill",
    "decode_weights": "decode: weights",
    "decode_cache": "decode: cached keys and values",
    "step_overhead": "engine overhead of a step",
    "queueing": "queueing",
    "cache_capacity": "tokens that the cache holds",
    "generation": "generation",
    "forward": "log-probabilities",
    "update": "updates",
    "synchronisation": "weight synchronisation, wake and sleep",
    "loop": "rewards and the loop's host",
}
"""Mechanism -> what it is called."""
LEAST = 0.01
"""Smallest log-factor that is shown."""
TITLE = "Given the measured runs"


def measured_table(told: Told, *names: str) -> tuple[ShownTable, ...]:
    """Numbers before and after, then the mechanisms that moved, furthest first."""
    prior = told.get("prior")
    if not prior:
        return ()
    rows: list[Mapping[str, Any]] = []
    for name in names:
        ends = ((told.get("intervals") or {}).get(name) or told.get("interval") or {}).get("p90")
        before, now = (value_text(name, _middle(one[name])) for one in (prior, told))
        row = {"figure": words_of(name), "before": before, "now": now}
        rows.append(row | {"90 %": value_text(name, ends)} if ends else row)
    moved = (told.get("posterior_factors") or {}).items()
    for name, one in sorted(moved, key=lambda item: -abs(math.log(item[1]["factor"]))):
        if abs(math.log(one["factor"])) >= LEAST:
            ends = (one["interval"] or {}).get("p90")
            wide = f"{ends[0]:.2f} to {ends[1]:.2f}" if ends else ""
            row = {"figure": WORDS.get(name, name), "before": "x 1.00"}
            rows.append(row | {"now": f"x {one['factor']:.2f}", "90 %": wide})
    labels = {name: name for name in ("figure", "before", "now", "90 %")}
    return table_of(rows, *labels, title=TITLE, labels=labels)


def measured_systems(systems: list[Told]) -> tuple[ShownTable, ...]:
    """What measured runs changed on each system."""
    rows = [
        {
            "system": one["system"], "figure": words_of(name),
            "before": value_text(name, _middle(facts["prior"][name])),
            "now": value_text(name, _middle(facts[name])),
        }
        for one in systems
        for facts in one["workloads"].values()
        for name in ("step_s", "ttft_ms", "tpot_ms")
        if name in (facts.get("prior") or {})
    ]  # fmt: skip
    labels = {name: name for name in ("figure", "before", "now")}
    return table_of(rows, "system", *labels, title=TITLE, labels=labels)


def _middle(value: Any) -> Any:
    """The mean of a latency's percentiles."""
    return value["mean"] if isinstance(value, Mapping) else value


CAUSES = {
    **WORDS,
    **PART_NAMES,
    SHARED: "everything alike",
    REST: "not explained by a mechanism",
}
"""Cause -> what it is called."""


def diagnose_card(told: Told) -> Presentation:
    """Measured runs, loops or services beside their prediction."""
    runs = told["runs"]
    plans = dict.fromkeys(line for run in runs for line in _plan_lines(run))
    known = {f"{run['source']}: {line}" for run in runs for line in _over_time(run)}
    return Presentation(
        title=f"{_verdict(runs)}: {told['model']} on {told['system']}",
        lines=tuple(plans),
        tables=(
            *plain_table(
                [row for run in runs for row in _figures(run, _of(run, runs))], "Measured and predicted"
            ),
            *_causes(runs),
            *_phases(runs),
        ),
        lists=(
            *listed("What stands out", [line for run in runs for line in _stands_out(run)]),
            *listed("This measurement cannot separate", [
                " and ".join(CAUSES.get(name, name) for name in pair)
                for run in runs
                for pair in run.get("not_told_apart") or ()
            ]),
            *(
                part
                for run in runs
                for part in listed(
                    f"Over {(run.get('over_time') or {}).get('steps')} steps", _over_time(run)
                )
            ),
            *listed("Next", _next(told)),
            *listed("Notes", [note for note in told.get("notes") or () if note not in known]),
        ),
        assumptions=tuple(line for run in runs for line in run.get("assumptions") or ()),
    )  # fmt: skip


def _verdict(runs: Sequence[Told]) -> str:
    """The first run's gap and the likeliest cause of it."""
    first = runs[0]
    if first["gap"] is None:
        return "no step time was measured"
    name = words_of(first.get("metric") or "step_s")
    gap = f"{name} {abs(first['gap']):.0%} {'above' if first['gap'] > 0 else 'below'} predicted"
    outside = _outside(first)
    gap += f", {outside} the 90 % interval" if outside else ""
    causes = first.get("causes") or ()
    if outside == "inside" or not causes or "probability" not in causes[0]:
        return gap
    likely = max(causes, key=lambda cause: cause["probability"])
    called = CAUSES.get(likely["mechanism"], likely["mechanism"])
    return f"{gap}; likely {called} ({likely['probability']:.0%})"


def _outside(run: Told) -> str:
    """Whether what was measured lies in the interval; empty where there is none."""
    low, high = (run.get("interval") or {}).get("p90") or (None, None)
    value = run["measured"] if "measured" in run else run["measured_s"]
    if low is None or value is None:
        return ""
    return "inside" if low <= value <= high else "outside"


def _plan_lines(run: Told) -> Iterator[str]:
    plan = f"{run['source']}: plan  {run['plan']}"
    if run.get("metric"):
        load = f"{run['rate']:g} requests/s" if run["rate"] else None
        load = load or f"concurrency {run['concurrency'] or 0:g}"
        plan += f", {run['profile']}"
        if run["metric"] not in HELD:
            plan += f": {load}, {run['isl']:g} tokens in, {run['osl']:g} out"
    yield plan
    if run.get("rollout_plan"):
        yield f"rollout  {run['rollout_plan']}"


def _figures(run: Told, source: str) -> Iterator[dict[str, Any]]:
    """What was measured of a run, beside its prediction."""
    name = run.get("metric") or "step_s"
    measured, predicted = (
        run[key if run.get("metric") else f"{key}_s"] for key in ("measured", "predicted")
    )
    ends = (run.get("interval") or {}).get("p90")
    every = [(name, measured, predicted, run["gap"], ends, _outside(run))]
    every += [
        (one["metric"], one["measured"], one["predicted"], one["gap"], None, "")
        for one in run.get("watched") or ()
    ]
    for figure, seen, expected, gap, interval, outside in every:
        yield {
            "run": source,
            "figure": words_of(figure),
            "measured": "-" if seen is None else value_text(figure, seen),
            "predicted": value_text(figure, expected),
            "90 %": value_text(figure, interval) if interval else "",
            "gap": "" if gap is None else value_text("gap", gap),
            "interval": outside,
        }


def _of(run: Told, runs: Sequence[Told]) -> str:
    """Which run a row is of, where there are several."""
    if len(runs) == 1:
        return ""
    return str(run["source"])


def _causes(runs: Sequence[Told]) -> tuple[ShownTable, ...]:
    rows = [
        {
            "run": _of(run, runs),
            "cause": CAUSES.get(cause["mechanism"], cause["mechanism"]),
            "probability": f"{cause['probability']:.0%}",
            "then takes": f"x {cause['factor']:.2f}",
            "gain if fixed": f"{cause['gain']:.1%}",
            "check": cause["check"],
        }
        for run in runs
        if run.get("metric") not in HELD
        for cause in run.get("causes") or ()
    ]
    return plain_table(rows, "Likely causes")


def _phases(runs: Sequence[Told]) -> tuple[ShownTable, ...]:
    """Timed parts side by side; what to look at is left out where causes follow."""
    rows = [
        {
            "run": _of(run, runs),
            "phase": PART_NAMES.get(one["phase"], one["phase"]),
            "logged": value_text("seconds", one["measured_s"]),
            "expected": value_text("seconds", one["predicted_s"]),
            "verdict": one["verdict"]
            if one["verdict"] == "as expected"
            else f"{one['ratio']:.1f} x",
            "check": "" if run.get("causes") else one["check"],
        }
        for run in runs
        for one in run.get("phases") or ()
    ]
    return plain_table(rows, "Phases")


def _stands_out(run: Told) -> list[str]:
    if run.get("metric") in HELD:
        return [f"look at {cause['check']}" for cause in run["causes"]]
    return list(run.get("said") or ())


def _over_time(run: Told) -> Sequence[str]:
    said: Sequence[str] = (run.get("over_time") or {}).get("said") or ()
    return said


def _next(told: Told) -> Iterator[str]:
    """The best plan by what was measured, and what to measure next."""
    best, ahead = told.get("best_plan"), told.get("next")
    if best is not None:
        yield f"Best plan given these measurements: {best} ({_expected(told, 'best_')})"
    if ahead is not None:
        load = (
            f", concurrency {ahead['concurrency']:g}, {ahead['isl']:g} tokens in, {ahead['osl']:g} out"
            if "concurrency" in ahead
            else ""
        )
        doubt = "doubt about the causes" if load else "interval of the best plan"
        yield (
            f"Measure next: {ahead['plan']}{load} (predicted {_expected(ahead)}); narrows the {doubt} "
            f"by {ahead['narrower']:.0%}"
        )


def _expected(one: Told, before: str = "") -> str:
    if f"{before}step_s" in one:
        return f"{value_text('step_s', one[f'{before}step_s'])} a step"
    return ", ".join(
        f"{words_of(name)} {value_text(name, one[f'{before}{name}'])}"
        for name in ("ttft_ms", "tpot_ms")
    )
