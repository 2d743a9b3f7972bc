"""An offline batch with a deadline: `size` and `serve` with `--tokens 1B --within 12h`."""

import pytest

import foretell
from foretell.errors import BadInput
from tests.surfaces.command import foretell as command

PLACE = {"system": "h100-sxm", "isl": 1000, "osl": 500, "gpus": 8}


def batch(**asked):
    return foretell.size("llama-3.1-8b", **{**PLACE, "tokens": "1B", "within": "12h", **asked})


def test_a_batch_is_done_in_time_and_half_the_time_takes_at_least_as_many_chips():
    gpus = []
    for within in ("24h", "12h", "3h", "1h"):
        found = batch(within=within).to_dict()
        told = found["offline"]
        assert told["done_s"] <= told["within_s"]
        assert told["usd"] == pytest.approx(found["best"]["usd_per_hour"] * told["done_s"] / 3600.0)
        # One chip less would be too late.
        slowest = told["done_s"] * found["gpus"] / max(found["gpus"] - 8, 1)
        assert slowest > told["within_s"] or found["gpus"] <= 8
        gpus.append(found["gpus"])
    assert gpus == sorted(gpus)
    assert gpus[-1] > gpus[0]


def test_a_batch_takes_no_more_chips_than_a_rate_with_targets():
    rate = 1e9 / 500 / (3 * 3600)
    online = foretell.size(
        "llama-3.1-8b", **PLACE, rate=rate, tpot=15, simulate=False, headroom=0.0
    )
    assert batch(within="3h").best.option.gpus <= online.best.option.gpus


def test_the_command_says_when_it_is_done():
    told = command(
        "size", "llama-3.1-8b", "--system", "h100-sxm", "--tokens", "1B", "--within", "12h"
    )
    assert "of 12 h" in told.out.splitlines()[0]
    assert told.code == 0


@pytest.mark.parametrize(
    ("asked", "path"),
    [({"within": None}, "within"), ({"tokens": None}, "tokens"), ({"rate": 3.0}, "rate"),
     ({"tokens": "many"}, "tokens"), ({"within": "-3h"}, "within"),
     ({"tokens": None, "within": None}, "rate")],
)  # fmt: skip
def test_what_is_missing_or_too_much_is_said(asked, path):
    with pytest.raises(BadInput, match=path):
        batch(**asked)


def served(**asked):
    place = {"system": "h100-sxm", "isl": 1000, "osl": 500, "gpus": 8, "tokens": "1B"}
    return foretell.serve("llama-3.1-8b", **{**place, **asked})


def test_chips_that_are_there_write_a_batch_at_the_rate_of_an_endless_queue():
    found = served(within="12h", plan="tp1")
    endless = foretell.serve(
        "llama-3.1-8b", system="h100-sxm", isl=1000, osl=500, gpus=8, plan="tp1", batching="offline"
    )
    told = found.offline
    assert told["done_s"] == pytest.approx(1e9 / endless.output_tokens_per_s)
    assert told["usd"] == pytest.approx(8 * found.usd_per_chip_hour * told["done_s"] / 3600.0)
    assert told["in_time"] == (told["done_s"] <= 12 * 3600)
    # Without a plan the layout is the quickest, and a load that is given is kept.
    assert served().offline["done_s"] <= told["done_s"] * (1.0 + 1e-9)
    few = served(plan="tp1", concurrency=8)
    assert few.offline["done_s"] == pytest.approx(1e9 / few.output_tokens_per_s)
    assert few.offline["done_s"] > told["done_s"]


def test_a_batch_that_is_late_costs_the_exit_code():
    asked = ("serve", "llama-3.1-8b", "--system", "h100-sxm", "--gpus", "1", "--tokens", "1B")
    late, free = command(*asked, "--within", "1h"), command(*asked)
    assert late.code == 1
    assert late.out.startswith("no, too late: 1,000,000,000 tokens written in")
    assert free.code == 0
    assert command(*asked[:-2], "--within", "1h").code == 2
