"""Rates of a played run: those of its middle, beside what benchmark tools print of the whole."""

import pytest

import foretell

ASKED = {"system": "h100-sxm", "gpus": 1, "plan": "tp1", "isl": 512, "osl": 200}


def test_a_played_loop_has_the_rate_of_its_steady_state():
    closed = foretell.serve("llama-3.1-8b", **ASKED, concurrency=64, spread=0.8)
    played = foretell.serve(
        "llama-3.1-8b", **ASKED, concurrency=64, spread=0.8, simulate=True, requests=640
    )
    whole = played.simulation["whole_run_output_tokens_per_s"]
    assert played.output_tokens_per_s == pytest.approx(closed.output_tokens_per_s, rel=0.05)
    assert 0.9 < whole / played.output_tokens_per_s < 0.99
    gap = closed.output_tokens_per_s - played.output_tokens_per_s
    assert abs(gap) < abs(closed.output_tokens_per_s - whole)


def test_a_rate_that_is_met_is_the_rate_of_the_answers():
    """Arrivals over half a minute with answers of ten seconds: the drain is a third of the run."""
    load = {**ASKED, "osl": 1500, "rate": 4.0}
    played = foretell.serve("llama-3.1-8b", **load, simulate=True, requests=160, seed=3)
    assert played.requests_per_s == pytest.approx(4.0, rel=0.15)
    assert played.simulation["whole_run_output_tokens_per_s"] < 0.9 * played.output_tokens_per_s


def test_of_few_requests_the_whole_run_counts():
    played = foretell.serve("llama-3.1-8b", **ASKED, concurrency=4, simulate=True, requests=16)
    whole = played.simulation["whole_run_output_tokens_per_s"]
    assert played.output_tokens_per_s == pytest.approx(whole)
    assert played.requests_per_s == pytest.approx(whole / 200.0)
