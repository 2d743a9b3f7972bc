"""One step over time: what each rank's streams do, from the events of a Chrome trace."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.look import (
    COLOURS,
    GREY,
    NAMES,
    Figure,
    bars,
    figure,
    nth_colour,
    unit_of_seconds,
)

KNOWN: Mapping[str, str] = {
    "forward": COLOURS[0],
    "backward": COLOURS[2],
    "recompute": COLOURS[7],
    "weight gradient": COLOURS[9],
    "optimizer": COLOURS[6],
    "tp-comm": COLOURS[1],
    "pp-comm": COLOURS[3],
    "dp-comm": COLOURS[5],
    "copy": "#6B4E2E",
    "host": GREY,
}
"""Passes of the compute stream, and the other streams."""
STAGE = re.compile(r": (stage [0-9]+) of ")
"""In the name of a rank, which stage it stands for."""
PIXELS = 3000
"""Gaps shorter than the step over this are not drawn."""


def timeline(events: Sequence[Mapping[str, Any]], title: str = "One step") -> Figure:
    """Bars over time, a row for each stream of a rank; `X` and `M` events as in simulation/trace.py."""
    names = _names(events)
    slices = [event for event in events if event["ph"] == "X"]
    end_us = max((e["ts"] + e["dur"] for e in slices), default=0.0)
    factor, unit = unit_of_seconds([end_us * 1e-6])
    by_kind: dict[str, dict[str, list[tuple[float, float, str]]]] = {}
    for event in sorted(slices, key=lambda e: float(e["ts"])):
        row = _row(event, names)
        spans = by_kind.setdefault(_kind(event), {}).setdefault(row, [])
        start, end = float(event["ts"]), float(event["ts"] + event["dur"])
        if spans and start - spans[-1][1] <= end_us / PIXELS:
            first, last, words = spans[-1]
            spans[-1] = first, max(last, end), words
        else:
            spans.append((start, end, str(event["name"])))
    scale = 1e-6 * factor
    traces = []
    known = [kind for kind in KNOWN if kind in by_kind]
    for i, kind in enumerate([*known, *(kind for kind in by_kind if kind not in KNOWN)]):
        rows = by_kind[kind]
        flat = [(row, *span) for row, spans in rows.items() for span in spans]
        traces.append(bars(
            kind, [(end - start) * scale for _, start, end, _ in flat], [row for row, *_ in flat],
            KNOWN.get(kind, nth_colour(i)), "%{text}: %{base:.4g} + %{x:.4g} " + unit, orientation="h",
            base=[start * scale for _, start, _, _ in flat], text=[words for *_, words in flat],
            textposition="none",
        ))  # fmt: skip
    order = list(dict.fromkeys(_row(event, names) for event in sorted(slices, key=_place)))
    return figure(
        traces, title, f"time ({unit})",
        {**NAMES, "categoryorder": "array", "categoryarray": order[::-1]},
        barmode="overlay", bargap=0.15, showlegend=True,
        height=max(360, 130 + 22 * len(order)),
    )  # fmt: skip


def _place(event: Mapping[str, Any]) -> tuple[int, int]:
    return int(event["pid"]), int(event["tid"])


def _kind(event: Mapping[str, Any]) -> str:
    """What a slice is coloured by: its pass where it computes, else its stream."""
    stream = str(event.get("cat") or "")
    told = event.get("args") or {}
    return str(told.get("pass") or event["name"]) if stream == "compute" else stream


def _names(events: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int | None], str]:
    """What ranks (tid None) and streams are called."""
    return {
        (event["pid"], event.get("tid")): str(event["args"]["name"])
        for event in events
        if event["ph"] == "M" and event["name"] in ("process_name", "thread_name")
    }


def _row(event: Mapping[str, Any], names: Mapping[tuple[int, int | None], str]) -> str:
    rank = names.get((event["pid"], None), f"rank {event['pid']}")
    stage = STAGE.search(rank)
    stream = names.get((event["pid"], event["tid"]), event["tid"])
    return f"{stage.group(1) if stage else rank}, {stream}"
