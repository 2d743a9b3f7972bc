"""Horizontal bars, largest first, as one SVG picture that needs nothing else; as HTML or PNG around it."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from foretell.errors import BadInput, Problem

WIDTH, ROW, HEAD, EDGE = 900.0, 22.0, 34.0, 16.0
"""Pixels: of the picture, of one bar, of a panel's title, of the margins."""
LABEL, NUMBER = 330.0, 230.0
"""Pixels for the names on the left and the numbers on the right."""
COLOUR, LESS = "#1f6fb4", "#d1622b"
"""Of bars above zero, and below."""
FONT = "font-family='Helvetica, Arial, sans-serif'"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""What can make a PNG of it."""
KINDS = (".svg", ".html", ".png")
"""Endings of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar."""

    name: str
    """On its left."""
    value: float
    """How long; below zero it is of another colour."""
    text: str
    """On its right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Bars on one scale."""

    title: str
    """Above them."""
    bars: tuple[Bar, ...]
    """From the top."""


def svg(title: str, panels: Sequence[Panel]) -> str:
    """The picture."""
    some = [panel for panel in panels if panel.bars]
    height = 2.0 * EDGE + HEAD + sum(HEAD + ROW * len(p.bars) for p in some)
    size = f"width='{WIDTH:g}' height='{height:g}'"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} viewBox='0 0 {WIDTH:g} {height:g}'>",
        f"<title>{escape(title)}</title>",
        f"<rect {size} fill='#ffffff'/>",
        _text(EDGE, EDGE + 14.0, title, size=15),
    ]
    y = EDGE + HEAD
    for panel in some:
        parts.append(_text(EDGE, y + 18.0, panel.title, size=13, weight="bold"))
        y += HEAD - 6.0
        most = max(abs(bar.value) for bar in panel.bars) or 1.0
        for bar in panel.bars:
            parts += _bar(bar, y, most)
            y += ROW
        y += 6.0
    return "\n".join([*parts, "</svg>", ""])


def _bar(bar: Bar, y: float, most: float) -> list[str]:
    room = WIDTH - 2.0 * EDGE - LABEL - NUMBER
    length = max(abs(bar.value) / most * room, 0.5)
    x = EDGE + LABEL
    colour = COLOUR if bar.value >= 0.0 else LESS
    box = f"<rect x='{x:.1f}' y='{y + 3.0:.1f}' width='{length:.1f}' height='{ROW - 6.0:g}'"
    return [
        _text(x - 8.0, y + 15.0, bar.name, size=12, anchor="end"),
        f"{box} fill='{colour}'><title>{escape(bar.name)}: {escape(bar.text)}</title></rect>",
        _text(x + length + 8.0, y + 15.0, bar.text, size=12),
    ]


def _text(
    x: float, y: float, words: str, *, size: int, anchor: str = "start", weight: str = "normal"
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' font-weight='{weight}' "
        f"fill='#1c2530' text-anchor='{anchor}'>{escape(words)}</text>"
    )


def check_name(path: str) -> Path:
    """The file to write, whose ending says what it is; BadInput for another ending, or a missing browser."""
    file = Path(path)
    kind = file.suffix.lower()
    if kind not in KINDS:
        problem = Problem(
            path="plot", value=path, message="no such picture", allowed=", ".join(KINDS)
        )
        raise BadInput([problem])
    if not file.parent.is_dir():
        raise BadInput([Problem(path="plot", value=path, message="its folder does not exist")])
    if kind == ".png" and browser() is None:
        message = "a PNG needs a browser, and none of these is here: " + ", ".join(BROWSERS)
        raise BadInput([Problem(path="plot", value=path, message=message, allowed=".svg, .html")])
    return file


def browser() -> str | None:
    """A browser that is installed."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def write(file: Path, title: str, panels: Sequence[Panel]) -> None:
    """Write the picture as the file's ending says."""
    picture = svg(title, panels)
    if file.suffix.lower() == ".svg":
        file.write_text(picture, encoding="utf-8")
        return
    page = (
        f"<!doctype html><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<body style='margin:0'>{picture}</body>\n"
    )
    if file.suffix.lower() == ".html":
        file.write_text(page, encoding="utf-8")
        return
    _as_png(file, page, picture)


def _as_png(file: Path, page: str, picture: str) -> None:
    """A browser's picture of the page."""
    height = int(float(picture.split("height='", 1)[1].split("'", 1)[0])) + 1
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "page.html", Path(folder) / "page.png"
        source.write_text(page, encoding="utf-8")
        words = [
            str(browser()), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={folder}/profile", f"--window-size={WIDTH:.0f},{height}",
            f"--screenshot={target}", source.as_uri(),
        ]  # fmt: skip
        subprocess.run(words, check=True, capture_output=True, timeout=120)
        shutil.copyfile(target, file)
