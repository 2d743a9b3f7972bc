"""Maps of the 2024 study: days over two properties of a chip, relative to the B200's, on both sides."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from foretell.lab.reproduce.nersc_maps import MAPS
from foretell.lab.reproduce.records import PaperFigure
from foretell.report.figures.look import SCALE, Figure
from foretell.report.figures.multiples import SmallPanel, small_multiples

Rows = Sequence[Mapping[str, Any]]
MODELS = {"gpt3_1T": "GPT, 10^12 parameters", "vit_era5": "ViT, 64,800 patches"}
"""Models as titles have them."""
SIDES = {"published": "the published model", "ours": "Foretell"}


MAP_TICKS = (0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
"""Values at a map's colours, which follow logarithms."""


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def heat_maps(found: PaperFigure) -> Figure:
    """Days over two properties, relative to the B200's, on both sides."""
    x, y = MAPS[found.name]
    parts = []
    cells = found.tables[found.name]
    for model, words in MODELS.items():
        for side, of in SIDES.items():
            own = [r for r in cells if r["model"] == model and r["side"] == side]
            base = _nearest_b200(own, x.name, y.name)
            across, up = [v / x.unit for v in x.values], [v / y.unit for v in y.values]
            grid = {(r[x.name], r[y.name]): r["days"] for r in own}
            ratio = [[grid[a, b] / base if grid.get((a, b)) else None for a in across] for b in up]
            trace = {
                "type": "heatmap",
                "x": [_short(a) for a in across],
                "y": [_short(b) for b in up],
                "z": [[None if v is None else math.log10(v) for v in row] for row in ratio],
                "text": [["" if v is None else f"{v:.2f}" for v in row] for row in ratio],
                "colorscale": SCALE,
                "zmin": math.log10(MAP_TICKS[0]),
                "zmax": math.log10(MAP_TICKS[-1]),
                "showscale": side == "ours" and model == "gpt3_1T",
                "colorbar": {
                    "title": {"text": "days over those of the B200"},
                    "tickvals": [math.log10(v) for v in MAP_TICKS],
                    "ticktext": [f"{v:g}" for v in MAP_TICKS],
                },
                "hovertemplate": "%{x}, %{y}: %{text}<extra></extra>",
            }
            parts.append(
                SmallPanel(
                    title=f"{words}: {of}",
                    traces=[trace],
                    x={"text": x.title, "type": "category", "showgrid": False},
                    y={"text": y.title, "type": "category", "showgrid": False},
                )
            )
    title = f"8,192 B200 in domains of eight: days over {x.title.split(' (')[0]} and {y.title.split(' (')[0]}"
    return small_multiples(parts, title, 2, width=1240, height=340, key=0, gap=124)


B200_VALUES = {"capacity_gb": 192.0, "bandwidth_tb_per_s": 8.0, "tflop_per_s": 2500.0}
"""What a map is relative to."""


def _nearest_b200(rows: Rows, x: str, y: str) -> float:
    known = [r for r in rows if r["days"]]
    if not known:
        return 1.0
    nearest = min(
        known, key=lambda r: abs(r[x] / B200_VALUES[x] - 1) + abs(r[y] / B200_VALUES[y] - 1)
    )
    return float(nearest["days"])
