"""The event-jump simulator against a loop over every token, and laws that no queue breaks."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.serving.requests.records import EngineRules, Fleet, RequestOutcomes, Requests
from foretell.serving.requests.run import play
from tests.simulation.token_loop import Loop


@dataclass(frozen=True)
class Straight:
    """Steps that are straight in everything, with a kink in the context."""

    a: float = 0.01
    b: float = 1e-6
    kink: float = 5000.0

    def line(self, decoding: int, context_tokens: float) -> tuple[float, float, float]:
        a = self.a + 1e-4 * decoding
        if context_tokens < self.kink:
            return a, self.b, self.kink
        return a - self.b * self.kink, 2.0 * self.b, math.inf

    def mixed(
        self, decoding: int, context_tokens: float, new: float, past: float, prompts: int
    ) -> float:
        a, b, _ = self.line(decoding, context_tokens)
        return a + b * context_tokens + 2e-5 * new + 1e-8 * new * past + 1e-3 * prompts


lengths = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60)), min_size=1, max_size=25)


def requests_of(pairs: list[tuple[int, int]], gaps: list[float] | None, flight: int) -> Requests:
    isl, osl = [p for p, _ in pairs], [o for _, o in pairs]
    if gaps is None:
        return Requests(isl=isl, osl=osl, concurrency=flight)
    at = np.cumsum([gaps[i % len(gaps)] for i in range(len(pairs))])
    return Requests(isl=isl, osl=osl, at_s=[float(t) for t in at])


rules = st.builds(
    EngineRules,
    max_batch=st.integers(1, 12),
    max_tokens=st.sampled_from([64, 256, 1024]),
    kv_tokens=st.sampled_from([520.0, 900.0, 2000.0, 1e6]),
    policy=st.sampled_from(["mixed", "prefill-first"]),
    whole_admission=st.booleans(),
    slack_tokens=st.sampled_from([0.0, 8.0]),
)
gaps = st.none() | st.lists(st.floats(1e-3, 0.5), min_size=1, max_size=5)


@settings(max_examples=300, deadline=None)
@given(lengths, rules, gaps, st.integers(1, 16))
def test_jumping_gives_what_stepping_gives(
    pairs: list[tuple[int, int]], some: EngineRules, waits: list[float] | None, flight: int
) -> None:
    requests = requests_of(pairs, waits, flight)
    played = play(requests, Fleet(rules=some), Straight())
    arrival, first, done = Loop(requests, some, Straight()).play()
    np.testing.assert_allclose(played.arrival_s, arrival, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(played.first_s, first, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(played.done_s, done, rtol=1e-9, atol=1e-9)


fleets = st.builds(
    Fleet,
    rules=rules.map(lambda r: replace(r, prefix_caching=True, tokens_per_step=1.7)),
    replicas=st.integers(1, 3),
    routing=st.sampled_from(["round-robin", "least-loaded", "prefix-aware"]),
)


@settings(max_examples=150, deadline=None)
@given(lengths, fleets, gaps, st.integers(1, 16), st.booleans())
def test_every_request_is_answered_once_and_the_cache_never_overflows(
    pairs: list[tuple[int, int]],
    fleet: Fleet,
    waits: list[float] | None,
    flight: int,
    classes: bool,
) -> None:
    plain = requests_of(pairs, waits, flight)
    many = len(pairs)
    requests = replace(
        plain,
        prefix=[i % 3 - 1 for i in range(many)],
        prefix_tokens=[40] * many,
        priority=[i % 2 for i in range(many)] if classes else None,
    )
    played = play(requests, fleet, Straight())
    assert not played.refused.any()
    assert np.isfinite(played.done_s).all()
    assert (played.first_s > played.arrival_s).all()
    assert (played.done_s >= played.first_s).all()
    assert (played.busy_s <= played.end_s + 1e-9).all()
    held = np.array(played.series.held_tokens)
    grown = fleet.rules.max_batch * fleet.rules.tokens_per_step
    assert (held <= fleet.rules.kv_tokens + grown).all()
    assert (held >= -1e-6).all()


def test_an_empty_replica_holds_nothing() -> None:
    """What comes into the cache goes out of it: prefixes, preemptions and answers leave no rest."""
    from foretell.serving.requests.records import Series
    from foretell.serving.requests.replica import Replica

    requests = Requests(
        isl=[50] * 40, osl=[30] * 40, concurrency=40, prefix=[i % 2 for i in range(40)],
        prefix_tokens=[20] * 40,
    )  # fmt: skip
    some = EngineRules(max_batch=16, max_tokens=100, kv_tokens=400.0, prefix_caching=True)
    replica = Replica(0, requests, some, Straight(), Series())
    for i in range(40):
        replica.push(i)
    while not replica.idle:
        replica.event(math.inf)
    assert replica.preempted > 0
    assert replica.prefixes.saved_tokens > 0
    left = sum(known.tokens for known in replica.prefixes.known.values())
    assert replica.held == pytest.approx(left, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(lengths, rules, st.floats(0.005, 0.3))
def test_little_s_law_holds(pairs: list[tuple[int, int]], some: EngineRules, gap: float) -> None:
    """The mean number in the system is the rate times the mean time in it, whatever the order of service."""
    requests = requests_of(pairs, [gap], 0)
    played = play(requests, Fleet(rules=some), Straight())
    moments = np.sort(np.concatenate([played.arrival_s, played.done_s]))
    inside = [((played.arrival_s <= t) & (played.done_s > t)).sum() for t in moments[:-1]]
    area = float(np.sum(np.diff(moments) * inside))
    assert area == pytest.approx(float(np.sum(played.done_s - played.arrival_s)), rel=1e-9)


def mean_ttft(played: RequestOutcomes) -> float:
    return float(np.mean(played.first_s - played.arrival_s))


def test_more_load_never_answers_sooner() -> None:
    rng = np.random.default_rng(3)
    isl = [int(x) for x in rng.integers(50, 400, 400)]
    osl = [int(x) for x in rng.integers(10, 80, 400)]
    at = np.cumsum(rng.exponential(1.0, 400))
    some = Fleet(rules=EngineRules(max_batch=32, max_tokens=2048, kv_tokens=2e4))
    found = [
        play(Requests(isl=isl, osl=osl, at_s=[float(t) for t in at / rate]), some, Straight())
        for rate in (0.5, 2.0, 8.0, 32.0)
    ]
    ttft = [mean_ttft(played) for played in found]
    assert ttft == sorted(ttft)


def test_a_second_replica_halves_an_overload() -> None:
    rng = np.random.default_rng(4)
    isl, osl = [200] * 300, [50] * 300
    at = [float(t) for t in np.cumsum(rng.exponential(0.02, 300))]
    requests = Requests(isl=isl, osl=osl, at_s=at)
    some = EngineRules(max_batch=8, max_tokens=2048, kv_tokens=2e4)
    one = play(requests, Fleet(rules=some), Straight())
    two = play(requests, Fleet(rules=some, replicas=2, routing="least-loaded"), Straight())
    assert mean_ttft(two) < 0.6 * mean_ttft(one)


def test_prompts_and_answers_on_different_replicas() -> None:
    requests = Requests(isl=[300] * 50, osl=[20] * 50, at_s=[0.05 * i for i in range(50)])
    some = EngineRules(max_batch=8, max_tokens=2048, kv_tokens=2e4)
    fleet = Fleet(
        rules=replace(some, decode_only=True),
        prefill=replace(some, prefill_only=True),
        prefill_replicas=1,
        transfer_s=0.01,
        transfer_s_per_token=1e-5,
    )
    played = play(requests, fleet, Straight())
    alone = Straight().mixed(0, 0.0, 300.0, 0.0, 1)
    # One span from arrival: the prompt, its cache on the way, and a first step where it decodes.
    moved = 0.01 + 300 * 1e-5
    assert mean_ttft(played) > alone + moved + 0.01
    assert mean_ttft(played) < alone + moved + 0.03
    answer = played.done_s - played.first_s
    assert (answer > 18 * 0.01).all()
    joint = play(requests, Fleet(rules=some), Straight())
    assert np.std(answer) < np.std(joint.done_s - joint.first_s)


def test_a_prompt_that_others_began_is_computed_sooner() -> None:
    many = 60
    requests = Requests(
        isl=[1000] * many, osl=[5] * many, concurrency=1, prefix=[7] * many,
        prefix_tokens=[900] * many,
    )  # fmt: skip
    some = EngineRules(max_batch=8, max_tokens=4096, kv_tokens=2e4)
    cold = play(requests, Fleet(rules=some), Straight())
    warm = play(requests, Fleet(rules=replace(some, prefix_caching=True)), Straight())
    assert warm.prefix_hits == 900 * (many - 1)
    assert mean_ttft(warm) < 0.7 * mean_ttft(cold)


def test_swapping_and_recomputing_both_answer_everyone() -> None:
    requests = Requests(isl=[100] * 30, osl=[100] * 30, concurrency=30)
    some = EngineRules(max_batch=30, max_tokens=4096, kv_tokens=1500.0)
    again = play(requests, Fleet(rules=some), Straight())
    moved = play(
        requests, Fleet(rules=replace(some, preemption="swap", swap_s_per_token=1e-7)), Straight()
    )
    assert again.preempted > 0
    assert moved.preempted > 0
    assert moved.end_s < again.end_s


def test_a_request_longer_than_the_cache_is_refused_and_the_others_are_answered() -> None:
    requests = Requests(isl=[100, 5000, 100], osl=[10, 10, 10], concurrency=1)
    played = play(
        requests, Fleet(rules=EngineRules(max_batch=4, max_tokens=512, kv_tokens=600.0)), Straight()
    )
    assert played.refused.tolist() == [False, True, False]
    assert np.isfinite(played.done_s[[0, 2]]).all()
    assert np.isnan(played.done_s[1])


def test_nothing_to_do_and_no_memory_are_told_at_once() -> None:
    with pytest.raises(BadInput) as told:
        play(
            Requests(isl=[], osl=[]),
            Fleet(rules=EngineRules(max_batch=4, max_tokens=512, kv_tokens=-1.0)),
            Straight(),
        )
    assert len(told.value.problems) == 3
