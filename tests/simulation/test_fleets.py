"""Fleets: jumps give what single steps give, and replicas apart what replicas together give."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.serving.requests import run
from foretell.serving.requests.records import EngineRules, Fleet, RequestOutcomes, Requests
from foretell.serving.requests.replica import Replica
from tests.simulation.test_requests import Straight


class SingleSteps(run._RequestRun):
    """The whole fleet step by step: nobody jumps, so that nothing can be jumped over."""

    def __init__(self, requests: Requests, fleet: Fleet) -> None:
        super().__init__(requests, fleet, Straight(), Straight(), None)
        self.shared = False

    def play(self) -> RequestOutcomes:
        under_way: list[Replica] = []
        while True:
            ready = [r for r in self.replicas if not r.idle and r not in under_way]
            starts = min((r.now for r in ready), default=math.inf)
            ends = min((r.now for r in under_way), default=math.inf)
            comes = self.coming[0][0] if self.coming else math.inf
            moves = self.moving[0][0] if self.moving else math.inf
            now = min(starts, ends, comes, moves)
            if math.isinf(now):
                return self._played()
            if ends == now:
                replica = min(under_way, key=lambda r: r.now)
                under_way.remove(replica)
                self._take(replica)
            elif comes == now:
                self._arrive()
            elif moves == now:
                self._arrive_moved()
            else:
                replica = min(ready, key=lambda r: r.now)
                replica.event(replica.now)
                under_way.append(replica)


lengths = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60)), min_size=1, max_size=30)
gaps = st.none() | st.lists(st.floats(1e-3, 0.2), min_size=1, max_size=5)
rules = st.builds(
    EngineRules,
    max_batch=st.integers(1, 12),
    max_tokens=st.sampled_from([64, 256, 1024]),
    kv_tokens=st.sampled_from([400.0, 520.0, 900.0, 2000.0, 1e6]),
    policy=st.sampled_from(["mixed", "prefill-first"]),
    whole_admission=st.booleans(),
    preemption=st.sampled_from(["recompute", "swap"]),
    swap_s_per_token=st.just(1e-5),
    tokens_per_step=st.sampled_from([1.0, 1.7]),
    latency_s=st.sampled_from([0.0, 0.01]),
    late_steps=st.sampled_from([0.0, 1.0]),
    wait_steps=st.sampled_from([0.0, 3.0]),
    wait_prompts=st.sampled_from([2.0, math.inf]),
    rank_tokens=st.sampled_from([40.0, math.inf]),
    stages=st.sampled_from([1, 2]),
)


def requests_of(pairs: list[tuple[int, int]], waits: list[float] | None, flight: int) -> Requests:
    isl, osl = [p for p, _ in pairs], [o for _, o in pairs]
    if waits is None:
        return Requests(isl=isl, osl=osl, concurrency=flight)
    at = np.cumsum([waits[i % len(waits)] for i in range(len(pairs))])
    return Requests(isl=isl, osl=osl, at_s=at.tolist())


def same(one: RequestOutcomes, other: RequestOutcomes) -> None:
    for name in ("arrival_s", "first_s", "done_s"):
        found, want = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9, err_msg=name)
    np.testing.assert_array_equal(one.replica, other.replica)
    np.testing.assert_array_equal(one.refused, other.refused)
    assert one.preempted == other.preempted


@settings(max_examples=150, deadline=None)
@given(lengths, rules, gaps, st.integers(1, 24), st.integers(1, 5), st.booleans())
def test_a_fleet_that_jumps_gives_what_single_steps_give(
    pairs: list[tuple[int, int]],
    some: EngineRules,
    waits: list[float] | None,
    flight: int,
    replicas: int,
    apart: bool,
) -> None:
    fleet = Fleet(rules=some, replicas=replicas)
    if apart:
        fleet = Fleet(
            rules=replace(some, decode_only=True),
            replicas=replicas,
            prefill=replace(some, prefill_only=True),
            prefill_replicas=2,
            transfer_s=0.01,
        )
    requests = requests_of(pairs, waits, flight)
    same(run.play(requests, fleet, Straight()), SingleSteps(requests, fleet).play())


@settings(max_examples=80, deadline=None)
@given(lengths, rules, st.lists(st.floats(1e-3, 0.2), min_size=1, max_size=5), st.integers(2, 5))
def test_replicas_played_apart_are_as_those_played_together(
    pairs: list[tuple[int, int]], some: EngineRules, waits: list[float], replicas: int
) -> None:
    requests = requests_of(pairs, waits, 0)
    fleet = Fleet(rules=some, replicas=replicas)
    together = run._RequestRun(requests, fleet, Straight(), Straight(), None)
    together.shared = True
    found = run.play(requests, fleet, Straight())
    same(found, together.play())
    assert found.series.at_s == sorted(found.series.at_s)
