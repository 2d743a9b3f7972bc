"""Parts as bars: of a step, a decode step, a post-training step, a cost, two plans beside each other, systems
of a comparison, and total costs over the years."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.economics.total_cost import waterfall_steps
from foretell.report.figures.lines import lines
from foretell.report.figures.look import (
    COLOURS,
    GREY,
    NAMES,
    PERCENTILE,
    Figure,
    bars,
    distinct_colours,
    error_bars,
    every_row,
    figure,
    gap_of,
    nth_colour,
    on_lines,
    points,
    shown_value,
    stack_bars,
    title_of,
    unit_of_seconds,
    whiskers,
    words_of,
)
from foretell.report.figures.multiples import panels
from foretell.report.figures.pareto import pareto
from foretell.report.presentation.numbers import part_words

Answer = Mapping[str, Any]

FAINT = 0.002
"""Shares of the longest bar below this are shown together."""
KNOWN: Mapping[str, str] = {
    "compute": COLOURS[0],
    "compute.gemm": COLOURS[0],
    "compute.attention": COLOURS[4],
    "memory_bound": COLOURS[2],
    "recompute": COLOURS[7],
    "tensor_parallel": COLOURS[1],
    "context_parallel": COLOURS[9],
    "expert_parallel": "#F0A6C8",
    "pipeline_parallel": COLOURS[3],
    "data_parallel": COLOURS[5],
    "bubble": GREY,
    "optimizer": COLOURS[6],
    "gradient_sums": "#7FCDBB",
    "fixed": "#C9CED4",
    "host": "#B4BAC2",
    "offload": "#6B4E2E",
    "other": "#C9CED4",
}
"""A share has one colour in every figure."""


MOST = 12
"""Differences that are drawn, the largest."""
GIB = 2.0**-30
LESS, MORE = COLOURS[0], COLOURS[5]
"""Where B has less of something than A, and more."""
UP, DOWN, WHOLE = COLOURS[0], COLOURS[2], GREY
"""What is paid, what comes back, and the sum."""
APART = 3
"""Most systems whose costs are waterfalls of their own."""
DRAWN = (("usd_per_million_tokens", "USD per million tokens"),
         ("usd_per_gpu_hour", "USD per GPU-hour"), ("usd", "cost (USD)"))  # fmt: skip
"""What is drawn over a swept number, by what rows have, and what it is called."""


def time_bars(answers: Sequence[Answer], names: Sequence[str] = (), title: str = "") -> Figure:
    """A bar for each estimate, of the shares of its step; the error bar is that of the whole."""
    answers = [answer for answer in answers if answer.get("breakdown")]
    return _step_bars(
        [_shares(answer["breakdown"]) for answer in answers],
        list(names) or [str(answer.get("plan")) for answer in answers],
        title or _title(answers),
        answers,
    )


def serve_bars(answers: Sequence[Answer], names: Sequence[str] = (), title: str = "") -> Figure:
    """A bar for each deployment, of the shares of a decode step."""
    stacks = [{part_words(k): v / 1e3 for k, v in one["step_ms"].items()} for one in answers]
    labels = list(names) or [f"{answer['gpus']} x, {answer['plan']}" for answer in answers]
    heading = title or (_title(answers) + ": one decode step")
    intervals = [None] * len(stacks)
    return _stacked(stacks, labels, heading, "time of a decode step (ms)", 1e3, intervals)


def phase_bars(answers: Sequence[Answer], names: Sequence[str] = (), title: str = "") -> Figure:
    """A bar for each post-training step, of what it waits for in each phase."""
    stacks = [{part_words(p["name"]): p["exposed"] for p in one["phases"]} for one in answers]
    labels = list(names) or [str(answer["placement"]) for answer in answers]
    return _step_bars(stacks, labels, title or "Phases of a step", answers)


def _step_bars(
    stacks: Sequence[Mapping[str, float]],
    labels: Sequence[str],
    title: str,
    answers: Sequence[Answer],
) -> Figure:
    """Shares of steps, with the interval of each whole."""
    factor, unit = unit_of_seconds([sum(stack.values()) for stack in stacks])
    intervals = [answer.get("interval") for answer in answers]
    return _stacked(stacks, labels, title, f"step time ({unit})", factor, intervals)


def shares_bars(explained: Answer, title: str = "") -> Figure:
    """The shares of one step as separate bars, largest first, with what each follows (of `explain`)."""
    shares = [s for s in explained["time"] if s["share"] >= 5e-4][::-1]
    factor, unit = unit_of_seconds([s["value"] for s in shares])
    values = [s["value"] * factor for s in shares]
    colours = _colours([s["name"] for s in shares[::-1]])
    trace = bars(
        "time", values, [s["name"].replace("_", " ") for s in shares],
        [colours[s["name"]] for s in shares],
        "%{y}: %{x:.4g} " + unit + "<br>%{text}<extra></extra>", orientation="h",
        text=[f"{s['share']:.1%}, {s['bound']}" for s in shares], textposition="outside", cliponaxis=False,
    )  # fmt: skip
    heading = title or f"{_title([explained])}, {explained['plan']}"
    room = {"text": f"time in a step ({unit})", "range": [0.0, 1.3 * max(values, default=1.0)]}
    return figure([trace] if shares else [], heading, room, {**NAMES, **every_row(len(shares))})


def plans_figure(answer: Answer) -> Figure:
    """Time of both plans of `compare-plans`, then B less A by leaf; the same of memory."""
    a, b = answer["a"], answer["b"]
    seconds, unit = unit_of_seconds([a["step_s"], b["step_s"]])
    parts: list[Figure] = []
    for key, title, in_, factor in (
        ("time", "Time of a step", unit, seconds),
        ("memory", "Memory of the fullest stage", "GiB", GIB),
    ):
        stacks = [{leaf["name"]: leaf[plan] for leaf in answer[key]} for plan in ("a", "b")]
        names, words = [f"A: {a['plan']}", f"B: {b['plan']}"], f"{key} ({in_})"
        parts.append(_stacked(stacks, names, title, words, factor, [None, None]))
        parts.append(difference_bars(answer[key], f"{title}, B less A", words, factor))
    return panels(parts, _title([a]), 1, 420)


def difference_bars(leaves: Sequence[Answer], title: str, x_title: str, factor: float) -> Figure:
    """B less A of each leaf, the largest on top; those of no difference left out."""
    kept = sorted(
        (leaf for leaf in leaves if leaf["difference"]), key=lambda leaf: abs(leaf["difference"])
    )[-MOST:]
    values = [leaf["difference"] * factor for leaf in kept]
    low, high = min([*values, 0.0]), max([*values, 0.0])
    room = 0.2 * ((high - low) or 1.0)
    trace = bars(
        "B - A", values, [leaf["name"].replace("_", " ") for leaf in kept],
        [LESS if value < 0.0 else MORE for value in values], "%{y}: %{x:+.4g}<extra></extra>",
        orientation="h", showlegend=False, text=[f"{value:+.3g}" for value in values],
        textposition="outside", cliponaxis=False,
    )  # fmt: skip
    reach = [low - room * (low < 0.0), high + room * (high > 0.0)]
    across = {"text": x_title, "zeroline": True, "zerolinewidth": 2, "range": reach}
    return figure([trace] if kept else [], title, across, NAMES)


def _shares(tree: Answer) -> dict[str, float]:
    """The first level of a time tree, with compute by its kinds."""
    found: dict[str, float] = {}
    for child in tree["children"]:
        if child["name"] == "compute" and child["children"]:
            found |= {f"compute.{leaf['name']}": leaf["value"] for leaf in child["children"]}
        else:
            found[child["name"]] = child["value"]
    return found


def _stacked(
    stacks: Sequence[Mapping[str, float]],
    labels: Sequence[str],
    title: str,
    y_title: str,
    factor: float,
    intervals: Sequence[Any],
) -> Figure:
    """A bar for each stack, small parts together, with its whole in words and its interval."""
    wholes = [sum(stack.values()) for stack in stacks]
    least = FAINT * max(wholes, default=0.0)
    kinds = list(dict.fromkeys(name for stack in stacks for name in stack))
    large = [k for k in kinds if any(stack.get(k, 0.0) > least for stack in stacks)]
    rest = [sum(v for k, v in s.items() if k not in large) for s in stacks]
    columns = {kind: [factor * stack.get(kind, 0.0) for stack in stacks] for kind in large}
    if any(rest):
        columns["other"] = [factor * value for value in rest]
    places, totals = _places(labels), [whole * factor for whole in wholes]
    words = points(
        "", places, totals, mode="text", text=[f"{total:.4g}" for total in totals],
        textposition="top right", cliponaxis=False, showlegend=False,
    )  # fmt: skip
    over = [whiskers(places, totals, intervals, factor=factor), words]
    return stack_bars(columns, places, _colours(list(columns)), over, title, NAMES, y_title)


def _places(labels: Sequence[str]) -> list[str]:
    """Labels as categories of an axis: long ones broken into lines, doubled ones distinguished."""
    found: list[str] = []
    for label in labels:
        lines_of = [""]
        for word in label.split(" "):
            if lines_of[-1] and len(lines_of[-1]) + len(word) > 24:
                lines_of.append("")
            lines_of[-1] = f"{lines_of[-1]} {word}".strip()
        text = "<br>".join(lines_of)
        while text in found:
            text += " "
        found.append(text)
    return found


def _colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for every share, none twice; a kind of compute may have compute's."""
    known = {name: KNOWN.get(name) or KNOWN.get(name.split(".")[0]) for name in names}
    return distinct_colours(names, {name: one for name, one in known.items() if one})


def _title(answers: Sequence[Answer]) -> str:
    """Of answers, what they have in common."""
    names = dict.fromkeys(f"{a['model']} on {a['gpus']:,} x {a['system']}" for a in answers)
    return next(iter(names)) if len(names) == 1 else "Where the time goes"


def cost_figure(found: Answer) -> Figure:
    """One cost by its parts; a sweep over numbers as lines, over words as bars, over systems as a front."""
    if "sweep" not in found:
        return cost_bars(
            [found], [str(found["name"])], title=f"Cost of a {found['what']}: {found['name']}"
        )
    first, *others = found["sweep"]
    rows = [row for row in found["rows"] if row["usd"] is not None]
    given = ", ".join(f"{name} {value}" for name, value in found["given"].items())
    title = f"Cost of a {found['what']}" + (f" ({given})" if given else "")
    if rows and "pareto" in rows[0] and "system" in (first, *others):
        user = "tokens_per_s_per_user"
        speed = user if user in rows[0] else "tokens_per_s"
        label = next((name for name in (first, *others) if name != "system"), "system")
        return pareto(
            rows, speed, "usd_per_million_tokens", ("max", "min"), group="system", label=label,
            title=title,
        )  # fmt: skip
    if rows and all(_number(row[first]) is not None for row in rows):
        rows = [{**row, first: _number(row[first])} for row in rows]
        key, words = next((key, words) for key, words in DRAWN if key in rows[0])
        spans = f"low_{key}", f"high_{key}"
        return lines(rows, first, key, group=others, ends=spans, title=title, y_title=words)
    names = [", ".join(shown_value(n, row[n]) for n in (first, *others)) for row in rows]
    spans_of = [{PERCENTILE: [row["low_usd"], row["high_usd"]]} for row in rows]
    axis = {"text": ", ".join(words_of(name) for name in (first, *others)), "type": "category"}
    return _costs([row["parts_usd"] for row in rows], names, spans_of, title, axis, "cost (USD)")


def _number(value: object) -> float | None:
    """The number that a swept value is, also as text; None where it is a word."""
    try:
        return float(str(value))
    except ValueError:
        return None


def cost_bars(
    answers: Sequence[Answer], names: Sequence[str], tree: str = "breakdown", title: str = ""
) -> Figure:
    """A bar for each cost, of the parts of one of its trees; error bars are the range of the whole."""
    known = [(name, a[tree]) for name, a in zip(names, answers, strict=True) if a.get(tree)]
    stacks = [{part["name"]: part["value"] for part in _parts(held)} for _, held in known]
    spans = [{PERCENTILE: [held.get(end) or 0.0 for end in ("low", "high")]} for _, held in known]
    unit = known[0][1]["unit"] if known else ""
    words = f"cost ({unit})" if title else unit
    return _costs(
        stacks, [name for name, _ in known], spans, title or f"Cost ({unit})", NAMES, words
    )


def _parts(tree: Answer) -> list[Answer]:
    """The first level of a tree that has more than one part; a level with one says nothing."""
    held = tree
    while len(held.get("children") or ()) == 1:
        held = held["children"][0]
    return list(held.get("children") or [held])


def _costs(
    stacks: Sequence[Mapping[str, float]],
    places: Sequence[str],
    spans: Sequence[Any],
    title: str,
    axis: Mapping[str, Any],
    y_title: str,
) -> Figure:
    """A bar for each cost, its range as an error bar."""
    kinds = list(dict.fromkeys(kind for stack in stacks for kind in stack))
    columns = {kind: [stack.get(kind, 0.0) for stack in stacks] for kind in kinds}
    hover = "%{y:,.4g}"
    over = [whiskers(places, [sum(stack.values()) for stack in stacks], spans, hover)]
    return stack_bars(columns, places, distinct_colours(kinds), over, title, axis, y_title, hover)


def clusters(answer: Answer, column: str) -> Figure:
    """A bar for each system of `compare`, in its order; error bars are its 90 % interval."""
    rows = [row for row in answer.get("systems", ()) if row[column] is not None]
    values = [row[column] for row in rows]
    spread = error_bars(values, [(row["interval"] or {}).get(column) for row in rows])
    trace = bars(
        words_of(column), on_lines([row["system"] for row in rows]), values,
        [nth_colour(i) for i in range(len(rows))], "%{y:,.4g}, %{text}<extra></extra>",
        text=[f"{row['gpus']:,} GPUs" for row in rows], textposition="none",
        error_y={**spread, "color": GREY},
    )  # fmt: skip
    up = {"text": title_of(column), "rangemode": "tozero"}
    return figure([trace] if rows else [], words_of(column), NAMES, up, bargap=gap_of(len(rows)))


def waterfall(parts: Mapping[str, float], title: str, top_usd: float | None = None) -> Figure:
    """Total cost: each part from where the one before ended, negative where money comes back, then the total;
    `top_usd` is the highest point of the axis, for several that are compared."""
    steps = [step for step in waterfall_steps(parts) if step[2] or step[0] == "total"]
    trace = bars(
        "M USD", [name for name, _, _ in steps], [change / 1e6 for _, _, change in steps],
        [WHOLE if name == "total" else UP if change >= 0.0 else DOWN for name, _, change in steps],
        "%{x}: %{text} M USD<extra></extra>", base=[start / 1e6 for _, start, _ in steps],
        text=[_millions(change) for _, _, change in steps], textposition="outside", cliponaxis=False,
    )  # fmt: skip
    top = (highest_usd(parts) if top_usd is None else top_usd) / 1e6
    up = {"text": "total cost (M USD)", "range": [0.0, 1.12 * top]}
    return figure([trace] if steps else [], title, NAMES, up, bargap=gap_of(len(steps)))


def total_cost_figures(answer: Answer) -> list[Figure]:
    """A waterfall for each system of `compare` that has a price, in its order; one figure with a bar for each
    where they are more than `APART`, in which what comes back is below zero."""
    rows = [row for row in answer.get("systems", ()) if row.get("total_cost")]
    if len(rows) > APART:
        names = on_lines([row["system"] for row in rows])
        parts = dict.fromkeys(part for row in rows for part in row["total_cost"] if part != "total")
        traces = [
            bars(part, names, [row["total_cost"].get(part, 0.0) / 1e6 for row in rows],
                 nth_colour(place), "%{y:,.3g} M USD")
            for place, part in enumerate(parts)
        ]  # fmt: skip
        up, gap = {"text": "total cost (M USD)"}, gap_of(len(rows))
        return [figure(traces, "Total cost", NAMES, up, bargap=gap, barmode="relative")]
    top = max((highest_usd(row["total_cost"]) for row in rows), default=1.0)
    return [
        waterfall(
            row["total_cost"],
            f"Total cost of {row['system']}: {row['gpus']:,} GPUs, {row['years']:g} years, {row['paid']}",
            top,
        )
        for row in rows
    ]


def highest_usd(parts: Mapping[str, float]) -> float:
    """The highest point that a waterfall reaches."""
    return max(max(start, start + change) for _, start, change in waterfall_steps(parts))


def _millions(usd: float) -> str:
    value = usd / 1e6
    return f"{value:,.2f}" if abs(value) >= 0.01 else f"{value:.2g}"
