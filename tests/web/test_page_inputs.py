"""The page in a real browser: long work, clusters and files of a user's own, what differs, and phones."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import foretell
from tests.web.browser import Watched

SMALL = "1.model=llama-3.1-8b&1.system=h100-sxm&1.gpus=16"
DROP = """([text, name]) => {
  const held = new DataTransfer();
  held.items.add(new File([text], name));
  for (const kind of ["dragover", "drop"])
    document.body.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: held }));
}"""
"""Drops a file on the page."""
OWN = {
    "id": "own-cluster",
    "name": "My cluster",
    "chip": "h200-sxm",
    "chips_per_node": 8,
    "node_price_usd": 250_000,
    "network": {
        "node": {"size": 8, "bandwidth_bytes_per_s": "450 GB/s", "latency_s": "2.5 us"},
        "cluster": {
            "size": 2,
            "bandwidth_bytes_per_s": "200 Gbit/s",
            "latency_s": "5 us",
            "topology": "fat-tree",
        },
    },
}


def drop(watched: Watched, text: str, name: str) -> None:
    """Drop a file, and wait until the page has used it."""
    watched.after(lambda: watched.page.evaluate(DROP, [text, name]))


def test_long_work_shows_how_far_it_is_and_can_be_cancelled(watched: Watched) -> None:
    page = watched.open(f"view=training&{SMALL}")
    held: list[Any] = []
    page.route("**/api/search?*", lambda route: held.append(route))  # which never answers
    page.fill("#field-gpus", "32")
    page.wait_for_selector("#work:visible")
    assert "Searching plans" in page.inner_text("#work-words")
    page.wait_for_selector("#work progress:visible")
    page.click("#cancel")
    assert page.get_attribute("main", "aria-busy") == "false"
    assert "Cancelled" in page.inner_text("#work-words")
    assert page.evaluate("document.activeElement.id") == "again"
    page.unroute("**/api/search?*")
    watched.after(lambda: page.click("#again"))
    assert not page.is_visible("#work")
    best = foretell.search("llama-3.1-8b", system="h100-sxm", gpus=32).best
    assert watched.value("step_s") == best.step_s


def test_the_page_says_that_it_works_within_300_ms(watched: Watched) -> None:
    """By the page's own clock, which stands still until it is told to run."""
    page = watched.page
    page.clock.install()
    watched.open(f"view=training&{SMALL}")
    page.route("**/api/search?*", lambda route: None)
    page.clock.pause_at(page.evaluate("Date.now() + 1000"))
    assert page.is_hidden("#work")
    page.fill("#field-gpus", "64")
    page.clock.run_for(299)
    assert page.is_visible("#work")
    page.unroute("**/api/search?*")


def test_progress_is_shown_in_words_and_as_a_bar(watched: Watched) -> None:
    page = watched.open(f"view=training&{SMALL}")
    words, most, value = page.evaluate(
        """async () => {
          const { Work } = await import("/static/work.js");
          const root = document.createElement("div");
          const work = new Work(root, () => {}, () => {});
          work.start();
          const asked = work.begin("search");
          work.tell(asked, { state: "working", done: 1200, total: 48000 });
          work.draw();
          work.stop();
          const bar = root.querySelector("progress");
          return [root.querySelector("p").textContent, bar.max, bar.value];
        }"""
    )
    assert words.startswith("Searching plans: 1,200 of 48,000 plans · ")
    assert (most, value) == (48000, 1200)


def test_a_cluster_by_the_form_is_what_python_says(watched: Watched) -> None:
    page = watched.open(f"view=training&{SMALL}")
    watched.after(lambda: page.click("#own-cluster"))
    for name, value in (
        ("c_chip", "h200-sxm"), ("c_nodes", "2"), ("c_net", "200 Gbit/s"), ("c_price", "250000"),
    ):  # fmt: skip
        watched.after(lambda name=name, value=value: page.fill(f"#field-{name}", value))
    watched.after(lambda: page.fill("#field-gpus", ""))  # all of them
    best = foretell.search("llama-3.1-8b", system=OWN, gpus=16).best
    assert watched.value("step_s") == best.step_s
    assert "1.c_net=200+Gbit" in page.url
    page.goto(page.url)
    page.wait_for_selector("html[data-drawn] main[aria-busy=false]")
    assert watched.value("step_s") == best.step_s
    assert "--system own-cluster.toml" in page.inner_text("#commands")
    saved = tomllib.loads(watched.saved("text=Save own-cluster.toml").decode())
    assert saved == OWN
    watched.after(lambda: page.fill("#field-c_net", "fast"))
    assert page.get_attribute("#field-c_net", "aria-invalid") == "true"
    watched.after(lambda: page.click("#no-own"))
    assert page.input_value("#field-system") == "h100-sxm"


def test_prices_of_a_cluster_by_the_form_count(watched: Watched) -> None:
    def price(usd: str) -> float:
        watched.open(
            "view=cost&1.what=system&1.own=form&1.c_chip=h200-sxm&1.c_nodes=2&1.gpus=16"
            f"&1.c_price={usd}"
        )
        return watched.value("usd")

    assert price("900000") > price("250000")


def test_dropped_files_are_used_and_stay_out_of_the_address(watched: Watched, root: Path) -> None:
    """A system's TOML and a config.json; the file's words never reach the address or a store."""
    page = watched.open(f"view=training&{SMALL}")
    system = (root / "src/foretell/catalog/systems/alps.toml").read_text()
    system = system.replace('id = "alps"', 'id = "secret-one"')
    drop(watched, system, "secret.toml")
    assert "secret.toml" in page.inner_text("#fields")
    watched.after(lambda: page.fill("#field-gpus", "16"))
    found = foretell.search("llama-3.1-8b", system=tomllib.loads(system), gpus=16).best
    assert watched.value("step_s") == found.step_s
    config = json.dumps({
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    })  # fmt: skip
    drop(watched, config, "config.json")
    assert "16 layers" in page.inner_text("#fields")
    assert watched.value("step_s") < found.step_s
    for place in (page.url, page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")):
        assert "secret" not in place
        assert "2048" not in place
    watched.after(lambda: page.click("#no-own_model"))
    watched.after(lambda: page.click("#no-own"))
    assert "secret" not in page.inner_text("#fields")


def test_dropped_launches_and_logs_go_where_they_belong(watched: Watched, root: Path) -> None:
    page = watched.open(f"view=cost&{SMALL}")
    drop(watched, (root / "examples/launch_slow.sh").read_text(), "launch.sh")
    assert page.get_attribute("main", "data-view") == "launch"
    assert page.locator("#changes table").count() == 2
    drop(watched, "tp8 zero1 mbs1: 15.2 s", "runs.txt")
    assert page.get_attribute("main", "data-view") == "training"
    assert page.input_value("#field-measured") == "tp8 zero1 mbs1: 15.2 s"
    assert "15.2" not in page.url


def test_what_cannot_be_read_is_said_in_the_dialog(watched: Watched) -> None:
    page = watched.open(f"view=training&{SMALL}")
    page.click("#open-import")
    page.fill("#import-text", "hello")
    page.click("#import-go")
    page.locator("#import .wrong", has_text="cannot be read").wait_for()
    assert "config.json" in page.inner_text("#import .wrong")
    page.keyboard.press("Escape")
    assert not page.is_visible("#import")


def test_a_minus_b_and_what_changed(watched: Watched) -> None:
    page = watched.open(
        f"view=training&{SMALL}&1.plan=tp2 zero1&2.model=llama-3.1-8b&2.system=h200-sxm&2.gpus=16"
        "&2.plan=tp4 zero1"
    )
    one, other = (
        foretell.estimate("llama-3.1-8b", system=system, gpus=16, plan=plan)
        for system, plan in (("h100-sxm", "tp2 zero1"), ("h200-sxm", "tp4 zero1"))
    )
    card = page.locator("section#difference")
    assert card.locator("h2").inner_text() == "A minus B"
    step = card.locator("tbody tr").first.locator("data").all()
    values = [float(cell.get_attribute("value")) for cell in step]
    assert values == [one.step_s, other.step_s, one.step_s - other.step_s]
    assert "h100-sxm → h200-sxm" in card.inner_text()
    assert "tp2" in card.locator("li", has_text="Plan").inner_text()
    rows = card.locator("table").nth(1).locator("tbody tr").all()
    parts = [float(row.locator("data").nth(2).get_attribute("value")) for row in rows]
    assert sum(parts) == pytest.approx(one.step_s - other.step_s, rel=1e-3)
    # Chips of different memory each have their line.
    lines = page.locator("[data-figure=memory] .shapelayer path").count()
    assert lines == 2


EXPORTS = {
    "training": {
        "megatron-core@0.16": "--tensor-model-parallel-size",
        "torchtitan@0.3": "tensor_parallel_degree",
        "deepspeed@0.19": "zero_optimization",
    },
    "serving": {"vllm@0.32": "vllm serve", "sglang@0.5": "sglang", "trtllm@1.0": "trtllm-serve"},
    "post-training": {"verl": "trainer", "nemo-rl": "policy", "trl": "GRPOConfig"},
}
"""Tools of each view, and words that a launch of each has."""


@pytest.mark.parametrize("view", EXPORTS)
def test_export_in_every_form(watched: Watched, view: str) -> None:
    place = "1.model=llama-3.1-8b&1.system=h100-sxm&1.gpus=8&1.plan=tp2 zero1"
    page = watched.open(f"view={view}&{place}")
    for tool, words in EXPORTS[view].items():
        page.wait_for_selector(f"#export-tool option[value='{tool}']", state="attached")
        page.select_option("#export-tool", tool)
        page.locator("#exported", has_text=words).wait_for(timeout=60_000)


def test_every_bar_has_its_name_and_a_colour_of_its_own(watched: Watched) -> None:
    page = watched.open(
        "view=training&1.model=deepseek-v3&1.system=h100-sxm&1.gpus=1024"
        "&1.plan=tp8 pp8 ep64 zero1 mbs1"
    )
    plot = page.locator("[data-figure=time]")
    bars = plot.locator(".barlayer .point path").all()
    assert len(bars) == plot.locator(".yaxislayer-above text, .yaxislayer-below text").count() > 8
    colours = [bar.evaluate("(one) => getComputedStyle(one).fill") for bar in bars]
    assert len(set(colours)) == len(colours)


def test_a_first_visit_says_what_to_do(watched: Watched) -> None:
    page = watched.open("")
    assert "Change the model" in page.inner_text("#first")
    watched.after(lambda: page.fill("#field-gpus", "64"))
    assert not page.is_visible("#first")
    watched.open("view=training&1.model=gpt2")
    assert not page.is_visible("#first")


def test_headlines_are_words(watched: Watched) -> None:
    page = watched.open("view=training&1.model=llama-3.1-405b&1.system=h100-sxm&1.gpus=8")
    assert page.inner_text("[data-scenario=A] .big") == "No plan fits"
    watched.after(lambda: page.fill("#field-model", "lama"))
    assert page.inner_text("[data-scenario=A] .big") == "Check the input"


def test_a_phone_shows_the_answer_before_the_form(browser: Any, address: str) -> None:
    phone = Watched(browser, address, viewport={"width": 390, "height": 800})
    page = phone.open(f"view=training&{SMALL}")

    def top(place: str) -> float:
        return float(page.locator(place).bounding_box()["y"])

    assert not page.is_visible("#question")
    assert top("[data-scenario=A] .big") < 400
    page.click("#change")
    assert page.is_visible("#field-model")
    assert top("#field-model") < top("[data-scenario=A]")
    phone.after(lambda: page.fill("#field-gpus", "32"))
    assert "32" in page.inner_text("#change")
    phone.context.close()
    assert phone.said == []


def test_post_training_shows_phases_and_their_memory(watched: Watched) -> None:
    asked = "1.model=llama-3.1-8b&1.system=h100-sxm&1.p_gpus=16&1.placement=split"
    page = watched.open(f"view=post-training&{asked}")
    found = foretell.post_train(
        "llama-3.1-8b", system="h100-sxm", gpus=16, max_osl=8192, placement="split"
    )
    assert watched.value("step_s") == found.to_dict()["step_s"]
    for figure in ("phases", "phase-memory"):
        assert page.locator(f"[data-figure={figure}] .barlayer .point").count() > 2
    assert page.locator("#memory-table tbody tr").count() > 1


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("view=training&1.model=llama-3.1-8b&1.system=eos&1.gpus=100000", "No plan fits"),
        ("view=training&1.model=llama-3.1-405b&1.system=h100-sxm&1.gpus=8", "--gpus"),
        ("view=training&1.model=nope&1.system=h100-sxm&1.gpus=8", "Check the input"),
        ("view=serving&1.model=llama-3.1-405b&1.system=h100-sxm", "tokens/s per GPU"),
    ],
)
def test_an_answer_of_no_is_drawn_and_says_what_would_do(
    watched: Watched, query: str, words: str
) -> None:
    page = watched.open(query)
    page.get_by_text(words).first.wait_for()
    assert not [said for said in watched.said if said.startswith("error: ") and "422" not in said]


def test_fields_for_words_of_a_plan_are_the_plan(watched: Watched) -> None:
    page = watched.open(f"view=training&{SMALL}&1.framework=torchtitan&1.tp=8&1.zero=3")
    plan = page.inner_text("[data-scenario=A] [data-name=plan]")
    assert {"tp8", "zero3", "framework=torchtitan"} <= {*plan.split()}


def test_plans_that_differ_by_their_zero_stage_alone_are_one_row(watched: Watched) -> None:
    page = watched.open(f"view=training&{SMALL}")
    rows = (
        page.locator("section", has_text="Best plans of A").locator("tbody code").all_inner_texts()
    )
    families = [
        " ".join(w for w in row.split() if not w.startswith(("zero", "vpp", "mbs"))) for row in rows
    ]
    assert len({*families}) == len(families)
