"""A real browser on a real server; skipped, with the line that installs it, where there is no chromium."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from tests.web.browser import Watched
from tests.web.client import server

PLACES = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
INSTALL = "no chromium here; `sudo apt-get install --yes chromium` installs it"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every file that is opened from now on."""
    found: list[str] = []
    held = Path.open

    def watched(self: Path, *arguments: Any, **more: Any) -> Any:
        found.append(str(self))
        return held(self, *arguments, **more)

    monkeypatch.setattr(Path, "open", watched)
    return found


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where `foretell ui` listens."""
    with server("--workers", "2") as (url, _):
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium, driven by playwright."""
    found = next((place for place in PLACES if Path(place).exists()), shutil.which("chromium"))
    if found is None:
        pytest.skip(INSTALL)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        made = tool.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def watched(browser: Any, address: str) -> Iterator[Watched]:
    """A page that must not complain, nor ask another server."""
    made = Watched(browser, address, viewport={"width": 1280, "height": 900})
    yield made
    made.context.close()
    assert made.said == []
    hosts = {
        urlparse(url).netloc for url in made.asked if urlparse(url).scheme in ("http", "https")
    }
    assert hosts == {urlparse(address).netloc}
