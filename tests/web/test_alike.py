"""One question, five ways to ask it: the same interval, the same words and the same evidence."""

import json
from typing import Any

import pytest

pytest.importorskip("pydantic")

import foretell
from foretell.web.assistant import call
from foretell.web.limits import Limits
from tests.surfaces.command import foretell as command
from tests.web.browser import Watched
from tests.web.client import client

ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "training": ("estimate", {"plan": "tp4 zero1 framework=nemo"}),
    "unnamed": ("estimate", {"plan": "tp4 zero1"}),
    "never seen": ("estimate", {"plan": "tp4 zero1 framework=primus"}),
    "serving": ("serve", {"plan": "tp4", "concurrency": 32}),
    "fine-tuning": ("post-train", {"algorithm": "sft"}),
}
WHERE = {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 8}


def words_of(verb: str, asked: dict[str, Any]) -> list[str]:
    flags = [w for name, value in asked.items() if name != "model"
             for w in (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip
    return [verb, asked["model"], *flags]


@pytest.mark.parametrize("name", ASKED)
def test_five_surfaces_say_the_same(name: str) -> None:
    verb, more = ASKED[name]
    asked = {**WHERE, **more}
    python = getattr(foretell, verb.replace("-", "_"))(**asked).to_dict()
    printed = json.loads(command(*words_of(verb, asked), "--json").out)
    with client(Limits()) as web:
        served = web.post(f"/api/{verb}", json=asked).json()
    tool = call(verb.replace("-", "_"), asked).record
    reason = python["interval_reason"]
    assert "expect" in reason
    assert "--measured" in reason
    for found in (printed, served, tool):
        assert found["interval_reason"] == reason
        assert found.get("evidence") == python.get("evidence")
        assert rounded(found["interval"]) == rounded(python["interval"])
    text = " ".join(command(*words_of(verb, asked)).out.split())
    assert reason in text


def rounded(interval: Any) -> Any:
    """As many digits as an assistant is shown."""
    if isinstance(interval, dict):
        return {key: rounded(value) for key, value in interval.items()}
    return [float(f"{value:.4g}") for value in interval]


def test_the_page_says_the_same(watched: Watched) -> None:
    query = "&".join(f"1.{name}={value}" for name, value in WHERE.items())
    page = watched.open(f"view=training&{query}&1.plan=tp4 zero1 framework=nemo")
    found = foretell.estimate(**WHERE, plan="tp4 zero1 framework=nemo")  # type: ignore[arg-type]
    assert page.inner_text("[data-name=interval_reason]") == found.interval_reason
    page = watched.open(f"view=serving&{query}&1.plan=tp4&1.concurrency=32")
    served = foretell.serve(**WHERE, plan="tp4", concurrency=32)  # type: ignore[arg-type]
    assert page.inner_text("[data-name=interval_reason]") == served.interval_reason
