"""Every verb on every surface: the same numbers under the same labels, with the same intervals."""

import re
from html import unescape
from typing import Any

import pytest

pytest.importorskip("pydantic")

import foretell
from foretell.api.network import collective
from foretell.report.presentation.numbers import Presentation
from foretell.report.presentation.verbs import presentation
from foretell.web.assistant import call
from foretell.web.limits import Limits
from tests.surfaces.command import foretell as command
from tests.web.client import client

STEP: dict[str, Any] = {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 8}
PLACE = {name: STEP[name] for name in ("system", "gpus")}
SERVICE: dict[str, Any] = {**STEP, "gpus": 1}
TUNE: dict[str, Any] = {**STEP, "algorithm": "sft"}
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "a step": ("estimate", {**STEP, "plan": "zero3"}),
    "a step of named software": ("estimate", {**STEP, "plan": "tp2 zero1 framework=megatron-core"}),
    "a step that is searched": ("estimate", {**STEP, "precision": "fp8"}),
    "a run": ("estimate", {**STEP, "plan": "zero3", "tokens": "1T"}),
    "long sequences": ("estimate", {**STEP, "plan": "tp8", "seq_len": 32768, "global_batch": 64}),
    "a mixture": ("estimate", {**STEP, "model": "qwen3-30b-a3b", "plan": "ep8 zero1"}),
    "no room": ("estimate", {**STEP, "model": "llama-3.1-70b", "plan": "tp8"}),
    "given a run": ("estimate", {**STEP, "plan": "zero3", "measured": "zero3: 55 s"}),
    "plans": ("search", {**STEP, "plan": "zero3"}),
    "stages": ("memory", {**STEP, "plan": "pp2 zero1"}),
    "parts of a step": ("explain", {**STEP, "plan": "zero3"}),
    "events": ("simulate", {**STEP, "plan": "pp2 zero1", "global_batch": 64}),
    "a service": ("serve", {**SERVICE, "plan": "tp1"}),
    "an engine": ("serve", {**SERVICE, "plan": "tp1", "engine": "sglang", "concurrency": 64}),
    "a rate": ("serve", {**SERVICE, "plan": "tp1", "rate": 2}),
    "fine-tuning": ("post-train", TUNE),
    "preferences": ("post-train", {**TUNE, "algorithm": "dpo"}),
    "reinforcement": ("post-train", {**TUNE, "algorithm": "grpo", "max_osl": 1024}),
    "an all-reduce": (
        "network",
        {"system": "hgx-h100", "group": 16, "bytes": "64MiB", "collective": "all-reduce"},
    ),
    "an all-to-all": (
        "network",
        {"system": "hgx-h100", "group": 32, "bytes": "1MiB", "collective": "all-to-all"},
    ),
    "two plans": (
        "compare-plans",
        {"model": "llama-3.1-8b", "a": "tp2 zero1", "b": "zero3", **PLACE},
    ),
    "a rate sized": (
        "size",
        {"model": "llama-3.1-8b", "system": "h100-sxm", "rate": 20, "gpus": 2},
    ),
    "a batch in time": (
        "size",
        {"model": "llama-3.1-8b", "system": "h100-sxm", "tokens": "1B", "within": "12h", "gpus": 2},
    ),
    "systems": (
        "compare",
        {"systems": ["h100-sxm", "b200-sxm"], "model": "llama-3.1-8b", "gpus": 8, "tokens": "1T"},
    ),
    "a purchase": (
        "buy",
        {
            "model": "llama-3.1-8b",
            "budget": "2M",
            "tokens": "1T",
            "systems": "hgx-h100,dgx-b200",
        },
    ),
    "money of a run": ("cost run", {**STEP, "plan": "zero3", "tokens": "1T"}),
    "money of tokens": ("cost token", {**SERVICE, "plan": "tp1"}),
    "money of a system": ("cost system", {"system": "hgx-h100", "gpus": 64}),
    "what would move it": ("sensitivity", {**STEP, "plan": "zero3"}),
    "strategies": ("scaling", {"models": ["llama-3.1-8b"], "system": "h100-sxm", "gpus": "8,16"}),
}


def _words(verb: str, asked: dict[str, Any]) -> list[str]:
    """The question as it is typed: what has a place without its flag."""
    placed = {"compare-plans": ("model", "a", "b")}.get(verb, tuple(asked)[:1])
    words = [one for name in placed for one in _texts(asked[name])]
    rest = [(name, value) for name, value in asked.items() if name not in placed]
    flags = [
        word
        for name, value in rest
        for one in _texts(value)
        for word in (f"--{name.replace('_', '-')}", one)
    ]
    return [*verb.split(), *words, *flags]


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _asked(verb: str, asked: dict[str, Any]) -> Any:
    """The answer in Python, also where it is no; None where the verb is no public function."""
    try:
        if verb == "network":
            renamed = {"size" if key == "bytes" else key: value for key, value in asked.items()}
            return collective(**renamed)
        made = getattr(foretell, verb.replace("-", "_"), None)
        return None if made is None or verb in ("sensitivity", "scaling") else made(**asked)
    except foretell.Infeasible as error:
        return error.answer


def _check_web(verb: str, asked: dict[str, Any], shown: Presentation) -> None:
    """The page's answer and an assistant's have the same headline, verdict, numbers and tables."""
    web = {**asked, "measured": [asked["measured"]]} if "measured" in asked else asked
    tool = call(verb.replace("-", "_").replace(" ", "_"), web).record["presentation"]
    with client(Limits()) as page:
        path = f"/api/{verb.replace(' ', '/')}?shown=true"
        served = page.post(path, json=web).json()["presentation"]
    for one in (tool, served):
        assert one.get("numbers", []) == [fact.to_dict() for fact in shown.facts]
        assert one["headline"] == shown.title
        assert one.get("verdict", "") == shown.verdict
    headers = [list(one.headers) for one in shown.tables]
    assert [one["headers"] for one in served.get("tables", [])] == headers


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_surface_shows_the_same(name: str) -> None:
    verb, asked = QUESTIONS[name]
    told = command(*_words(verb, asked), "--json").json
    shown = presentation(verb, told)
    assert shown.facts or shown.tables
    if verb != "buy":  # of the command line and Python alone
        _check_web(verb, asked, shown)
    answer = _asked(verb, asked)
    if answer is not None and hasattr(answer, "_repr_html_"):
        html = unescape(answer._repr_html_())
        for fact in shown.facts:
            assert f">{fact.label}</td>" in html
            assert f"<b>{fact.text}</b>" in html
    why = (
        ["--why"] if verb == "compare" else []
    )  # what the order rests on is asked for on a terminal
    text = command(*_words(verb, asked), *why).out
    for fact in shown.facts:
        sure = rf" +90%: {re.escape(fact.low)} to {re.escape(fact.high)}" if fact.ends else ""
        line = rf"^{re.escape(fact.label)} +{re.escape(fact.text)}{sure}"
        assert re.search(line, text, re.MULTILINE), line
    assert text.startswith(shown.title)
    for table in shown.tables:
        assert all(head in text for head in table.headers), table.title
        assert all(cell in text for row in table.rows for cell in row), table.title


def test_a_label_is_one_number_s_alone() -> None:
    """Nor has one number two labels: every output takes them from one table."""
    seen: dict[str, str] = {}
    for verb, asked in QUESTIONS.values():
        for one in presentation(verb, command(*_words(verb, asked), "--json").json).facts:
            assert seen.setdefault(one.name, one.label) == one.label
