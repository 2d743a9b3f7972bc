"""Pictures as files: .svg, .html, and .png where a browser is."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from foretell.errors import BadInput, Problem
from foretell.report.svg import Picture

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""What can make a PNG of a page."""
KINDS = (".svg", ".html", ".png")
"""Endings of pictures' files."""


def browser() -> str | None:
    """A browser that is installed."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def picture_file(flag: str, name: str, also: Sequence[str] = ()) -> Path:
    """The file to write, whose ending says what it is; BadInput where that cannot be."""
    if problem := file_problem(flag, name, also):
        raise BadInput([problem])
    return Path(name)


def file_problem(flag: str, name: str, also: Sequence[str] = ()) -> Problem | None:
    """Why a picture (or a file of another kind, `also`) cannot be written there."""
    file, kinds = Path(name), (*KINDS, *also)
    kind = file.suffix.lower()
    if kind not in kinds:
        message = "is no kind of file that is known"
        allowed = "a name that ends in " + ", ".join(kinds)
    elif file.is_dir() or not file.absolute().parent.is_dir():
        message, allowed = "no file can be written there", "a file in a folder there is"
    elif kind == ".png" and browser() is None:
        message = "a PNG needs a browser, and none of these is here: " + ", ".join(BROWSERS)
        allowed = "a name that ends in " + ", ".join(k for k in kinds if k != ".png")
    else:
        return None
    return Problem(path=flag, value=name, message=message, allowed=allowed)


def write(file: Path, picture: Picture) -> None:
    """Write the picture as the file's ending says."""
    kind = file.suffix.lower()
    if kind == ".png":
        _write_png(file, picture)
    else:
        text = picture.svg() if kind == ".svg" else picture.html()
        file.write_text(text, encoding="utf-8")


def _write_png(file: Path, picture: Picture) -> None:
    """A browser's view of the page."""
    # What the browser started may still write into its profile when it has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source, target = Path(folder) / "page.html", Path(folder) / "page.png"
        source.write_text(picture.html(), encoding="utf-8")
        words = [
            str(browser()), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
            f"--window-size={picture.width:.0f},{picture.height:.0f}",
            f"--screenshot={target}", source.as_uri(),
        ]  # fmt: skip
        subprocess.run(words, check=True, capture_output=True, timeout=120)
        shutil.copyfile(target, file)
