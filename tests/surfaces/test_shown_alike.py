"""Twenty questions on four surfaces: the same numbers under the same labels, with the same intervals."""

import re
from html import unescape
from typing import Any

import pytest

pytest.importorskip("pydantic")

import foretell
from foretell.api.network import collective
from foretell.report.presentation.verbs import presentation
from foretell.web.assistant import call
from foretell.web.limits import Limits
from tests.surfaces.command import foretell as command
from tests.web.client import client

STEP: dict[str, Any] = {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 8}
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
}
PRINTED = ("estimate", "memory", "simulate", "serve", "network")
"""Verbs whose text has a line for each number."""


def _words(verb: str, asked: dict[str, Any]) -> list[str]:
    """The question as it is typed: the first word without its flag."""
    first, *rest = asked.items()
    flags = [word for name, value in rest for word in (f"--{name.replace('_', '-')}", str(value))]
    return [verb, str(first[1]), *flags]


def _asked(verb: str, asked: dict[str, Any]) -> Any:
    """The answer in Python, also where it is no."""
    try:
        if verb == "network":
            renamed = {"size" if key == "bytes" else key: value for key, value in asked.items()}
            return collective(**renamed)
        return getattr(foretell, verb.replace("-", "_"))(**asked)
    except foretell.Infeasible as error:
        return error.answer


@pytest.mark.parametrize("name", QUESTIONS)
def test_four_surfaces_show_the_same(name: str) -> None:
    verb, asked = QUESTIONS[name]
    answer = _asked(verb, asked)
    shown = presentation(verb, answer.to_dict())
    assert shown.facts
    wanted = [one.to_dict() for one in shown.facts]
    web = dict(asked)
    if "measured" in web:
        web["measured"] = [web["measured"]]
    tool = call(verb.replace("-", "_"), web).record["presentation"]
    with client(Limits()) as page:
        served = page.post(f"/api/{verb}?shown=true", json=web).json()["presentation"]
    for found in (tool, served):
        assert found["numbers"] == wanted
        assert found["headline"] == shown.title
        assert found.get("verdict", "") == shown.verdict
    html = unescape(answer._repr_html_())
    for one in shown.facts:
        assert f">{one.label}</td>" in html
        assert f"<b>{one.text}</b>" in html
    if verb in PRINTED:
        text = command(*_words(verb, asked)).out
        for one in shown.facts:
            if one.name not in ("ttft_ms", "tpot_ms"):  # a table of means and percentiles has them
                sure = rf" +90%: {re.escape(one.low)} to {re.escape(one.high)}" if one.ends else ""
                line = rf"^{re.escape(one.label)} +{re.escape(one.text)}{sure}"
                assert re.search(line, text, re.MULTILINE), line


def test_a_label_is_one_number_s_alone() -> None:
    """Nor has one number two labels: every output takes them from one table."""
    seen: dict[str, str] = {}
    for verb, asked in QUESTIONS.values():
        for one in presentation(verb, _asked(verb, asked).to_dict()).facts:
            assert seen.setdefault(one.name, one.label) == one.label
