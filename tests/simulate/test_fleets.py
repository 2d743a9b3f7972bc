"""Fleets: jumps give what single steps give, and the compiled form gives what Python gives."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.catalog.engines import profile
from foretell.inputs.question import ask
from foretell.serving.clock import SampledClock
from foretell.serving.requests import run
from foretell.serving.requests.compiled.heaps import first_leaves, leaves, pop, push, tree_set
from foretell.serving.requests.compiled.play import is_plain, play_compiled
from foretell.serving.requests.records import EngineRules, Fleet, RequestOutcomes, Requests
from foretell.serving.requests.replica import Replica
from foretell.serving.steps import step_times
from foretell.specs.deployment import Deployment
from tests.simulate.test_requests import Straight


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
    found = run.play_pure(requests, fleet, Straight())
    same(found, together.play())
    assert found.series.at_s == sorted(found.series.at_s)


@pytest.fixture(scope="module")
def clock() -> SampledClock:
    scenario = ask(model="llama-3.1-8b", system="h100-sxm", gpus=1)
    engine = profile("vllm", scenario.system.chip)
    return SampledClock(step_times(scenario.model, scenario.system, Deployment(), engine), 12, 3.5)


@settings(max_examples=120, deadline=None)
@given(
    lengths, rules, gaps, st.integers(1, 24), st.integers(1, 5),
    st.sampled_from(["round-robin", "least-loaded"]),
)  # fmt: skip
def test_the_compiled_form_gives_what_python_gives(
    clock: SampledClock,
    pairs: list[tuple[int, int]],
    some: EngineRules,
    waits: list[float] | None,
    flight: int,
    replicas: int,
    routing: str,
) -> None:
    requests = requests_of(pairs, waits, flight)
    fleet = Fleet(rules=some, replicas=replicas, routing=routing)  # type: ignore[arg-type]
    assert is_plain(requests, fleet, clock)
    pure, fast = run.play_pure(requests, fleet, clock), play_compiled(requests, fleet, clock)
    same(fast, pure)
    np.testing.assert_allclose(fast.busy_s, pure.busy_s, rtol=1e-9)
    assert fast.end_s == pytest.approx(pure.end_s, rel=1e-9)
    if not pure.refused.any():
        np.testing.assert_allclose(fast.series.at_s, pure.series.at_s, rtol=1e-9)
        np.testing.assert_allclose(fast.series.held_tokens, pure.series.held_tokens, rtol=1e-9)


@pytest.mark.parametrize(
    "more",
    [
        {"rules": EngineRules(max_batch=4, max_tokens=64, kv_tokens=1e4, prefix_caching=True)},
        {"routing": "sticky"},
        {"prefill": EngineRules(max_batch=4, max_tokens=64, kv_tokens=1e4), "prefill_replicas": 1},
    ],
    ids=["prefixes", "sticky", "pools"],
)
def test_what_the_arrays_do_not_know_stays_in_python(
    clock: SampledClock, more: dict[str, object]
) -> None:
    plain = Fleet(rules=EngineRules(max_batch=4, max_tokens=64, kv_tokens=1e4))
    requests = Requests(isl=[10], osl=[2], concurrency=1)
    assert is_plain(requests, plain, clock)
    assert not is_plain(requests, replace(plain, **more), clock)
    assert not is_plain(replace(requests, priority=[0]), plain, clock)
    assert not is_plain(requests, plain, Straight())


@given(st.lists(st.tuples(st.floats(0, 9), st.integers(0, 9)), min_size=1, max_size=40))
def test_heaps_and_trees_know_the_smallest(pairs: list[tuple[float, int]]) -> None:
    keys, ids = np.zeros(len(pairs)), np.zeros(len(pairs), np.int64)
    for size, (key, id) in enumerate(pairs):
        push(keys, ids, size, key, id)
    found = []
    for size in range(len(pairs), 0, -1):
        found.append((keys[0], ids[0]))
        pop(keys, ids, size)
    assert found == sorted(pairs)
    wide = leaves(10)
    tree, least = first_leaves(wide), np.full(wide, np.inf)
    for key, id in pairs:
        tree_set(tree, least, id, key)
        assert tree[1] == least.argmin()
