"""The published study's sensitivities beside ours: lines over GPU counts, maps over memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from foretell.report.figures.heatmap import heat_map
from foretell.report.figures.look import GREY, Figure, counts_axis, figure, nth_colour
from foretell.report.figures.panels import panels

Cells = Sequence[Mapping[str, Any]]
"""JSON of lab/validate/reference_sensitivity.py."""

SIDES = {"reference": "the published model", "ours": "Foretell"}
"""Columns of a figure, and what they are called."""
MODELS = {"gpt3_1T": "GPT3-1T", "vit_era5": "ViT-ERA5"}
"""Models as the study's text calls them."""
WIDTH = 1180
"""Pixels."""


def sensitivity_lines(cells: Cells, model: str) -> Figure:
    """Days with each thing doubled, over days as it is, on both sides."""
    parts = []
    both = [ratios(cells, model, side) for side in SIDES]
    low = min([1.0, *(ratio for one in both for points in one.values() for _, ratio in points)])
    names = list(dict.fromkeys(cell["change"] for cell in cells if cell["change"]))
    for (side, words), found in zip(SIDES.items(), both, strict=True):
        traces: list[dict[str, Any]] = [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{name} x2",
                "x": [gpus for gpus, _ in found[name]],
                "y": [ratio for _, ratio in found[name]],
                "line": {"color": nth_colour(names.index(name))},
                "hovertemplate": "%{x:,} GPUs: %{y:.3f}",
            }
            for name in names
            if found.get(name)
        ]
        at = [gpus for points in found.values() for gpus, _ in points]
        y = {"text": "days, over days as it is", "range": [low - 0.04, 1.04]}
        one = figure(traces, words, counts_axis("GPUs", at), y, showlegend=side == "ours")
        one["layout"]["shapes"] = [_level()]
        parts.append(one)
    title = f"{MODELS.get(model, model)} on B200 in domains of eight: what twice as much of each would do"
    whole = panels(parts, title, 2, 440)
    layout = _wide(whole)
    # One legend serves both, so that both are equally wide.
    layout["xaxis"] = {**layout["xaxis"], "domain": [0.0, 0.38]}
    layout["xaxis2"] = {**layout["xaxis2"], "domain": [0.45, 0.83]}
    layout["legend2"] = {**layout["legend2"], "x": 0.84}
    layout["annotations"][1]["x"] = 0.45
    return {**whole, "layout": layout}


def memory_maps(cells: Cells, model: str) -> Figure:
    """Days over capacity and bandwidth of the memory, relative to the B200's, on both sides."""
    parts = []
    for side, words in SIDES.items():
        own = [c for c in cells if c["model"] == model and c["side"] == side and not c["change"]]
        gpus = _map_gpus(own)
        own = [cell for cell in own if cell["gpus"] == gpus and cell["days"] is not None]
        base = next(
            (c["days"] for c in own if c["memory_bytes"] == 192e9
             and c["memory_bandwidth_bytes_per_s"] == 8e12), 1.0,
        )  # fmt: skip
        rows = [
            {
                "capacity_gb": c["memory_bytes"] / 1e9,
                "bandwidth_tb": c["memory_bandwidth_bytes_per_s"] / 1e12,
                "ratio": c["days"] / base,
            }
            for c in own
        ]
        one = heat_map(rows, "capacity_gb", "bandwidth_tb", "ratio", title=words)
        for trace in one["data"]:
            trace |= {"showscale": False, "zmin": 0.7, "zmax": 1.6, "texttemplate": "%{z:.2f}"}
        one["layout"]["xaxis"]["title"]["text"] = "memory capacity (GB)"
        one["layout"]["yaxis"]["title"]["text"] = "memory bandwidth (TB/s)"
        parts.append(one)
    count = _map_gpus([c for c in cells if c["model"] == model])
    title = f"{MODELS.get(model, model)} on {count:,} B200: days over those at 192 GB and 8 TB/s"
    whole = panels(parts, title, 2, 440)
    return {**whole, "layout": _wide(whole)}


def _wide(whole: Figure) -> dict[str, Any]:
    return {**whole["layout"], "width": WIDTH}


def _level() -> dict[str, Any]:
    ends = {"x0": 0.0, "x1": 1.0, "xref": "x domain", "yref": "y", "y0": 1.0, "y1": 1.0}
    return {"type": "line", **ends, "line": {"color": GREY, "dash": "dot", "width": 1}}


def ratios(cells: Cells, model: str, side: str) -> dict[str, list[tuple[int, float]]]:
    """Change -> GPUs and ratio of days, where both searches found a plan."""
    own = [cell for cell in cells if cell["model"] == model and cell["side"] == side]
    known = {cell["gpus"] for cell in own if cell["change"]}
    now: dict[int, float] = {}
    for cell in own:
        if not cell["change"] and cell["gpus"] in known and cell["days"] is not None:
            now.setdefault(cell["gpus"], cell["days"])  # the first is the system as it is
    found: dict[str, list[tuple[int, float]]] = {}
    for cell in own:
        if cell["change"] and cell["days"] is not None and cell["gpus"] in now:
            ratio = cell["days"] / now[cell["gpus"]]
            found.setdefault(cell["change"], []).append((cell["gpus"], ratio))
    return {name: sorted(points) for name, points in found.items()}


def _map_gpus(cells: Cells) -> int:
    """The GPU count that most cells without a change have: that of the map."""
    counts = [cell["gpus"] for cell in cells if not cell["change"]]
    return max(counts, key=counts.count, default=0)
