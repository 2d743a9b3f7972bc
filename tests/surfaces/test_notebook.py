"""Answers in notebooks: a short text, HTML with a table, interval and breakdown bar, and data frames."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

import foretell
from foretell.records import Answer
from foretell.report.notebook import answer_text
from foretell.report.notebook.views import interval_svg
from foretell.report.presentation.numbers import bars_of
from foretell.report.presentation.verbs import CARDS, presentation
from tests.surfaces.test_attributes import ANSWERS, MODEL, PLAN, STUDY

MOST_LINES = 20
"""Lines that a short text may have."""
WHOLE: dict[str, Any] = {
    **{name: ask for name, ask in ANSWERS.items() if name != "choice"},
    "post_train": lambda: foretell.post_train("qwen3-8b", system="h100-sxm", gpus=16),
    "buy": lambda: foretell.buy(MODEL, budget="1M", tokens="1T", systems="hgx-h100"),
    "diagnose": lambda: foretell.diagnose(["zero3 mbs1: 1.2 s"], model=MODEL, **PLAN),
    "improve": lambda: foretell.improve(str(STUDY.parent / "launch_slow.sh"), system="h100-sxm"),
    "sensitivity of an estimate": lambda: foretell.sensitivity(foretell.estimate(MODEL, **PLAN)),
}
"""Every kind of answer."""


class Tags(HTMLParser):
    """Counts of tags, and whether each that opens closes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _kinds(kind: type[Answer] = Answer) -> set[str]:
    """Verbs of all answers that there are."""
    below = (verb for one in kind.__subclasses__() for verb in _kinds(one))
    return {kind.verb, *below} - {""}


def test_every_kind_of_answer_has_a_card() -> None:
    for name in foretell.__all__:
        getattr(foretell, name)  # functions load the modules of their answers
    assert _kinds() - {"trace"} <= set(CARDS)


@pytest.mark.parametrize("name", WHOLE)
def test_every_answer_shows_itself(name: str) -> None:
    answer = WHOLE[name]()
    assert isinstance(answer, Answer)
    assert answer.verb in CARDS
    text = str(answer)
    assert 1 <= len(text.splitlines()) <= MOST_LINES
    assert answer_text(answer.verb, answer.to_dict()).splitlines()[0] in answer._repr_html_().replace(
        "&gt;", ">").replace("&#x27;", "'").replace("&quot;", '"')  # fmt: skip
    tags = Tags()
    tags.feed(answer._repr_html_())
    assert tags.open == []
    assert tags.seen.get("table", 0) + tags.seen.get("svg", 0) >= 1
    assert not re.search(r"\b(nan|inf|None)\b", answer._repr_html_())
    frame = answer.to_frame()
    assert frame.height >= 1
    assert 1 <= frame.width == len(set(frame.columns)) <= 12
    assert set(frame.columns) <= set(answer.to_frame(every=True).columns)


def test_an_estimate_has_a_table_intervals_and_a_bar() -> None:
    answer = foretell.estimate(MODEL, **PLAN)
    told = answer._repr_html_()
    numbers = presentation("estimate", answer.to_dict()).facts
    assert told.count("aria-label='90 % interval'") == sum(one.ends is not None for one in numbers)
    assert "Where the step time goes" in told
    shares = [int(one) for one in re.findall(r"\((\d+)%\)", told)]
    assert 97 <= sum(shares) <= 103  # each is rounded
    low, high = answer.intervals["step_s"]["p90"]
    (step,) = (one for one in numbers if one.name == "step_s")
    assert f"90 %: {step.low} to {step.high}" in told
    assert step.ends == (low, answer.step_s, high)
    row = answer.to_frame().row(0, named=True)
    assert row["step_s"] == answer.step_s
    assert (row["intervals.step_s.p90.low"], row["intervals.step_s.p90.high"]) == (low, high)


def test_frames_have_a_row_for_each_part() -> None:
    found = foretell.search(MODEL, system="h100-sxm", gpus=8, global_batch=32, seq_len=2048, top=4)
    frame = found.to_frame()
    assert frame["plan"].to_list() == [str(one.plan) for one in found.plans]
    assert frame["step_s"].to_list() == [one.step_s for one in found.plans]
    bill = foretell.cost("system", "dgx-h200", gpus=16)
    frame = bill.to_frame()
    assert frame["path"][0] == "capital"
    assert frame["value"][0] == bill.usd
    with pytest.raises(foretell.BadInput, match="polars, pandas"):
        bill.to_frame("excel")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed here")
    assert isinstance(bill.to_frame("pandas"), pandas.DataFrame)


def test_small_parts_are_shown_together_and_nothing_is_lost() -> None:
    parts = {f"part{i}": float(i) for i in range(20)}
    bars = bars_of(parts)
    assert sum(value for _, value in bars) == sum(parts.values())
    assert bars[-1][0] == "other"
    assert len(bars) == 10


def test_an_interval_is_drawn_in_its_place() -> None:
    drawn = interval_svg(50.0, 100.0, 200.0)
    x0, x1 = map(
        float, re.findall(r"x1='([\d.]+)' x2='([\d.]+)' y1='6' y2='6' stroke='#", drawn)[0]
    )
    at = float(re.findall(r"cx='([\d.]+)'", drawn)[0])
    assert x0 < at < x1
    assert at == pytest.approx(2 * x0, abs=0.2)
