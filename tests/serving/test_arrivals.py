"""Requests that come by chance: the closed form beside the play, and what it must satisfy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.api.serving import asked_of, served_plainly
from foretell.catalog import model, system
from foretell.catalog.engines import profiles
from foretell.serving.arrivals import Stream, nearer, queue_s, with_rate
from foretell.serving.benchmark import simulated
from foretell.serving.memory import memory_of
from foretell.serving.simulated_fleet import able_per_s
from foretell.serving.simulation import latencies_ms
from foretell.serving.steady import met_together
from foretell.serving.steps import StepTimes, step_times
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.questions.serving import ServingQuestion

LLAMA, SYSTEM = model("llama-3.1-8b"), system("h100-sxm")
NAMES = ("vllm-0.18-hopper", "sglang-0.5-hopper", "trtllm-1-hopper")


def state(rate, name=NAMES[0], isl=1000.0, osl=200.0):
    engine = profiles()[name]
    times = step_times(LLAMA, SYSTEM, Deployment(), engine)
    memory = memory_of(LLAMA, SYSTEM, Deployment(), engine)
    return with_rate(times, memory, Traffic(isl=isl, osl=osl, concurrency=1.0), Stream(rate=rate))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize(
    ("rate", "isl", "osl"), [(1.0, 1000, 200), (10.0, 1000, 200), (25.0, 200, 200)]
)
def test_it_meets_the_play(engine, rate, isl, osl):
    """Up to some seven tenths of what an instance bears, by two ways that share only the steps."""
    load = {"isl": isl, "osl": osl, "rate": rate}
    asked = {"system": "h100-sxm", "gpus": 1, "plan": "tp1", "engine": engine, **load}
    closed = foretell.serve("llama-3.1-8b", **asked)
    played = foretell.serve("llama-3.1-8b", **asked, simulate={"requests": 1500, "seed": 1})
    assert closed.tpot_ms.mean == pytest.approx(played.tpot_ms.mean, rel=0.05)
    assert closed.ttft_ms.mean == pytest.approx(played.ttft_ms.mean, rel=0.07)


@given(rate=st.floats(0.01, 12.0), name=st.sampled_from(NAMES))
@settings(max_examples=12)
def test_littles_law_and_more_requests_take_longer(rate, name):
    found, flight = state(rate, name)
    spent = float(found.ttft_steady_s + 199.0 * found.tpot_s)
    assert flight == pytest.approx(rate * spent)
    more, _ = state(1.3 * rate, name)
    assert float(more.tpot_s) >= float(found.tpot_s) * (1.0 - 1e-9)
    assert float(more.ttft_steady_s) >= float(found.ttft_steady_s) * (1.0 - 1e-3)


def test_seldom_requests_are_alone():
    """No step is under way, nobody decodes beside: as one request in flight."""
    found, flight = state(1e-6)
    alone = foretell.serve(
        "llama-3.1-8b",
        system="h100-sxm",
        gpus=1,
        isl=1000,
        osl=200,
        concurrency=1,
        plan="tp1",
        engine=NAMES[0],
    )
    assert flight < 1e-4
    assert 1e3 * float(found.tpot_s) == pytest.approx(alone.tpot_ms.mean, rel=1e-3)
    assert 1e3 * float(found.ttft_steady_s) == pytest.approx(alone.ttft_ms.mean, rel=1e-3)


@given(rate=st.floats(1e-3, 1e3), step=st.floats(1e-3, 0.1), reading=st.floats(1e-3, 1.0))
def test_a_step_that_reads_has_a_prompt_at_least_and_all_that_come(rate, step, reading):
    k = float(met_together(rate, np.array(step), np.array(reading)))
    assert k >= rate * reading
    assert k >= 1.0 - 1e-9 or reading < step
    # Reading steps of k prompts and decode steps between them answer as many as come.
    assert rate / k * reading <= 1.0 + 1e-9


def test_queues_grow_with_load_and_vanish_with_servers():
    load = np.array([0.1, 0.5, 0.9])
    one = queue_s(load, np.ones(3), np.ones(3), 1.0)
    # One server with random service: rho / (1 - rho).
    np.testing.assert_allclose(one, load / (1.0 - load))
    assert (np.diff(one) > 0.0).all()
    assert (queue_s(load, np.full(3, 64.0), np.ones(3), 1.0) < 0.1 * one).all()


@given(slope=st.floats(-1.0, 0.8), level=st.floats(0.1, 10.0), start=st.floats(0.1, 10.0))
def test_a_fixed_point_is_found_in_a_few_rounds(slope, level, start):
    """Of a straight line on the third round, of a bent one soon after; falling or growing."""

    def asked(value):
        return level * (value / level) ** slope  # its own value at `level`

    value, last = np.array(start), None
    for _ in range(60):
        here = value, np.array(asked(float(value)))
        value, last = np.maximum(nearer(*here, last), 1e-3), here
    assert float(value) == pytest.approx(level, rel=1e-6)


def test_a_seldom_asked_service_is_answered_in_few_steps(monkeypatch):
    """What a service takes is looked at some ten times, not as often as rounds are allowed."""
    asked = []
    own = StepTimes.seconds
    monkeypatch.setattr(
        StepTimes, "seconds", lambda self, load: (asked.append(1), own(self, load))[1]
    )
    state(0.5)
    assert len(asked) < 30


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("rate", [1.5, 3.0, 4.0])
def test_requests_dealt_to_replicas_in_turn_meet_the_simulation(replicas, rate):
    """Up to three quarters of what four GPUs bear: every fourth request comes more evenly than all do."""
    asked = {
        "system": "hgx-h200",
        "gpus": 4 * replicas,
        "plan": "tp4",
        "spread": 0.8,
        "rate": rate * replicas,
    }
    closed = foretell.serve("llama-3.1-70b", **asked)
    played = foretell.serve("llama-3.1-70b", **asked, simulate={"requests": 2000})
    assert closed.ttft_ms.mean == pytest.approx(played.ttft_ms.mean, rel=0.1)
    assert closed.tpot_ms.mean == pytest.approx(played.tpot_ms.mean, rel=0.1)
    assert closed.ttft_ms.p99 == pytest.approx(played.ttft_ms.p99, rel=0.1)


@given(span=st.floats(1e-4, 20.0), dealt=st.integers(2, 20))
def test_requests_dealt_in_turn_meet_fewer_others_and_in_the_long_run_as_many(span, dealt):
    by_chance, evenly = (
        float(Stream(rate=3.0, dealt=n).met_within(np.array(span))) for n in (1, dealt)
    )
    assert by_chance == pytest.approx(3.0 * span)
    assert 0.0 <= evenly <= by_chance * (1.0 + 1e-9)
    assert by_chance - evenly <= 1.0
    late = Stream(rate=3.0, dealt=dealt).met_within(np.array(1e3))
    assert float(late) == pytest.approx(3e3 - 0.5 * (1.0 - 1.0 / dealt), rel=1e-6)
    assert float(Stream(rate=3.0, dealt=2).met_within(np.array(span))) == pytest.approx(
        3.0 * span + 0.25 * np.expm1(-12.0 * span)
    )


SERVICES = (
    {"model": "llama-3.1-70b", "system": "h100-sxm", "plan": "tp4", "isl": 2000, "osl": 300},
    {"model": "llama-3.1-8b", "system": "l40s", "plan": "tp1", "isl": 512, "osl": 128},
    {"model": "gpt-oss-120b", "system": "h200-sxm", "plan": "tp2", "isl": 1024, "osl": 512},
)


def tail_error(service, replicas, share):
    """A closed form's 99th percentile of the time to the first token over that of simulated requests."""
    own = {**service, "gpus": int(service["plan"][2:]) * replicas}
    idle, _ = asked_of(ServingQuestion(**own, concurrency=1))
    memory = memory_of(idle.model, idle.system, idle.deployment, idle.profile)
    rate = share * replicas * able_per_s(idle, memory)
    asked, _ = asked_of(ServingQuestion(**own, rate=rate))
    closed = served_plainly(asked, given=True)
    times = latencies_ms(simulated(asked, 5000), np.arange(5000) >= 500)
    return closed.ttft_ms.p99 / float(np.percentile(times["ttft_ms"], 99.0)) - 1.0


def test_tails_of_the_closed_form_are_those_of_simulated_requests():
    """From 0.3 to 0.8 of what an instance bears, dealt to one and to several."""
    loads = [(n, share) for n in (1, 4) for share in (0.3, 0.55, 0.8)]
    errors = [abs(tail_error(one, *load)) for one in SERVICES for load in loads]
    assert np.median(errors) < 0.1
    assert max(errors) < 0.35
