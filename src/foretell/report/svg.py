"""What pictures are made of, as SVG that needs nothing else: scales, ticks, texts, lines, bars, legends."""

import math
from collections.abc import Iterable
from html import escape

from foretell.records import dataclass

INK, PALE, GRID, FRAME = "#1c2530", "#59636e", "#e3e6ea", "#59636e"
"""Colours of words, of words that matter less, of lines at ticks and of axes."""
FONT = "font-family='Helvetica, Arial, sans-serif'"
LEGEND_ROW = 21.0
"""Pixels from one name of a legend to the next."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A finished picture."""

    title: str
    """What it shows; a browser's tab has it too."""
    width: float
    """Pixels."""
    height: float
    """Pixels."""
    parts: tuple[str, ...]
    """Its elements, what is drawn first lies below."""

    def svg(self) -> str:
        """As an SVG file."""
        size = f"width='{self.width:g}' height='{self.height:g}'"
        view = f"viewBox='0 0 {self.width:g} {self.height:g}'"
        head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} {view}>"
        name = f"<title>{escape(self.title)}</title>"
        return "\n".join([head, name, f"<rect {size} fill='#ffffff'/>", *self.parts, "</svg>", ""])

    def html(self) -> str:
        """On a page of its own."""
        head = f"<head><meta charset='utf-8'><title>{escape(self.title)}</title></head>"
        body = f"<body style='margin:0'>\n{self.svg()}</body>"
        return f"<!doctype html>\n<html lang='en'>\n{head}\n{body}\n</html>\n"


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 12,
    anchor: str = "start",
    bold: bool = False,
    colour: str = INK,
    turned: bool = False,
) -> str:
    """Words, upright or turned to read upwards."""
    more = " font-weight='bold'" if bold else ""
    more += f" transform='rotate(-90 {x:g} {y:g})'" if turned else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' fill='{colour}' "
        f"text-anchor='{anchor}'{more}>{escape(words)}</text>"
    )


def line(first: Point, second: Point, colour: str, *, width: float = 1.0, dash: str = "") -> str:
    """A straight line."""
    ends = f"x1='{first[0]:.1f}' y1='{first[1]:.1f}' x2='{second[0]:.1f}' y2='{second[1]:.1f}'"
    return f"<line {ends} stroke='{colour}' stroke-width='{width:g}'{_dashed(dash)}/>"


def _dashed(dash: str) -> str:
    return f" stroke-dasharray='{dash}'" if dash else ""


def polyline(points: Iterable[Point], colour: str, *, width: float = 2.2, dash: str = "") -> str:
    """A line through points."""
    stroke = f"stroke='{colour}' stroke-width='{width:g}'" + _dashed(dash)
    return f"<polyline points='{_joined(points)}' fill='none' {stroke}/>"


def area(points: Iterable[Point], colour: str, *, opacity: float = 1.0) -> str:
    """A filled shape with these corners."""
    return f"<polygon points='{_joined(points)}' fill='{colour}' fill-opacity='{opacity:g}'/>"


def _joined(points: Iterable[Point]) -> str:
    """Points to a tenth of a pixel, without those on a level or upright line between their neighbours."""
    kept: list[Point] = []
    for x, y in points:
        point = round(x, 1), round(y, 1)
        if len(kept) > 1 and any(kept[-2][a] == kept[-1][a] == point[a] for a in (0, 1)):
            kept.pop()
        if not kept or kept[-1] != point:
            kept.append(point)
    return " ".join(f"{x:g},{y:g}" for x, y in kept)


def bar(x: float, y: float, width: float, height: float, colour: str, *, hint: str = "") -> str:
    """A filled rectangle; a browser shows the hint beside the pointer."""
    box = f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' fill='{colour}'"
    return f"{box}><title>{escape(hint)}</title></rect>" if hint else f"{box}/>"


def dot(x: float, y: float, radius: float, colour: str = "") -> str:
    """A filled circle, of its group's colour where none is given."""
    fill = f" fill='{colour}'" if colour else ""
    return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius:g}'{fill}/>"


def ring(x: float, y: float, radius: float, colour: str, *, fill: str = "none") -> str:
    """A circle with an edge."""
    place = f"cx='{x:.1f}' cy='{y:.1f}' r='{radius:g}'"
    return f"<circle {place} fill='{fill}' stroke='{colour}' stroke-width='2'/>"


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers from at or below the low end to at or above the high one."""
    span = (high - low) or abs(high) or 1.0
    rough = span / (most - 1)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(m * size for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * size >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * k for k in range(first, max(last, first + 1) + 1)]


def tick_text(value: float) -> str:
    """A tick in few characters."""
    for size, sign in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if sign == "k" else 1):
            return f"{value / size:.3g}{sign}"
    return f"{value:.4g}"
