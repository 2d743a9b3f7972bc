"""A plan that does not fit: the answer is no, and all its numbers are there."""

import json
import re

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


@pytest.mark.parametrize(
    ("verb", "more", "ways"),
    [
        ("serve", ("--gpus", "4xH100"), ("--gpus 16, the fewest that hold it", "weights=int4", "--system ")),
        ("post-train", ("--gpus", "8xH100", "--algorithm", "grpo"), ("--gpus 128xH100",)),
        ("estimate", ("--gpus", "8xH100"), ("--gpus 96, the fewest that hold it",)),
    ],
)  # fmt: skip
def test_what_is_too_large_names_the_chips_that_hold_it(
    verb: str, more: tuple[str, ...], ways: tuple[str, ...]
) -> None:
    found = foretell(verb, "llama-3.1-405b", *more)
    assert found.code == 1
    assert all(way in found.err for way in ways), found.err
    size = re.search(r"--gpus (\S+?)[,;]", found.err)
    assert size is not None
    again = foretell(verb, "llama-3.1-405b", *[size[1] if "8" in w or "4x" in w else w for w in more],
                     *(("--system", "h100-sxm") if size[1].isdigit() else ()))  # fmt: skip
    assert again.code == 0
