"""Figures as files: .svg, .html and .json anywhere, .png where a browser is.

The HTML file holds plotly.js itself (the copy that the page serves), so that it opens without a network and
asks nothing of another host. It follows the reader's choice of light or dark.
"""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from foretell.errors import BadInput, Problem, wrong
from foretell.interop.user_files import write_whole
from foretell.report.figure_svg import figure_svg
from foretell.report.figures.look import HEIGHT, THEMES, WIDTH, Figure, Theme, template

KINDS = (".svg", ".html", ".png", ".json")
"""Endings of figures' files."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""What can make a PNG of a page."""
_MARKUP = re.compile(r"<(?!br>|extra>|/extra>)")
"""What begins a tag that is none of ours."""
PLOTLY = ("web", "static", "vendor", "plotly-cartesian.min.js")
"""Where the package has plotly.js."""
PATIENCE_S = 120
"""How long a browser may take."""
LOADING_MS = 20_000
"""Of the page's own clock, which runs ahead when nothing is left to do."""
INSTALL = (
    "install chromium (apt install chromium, brew install --cask chromium) or Google Chrome, "
    "or write .svg or .html"
)


def browser() -> str | None:
    """A browser that is installed."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def figure_file(flag: str, name: str) -> Path:
    """The file to write, whose ending says what it is; BadInput where that cannot be."""
    if problem := file_problem(flag, name):
        raise BadInput([problem])
    return Path(name)


def file_problem(flag: str, name: str) -> Problem | None:
    """Why a figure cannot be written there."""
    file = Path(name)
    kind = file.suffix.lower()
    if kind not in KINDS:
        message = "is no kind of file that is known"
        allowed = "a name that ends in " + ", ".join(KINDS)
    elif file.is_dir() or not file.absolute().parent.is_dir():
        message, allowed = "no file can be written there", "a file in a folder there is"
    elif kind == ".png" and browser() is None:
        message = "a PNG needs a browser, and none of these is here: " + ", ".join(BROWSERS)
        allowed = INSTALL
    else:
        return None
    return wrong(flag, name, message, allowed)


def write_figure(figure: Mapping[str, Any], path: str | Path) -> Path:
    """Write a figure as the file's ending says."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind == ".json":
        write_whole(path, json.dumps(plain_text(figure), allow_nan=False) + "\n")
    elif kind == ".html":
        write_whole(path, html(figure))
    elif kind == ".svg":
        write_whole(path, figure_svg(figure))
    elif problem := file_problem("path", str(path)):
        raise BadInput([problem])
    else:
        _browse(figure, path)
    return path


def plain_text(part: Any) -> Any:
    """A figure whose texts mean no markup to Plotly but for our own line ends: names are as they are."""
    if isinstance(part, str):
        return _MARKUP.sub("&lt;", part)
    if isinstance(part, Mapping):
        return {key: plain_text(held) for key, held in part.items()}
    if isinstance(part, list | tuple):
        return [plain_text(held) for held in part]
    return part


def html(figure: Mapping[str, Any], *, still: bool = False) -> str:
    """A page of its own; `still`: always light, of the size of a picture, without controls."""
    title = str((figure["layout"].get("title") or {}).get("text") or "Foretell")
    themes: tuple[Theme, ...] = ("light", "dark")
    told = {
        "figure": plain_text(figure),
        "templates": {theme: template(theme) for theme in themes},
        "still": still,
        "size": size(figure),
    }
    light, dark = (THEMES[theme]["ground"] for theme in themes)
    style = f"body{{margin:0;background:{light}}}"
    if not still:
        style += f"@media(prefers-color-scheme:dark){{body{{background:{dark}}}}}"
    plotly = files("foretell").joinpath(*PLOTLY).read_text(encoding="utf-8")
    return (
        f"<!doctype html>\n<html lang='en'>\n<head><meta charset='utf-8'>"
        f"<meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title>\n<style>{style}</style></head>\n"
        f"<body><div id='figure'></div>\n<script>{plotly}</script>\n"
        f"<script type='application/json' id='told'>{_inside_script(told)}</script>\n"
        f"<script>{SHOW}</script></body>\n</html>\n"
    )


def size(figure: Mapping[str, Any]) -> tuple[int, int]:
    """Pixels of the figure, across and up."""
    layout = figure["layout"]
    return int(layout.get("width") or WIDTH), int(layout.get("height") or HEIGHT)


SHOW = """
const told = JSON.parse(document.getElementById("told").textContent);
const place = document.getElementById("figure"), { data, layout } = told.figure;
const dark = matchMedia("(prefers-color-scheme: dark)");
if (told.still) {
  [layout.width, layout.height] = told.size;
  layout.template = told.templates.light;
  Plotly.newPlot(place, data, layout, { staticPlot: true });
} else {
  if (!layout.height) place.style.height = "100vh";
  const themed = () => ({ ...layout, template: told.templates[dark.matches ? "dark" : "light"] });
  const options = { responsive: true, displaylogo: false };
  Plotly.newPlot(place, data, themed(), options);
  dark.addEventListener("change", () => Plotly.react(place, data, themed(), options));
}
"""
"""What the page runs: the figure in the reader's theme, or still."""


def _inside_script(told: Mapping[str, Any]) -> str:
    """JSON that cannot end the script it is in."""
    return json.dumps(told, allow_nan=False).replace("<", "\\u003c")


def _browse(figure: Mapping[str, Any], path: Path) -> None:
    """A browser's picture of the figure."""
    width, height = size(figure)
    # What the browser started may still write into its profile when it has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page, target = Path(folder) / "page.html", Path(folder) / "page.png"
        page.write_text(html(figure, still=True), encoding="utf-8")
        run_browser(folder, page, f"--window-size={width},{height}", f"--screenshot={target}")
        write_whole(path, target.read_bytes())


def run_browser(folder: str, page: Path, *more: str) -> None:
    """Run the browser on a page, without a window."""
    words: Sequence[str] = [
        str(browser()), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--virtual-time-budget={LOADING_MS}", f"--user-data-dir={folder}/profile",
        *more, page.as_uri(),
    ]  # fmt: skip
    subprocess.run(words, check=True, capture_output=True, timeout=PATIENCE_S)


__all__ = [
    "BROWSERS",
    "KINDS",
    "Figure",
    "browser",
    "figure_file",
    "file_problem",
    "html",
    "size",
    "write_figure",
]
