"""A page in a browser, and everything that it complained of or asked for."""

from pathlib import Path
from typing import Any


class Watched:
    """A page, and everything that it complained of or asked for."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.context = browser.new_context(accept_downloads=True, **options)
        self.context.set_default_timeout(600_000)  # a loaded machine is no defect
        self.page = self.context.new_page()
        self.address = address
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, query: str) -> Any:
        """A view, once it is drawn."""
        self.page.goto(f"{self.address}?{query}")
        self.page.wait_for_selector("html[data-drawn] main[aria-busy=false]")
        return self.page

    def after(self, does: Any) -> None:
        """Do something, and wait until the page has been drawn again."""
        before = int(self.page.get_attribute("html", "data-drawn") or 0)
        does()
        self.page.wait_for_selector(f"html[data-drawn='{before + 1}'] main[aria-busy=false]")

    def value(self, name: str, scenario: str = "A") -> float:
        """The exact number that stands under a name."""
        place = f"[data-scenario={scenario}] data[data-name='{name}']"
        return float(self.page.get_attribute(place, "value"))

    def saved(self, button: str) -> bytes:
        """The file that a button downloads."""
        with self.page.expect_download() as waited:
            self.page.click(button)
        return Path(waited.value.path()).read_bytes()
