"""A plan that does not fit: the answer is no, and all its numbers are there."""

import json

import pytest

from tests.surfaces.command import foretell

TOO_LARGE = ("llama-3.1-70b", "--gpus", "8xh100-sxm", "--plan", "tp8")


@pytest.mark.parametrize("verb", ["estimate", "explain"])
def test_text_shows_the_prediction_and_says_no(verb: str) -> None:
    found = foretell(verb, *TOO_LARGE)
    assert found.code == 1
    for words in ("step time" if verb == "estimate" else "compute", "GiB"):
        assert words in found.out
    assert "too much" in found.err


def test_json_has_every_number() -> None:
    found = foretell("estimate", *TOO_LARGE, "--tokens", "1B", "--json")
    told = json.loads(found.out)
    assert (found.code, told["fits"]) == (1, "no")
    assert told["step_s"] > 0.0
    assert told["run"]["days"] > 0.0
    assert told["interval"]["p90"][0] < told["step_s"]
