"""What is worth showing of measured traces, of logs, of traced modules, and of scored tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foretell.report.presentation.numbers import (
    Presentation,
    ShownTable,
    Told,
    bars_of,
    facts_of,
    listed,
    plain_table,
    table_of,
)
from foretell.report.presentation.step_cards import headlines, step_title
from foretell.units import format as with_unit

PARTS = {
    "compute": "compute_alone_s", "overlapped": "overlapped_s", "exposed": "exposed_communication_s",
    "copies": "copy_s", "host": "host_s", "idle": "idle_s",
}  # fmt: skip
"""What a traced step is the sum of, and its keys."""
LOGGED = ("step", "compute", "communication", "idle")
"""Parts of a step that a log has."""
ROWS = 14
"""Operations that a screen shows; JSON has them all."""
LEVELS = {"step": "Step", "pass": "Passes", "family": "Kernels", "op": "Operations"}
"""Levels of a comparison, and what they are called."""
TRACE_WORDS = (
    "compute + overlapped + exposed + copies + host + idle = ms/step. compute: kernels, nothing being sent; "
    "overlapped: both; exposed: communication alone; host: nothing runs while the host is at work."
)
REASONS = 8
"""Reasons for unsupported rows that are shown; the JSON has all."""


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:,.3f}"


def trace_card(told: Told) -> Presentation:
    """Steps, families, collectives, ranks, and the prediction beside the busiest rank; a log's steps."""
    if "mean" in told:
        return log_card(told)
    mine = [step for step in told["steps"] if step["rank"] == told["busiest"]]
    steps = [
        {
            "rank": str(step["rank"]), "step": step["step"], "ms/step": _ms(step["step_s"]),
            **{name: _ms(step[key]) for name, key in PARTS.items()},
        }
        for step in told["steps"]
    ]  # fmt: skip
    waits = [
        {
            "step": row["step"], "busiest": str(row["busiest"]),
            "imbalance": f"{100 * row['imbalance']:.1f} %",
            "waits ms": ", ".join(f"{r}: {_ms(s)}" for r, s in (row["waits_s"] or {}).items()),
        }
        for row in told["imbalance"]
    ]  # fmt: skip
    answer = told["predicted"]
    first = told["ranks"][0]["mean"] if told["ranks"] else {}
    return Presentation(
        title=f"{len(told['ranks'])} ranks, {len(told['steps'])} steps",
        lines=headlines(answer, step_title(answer)) if answer else (),
        tables=(
            *_numbers(steps, "Steps"),
            *_numbers(_families(mine), f"Compute of rank {told['busiest']}, mean of {len(mine)} steps"),
            *_numbers(_ranges(mine), "Ranges"),
            *_numbers(list(_collectives(told["steps"])), "Communication"),
            *_numbers(waits, "Ranks"),
            *(table for level, title in LEVELS.items() for table in _beside(told, level, title)),
        ),
        lists=listed("Notes", told["notes"]),
        meaning=(TRACE_WORDS,),
        bars=bars_of({name: value for name, value in first.items() if name != "step_s"}),
        bar_title="measured step",
    )  # fmt: skip


def _numbers(rows: Sequence[Told], title: str) -> tuple[ShownTable, ...]:
    """A table whose columns of texts are numbers where they look like one."""
    (*found,) = plain_table(rows, title)
    return tuple(
        ShownTable(
            title=one.title, headers=one.headers, rows=one.rows, keys=one.keys,
            right=tuple(
                all(cell[:1] in "-+0123456789" for cell in column)
                for column in zip(*one.rows, strict=True)
            ),
        )
        for one in found
    )  # fmt: skip


def _families(steps: Sequence[Told]) -> list[dict[str, str]]:
    """Kernels by family and pass."""
    total = sum(one["seconds"] for step in steps for one in step["compute"]) or 1.0
    sums: dict[tuple[str, str], list[float]] = {}
    for one in (one for step in steps for one in step["compute"]):
        held = sums.setdefault((one["family"], one["phase"]), [0.0, 0.0])
        held[0] += one["seconds"]
        held[1] += one["count"]
    return [
        {
            "kernels": family, "pass": phase, "ms": _ms(seconds / len(steps)),
            "share": f"{100 * seconds / total:.1f} %", "runs": f"{count / len(steps):,.0f}",
        }
        for (family, phase), (seconds, count) in sorted(sums.items(), key=lambda item: -item[1][0])
    ]  # fmt: skip


def _ranges(steps: Sequence[Told]) -> list[dict[str, str]]:
    """Annotations of one's own, in a mean step."""
    names = {"ms": "seconds", "compute": "compute_s", "communication": "communication_s"}
    sums: dict[str, list[float]] = {}
    for one in (one for step in steps for one in step["ranges"]):
        held = sums.setdefault(one["name"], [0.0] * len(names))
        for place, key in enumerate(names.values()):
            held[place] += one[key] / len(steps)
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])[:ROWS]
    return [
        {"range": name, **dict(zip(names, map(_ms, values), strict=True))}
        for name, values in ordered
    ]


def _collectives(steps: Sequence[Told]) -> Iterator[dict[str, str]]:
    """Collectives of a mean step of each rank; bandwidths are all bytes over all of their time."""
    for rank in dict.fromkeys(step["rank"] for step in steps):
        own = [step for step in steps if step["rank"] == rank]
        every = [one for step in own for one in step["collectives"]]
        for key in dict.fromkeys((one["collective"], one["members"]) for one in every):
            same = [one for one in every if (one["collective"], one["members"]) == key]
            timed = [c for c in same if c["size_bytes"] and c["algorithm_bytes_per_s"]]
            moved = sum(c["size_bytes"] for c in timed)
            took = sum(c["size_bytes"] / c["algorithm_bytes_per_s"] for c in timed)
            buses = [c["bus_bytes_per_s"] / c["algorithm_bytes_per_s"]
                     for c in timed if c["bus_bytes_per_s"]]  # fmt: skip
            rate = moved / took / 1e9 if took else None
            sums = {
                name: _ms(sum(c[field] for c in same) / len(own))
                for name, field in (
                    ("ms", "seconds"),
                    ("exposed", "exposed_s"),
                    ("hidden", "hidden_s"),
                )
            }
            yield {
                "communication": key[0], "rank": str(rank), "ranks": str(key[1] or ""),
                "calls": f"{sum(c['count'] for c in same) / len(own):,.0f}", **sums,
                "MB": f"{moved / len(own) / 1e6:,.3f}" if moved else "",
                "GB/s": "" if rate is None else f"{rate:,.3g}",
                "bus GB/s": f"{rate * buses[0]:,.3g}" if rate is not None and buses else "",
            }  # fmt: skip


def _beside(told: Told, level: str, title: str) -> tuple[ShownTable, ...]:
    """Measured beside predicted."""
    rows = [row for row in told["beside"] if row["level"] == level]
    shown = [
        {
            "part": row["name"], "pass": row["phase"], "measured ms": _ms(row["measured_s"]),
            "predicted ms": _ms(row["predicted_s"]), "difference": f"{1e3 * row['difference_s']:+,.3f}",
            "ratio": "" if row["ratio"] is None else f"{row['ratio']:.2f}",
        }
        for row in rows[:ROWS]
    ]  # fmt: skip
    return _numbers(shown, title if len(rows) <= ROWS else f"{title} ({len(shown)} of {len(rows)})")


def log_card(told: Told) -> Presentation:
    """The mean step of a log, the prediction's, and how far they are apart."""
    mean, ours = told["mean"], told["predicted"]
    rows = []
    for name in LOGGED:
        value = mean[f"{name}_s"]
        row = {
            "part": name,
            "measured": f"{1e3 * value:,.1f} ms",
            "%": f"{100 * value / mean['step_s']:.1f}",
        }
        if ours is not None:
            other = ours[f"{name}_s"]
            row |= {
                "predicted": f"{1e3 * other:,.1f} ms", "of it %": f"{100 * other / ours['step_s']:.1f}",
                "off": f"{100 * (other / value - 1):+.0f}%" if value > 0.0 else "-",
            }  # fmt: skip
        rows.append(row)
    lines = []
    if told["interval_s"] is not None:
        low, high = told["interval_s"]
        inside = "inside" if low <= mean["step_s"] <= high else "outside"
        lines.append(
            f"90% interval of the step: {1e3 * low:,.1f} to {1e3 * high:,.1f} ms, measured is {inside}"
        )
    return Presentation(
        title=f"{told['file']}: {len(told['steps'])} steps",
        lines=tuple(lines),
        tables=_numbers(rows, ""),
        lists=listed("Notes", told["notes"]),
    )


def traced_card(told: Told) -> Presentation:
    """A traced module: parameters, inputs, and the operations of each form that was traced."""
    forms = [
        {
            "traced step": name, "operations": f"{form['operations']:,}",
            "distinct": f"{form['distinct']:,}", "matrix FLOP": f"{form['flops']:.3g}",
            "peak of tensors": with_unit(form["live_bytes"], "bytes"),
        }
        for name, form in told["forms"].items()
    ]  # fmt: skip
    file = told.get("file")
    return Presentation(
        title=f"{told['model']}  {told['parameters']:,} parameters ({told['trained_parameters']:,} trained), "
        f"{told['layers']} repeated blocks, batch {told['batch']}",
        lines=(f"saved in {file}: foretell estimate {file} --gpus 8xH100",) if file else (),
        tables=_numbers(forms, "Traced steps"),
        lists=listed("Notes", told.get("notes") or ()),
    )


def sampled_card(told: Told) -> Presentation:
    """Latency, rate and memory of samples of a traced module, and where a pass goes."""
    passes = sorted(told["breakdown"].items(), key=lambda item: -item[1])
    rows = [
        {"part": name, "time": with_unit(spent, "s"), "share": spent / told["pass_s"]}
        for name, spent in passes
        if spent > 1e-3 * told["pass_s"]
    ]
    lines = [f"the GPU works {told['busy']:.0%} of a pass; most of it is {told['limited_by']}"]
    if told["gpus_needed"] is not None:
        lines.append(f"{told['wanted_per_s']:g} a second take {told['gpus_needed']} GPUs")
    if told["usd_per_1000"] is not None:
        lines.append(f"{told['usd_per_1000']:.3g} USD for 1,000 samples at full load")
    named = (
        "latency_s",
        "images_per_s",
        "images_per_s_per_gpu",
        "peak_memory_bytes",
        "memory_capacity_bytes",
    )
    return Presentation(
        title=f"{with_unit(told['latency_s'], 's')} for a batch of {told['batch']}: {told['model']} on "
        f"{told['gpus']} x {told['system']}, {told['steps']} steps of {told['passes']} x "
        f"{with_unit(told['pass_s'], 's')}, {with_unit(told['once_s'], 's')} once",
        lines=tuple(lines),
        facts=facts_of({**told, "intervals": {"latency_s": told["interval"]}}, *named),
        tables=table_of(rows, "part", "time", "share", title="A pass"),
        bars=bars_of(told["breakdown"]),
        bar_title="pass",
    )  # fmt: skip


def scores_card(told: Told) -> Presentation:
    """A scored table: how many rows, how far off, by group; whether runs fit; famous runs."""
    if "said_to_fit" in told:
        return _memory_scores(told)
    if "runs" in told and "refused" in told:
        return _famous(told)
    return Presentation(
        title=f"{scored_text(told)}, median error {percent(told['median_ape'])}, ninetieth percentile "
        f"{percent(told['p90_ape'])}",
        lines=tuple(_over_sources(told)),
        tables=tuple(
            table
            for key, groups in told.items()
            if key.startswith("by_") and groups
            for table in _groups(key.removeprefix("by_").replace("_", " "), groups)
        ),
        lists=_not_scored(told["unsupported"]),
    )


def scored_text(told: Told) -> str:
    """How many rows were scored; in how many figures, where a row has several."""
    figures = len(told["predictions"])
    rows = len({prediction["id"] for prediction in told["predictions"]})
    said = f"{rows:,} of {told['rows']:,} rows scored"
    return said if figures == rows else f"{said} in {figures:,} figures"


def _famous(told: Told) -> Presentation:
    """Each famous run: its command, and predicted beside printed."""
    lists: list[tuple[str, tuple[str, ...]]] = []
    for one in told["runs"]:
        unit = one["unit"]
        line = f"printed {one['printed']:,.6g} {unit}, predicted "
        if one["predicted"] is None:
            line += "nothing"
        else:
            line += f"{one['predicted']:,.4g} {unit} ({100 * one['error']:+.1f}%)"
        if one["interval"]:
            line += "   90%: {:,.4g} to {:,.4g}".format(*one["interval"])
            line += "" if one["inside"] else ", not inside"
        problem = [one["problem"]] if one["problem"] else []
        lists += listed(f"{one['run']} ({one['id']})", [one["command"], line, *problem])
    return Presentation(
        title=f"{len(told['runs'])} famous runs: median error {percent(told['median_ape'])}, "
        f"{percent(told['inside_p90'])} inside their 90% interval, {told['refused']} refused",
        lists=tuple(lists),
    )


def _memory_scores(told: Told) -> Presentation:
    """Runs predicted to fit, and whether they did."""
    lines = []
    if told["brier_score"] is not None:
        lines.append(
            f"{told['ran']:,} ran, {percent(told['ran_called_no'])} of them predicted not to fit; "
            f"{told['oom']:,} ran out of memory, {percent(told['oom_called_fits'])} of them predicted to "
            f"fit; Brier score {told['brier_score']:.3f}"
        )
    return Presentation(
        title=f"{told['scored']:,} of {told['rows']:,} rows scored: {told['said_to_fit']:,} predicted to fit"
        f", {told['said_not_to_fit']:,} not to fit; {told['too_close']:,} of both borderline",
        lines=tuple(lines),
        lists=_not_scored(told["unsupported"]),
    )


def _not_scored(unsupported: Sequence[Any]) -> Any:
    """The commonest reasons for which rows are not scored."""
    reasons: dict[str, int] = {}
    for item in unsupported:
        reason = item["reason"] if isinstance(item, Mapping) else item[1]
        reasons[reason] = reasons.get(reason, 0) + 1
    shown = sorted(reasons.items(), key=lambda pair: -pair[1])[:REASONS]
    return listed("Not scored", [f"{count:,} rows: {reason}" for reason, count in shown])


def _over_sources(told: Told) -> Iterator[str]:
    """What a scoreboard of training runs says beside its rows."""
    if told.get("median_of_sources") is None:
        return
    yield (
        f"{percent(told['supported_share'])} of {told['rows_with_target']:,} rows with a target; over "
        f"{told['sources']} sources the median of medians is {percent(told['median_of_sources'])}, their "
        f"mean {percent(told['mean_of_sources'])}"
    )
    yield (
        f"{percent(told['inside_p90_of_all_rows'])} of all rows inside the 90 % interval; "
        f"{told['framework_values_seen']} values of software chosen with runs in sight"
    )
    graded = told["graded"]
    if graded["rows"]:
        yield (
            f"of {graded['rows']:,} runs that count for their source {percent(graded['inside_p90'])} "
            f"inside, of their sources {percent(graded['inside_p90_of_sources'])}; high over low end "
            f"{graded['median_high_over_low']:.2f} in the middle"
        )
    if told["memory_rows"]:
        yield (
            f"peak memory of {told['memory_rows']:,} rows: median error "
            f"{percent(told['memory_median_ape'])}, signed {percent(told['memory_median_error'])}; "
            f"{percent(told['memory_inside_p90'])} inside the 90 % interval"
        )
    for name, found in told.get("simulated", {}).items():
        yield (
            f"{told['simulated_rows']:,} rows with pipeline or replicas by {name}: median error "
            f"{percent(found['median_ape'])}, over sources {percent(found['median_of_sources'])}, "
            f"their mean {percent(found['mean_of_sources'])}"
        )
    filled = ", ".join(f"{name} ({count:,})" for name, count in told["filled"].items())
    if filled:
        yield f"filled: {filled}"


def percent(share: float | None) -> str:
    """A share in percent, or a dash where there is none."""
    return "-" if share is None else f"{share:.1%}"


def _groups(name: str, groups: Mapping[str, Mapping[str, Any]]) -> tuple[ShownTable, ...]:
    """One way of grouping; signed errors and coverage where there are intervals."""
    known = flat(groups)
    sure = any(score.get("inside_p90") is not None for score in known.values())
    rows = []
    for label, score in known.items():
        row = {
            name: label,
            "rows": f"{score['rows']:,}",
            "median error": percent(score["median_ape"]),
        }
        if sure:
            row |= {
                "signed": signed_percent(score["median_error"]),
                "in 90 %": percent(score["inside_p90"]),
            }
        rows.append(row)
    (table,) = plain_table(rows, "")
    right = (False, *(True for _ in table.headers[1:]))
    return (ShownTable(title="", headers=table.headers, rows=table.rows, right=right),)


def flat(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Groups inside groups side by side: kind -> metric -> score as `kind, metric` -> score."""
    found: dict[str, Mapping[str, Any]] = {}
    for label, score in groups.items():
        if "rows" in score:
            found[label] = score
        else:
            found |= {f"{label}, {name}": inner for name, inner in score.items()}
    return found


def signed_percent(share: float | None) -> str:
    """A share in percent with its sign, or a dash."""
    return "-" if share is None else f"{share:+.1%}"
