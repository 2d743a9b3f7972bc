"""One question, five ways to ask it: the same interval, the same words and the same evidence.

The page is asked in test_page.py, beside the other tests of a browser.
"""

import json
from typing import Any

import pytest

pytest.importorskip("pydantic")

import foretell
from foretell.web.assistant import call
from foretell.web.limits import Limits
from tests.surfaces.command import foretell as command
from tests.web.client import client

ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "training": ("estimate", {"plan": "tp4 zero1 framework=nemo"}),
    "unnamed": ("estimate", {"plan": "tp4 zero1"}),
    "never seen": ("estimate", {"plan": "tp4 zero1 framework=primus"}),
    "serving": ("serve", {"plan": "tp4", "concurrency": 32}),
    "fine-tuning": ("post-train", {"algorithm": "sft"}),
}
WHERE: dict[str, Any] = {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 8}


def words_of(verb: str, asked: dict[str, Any]) -> list[str]:
    flags = [w for name, value in asked.items() if name != "model"
             for w in (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip
    return [verb, asked["model"], *flags]


@pytest.mark.parametrize("name", ASKED)
def test_every_surface_says_the_same(name: str) -> None:
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
