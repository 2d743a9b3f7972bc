"""Figures: what they draw is what the answers say, and Plotly's own schema takes every one."""

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretell
from foretell.errors import BadInput
from foretell.report.figures import files
from foretell.report.figures.answers import FIGURES
from foretell.report.figures.breakdown import serve_bars, shares_bars, time_bars, total_cost_figures
from foretell.report.figures.explain import elasticity_rows, op_roofline, roofline, tornado
from foretell.report.figures.files import browser, html, plain_text, write_figure
from foretell.report.figures.lines import latency_bars, lines
from foretell.report.figures.look import COLOURS, THEMES, log_values, title_of
from foretell.report.figures.memory import memory_bars, memory_over_step
from foretell.report.figures.multiples import panels
from foretell.report.figures.pareto import pareto
from foretell.report.figures.scaling import strong_scaling
from foretell.report.figures.sweep import chosen_columns, heat_map
from foretell.report.figures.timeline import timeline

ROWS = [
    {
        "gpus": gpus,
        "chip.memory_bytes": held * 2.0**30,
        "step_s": 100.0 / gpus + held,
        "plan": "tp1",
    }
    for gpus in (8, 16, 32)
    for held in (40, 80)
]
EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "rank 0: stage 0 of 2, one of 4"}},
    {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "compute"}},
    *(
        {"ph": "X", "name": "f", "pid": 0, "tid": 0, "ts": 100.0 * i, "dur": 40.0, "cat": "compute",
         "args": {"pass": "forward" if i % 2 else "backward"}}
        for i in range(10)
    ),
]  # fmt: skip
ROOFS = [{"name": "bf16", "flop_per_s": 1e15, "bytes_per_s": 3e12}]
POINTS = [{"name": "ffn.up", "flop_per_byte": 400.0, "flop_per_s": 6e14, "share": 0.4}]


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """One answer of each verb, as JSON."""
    job: dict[str, Any] = {"system": "h100-sxm", "global_batch": 128}
    plan = "tp2 pp2 zero1"
    runs = [foretell.estimate("llama-3.1-8b", gpus=n, plan=plan, **job).to_dict() for n in (8, 16)]
    one: dict[str, Any] = {"gpus": 8, "plan": plan, **job}
    return {
        "estimates": runs,
        "explain": foretell.explain("llama-3.1-8b", **one).to_dict(),
        "memory": foretell.memory("llama-3.1-8b", **one).to_dict(),
        "serve": foretell.serve(
            "llama-3.1-8b", system="h100-sxm", gpus=1, concurrency=8, isl=500, osl=100
        ).to_dict(),
    }


def drawn(answers: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every figure."""
    runs = answers["estimates"]
    return {
        "strong": strong_scaling({"H100": runs}),
        "time": time_bars(runs),
        "shares": shares_bars(answers["explain"]),
        "serve": serve_bars([answers["serve"]]),
        "latency": latency_bars([answers["serve"]]),
        "memory": memory_bars(runs[0]),
        "memory over a step": memory_over_step(answers["memory"]),
        "roofline": roofline(ROOFS, POINTS),
        "heat map": heat_map(ROWS, "gpus", "chip.memory_bytes", "step_s"),
        "pareto": pareto(ROWS, "step_s", "chip.memory_bytes", ("min", "max")),
        "tornado": tornado(elasticity_rows(answers["explain"])),
        "timeline": timeline(EVENTS),
        "lines": lines(ROWS, "gpus", "step_s", group=("chip.memory_bytes",)),
        "no rows": lines([], "gpus", "step_s"),
        "no answers": time_bars([]),
    }


def test_plotly_takes_every_figure_and_the_answers_stay_as_they_are(
    answers: dict[str, Any],
) -> None:
    from plotly.graph_objects import Figure

    before = copy.deepcopy(answers)
    for name, figure in drawn(answers).items():
        Figure(figure)  # raises where a key or a value is not in the schema
        json.dumps(figure, allow_nan=False)
        assert figure["layout"]["title"]["text"], name
        assert all(t["type"] in ("scatter", "bar", "heatmap") for t in figure["data"]), name
    assert answers == before


def test_axes_of_numbers_say_their_unit(answers: dict[str, Any]) -> None:
    plain = {"GPUs", "tokens/s per GPU"}
    for name, figure in drawn(answers).items():
        for key, axis in figure["layout"].items():
            if key[1:5] == "axis" and axis.get("type") != "category" and figure["data"]:
                text = axis["title"]["text"]
                assert "(" in text or text in plain or (name, text) == ("shares", ""), (name, key)


def test_bars_add_up_to_the_step_and_the_interval_is_the_answers(answers: dict[str, Any]) -> None:
    figure = time_bars(answers["estimates"])
    bars = [trace for trace in figure["data"] if trace["type"] == "bar"]
    unit = figure["layout"]["yaxis"]["title"]["text"]
    factor = {"(s)": 1.0, "(ms)": 1e3}[unit.rsplit(" ", 1)[1]]
    whole = next(trace for trace in figure["data"] if trace.get("name") == "whole")
    for i, answer in enumerate(answers["estimates"]):
        total = sum(trace["y"][i] for trace in bars)
        assert total == pytest.approx(factor * answer["step_s"], rel=1e-9)
        low, high = (factor * end for end in answer["interval"]["p90"])
        assert whole["y"][i] + whole["error_y"]["array"][i] == pytest.approx(high)
        assert whole["y"][i] - whole["error_y"]["arrayminus"][i] == pytest.approx(low)


def test_memory_adds_up_to_the_peak(answers: dict[str, Any]) -> None:
    answer = answers["estimates"][0]
    drawn = memory_bars(answer)["data"]
    for i, stage in enumerate(answer["memory_by_stage"]):
        total = sum(trace["y"][i] for trace in drawn if trace["type"] == "bar")
        assert total * 2.0**30 == pytest.approx(stage["value"])
    peak = next(trace for trace in drawn if trace["type"] == "scatter")
    low, high = answer["intervals"]["peak_memory_bytes"]["p90"]
    assert (peak["y"][0] + peak["error_y"]["array"][0]) * 2.0**30 == pytest.approx(high)
    assert (peak["y"][0] - peak["error_y"]["arrayminus"][0]) * 2.0**30 == pytest.approx(low)
    over = memory_over_step(answers["memory"])
    held = np.array([trace["y"] for trace in over["data"]]).sum(axis=0).max()
    fullest = answers["memory"]["stages"][answers["memory"]["fullest_stage"]]
    assert held * 2.0**30 == pytest.approx(fullest["allocated_bytes"])


SIZES = st.floats(0.1, 100.0)


@given(points=st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=30))
def test_the_front_that_is_drawn_is_the_front(points: list[tuple[float, float]]) -> None:
    rows = [{"step_s": x, "tokens_per_s": y} for x, y in points]
    figure = pareto(rows, "step_s", "tokens_per_s", ("min", "max"))
    joined = figure["data"][0]
    beaten = [any(a <= x and b >= y and (a, b) != (x, y) for a, b in points) for x, y in points]
    front = {point for point, out in zip(points, beaten, strict=True) if not out}
    assert set(zip(joined["x"], joined["y"], strict=True)) == front
    assert joined["x"] == sorted(joined["x"])
    assert sum(len(trace["x"]) for trace in figure["data"][1:]) == len(points)


def test_cells_of_a_heat_map_are_the_rows() -> None:
    figure = heat_map(
        [*ROWS[1:], {**ROWS[1], "step_s": None}], "gpus", "chip.memory_bytes", "step_s"
    )
    cells = figure["data"][0]
    assert (cells["x"], cells["y"]) == (["8", "16", "32"], ["40", "80"])
    assert cells["z"][0][0] is None  # no row
    assert cells["z"][1][2] == pytest.approx(100.0 / 32 + 80)


def test_a_timeline_keeps_what_was_busy_and_joins_only_what_touches() -> None:
    busy = {t["name"]: t for t in timeline(EVENTS)["data"]}
    assert set(busy) == {"forward", "backward"}
    assert sum(sum(trace["x"]) for trace in busy.values()) == pytest.approx(400.0)  # us
    assert set(busy["forward"]["y"]) == {"stage 0, compute"}
    touching = [{**event, "dur": 100.0} for event in EVENTS[2:]]
    one = [{**event, "args": {"pass": "forward"}} for event in touching]
    assert timeline(one)["data"][0]["x"] == pytest.approx([1.0])


def test_a_tornado_has_the_strongest_on_top_and_nothing_twice(answers: dict[str, Any]) -> None:
    bars = tornado(elasticity_rows(answers["explain"]))["data"][0]
    sizes = [abs(value) for value in bars["x"]]
    assert sizes == sorted(sizes)
    known = {row["words"]: row["what_if_ratio"] for row in answers["explain"]["elasticities"]}
    assert bars["x"][-1] == pytest.approx(100.0 * (known[bars["y"][-1]] - 1.0))
    assert not any("clock of the cores" in name for name in bars["y"])


def _contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255.0 for i in (1, 3, 5)]
        lit = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * lit[0] + 0.7152 * lit[1] + 0.0722 * lit[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_stand_out_on_light_and_dark() -> None:
    assert len(set(COLOURS)) == len(COLOURS)
    for theme in THEMES.values():
        assert _contrast(theme["ink"], theme["ground"]) >= 7.0
        assert min(_contrast(colour, theme["ground"]) for colour in COLOURS) >= 2.0


@pytest.mark.parametrize(
    ("field", "title"),
    [
        ("step_s", "step time (s)"),
        ("peak_memory_bytes", "peak memory (GiB)"),
        ("network.node.bandwidth_bytes_per_s", "node bandwidth (GB/s)"),
        ("mfu", "MFU"),
        ("tp", "tp"),
    ],
)
def test_titles_carry_units(field: str, title: str) -> None:
    assert title_of(field) == title


def test_a_page_holds_all_it_needs_and_no_text_ends_its_script(tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    figure = lines(ROWS, "gpus", "step_s", title=evil)
    page = write_figure(figure, tmp_path / "a.html").read_text()
    assert len(page) > 1e6  # plotly.js is inside
    assert page.count("</script>") == 3
    assert evil not in page
    for words in ('src="', "src='", "<link", "@import"):
        assert words not in page.replace("xlink", "").split("<script>")[0]
    told = page.split("id='told'>")[1].split("</script>")[0]
    assert json.loads(told)["figure"] == plain_text(figure)
    assert json.loads(write_figure(figure, tmp_path / "a.json").read_text()) == plain_text(figure)


def test_files_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = lines(ROWS, "gpus", "step_s")
    with pytest.raises(BadInput, match="no kind of file"):
        write_figure(figure, tmp_path / "a.pdf")
    monkeypatch.setattr(files, "browser", lambda: None)
    with pytest.raises(BadInput, match="install chromium"):
        write_figure(figure, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
    assert write_figure(figure, tmp_path / "a.svg").read_text().startswith("<svg")


def test_pages_in_a_browser(tmp_path: Path) -> None:
    if browser() is None:
        pytest.skip("no browser here to open the page with")
    from xml.etree import ElementTree

    figure = lines(ROWS, "gpus", "step_s", title="a < b & c")
    root = ElementTree.fromstring(write_figure(figure, tmp_path / "a.svg").read_text())
    words = "".join(root.itertext())
    assert "GPUs" in words
    assert "step time (s)" in words
    page = write_figure(figure, tmp_path / "a.html")
    shown = subprocess.run(
        [str(browser()), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path}/p",
         "--virtual-time-budget=9000", page.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    assert b'class="main-svg"' in shown.stdout
    assert html(figure).startswith("<!doctype html>")


def test_operations_stay_under_their_roofs(answers: dict[str, Any]) -> None:
    figure = op_roofline(answers["explain"])
    roofs = [t for t in figure["data"] if t["mode"] == "lines"]
    assert [t["name"] for t in roofs] == ["matrix units", "vector units"]
    numbers = {row["path"]: row["value"] for row in answers["explain"]["elasticities"]}
    drawn_points = sum(len(t["x"]) for t in figure["data"] if t["mode"] == "markers")
    ops = [op for op in answers["explain"]["ops"] if op["flop"] > 0.0]
    assert drawn_points == len(ops) > 10
    for op in ops:
        run_s = op["seconds"] / op["count"]
        assert run_s >= op["flop"] / numbers["chip.matrix_flop_per_s"]
        # What the cache still holds of the kernel before need not come from memory.
        moved = op["moved_bytes"] - numbers["chip.l2_bytes"]
        assert run_s >= moved / numbers["chip.memory_bandwidth_bytes_per_s"]


def test_panels_keep_traces_and_axes_apart(answers: dict[str, Any]) -> None:
    from plotly.graph_objects import Figure

    parts = [
        memory_bars(answers["estimates"][0]),
        latency_bars([answers["serve"]]),
        tornado(elasticity_rows(answers["explain"])),
    ]
    whole = panels(parts, "all", columns=2)
    Figure(whole)
    assert len(whole["data"]) == sum(len(part["data"]) for part in parts)
    axes = {key: axis for key, axis in whole["layout"].items() if key[1:5] == "axis"}
    assert len(axes) == 2 * (1 + 2 + 1)
    boxes = [
        (*axes["xaxis" + n]["domain"], *axes["yaxis" + n]["domain"]) for n in ("", "2", "3", "4")
    ]
    for i, (left, right, bottom, top) in enumerate(boxes):
        assert 0.0 <= left < right <= 1.0
        assert 0.0 <= bottom < top <= 1.0
        for other in boxes[:i]:
            across = min(right, other[1]) - max(left, other[0])
            up = min(top, other[3]) - max(bottom, other[2])
            assert min(across, up) <= 0.0
    used = [(trace["xaxis"], trace["yaxis"]) for trace in whole["data"]]
    assert set(used) == {("x", "y"), ("x2", "y2"), ("x3", "y3"), ("x4", "y4")}
    assert whole["layout"]["shapes"][0]["yref"] == "y"  # the capacity stays in its own panel


@pytest.mark.parametrize("verb", ["estimate", "explain", "memory", "serve"])
def test_the_figure_of_a_verb(verb: str, answers: dict[str, Any]) -> None:
    from plotly.graph_objects import Figure

    answer = answers["estimates"][0] if verb == "estimate" else answers[verb]
    Figure(FIGURES[verb](answer))


KNOWN = ["plan.tp", "plan.pp", "seq_len", "step_s", "energy_joules", "mfu"]
VARIED = KNOWN[:3]


@pytest.mark.parametrize(
    ("goals", "asked", "expected"),
    [
        (["step_s"], {}, ("plan.tp", "plan.pp", "step_s")),
        (["step_s", "energy_joules"], {}, ("step_s", "energy_joules", None)),
        (["step_s"], {"x": "seq_len"}, ("seq_len", "step_s", None)),
        (["step_s"], {"y": "mfu"}, ("plan.tp", "mfu", None)),
        (["step_s"], {"value": "mfu"}, ("plan.tp", "plan.pp", "mfu")),
        (["step_s"], {"x": "seq_len", "value": "mfu"}, ("seq_len", "plan.tp", "mfu")),
        (["step_s"], {"x": "mfu", "y": "step_s"}, ("mfu", "step_s", None)),
    ],
)
def test_what_a_sweep_shows(goals: list[str], asked: dict[str, str], expected: Any) -> None:
    all_asked = {"x": None, "y": None, "value": None, **asked}
    assert chosen_columns(VARIED, goals, KNOWN, all_asked) == expected


def test_a_sweep_without_such_columns_says_so() -> None:
    with pytest.raises(BadInput, match=r"plan\.tp"):
        chosen_columns(VARIED, ["step_s"], KNOWN, {"x": "plan.tpp", "y": None, "value": None})
    with pytest.raises(BadInput, match="what to draw"):
        chosen_columns([], ["step_s"], KNOWN, {"x": None, "y": None, "value": None})


def test_names_are_no_markup_to_plotly() -> None:
    name = "<b>x</b><a href=y>z</a>"
    figure = {"data": [{"name": f"{name}<br>8", "x": [1.0], "hovertemplate": "%{y}<extra></extra>"}],
              "layout": {"title": {"text": name}}}  # fmt: skip
    safe = plain_text(figure)
    assert safe["layout"]["title"]["text"] == "&lt;b>x&lt;/b>&lt;a href=y>z&lt;/a>"
    assert safe["data"][0]["name"].endswith("&lt;/a><br>8")
    assert safe["data"][0]["hovertemplate"] == "%{y}<extra></extra>"
    assert safe["data"][0]["x"] == [1.0]
    assert "<a href" not in html(figure).partition("id='told'")[2]


def test_an_axis_has_two_ticks_within_its_values() -> None:
    for low, high in ((1.05, 1.45), (0.4, 90.0), (3.1, 3.4), (150.0, 170.0), (1e-6, 4e-6)):
        ticks = log_values(low, high)
        assert ticks == sorted(ticks)
        assert sum(low <= tick <= high for tick in ticks) >= 2, (low, high)
        assert min(ticks) > 0.0


def test_many_systems_share_one_figure_of_their_costs() -> None:
    cost = {"hardware": 3e6, "power": 1e6, "resale": -5e5, "total": 3.5e6}
    row = {"gpus": 8, "years": 4.0, "paid": "own", "total_cost": cost}
    few, many = (
        total_cost_figures({"systems": [{**row, "system": f"node {i}"} for i in range(count)]})
        for count in (3, 8)
    )
    assert len(few) == 3
    (one,) = many
    assert [trace["name"] for trace in one["data"]] == ["hardware", "power", "resale"]
    assert one["data"][0]["x"][7] == "node<br>7"
    sums = [sum(trace["y"][i] for trace in one["data"]) for i in range(8)]
    assert sums == pytest.approx([3.5] * 8)
