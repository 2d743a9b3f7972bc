"""A service as a benchmark measures it beside its steady state, and the tails of both."""

from math import inf

import pytest

import foretell
from foretell.errors import BadInput, Infeasible

PLACE = {"system": "h100-sxm", "gpus": 4, "plan": "tp4", "isl": 2000, "osl": 300, "spread": 0.8}


def served(**load):
    return foretell.serve("llama-3.1-70b", **{**PLACE, **load})


def test_requests_that_begin_at_once_wait_longer_and_fewer_of_them_weigh_more():
    few, many = (served(concurrency=32, requests=n) for n in (64, 6400))
    assert few.ttft_ms.mean == many.ttft_ms.mean
    assert few.benchmark.ttft_ms.mean > many.benchmark.ttft_ms.mean > many.ttft_ms.mean
    assert many.benchmark.ttft_ms.mean == pytest.approx(many.ttft_ms.mean, rel=0.1)
    assert few.benchmark.output_tokens_per_s < many.benchmark.output_tokens_per_s


def test_a_warm_up_of_the_whole_first_wave_leaves_the_steady_state():
    found = served(concurrency=32, requests=320, warmup=32)
    assert found.benchmark.ttft_ms.mean == pytest.approx(found.ttft_ms.mean, rel=1e-9)
    halves = [served(concurrency=32, requests=320, warmup=n).benchmark.ttft_ms for n in (0, 16, 32)]
    assert halves[0].p99 > 1.5 * halves[2].p99


def test_the_mean_of_a_benchmark_is_that_of_its_simulated_requests():
    for flight in (4, 32, 128):
        asked = {"concurrency": flight, "requests": 10 * flight}
        closed, played = served(**asked).benchmark, served(**asked, simulate=True)
        assert closed.ttft_ms.mean == pytest.approx(played.ttft_ms.mean, rel=0.15)
        assert closed.tpot_ms.mean == pytest.approx(played.tpot_ms.mean, rel=0.05)
        if flight > 4:  # of forty requests it is the largest alone
            assert closed.ttft_ms.p99 == pytest.approx(played.ttft_ms.p99, rel=0.15)


def test_tails_are_of_simulated_requests_where_these_take_a_moment():
    short, long = served(concurrency=16), served(concurrency=6000)
    assert (short.percentiles_from, long.percentiles_from) == ("simulation", "closed form")
    for found in (short.ttft_ms, short.tpot_ms, short.benchmark.e2e_ms, long.ttft_ms):
        assert found.p50 <= found.p90 <= found.p95 <= found.p99
    assert served(rate=3.0).benchmark is None


def test_requests_at_a_rate_are_simulated_beside_the_steady_state():
    found = served(rate=3.0, requests=200)
    played = served(rate=3.0, requests=200, simulate=True)
    assert found.ttft_ms.mean == served(rate=3.0).ttft_ms.mean
    assert found.benchmark.ttft_ms.mean == pytest.approx(played.ttft_ms.mean, rel=1e-9)
    whole = played.simulation["whole_run_output_tokens_per_s"]
    assert found.benchmark.output_tokens_per_s == pytest.approx(whole, rel=1e-9)
    assert found.benchmark.duration_s > 200 / 3.0 * 0.8


def test_more_requests_than_can_be_answered_wait_as_long_as_the_benchmark_lasts():
    with pytest.raises(Infeasible, match="the queue has no end"):
        served(rate=100.0)
    short, long = (served(rate=100.0, requests=n) for n in (200, 400))
    assert long.benchmark.ttft_ms.mean > 1.5 * short.benchmark.ttft_ms.mean
    assert long.limited_by == "arrivals: the queue grows"


def test_an_infinite_rate_sends_all_requests_at_once():
    found = served(rate=inf, requests=200)
    same = served(concurrency=200, requests=200)
    assert found.benchmark == same.benchmark
    with pytest.raises(BadInput, match="rate"):
        served(rate=inf)


def test_an_endless_queue_gives_as_much_as_any_concurrency_and_a_static_batch_less():
    endless = served(batching="offline", spread=1.0)
    loops = [served(concurrency=n, spread=1.0).output_tokens_per_s for n in (16, 128, 1024)]
    assert endless.output_tokens_per_s > 0.9 * max(loops)
    static = served(batching="static", concurrency=16, spread=1.0)
    assert static.output_tokens_per_s < loops[0]
    assert static.e2e_ms.mean == pytest.approx(static.ttft_ms.mean + 299 * static.tpot_ms.mean)


@pytest.mark.parametrize(
    ("given", "path"),
    [({"requests": 0}, "requests"), ({"requests": 10, "warmup": 10}, "requests"), ({"warmup": -1}, "warmup"),
     ({"warmup": "nan"}, "warmup"), ({"requests": "x"}, "requests"),
     ({"batching": "static", "rate": 2.0}, "rate"),
     ({"batching": "offline", "concurrency": 8}, "concurrency")],
)  # fmt: skip
def test_what_cannot_be_is_said(given, path):
    with pytest.raises(BadInput, match=path):
        served(**given)


@pytest.mark.parametrize("plan", ["tp4", "tp2"])
@pytest.mark.parametrize(("isl", "osl"), [(200, 4000), (8000, 50), (9000, 2), (1000, 1)])
def test_input_tokens_are_never_dearer_than_output_tokens(plan, isl, osl):
    for load in ({"concurrency": 4}, {"concurrency": 400}, {"batching": "offline"}):
        for apart in ({}, {"prefill_gpus": 4}):
            if apart and "batching" in load:
                continue
            asked = {"plan": plan, "gpus": 8, "isl": isl, "osl": osl, **load, **apart}
            found = served(**asked)
            paid, written = found.usd_per_million_input_tokens, found.usd_per_million_output_tokens
            assert paid <= written * (1.0 + 1e-9)
            whole = (
                found.requests_per_s * 3600.0 * 0.9e-6 * (isl * paid + max(osl, 1 / 0.9) * written)
            )
            assert whole == pytest.approx(found.usd_per_chip_hour * 8, rel=1e-3)


def test_a_sized_service_is_told_as_a_benchmark_measures_it_too():
    """The figures of `serve` on the recommended layout, with as many requests as the rate has in flight."""
    asked = {"system": "h100-sxm", "isl": 1000, "osl": 300, "rate": 20.0, "ttft": 1000, "tpot": 40}
    found = foretell.size("llama-3.1-8b", **asked, requests=500, warmup=50, simulate=False)
    option, bench = found.best.option, found.benchmark
    flight = round(1e-3 * 20.0 * (option.ttft_ms + 299 * option.tpot_ms))
    same = {
        "system": "h100-sxm",
        "isl": 1000,
        "osl": 300,
        "gpus": option.gpus,
        "concurrency": flight,
    }
    if option.prefill is None:
        plan = found.to_dict()["best"]["plan"]
        own = foretell.serve("llama-3.1-8b", **same, plan=plan, requests=500, warmup=50).benchmark
        assert bench.ttft_ms.mean == pytest.approx(own.ttft_ms.mean)
        assert bench.output_tokens_per_s == pytest.approx(own.output_tokens_per_s)
    assert (bench.requests, bench.warmup) == (500, 50)
    with pytest.raises(BadInput, match="requests"):
        foretell.size("llama-3.1-8b", **asked, requests=10, warmup=10)


def test_a_point_beyond_every_measured_service_is_named():
    asked = {"system": "h200-sxm", "osl": 500, "rate": 2.0, "simulate": False}
    near, far = (foretell.size("gpt-oss-120b", **asked, isl=n) for n in (1024, 60_000))
    assert near.beyond_measured == ()
    assert any("60,000 tokens" in text for text in far.beyond_measured)
    other = foretell.size("gpt-oss-120b", **asked, isl=1024, engine="llama.cpp")
    assert other.beyond_measured
    assert other.to_dict()["beyond_measured"] == list(other.beyond_measured)
