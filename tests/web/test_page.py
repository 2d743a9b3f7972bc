"""The page in a real browser: main paths clicked, numbers as Python has them, nothing from elsewhere."""

import csv
import gzip
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

import foretell
from foretell.report.presentation.verbs import presentation
from tests.surfaces.command import foretell as command
from tests.web.browser import Watched

VIEWS = (
    "training", "serving", "post-training", "cost", "clusters", "scaling", "network", "sensitivities",
    "timeline", "accuracy",
)  # fmt: skip
SMALL = {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 16}
QUERY = "&".join(f"1.{name}={value}" for name, value in SMALL.items())


def test_training_is_what_python_says(watched: Watched) -> None:
    page = watched.open(f"view=training&{QUERY}")
    found = foretell.search(**SMALL)  # type: ignore[arg-type]
    best = found.best
    for name in ("step_s", "mfu", "tokens_per_s_per_gpu", "peak_memory_bytes", "tflops_per_gpu"):
        assert watched.value(name) == getattr(best, name), name
    assert page.inner_text("[data-scenario=A] [data-name=plan]") == str(best.plan)
    assert "plans" in page.inner_text("#status")
    # Plans that differ in ZeRO, interleaving and micro-batches alone share a row.
    layouts = {re.sub(r"\b(zero|vpp|mbs)\d+ ?", "", str(one.plan)) for one in found.plans}
    assert 1 < page.locator("#plans tbody tr").count() == len(layouts)
    assert page.locator("#limits li").count() > 2
    for figure in ("time", "memory"):
        assert page.locator(f"[data-figure={figure}] svg.main-svg").count() > 0


def test_changing_things_changes_the_answer_and_the_address(watched: Watched) -> None:
    page = watched.open(f"view=training&{QUERY}")
    watched.after(lambda: page.fill("#field-gpus", "32"))
    assert watched.value("step_s") == foretell.search(**{**SMALL, "gpus": 32}).best.step_s  # type: ignore[arg-type]
    watched.after(lambda: page.fill("#field-plan", "tp4 pp2 zero1"))
    plan = foretell.estimate(**{**SMALL, "gpus": 32}, plan="tp4 pp2 zero1")  # type: ignore[arg-type]
    assert watched.value("step_s") == plan.step_s
    held = parse_qs(urlparse(page.url).query)
    assert (held["1.gpus"], held["1.plan"]) == (["32"], ["tp4 pp2 zero1"])
    page.goto(page.url)
    page.wait_for_selector("html[data-drawn] main[aria-busy=false]")
    assert watched.value("step_s") == plan.step_s


def test_four_scenarios_side_by_side(watched: Watched) -> None:
    page = watched.open(f"view=training&{QUERY}")
    for name, gpus in (("B", "32"), ("C", "64"), ("D", "8")):
        watched.after(lambda: page.click("#add"))
        watched.after(lambda gpus=gpus: page.fill("#field-gpus", gpus))
        assert page.locator(f"[data-scenario={name}]").count() == 1
    assert page.is_disabled("#add")
    for name, gpus in zip("ABCD", (16, 32, 64, 8), strict=True):
        best = foretell.search(**{**SMALL, "gpus": gpus}).best  # type: ignore[arg-type]
        assert watched.value("step_s", name) == best.step_s
    page.click("[data-figure=time] summary")
    page.wait_for_selector("[data-figure=time] tbody tr")  # a toggle is told in a task of its own
    assert page.locator("[data-figure=time] tbody tr").count() >= 8
    watched.after(lambda: page.click("#remove"))
    assert page.locator("[data-scenario]").count() == 3


def test_what_is_wrong_stands_beside_its_field(watched: Watched) -> None:
    page = watched.open(f"view=training&{QUERY}")
    watched.after(lambda: page.fill("#field-model", "lama-3.1-8b"))
    assert page.get_attribute("#field-model", "aria-invalid") == "true"
    assert "llama-3.1-8b" in page.inner_text("#field-model-wrong")
    gpus = page.input_value("#field-gpus")
    watched.after(lambda: page.fill("#field-gpus", "0"))
    for field in ("model", "gpus"):
        assert page.get_attribute(f"#field-{field}", "aria-invalid") == "true"
    watched.after(lambda: page.fill("#field-gpus", gpus))
    watched.after(lambda: page.fill("#field-model", "llama-3.1-405b"))
    assert page.get_attribute("#field-model", "aria-invalid") == "false"
    assert "memory" in page.inner_text("[data-scenario=A]")
    watched.after(lambda: page.fill("#field-gpus", "4k"))
    assert "did you mean 4096 or 4000?" in page.inner_text("#field-gpus-wrong")


def test_a_plan_that_does_not_fit_is_shown_with_why_and_what_would(watched: Watched) -> None:
    page = watched.open(
        "view=training&1.model=llama-3.1-70b&1.system=h100-sxm&1.gpus=64&1.plan=tp2 zero0"
    )
    assert "too much" in page.inner_text("[data-scenario=A] [role=alert]")
    # What would fit comes after the answer.
    page.locator("[data-scenario=A] [role=alert]", has_text="did you mean tp").wait_for()
    assert page.locator("[data-figure=time] .barlayer .point").count() > 3


def test_serving_is_what_python_says(watched: Watched) -> None:
    page = watched.open("view=serving&1.model=llama-3.1-8b&1.system=h100-sxm&1.s_gpus=2&1.rate=20")
    served = foretell.serve("llama-3.1-8b", system="h100-sxm", gpus=2)
    assert watched.value("output_tokens_per_s_per_gpu") == served.output_tokens_per_s_per_gpu
    assert watched.value("ttft_ms.p90") == served.ttft_ms.p90
    sized = foretell.size("llama-3.1-8b", system="h100-sxm", rate=20, simulate=False).to_dict()
    assert watched.value("sized_gpus") == sized["gpus"]
    assert page.locator("#levels tbody tr").count() == len(sized["options"])
    assert page.locator("[data-figure=pareto] svg.main-svg").count() > 0


def test_how_sure_an_answer_is_is_what_python_says(watched: Watched) -> None:
    page = watched.open(f"view=training&{QUERY}&1.plan=tp4 zero1 framework=nemo")
    found = foretell.estimate(**SMALL, plan="tp4 zero1 framework=nemo")  # type: ignore[arg-type]
    assert page.inner_text("[data-name=interval_reason]") == found.interval_reason
    page = watched.open(f"view=serving&{QUERY}&1.plan=tp4&1.concurrency=32")
    served = foretell.serve(**SMALL, plan="tp4", concurrency=32)  # type: ignore[arg-type]
    assert page.inner_text("[data-name=interval_reason]") == served.interval_reason


def test_cost_network_and_sensitivities_are_what_the_command_line_says(watched: Watched) -> None:
    page = watched.open(f"view=cost&{QUERY}&1.tokens=1T")
    for name in ("usd", "usd_per_million_tokens"):
        words = shlex.split(page.inner_text("#commands"))[1:]
        assert watched.value(name) == command(*words, "--json").json[name]
    watched.after(lambda: page.select_option("#field-what", "system"))
    assert page.locator("#field-model").count() == 0
    assert (
        watched.value("usd")
        == command("cost", "system", "h100-sxm", "--gpus", "16", "--json").json["usd"]
    )
    watched.after(lambda: page.click("nav >> text=Network"))
    words = shlex.split(page.inner_text("#commands"))[1:]
    assert watched.value("bus_bytes_per_s") == command(*words, "--json").json["bus_bytes_per_s"]
    watched.after(lambda: page.click("nav >> text=Sensitivities"))
    best = foretell.search(**SMALL).best  # type: ignore[arg-type]
    place = {name: value for name, value in SMALL.items() if name != "model"}
    found = foretell.sensitivity(SMALL["model"], **place, plan=str(best.plan)).to_dict()
    assert taken(page) == (json.loads(json.dumps(found)),) * 2
    for name, value in found["results"].items():
        assert watched.value(name) == value
    check_tables(page, "#elasticities", "sensitivity", found)
    assert page.inner_text("#commands").startswith("foretell sensitivity llama-3.1-8b ")


def check_tables(page: Any, place: str, verb: str, told: dict[str, Any]) -> None:
    """The cells of an answer's tables, in their order, are those of the page."""
    cells = [
        cell for table in presentation(verb, told).tables for row in table.rows for cell in row
    ]
    shown = [
        text for part in place.split(", ") for text in page.locator(f"{part} td").all_inner_texts()
    ]
    assert [text.strip() for text in shown] == [cell.strip() for cell in cells]


def taken(page: Any) -> tuple[Any, Any]:
    """What the command line and the Python that are taken along give."""
    printed = command(*shlex.split(page.inner_text("#commands"))[1:], "--json").json
    scope: dict[str, Any] = {}
    exec(page.inner_text("#python").rpartition("\n")[0], scope)
    return printed, json.loads(json.dumps(scope["found"].to_dict()))


def test_clusters_are_what_python_says(watched: Watched) -> None:
    """Of so many GPUs or for a sum, of a step or a service; with the keyboard alone."""
    systems = ["mi300x", "h200-sxm"]
    place = "1.model=gpt2&1.gpus=16&1.plan=zero1"
    page = watched.open(f"view=clusters&{place}&1.systems={','.join(systems)}")
    asked: dict[str, Any] = {"model": "gpt2", "gpus": 16, "plan": "zero1"}
    found = json.loads(json.dumps(foretell.compare(systems, **asked).to_dict()))
    assert page.inner_text("[data-name=best]") == found["best"]
    for name in ("tokens_per_s", "usd", "usd_per_million_tokens"):
        assert watched.value(name) == found["systems"][0][name]
    assert page.locator("#systems tbody tr").count() == 2
    check_tables(page, "#systems, #total", "compare", found)
    assert taken(page) == (found, found)
    for figure in ("clusters", "clusters-cost"):
        assert page.locator(f"[data-figure={figure}] svg.main-svg").count() > 0
    page.focus("#field-work")
    watched.after(lambda: page.keyboard.press("ArrowDown"))
    assert page.evaluate("document.activeElement.id") == "field-work"
    watched.after(lambda: page.fill("#field-budget", "1M"))
    held = parse_qs(urlparse(page.url).query)
    assert (held["1.work"], held["1.budget"]) == (["service"], ["1M"])
    served = foretell.compare(systems, model="gpt2", isl=1024, osl=1024, budget="1M").to_dict()
    assert watched.value("tokens_per_s") == served["systems"][0]["tokens_per_s"]


def test_scaling_is_what_python_says(watched: Watched) -> None:
    page = watched.open(f"view=scaling&{QUERY}&1.counts=8..32&1.strategies=zero1,tp2 zero1")
    asked: dict[str, Any] = {"system": "h100-sxm", "gpus": "8..32", "strategies": "zero1,tp2 zero1"}
    found = foretell.scaling("llama-3.1-8b", **asked).to_dict()
    points = [point for curve in found["curves"] for point in curve["points"]]
    most = max(point["tokens_per_s"] for point in points if point["fits"] != "no")
    assert watched.value("tokens_per_s") == most
    assert page.locator("#points tbody tr").count() == len(points)
    assert [curve["why"] in page.inner_text("#stops") for curve in found["curves"]] == [True, True]
    assert taken(page) == (json.loads(json.dumps(found)),) * 2
    watched.after(lambda: page.select_option("#field-mode", "strong"))
    strong = foretell.scaling("llama-3.1-8b", **asked, mode="strong", global_batch=1024).to_dict()
    points = [point for curve in strong["curves"] for point in curve["points"]]
    most = max(point["tokens_per_s"] for point in points if point["fits"] != "no")
    assert watched.value("tokens_per_s") == most
    watched.after(lambda: page.fill("#field-counts", "0"))
    assert page.get_attribute("#field-counts", "aria-invalid") == "true"
    assert not page.is_visible("[data-figure=scaling]")


def test_the_timeline_and_its_trace(watched: Watched) -> None:
    page = watched.open(f"view=timeline&{QUERY}&1.plan=tp4 pp2 zero1&1.global_batch=32")
    played = foretell.simulate(**SMALL, plan="tp4 pp2 zero1", global_batch=32)  # type: ignore[arg-type]
    assert watched.value("step_s") == played.to_dict()["step_s"]
    assert page.locator("[data-figure=timeline] svg.main-svg").count() > 0
    events = json.loads(gzip.decompress(watched.saved("#save-trace")))["traceEvents"]
    assert {"X", "M", "C"} <= {event["ph"] for event in events}
    page.click("#memory-over-step")
    page.wait_for_selector("[data-figure=memory-over-step] .plot:not(.waiting) svg.main-svg")
    # With another scenario every figure is the other one's, what was asked for apart included.
    with page.expect_request("**/api/figures/memory-over-step"):
        watched.after(lambda: page.click("#add"))
    for figure, title in (
        ("timeline", "One step of B"),
        ("memory-over-step", "Memory of B over a step"),
    ):
        assert page.inner_text(f"[data-figure={figure}] h2") == title
        assert page.get_attribute(f"[data-figure={figure}] .plot", "aria-label") == title
    assert page.locator("[data-figure=memory-over-step] .waiting").count() == 0


def test_an_answer_to_an_earlier_question_is_not_shown(watched: Watched) -> None:
    """From the first letter typed the page says that it is at work, then shows what was asked last."""
    page = watched.open(f"view=training&{QUERY}")
    busy = page.evaluate(
        """() => {
          const field = document.getElementById("field-gpus");
          field.value = "32";
          field.dispatchEvent(new Event("input"));
          return document.getElementById("answer").getAttribute("aria-busy");
        }"""
    )
    assert busy == "true"
    page.wait_for_selector("html[data-drawn='2'] main[aria-busy=false]")
    held: list[Any] = []

    def slow_once(route: Any) -> None:
        if held:
            route.continue_()
        held.append(route)

    page.route("**/api/search?*", slow_once)
    with page.expect_request("**/api/search?*"):
        page.fill("#field-gpus", "64")
    page.fill("#field-gpus", "8")
    held[0].continue_()
    page.wait_for_selector("html[data-drawn='3'] main[aria-busy=false]")
    assert watched.value("step_s") == foretell.search(**{**SMALL, "gpus": 8}).best.step_s  # type: ignore[arg-type]
    assert parse_qs(urlparse(page.url).query)["1.gpus"] == ["8"]
    page.unroute("**/api/search?*")


def test_accuracy_is_searchable_down_to_a_row(watched: Watched) -> None:
    from foretell.lab.validate.published import runs

    page = watched.open("view=accuracy")
    titles = page.locator("#summary h2").all_text_contents()
    assert [title.split(":")[0] for title in titles] == [
        "First contact", "Held out of the fits", "In sample",
    ]  # fmt: skip
    assert page.locator("#rows tbody tr").count() == len(runs())
    watched.after(lambda: page.fill("#find", "mpt-l48 512"))
    wanted = [
        r
        for r in runs()
        if "mpt-l48" in r.model and "512" in f"{r.gpus} {r.global_batch} {r.seq_len} {r.plan}"
    ]
    assert page.locator("#rows tbody tr").count() == len(wanted) > 0
    assert "find=mpt-l48" in page.url


def test_exports(watched: Watched) -> None:
    page = watched.open(f"view=training&{QUERY}&1.plan=tp4 pp2 zero1")
    told = foretell.estimate(**SMALL, plan="tp4 pp2 zero1").to_dict()  # type: ignore[arg-type]
    saved = json.loads(watched.saved("#save-json"))
    assert {name: saved[name] for name in told} == json.loads(json.dumps(told))
    rows = dict(row[:2] for row in csv.reader(io.StringIO(watched.saved("#save-csv").decode())))
    assert float(rows["step_s"]) == told["step_s"]
    assert watched.saved("[data-figure=memory] [data-export=png]").startswith(b"\x89PNG")
    assert b"GiB" in watched.saved("[data-figure=memory] [data-export=csv]")
    assert [answer["step_s"] for answer in taken(page)] == [told["step_s"]] * 2


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn_dark_and_narrow(browser: Any, address: str, view: str) -> None:
    narrow = Watched(browser, address, viewport={"width": 380, "height": 760}, color_scheme="dark")
    page = narrow.open(f"view={view}&{QUERY}&1.global_batch=64")
    assert page.locator("nav [aria-current=page]").inner_text().lower() == view
    assert page.locator("svg.main-svg").count() > 0
    wide = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide[0] <= wide[1], "the page is wider than the screen"
    ground = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", ground)[:3])) < 100
    for place in page.locator("input, select, textarea").all():
        assert page.locator(f"label[for='{place.get_attribute('id')}']").count() == 1
    for button in page.locator("button").all():
        assert button.inner_text().strip() or button.get_attribute("aria-label")
    narrow.context.close()
    assert narrow.said == []


def test_a_pasted_launch_is_improved(watched: Watched) -> None:
    text = (
        "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --tokenizer-model meta-llama/Llama-3.1-8B "
        "--tensor-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 128 --seq-length 8192 --bf16"
    )
    page = watched.open("view=launch")
    for place in page.locator("#answer input, #answer textarea").all():
        assert page.locator(f"label[for='{place.get_attribute('id')}']").count() == 1
    page.fill("#launch", text)
    page.click("#launch-go")
    page.wait_for_selector("#changes table")
    told = foretell.improve(text, system="h100-sxm")
    assert told.conclusions[0] in page.locator("#summary").inner_text()
    assert told.export.splitlines()[0] in page.locator("#changes pre").inner_text()
    assert "pretrain" not in page.url
    page.fill("#launch", text + " --warp-batch 9")
    page.click("#launch-go")
    page.wait_for_selector("#summary .said")
    assert "warp_batch is not known here" in page.locator("#summary").inner_text()


def test_a_pasted_run_is_diagnosed(watched: Watched) -> None:
    page = watched.open("view=diagnose")
    for place in page.locator("#answer input, #answer textarea").all():
        assert page.locator(f"label[for='{place.get_attribute('id')}']").count() == 1
    page.fill("#runs-text", "tp8 zero1 mbs1: 60 s")
    page.fill("#run-model", "llama-3.1-8b")
    page.fill("#run-gpus", "16")
    page.click("#runs-go")
    page.wait_for_selector("#runs table")
    told = foretell.diagnose(
        "tp8 zero1 mbs1: 60 s", model="llama-3.1-8b", system="h100-sxm", gpus=16
    ).to_dict()
    headline = presentation("diagnose", told).title
    assert page.inner_text("#summary .big") == headline.rpartition(": ")[0]
    check_tables(page, "#summary, #runs", "diagnose", told)
    assert "mbs1" not in page.url
    page.fill("#runs-text", "nothing of use")
    page.click("#runs-go")
    page.wait_for_selector("#summary .said")
    assert "cannot be diagnosed" in page.locator("#summary").inner_text()


def test_the_keyboard_is_enough(watched: Watched) -> None:
    page = watched.open(f"view=training&{QUERY}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "answer"
    page.focus("nav a:text-is('Network')")
    watched.after(lambda: page.keyboard.press("Enter"))
    assert page.get_attribute("main", "data-view") == "network"
    page.focus("[data-word] >> nth=0")
    assert page.inner_text("#tip")
    page.keyboard.press("Escape")
    assert page.locator("#tip").count() == 0
    watched.after(lambda: page.go_back())
    assert page.get_attribute("main", "data-view") == "training"


def test_words_are_the_glossarys(root: Path) -> None:
    words = json.loads((root / "src/foretell/web/static/words.json").read_text())
    glossary = (root / "docs/glossary.md").read_text().replace("`", "")
    for word, meaning in words.items():
        assert meaning in glossary, word
