"""What chips hold: bars of parts against the capacity, and areas over a step."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import (
    HELD,
    LIMIT,
    NAMES,
    Figure,
    distinct_colours,
    figure,
    note,
    points,
    stack_bars,
    unit_of_seconds,
    whiskers,
)
from foretell.report.presentation.numbers import part_words

GIB = 2.0**30


def memory_bars(answer: Mapping[str, Any], title: str = "") -> Figure:
    """A bar for each distinct stage of an estimate (`memory_by_stage`), and what the chip has."""
    stages = answer.get("memory_by_stage") or ([answer["memory"]] if answer.get("memory") else [])
    kinds = list(dict.fromkeys(part["name"] for stage in stages for part in stage["children"]))
    names = [stage["name"] for stage in stages]
    colours = distinct_colours(kinds, HELD)
    columns = {part_words(k): [_part(stage, k) / GIB for stage in stages] for k in kinds}
    heading = title or f"Memory: {answer['model']} on {answer['gpus']:,} x {answer['system']}"
    shapes, words = _capacities(answer.get("memory_capacity_bytes"), stages)
    return stack_bars(
        columns, names, {part_words(kind): one for kind, one in colours.items()},
        _whisker(answer, stages), heading, NAMES, "used at the peak (GiB)", "%{y:.4g} GiB",
        shapes=shapes, annotations=words,
    )  # fmt: skip


def _capacities(
    shared: float | None, stages: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Lines at what the chips have, and their words: one across, or one over each bar that has its own."""
    if shared:
        word = _level_name(shared / GIB)
        first, last = (stages[at].get("value", 0.0) for at in (0, -1)) if stages else (0.0, 0.0)
        # Over the lower end of the bars, which it would cross elsewhere.
        return [_level(shared / GIB)], [
            word | {"x": 0.0, "xanchor": "left"} if last > first else word
        ]
    own = [(place, stage["capacity_bytes"] / GIB) for place, stage in enumerate(stages)
           if stage.get("capacity_bytes")]  # fmt: skip
    shapes = [
        {**_level(gib), "xref": "x", "x0": place - 0.46, "x1": place + 0.46} for place, gib in own
    ]
    words = [
        {**_level_name(gib, ""), "xref": "x", "x": place - 0.46, "xanchor": "left"}
        for place, gib in own
    ]
    return shapes, words


def _whisker(
    answer: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """90 % intervals of peaks: the answer's on its fullest stage, or each stage's own."""
    ends = [stage.get("interval") for stage in stages]
    if stages and not any(ends):
        fullest = max(range(len(stages)), key=lambda i: float(stages[i]["value"]))
        ends[fullest] = (answer.get("intervals") or {}).get("peak_memory_bytes")
    known = [(stage, one) for stage, one in zip(stages, ends, strict=True) if one]
    if not known:
        return []
    tops = [stage["value"] / GIB for stage, _ in known]
    names, spans = [stage["name"] for stage, _ in known], [one for _, one in known]
    return [whiskers(names, tops, spans, "%{y:.4g} GiB", 1.0 / GIB, "peak")]


def memory_over_step(
    answer: Mapping[str, Any], stage: int | None = None, title: str = ""
) -> Figure:
    """One stage (the fullest) over a step, from the JSON of `memory`."""
    wanted = answer["fullest_stage"] if stage is None else stage
    line = next(one for one in answer["stages"] if one["stage"] == wanted)
    factor, unit = unit_of_seconds(line["moments_s"])
    held = line["held_bytes"]
    kinds = [kind for kind in HELD if kind in held]
    kinds += [kind for kind in held if kind not in kinds]
    colours = distinct_colours(kinds, HELD)
    moments = [moment * factor for moment in line["moments_s"]]
    traces = [
        points(
            part_words(kind), moments, [value / GIB for value in held[kind]], "%{y:.4g} GiB", "lines",
            stackgroup="held", line={"shape": "hv", "width": 0.5, "color": colours[kind]},
            fillcolor=colours[kind],
        )
        for kind in kinds
    ]  # fmt: skip
    heading = title or (
        f"Memory of stage {wanted}: {answer['model']} on {answer['gpus']:,} x {answer['system']}"
    )
    levels = {
        "capacity": answer["memory_capacity_bytes"] / GIB,
        "peak with allocator and framework": line["total_bytes"] / GIB,
    }
    return figure(
        traces, heading, f"time in the step ({unit})",
        {"text": "used (GiB)", "rangemode": "tozero"},
        hovermode="x unified", legend={"traceorder": "reversed"},
        shapes=[_level(gib) for gib in levels.values()],
        annotations=[_level_name(gib, name) for name, gib in levels.items()],
    )  # fmt: skip


def _part(stage: Mapping[str, Any], name: str) -> float:
    parts: Sequence[Mapping[str, Any]] = stage["children"]
    return sum(float(part["value"]) for part in parts if part["name"] == name)


def _level(gib: float) -> dict[str, Any]:
    """A line across at what the chip has."""
    ends = {"x0": 0.0, "x1": 1.0, "xref": "x domain", "yref": "y", "y0": gib, "y1": gib}
    return {"type": "line", **ends, "line": {"color": LIMIT, "dash": "dash", "width": 1.5}}


def _level_name(gib: float, name: str = "capacity") -> dict[str, Any]:
    told = note(f"{name} {gib:.4g} GiB".strip(), 1.0, gib)
    told |= {"xref": "x domain", "yref": "y"}
    return {**told, "xanchor": "right", "yanchor": "bottom", "font": {"color": LIMIT}}
