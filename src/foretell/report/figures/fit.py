"""Predicted against measured seconds of kernels, by the fits of a calibration."""

from typing import Any

import numpy as np

from foretell.lab.calibrate.fit import Calibration
from foretell.report.figures.look import GREY, Figure, figure, log_axis, nth_colour

NEAR = 0.10
"""Distance of the two lines beside the diagonal."""

Points = dict[str, list[tuple[float, float]]]
"""Family -> (measured, predicted) seconds."""


def fit_figure(found: Calibration) -> Figure:
    """Both axes by logarithms, a colour for each family, the diagonal and a tenth to either side."""
    points = _points(found)
    seconds = [value for pairs in points.values() for pair in pairs for value in pair]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{name} ({len(pairs)})",
            "x": [measured for measured, _ in pairs],
            "y": [predicted for _, predicted in pairs],
            "marker": {"color": nth_colour(i), "size": 5, "opacity": 0.6},
        }
        for i, (name, pairs) in enumerate(points.items())
    ]
    traces += [
        _diagonal(min(seconds), max(seconds), factor) for factor in (1.0, 1.0 + NEAR, 1.0 - NEAR)
    ]
    title = f"{found.facts.chip.id}: kernels predicted by fits without their site, and measured"
    x, y = (log_axis(f"{word} time (s)", seconds) for word in ("measured", "predicted"))
    return figure(traces, title, x, y, showlegend=True, height=700)


def _diagonal(least: float, most: float, factor: float) -> dict[str, Any]:
    """Where the prediction is so many times what was measured."""
    exact = factor == 1.0
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "predicted = measured" if exact else f"{factor - 1.0:+.0%}",
        "x": [least, most],
        "y": [least * factor, most * factor],
        "line": {"color": GREY, "width": 1.2, "dash": "solid" if exact else "dash"},
        "hoverinfo": "skip",
    }


def _points(found: Calibration) -> Points:
    by_family: Points = {}
    for each in found.fits:
        rows = each.group.rows
        blind = np.where(np.isfinite(each.blind_s), each.blind_s, each.inside_s)
        pairs = zip(rows.measured_s.tolist(), blind.tolist(), strict=True)
        by_family.setdefault(rows.family, []).extend(pairs)
    return by_family
