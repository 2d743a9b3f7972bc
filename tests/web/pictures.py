"""Make the pictures of docs/ui.md anew: `python -m tests.web.pictures`; with a folder, all views there."""

import sys
from pathlib import Path
from typing import Any

from tests.web.client import ROOT, server

WIDE, NARROW = (1360, 900), (400, 800)
A = "1.model=llama-3.1-70b&1.system=h100-sxm&1.gpus=512"
OTHERS = (("h200-sxm", 512), ("b200-sxm", 256), ("mi300x", 512))
FOUR = A + "".join(
    f"&{i}.model=llama-3.1-70b&{i}.system={system}&{i}.gpus={gpus}"
    for i, (system, gpus) in enumerate(OTHERS, start=2)
)
SERVED = "1.model=qwen3-32b&1.system=h200-sxm&1.s_gpus=4&1.rate=50&1.isl=4000&1.osl=500"
KEPT: dict[str, tuple[str, str, tuple[int, int]]] = {
    "ui-training": (f"view=training&{FOUR}", "light", WIDE),
    "ui-serving": (f"view=serving&{SERVED}", "dark", WIDE),
    "ui-timeline": (
        f"view=timeline&{A}&1.plan=tp8 pp4 zero1 mbs1&1.global_batch=512",
        "light",
        WIDE,
    ),
    "ui-clusters": (f"view=clusters&{A}", "light", WIDE),
    "ui-own-cluster": (
        "view=cost&1.model=llama-3.1-8b&1.own=form&1.c_chip=h200-sxm&1.c_nodes=16&1.tokens=1T",
        "light",
        WIDE,
    ),
    "ui-post-training": (
        "view=post-training&1.model=llama-3.1-8b&1.system=h100-sxm&1.p_gpus=32&1.placement=best",
        "dark",
        WIDE,
    ),
    "ui-narrow": (f"view=training&{A}", "dark", NARROW),
}
"""Pictures that the page shows: address, theme, size."""
VIEWS = (
    "training", "serving", "post-training", "launch", "diagnose", "cost", "clusters", "scaling", "network",
    "sensitivities", "timeline", "accuracy",
)  # fmt: skip


def take(
    browser: Any, address: str, file: Path, about: tuple[str, str, tuple[int, int]], whole: bool
) -> None:
    """One picture."""
    query, scheme, (width, height) = about
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
    page = context.new_page()
    page.set_default_timeout(600_000)  # a loaded machine is no defect
    page.goto(f"{address}?{query}")
    page.wait_for_selector("html[data-drawn] main[aria-busy=false]")
    page.wait_for_timeout(400)
    how = {"type": "png"} if whole else {"type": "jpeg", "quality": 72}
    page.screenshot(path=file, full_page=whole, **how)
    context.close()


def main(folder: str = "") -> None:
    """The pictures of the page, or every view in both themes and widths."""
    from playwright.sync_api import sync_playwright

    out = Path(folder) if folder else ROOT / "docs" / "pictures"
    out.mkdir(parents=True, exist_ok=True)
    wanted = KEPT
    if folder:
        wanted = {
            f"{view}-{scheme}-{width}": (
                f"view={view}&{FOUR if view == 'training' else A}",
                scheme,
                (width, height),
            )
            for view in VIEWS
            for scheme in ("light", "dark")
            for width, height in (WIDE, NARROW)
        }
    with server() as (address, _), sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, about in wanted.items():
            file = out / f"{name}.{'png' if folder else 'jpg'}"
            take(browser, address, file, about, whole=bool(folder))
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:2])
