"""Every view with ten bad inputs: it says what is wrong, complains of nothing, shows no earlier answer."""

import pytest

from tests.web.browser import Watched

PLACE = "1.model=llama-3.1-8b&1.system=h100-sxm&1.gpus=8"
NAMES = [
    ("model", "no-such-model"),
    ("model", "../secret.json"),
    ("system", "h1000"),
    ("system", "/etc"),
]
COUNTS = [("gpus", "0"), ("gpus", "-3"), ("gpus", "many"), ("gpus", "99999999999")]
SEQUENCE = [("seq_len", "-1"), ("global_batch", "x")]
SET = [("set", "chip.nothing=1"), ("set", "chip.memory_bytes=fast")]
BAD: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "training": (PLACE, [*NAMES, *COUNTS, *SEQUENCE, ("plan", "tp7 zz9"), *SET]),
    "serving": (
        "1.model=llama-3.1-8b&1.system=h100-sxm&1.s_gpus=1",
        [*NAMES, ("s_gpus", "0"), ("s_gpus", "x"), ("isl", "-5"), ("osl", "none"), ("concurrency", "0"),
         ("layout", "zz9"), *SET],
    ),
    "post-training": (
        "1.model=llama-3.1-8b&1.system=h100-sxm&1.p_gpus=8&1.algorithm=sft",
        [*NAMES, ("p_gpus", "0"), ("p_gpus", "x"), ("isl", "-5"), ("updates", "-1"), ("plan", "zz9"), *SET],
    ),
    "cost": (PLACE, [*NAMES, *COUNTS, ("tokens", "lots"), ("price", "-2"), ("region", "atlantis"), *SET]),
    "clusters": (
        PLACE + "&1.systems=h100-sxm,h200-sxm",
        [*NAMES[:2], ("systems", "h1000"), ("systems", "h100-sxm\nnope"), *COUNTS, ("budget", "x"),
         ("years", "-1")],
    ),
    "scaling": (
        PLACE + "&1.counts=8,16&1.strategies=zero3",
        [*NAMES, ("counts", "0"), ("counts", "a..b"), ("strategies", "zz9"), ("floor", "x"),
         ("micro_batch", "-1"), ("seq_len", "-1")],
    ),
    "network": (
        "1.system=h100-sxm&1.bytes=1MiB&1.group=8",
        [*NAMES[2:], ("system", "../x"), ("bytes", "big"), ("bytes", "-1"), ("bytes", "1 Gb"), ("group", "0"),
         ("group", "-8"), ("group", "x"), ("group", "999999999999")],
    ),
    "sensitivities": (PLACE, [*NAMES, *COUNTS, ("factor", "-1"), ("factor", "x")]),
    "timeline": (PLACE + "&1.plan=zero3", [*NAMES, *COUNTS, ("plan", "tp7 zz9"), ("seq_len", "-1")]),
}  # fmt: skip
PASTED = {"launch": ("launch", "launch-go"), "diagnose": ("runs-text", "runs-go")}
TEXTS = [
    "?",
    "{",
    "rm -rf /",
    "a,b\n1",
    "--tp",
    "\u0000",
    "[x",
    "zz9: soon",
    "torchrun",
    "x" * 5000,
]
"""What a box for launches or logs is given that is none."""


def _no_complaint(watched: Watched) -> None:
    """Nothing but the browser's own line on each question that the server refused."""
    assert [line for line in watched.said if "status of 422" not in line] == []
    watched.said.clear()


@pytest.mark.parametrize("view", BAD)
def test_a_bad_input_is_named_and_nothing_stale_stays(watched: Watched, view: str) -> None:
    query, inputs = BAD[view]
    assert len(inputs) >= 10
    page = watched.open(f"view={view}&{query}")
    assert page.query_selector("#summary .big")
    before = page.inner_text("#summary")
    for name, value in inputs:
        field = page.locator(f"#field-{name}")
        if not field.is_visible():
            page.locator("#fields details:not([open]) > summary").first.click()
        good = field.input_value()
        watched.after(lambda field=field, value=value: field.fill(value))
        where = f"{view}: {name} = {value}"
        assert page.query_selector("#answer [role=alert]"), where
        assert page.query_selector_all("#summary data[data-name]") == [], where
        watched.after(lambda field=field, good=good: field.fill(good))
    assert page.inner_text("#summary") == before
    _no_complaint(watched)


@pytest.mark.parametrize("view", PASTED)
def test_a_text_that_is_none_is_refused(watched: Watched, view: str) -> None:
    page = watched.open(f"view={view}")
    box, button = PASTED[view]
    for text in TEXTS:
        page.fill(f"#{box}", text)
        watched.after(lambda: page.click(f"#{button}"))
        assert page.query_selector("#answer [role=alert]"), (view, text)
        assert page.query_selector_all("#summary data[data-name]") == [], (view, text)
    _no_complaint(watched)


def test_a_search_of_runs_that_finds_none_says_so(watched: Watched) -> None:
    page = watched.open("view=accuracy&find=zzzzzz")
    assert page.inner_text("#answer")
