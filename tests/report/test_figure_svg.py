"""Plotly figures as SVG: what is drawn is where the numbers say."""

import itertools
import re
from typing import Any
from xml.etree import ElementTree as XML

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.report.figure_svg import figure_svg
from foretell.report.figure_traces import scale_colour
from foretell.report.figures.lines import lines
from foretell.report.figures.look import SCALE, figure
from foretell.report.figures.multiples import SmallPanel, small_multiples
from foretell.report.figures.sweep import heat_map, log_colours, sweep_figure
from foretell.report.svg import axis_scales

SPACE = "{http://www.w3.org/2000/svg}"
VALUES = st.lists(st.floats(0.01, 1e4), min_size=1, max_size=8)


def drawn(found: dict[str, Any]) -> XML.Element:
    return XML.fromstring(figure_svg(found))


def rects(root: XML.Element, colour: str) -> list[tuple[float, float, float, float]]:
    names = ("x", "y", "width", "height")
    return [
        tuple(float(r.get(n, "0")) for n in names)  # type: ignore[misc]
        for r in root.iter(f"{SPACE}rect")
        if r.get("fill") == colour
    ]


@given(values=VALUES)
def test_bars_are_as_high_as_their_values(values: list[float]) -> None:
    trace = {
        "type": "bar",
        "x": [f"n{i}" for i in range(len(values))],
        "y": values,
        "marker": {"color": "#123456"},
    }
    found = rects(drawn(figure([trace], "t", "x", "y")), "#123456")
    assert len(found) == len(values)
    tall = [height for *_, height in found]
    unit = max(tall) / max(values)
    assert all(h == pytest.approx(v * unit, abs=0.11) for h, v in zip(tall, values, strict=True))
    feet = {round(y + h) for _, y, _, h in found}
    assert max(feet) - min(feet) <= 1


@given(first=VALUES, second=VALUES)
def test_stacks_stand_on_each_other(first: list[float], second: list[float]) -> None:
    many = min(len(first), len(second))
    names = [f"n{i}" for i in range(many)]
    traces = [
        {"type": "bar", "name": "a", "x": names, "y": first[:many], "marker": {"color": "#111111"}},
        {
            "type": "bar",
            "name": "b",
            "x": names,
            "y": second[:many],
            "marker": {"color": "#222222"},
        },
    ]
    root = drawn(figure(traces, "t", "x", "y", barmode="stack"))
    low, high = rects(root, "#111111")[:many], rects(root, "#222222")[:many]
    for (_, y, _, _), (_, top, _, tall) in zip(low, high, strict=True):
        assert top + tall == pytest.approx(y, abs=0.25)


def test_error_bars_of_stacks_are_inside() -> None:
    """They begin at the sum, and the axis reaches their ends."""
    traces = [
        {"type": "bar", "name": "a", "x": ["p"], "y": [5.0]},
        {
            "type": "bar",
            "name": "b",
            "x": ["p"],
            "y": [1.0],
            "error_y": {"array": [4.0], "arrayminus": [2.0]},
        },
    ]
    found = figure(traces, "t", "x", "y", barmode="stack")
    axis = axis_scales(found, (0.0, 0.0, 100.0, 100.0))["y"]
    assert axis.low == 0.0
    assert axis.high >= 10.0
    drawn(found)


def test_groups_stand_beside_each_other() -> None:
    traces = [
        {"type": "bar", "name": c, "x": ["p", "q"], "y": [1.0, 2.0], "marker": {"color": c}}
        for c in ("#111111", "#222222")
    ]
    root = drawn(figure(traces, "t", "x", "y", barmode="group"))
    bars = [(x, x + w) for c in ("#111111", "#222222") for x, _, w, h in rects(root, c) if h > 14]
    spans = sorted(bars)
    assert len(spans) == 4
    assert all(b[0] >= a[1] - 0.2 for a, b in itertools.pairwise(spans))


def test_logarithms_and_categories() -> None:
    trace = {"type": "scatter", "mode": "markers", "x": [1, 10, 100], "y": ["a", "b", "c"]}
    found = figure([trace], "t", {"text": "x", "type": "log"}, "y")
    axes = axis_scales(found, (0.0, 0.0, 100.0, 100.0))
    places = [axes["x"](value) for value in (1, 10, 100)]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1])  # type: ignore[operator]
    assert axes["x"](0.0) is None
    assert axes["y"].categories == ("a", "b", "c")
    assert axes["y"]("z") is None


def test_words_are_escaped_and_gaps_are_left() -> None:
    trace = {
        "type": "scatter",
        "mode": "lines",
        "name": "<a> & b",
        "x": [1, 2, 3, 4],
        "y": [1.0, None, 2.0, 3.0],
    }
    other = {**trace, "name": "second"}
    root = drawn(figure([trace, other], "1 < 2 & 3", "x", "y"))
    assert any("& b" in (t.text or "") for t in root.iter(f"{SPACE}text"))
    assert len(list(root.iter(f"{SPACE}polyline"))) == 2  # one point alone is no line


@given(share=st.floats(0.0, 1.0))
def test_colours_lie_between_their_neighbours(share: float) -> None:
    assert re.fullmatch(r"#[0-9a-f]{6}", scale_colour(SCALE, share).lower())
    assert scale_colour(SCALE, 0.0).lower() == SCALE[0][1].lower()
    assert scale_colour(SCALE, 1.0).lower() == SCALE[-1][1].lower()


ROWS = [
    {"gpus": g, "seq_len": s, "global_batch": b, "step_s": g * s * b * 1e-6}
    for g in (8, 64, 512)
    for s in (1024, 8192)
    for b in (16, 32)
]


def test_a_third_field_makes_panels() -> None:
    """No row is hidden: every value of the sweep stands in a cell."""
    found = sweep_figure(
        ROWS, ("gpus", "seq_len", "step_s"), ("gpus", "seq_len", "global_batch"), {}
    )
    maps = [trace for trace in found["data"] if trace["type"] == "heatmap"]
    assert len(maps) == 2
    cells = [word for trace in maps for row in trace["text"] for word in row]
    assert sorted(map(float, cells)) == pytest.approx(sorted(r["step_s"] for r in ROWS), rel=1e-3)
    assert sum(bool(trace["showscale"]) for trace in maps) == 1
    assert {trace["zmin"] for trace in maps} == {min(trace["zmin"] for trace in maps)}
    drawn(found)


def test_too_many_panels_are_refused() -> None:
    from foretell.errors import BadInput

    rows = [{**ROWS[0], "global_batch": n, "gpus": g} for n in range(13) for g in (1, 2)]
    with pytest.raises(BadInput, match="13 combinations"):
        sweep_figure(rows, ("gpus", "seq_len", "step_s"), ("gpus", "seq_len", "global_batch"), {})


def test_decades_are_logarithmic() -> None:
    wide = lines(ROWS, "gpus", "step_s", group=("seq_len",))
    assert wide["layout"]["yaxis"]["type"] == "log"
    close = lines([{**r, "step_s": 1.0 + r["gpus"]} for r in ROWS[:4]], "gpus", "step_s")
    assert close["layout"]["yaxis"].get("type") != "log"
    assert log_colours([[1.0, 99.0]]) == {}
    assert log_colours([[1.0, 100.0, None]])["z"] == [[0.0, 2.0, None]]
    assert log_colours([[0.0, 100.0]]) == {}
    drawn(heat_map(ROWS, "gpus", "seq_len", "step_s"))


def test_small_multiples_share_a_legend() -> None:
    line = {"type": "scatter", "mode": "lines", "name": "a", "x": [1, 2], "y": [1, 2]}
    found = small_multiples(
        [SmallPanel(title=str(i), traces=[line], x="x", y="y") for i in range(3)], "t", 2, key=80
    )
    assert [trace["showlegend"] for trace in found["data"]] == [True, False, False]
    boxes = [found["layout"][f"xaxis{i}"]["domain"] for i in ("", "2", "3")]
    assert boxes[0] == boxes[2]
    assert boxes[0][1] < boxes[1][0]
    words = [t.text for t in drawn(found).iter(f"{SPACE}text")]
    assert words.count("a") == 1
