"""The loop over replicas and arrivals: whoever is earliest goes next."""

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush

import numpy as np

from foretell.errors import BadInput, Problem
from foretell.serving.requests.autoscaler import Autoscaler
from foretell.serving.requests.records import Clock, Fleet, RequestOutcomes, Requests, Series
from foretell.serving.requests.replica import Replica

EVERY = 4096
"""Answers between two calls of a progress bar."""


def play(
    requests: Requests,
    fleet: Fleet,
    clock: Clock,
    prefill_clock: Clock | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RequestOutcomes:
    """Every request from its arrival to its last token; the same for the same input, always."""
    check(requests, fleet)
    return _RequestRun(requests, fleet, clock, prefill_clock or clock, progress).play()


def check(requests: Requests, fleet: Fleet) -> None:
    """All that would make a run senseless, at once."""
    problems = []
    if not len(requests):
        problems.append(
            Problem(path="requests", value=0, message="there are none", allowed="at least one")
        )
    if requests.at_s is None and requests.concurrency < 1:
        problems.append(
            Problem(
                path="concurrency",
                value=requests.concurrency,
                message="a closed loop needs a concurrency",
                allowed="at least 1",
            )
        )
    for name, rules in (("rules", fleet.rules), ("prefill", fleet.prefill)):
        if rules is not None and rules.kv_tokens <= 0.0:
            problems.append(
                Problem(
                    path=f"{name}.kv_tokens",
                    value=rules.kv_tokens,
                    message="no memory is left for the cache",
                    allowed="more GPUs, narrower weights or a larger memory fraction",
                )
            )
    if problems:
        raise BadInput(problems)


class _RequestRun:
    """One run."""

    def __init__(
        self,
        requests: Requests,
        fleet: Fleet,
        clock: Clock,
        prefill_clock: Clock,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.requests, self.fleet, self.progress = requests, fleet, progress
        self.series = Series()
        many = fleet.prefill_replicas if fleet.prefill is not None else 0
        self.fronts = [
            Replica(i, requests, fleet.prefill, prefill_clock, self.series)
            for i in range(many)
            if fleet.prefill is not None
        ]
        self.backs = [
            Replica(many + i, requests, fleet.rules, clock, self.series)
            for i in range(fleet.replicas)
        ]
        self.replicas = [*self.fronts, *self.backs]
        count = len(requests)
        self.arrival = [math.nan] * count
        self.first, self.done = [math.nan] * count, [math.nan] * count
        self.where = [-1] * count
        self.refused = [False] * count
        self.turn, self.answered = 0, 0
        self.homes: dict[int, int] = {}
        """Session -> the replica that its requests stay on."""
        self.next_turn = self._next_turns()
        """Request -> those that come a pause after its answer."""
        self.scaler = (
            None
            if fleet.autoscale is None
            else Autoscaler(fleet.autoscale, fleet.replicas, fleet.able_per_s)
        )
        self.moving: list[tuple[float, int]] = []
        """(when, request) of caches on their way to the replicas that decode, a heap."""
        self.coming: list[tuple[float, int]] = self._coming()
        """(when it reaches the engine, request), a heap."""
        self.next = len(self.coming)

    def _coming(self) -> list[tuple[float, int]]:
        requests = self.requests
        sent = requests.at_s
        after = requests.after
        if sent is None:
            sent = [0.0] * min(requests.concurrency, len(requests))
        found = [
            (self._sent(i, float(at)), i)
            for i, at in enumerate(sent)
            if after is None or after[i] < 0
        ]
        heapify(found)
        return found

    def _next_turns(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for request, before in enumerate(self.requests.after or ()):
            if before >= 0:
                found.setdefault(before, []).append(request)
        return found

    def _sent(self, request: int, at: float) -> float:
        """A user sends a request; when it reaches the engine."""
        self.arrival[request] = at
        rules = self.fleet.prefill or self.fleet.rules
        return at + rules.latency_s + rules.latency_s_per_token * self.requests.isl[request]

    def play(self) -> RequestOutcomes:
        """Until nothing is left."""
        alone = self.replicas[0] if len(self.replicas) == 1 else None
        while True:
            replica = alone if alone is not None and not alone.idle else self._earliest()
            comes = self.coming[0][0] if self.coming else math.inf
            moves = self.moving[0][0] if self.moving else math.inf
            now = math.inf if replica is None else replica.now
            if min(comes, moves) <= now:
                if math.isinf(min(comes, moves)):
                    break
                if comes <= moves:
                    self._arrive()
                else:
                    self._arrive_moved()
                continue
            if replica is None:
                break
            bound = min(comes, moves)
            if alone is None:
                bound = min(bound, self._others_s(replica))
            replica.event(bound)
            self._take(replica)
        return self._played()

    def _earliest(self) -> Replica | None:
        """The replica with work that is furthest behind."""
        best: Replica | None = None
        for replica in self.replicas:
            if not replica.idle and (best is None or replica.now < best.now):
                best = replica
        return best

    def _others_s(self, replica: Replica) -> float:
        """No other replica has an answer, and with it a new request, before this moment."""
        times = [r.next_answer_s() for r in self.replicas if r is not replica and not r.idle]
        return min(times, default=math.inf)

    def _arrive(self) -> None:
        at, request = heappop(self.coming)
        rules = self.fleet.rules
        longest = self.requests.isl[request] + self.requests.osl[request] + rules.slack_tokens
        front = self.fleet.prefill
        prompt = self.requests.isl[request] + rules.slack_tokens
        if longest > rules.kv_tokens or (front is not None and prompt > front.kv_tokens):
            self.refused[request] = True
            self._follow(at, request)
            return
        self._deal(request, at, self.fronts or self.backs)

    def _arrive_moved(self) -> None:
        at, request = heappop(self.moving)
        self._deal(request, at, self.backs)

    def _deal(self, request: int, at: float, replicas: list[Replica]) -> None:
        """Give a request to a replica."""
        if self.scaler is not None and replicas is self.backs:
            self.scaler.observe(at, sum(replica.waiting for replica in replicas))
            replicas = [replicas[i] for i in self.scaler.active(at)]
        chosen = replicas[0] if len(replicas) == 1 else self._route(request, replicas)
        if chosen.idle:
            chosen.now = max(chosen.now, at)
        self.where[request] = chosen.index
        chosen.push(request)

    def _route(self, request: int, replicas: list[Replica]) -> Replica:
        match self.fleet.routing:
            case "round-robin":
                self.turn += 1
                return replicas[(self.turn - 1) % len(replicas)]
            case "prefix-aware":
                least = min(replica.load for replica in replicas)
                # A warm cache is worth a queue half as long again, and a few more.
                warm = [
                    r
                    for r in replicas
                    if r.load <= 1.5 * least + 4 and r.prefixes.has(request, self.requests)
                ]
                return min(warm or replicas, key=lambda r: r.load)
            case "sticky" if self.requests.session is not None:
                name = self.requests.session[request]
                own = next((r for r in replicas if r.index == self.homes.get(name, -1)), None)
                chosen = own or min(replicas, key=lambda r: r.load)
                self.homes[name] = chosen.index
                return chosen
            case _:
                return min(replicas, key=lambda r: r.load)

    def _take(self, replica: Replica) -> None:
        """What an event brought."""
        if replica.first:
            for request, at in replica.first:
                apart = replica.rules.prefill_only and self.requests.osl[request] > 1
                if math.isnan(self.first[request]) and not apart:
                    self.first[request] = at
            replica.first.clear()
        if replica.done:
            for request, at in replica.done:
                if replica.rules.prefill_only and self.requests.osl[request] > 1:
                    fleet = self.fleet
                    took = (
                        fleet.transfer_s + fleet.transfer_s_per_token * self.requests.isl[request]
                    )
                    heappush(self.moving, (at + took, request))
                    continue
                self.done[request] = max(at, self.first[request])
                self._follow(self.done[request], request)
            replica.done.clear()

    def _follow(self, at: float, request: int) -> None:
        """An answer is whole: the next turn of its session comes, or in a closed loop the next request."""
        for turn in self.next_turn.get(request, ()):
            pause = self.requests.pause_s[turn] if self.requests.pause_s is not None else 0.0
            heappush(self.coming, (self._sent(turn, at + pause), turn))
        self.answered += 1
        if self.progress is not None and self.answered % EVERY == 0:
            self.progress(self.answered, len(self.requests))
        if self.requests.at_s is None and self.next < len(self.requests):
            heappush(self.coming, (self._sent(self.next, at), self.next))
            self.next += 1

    def _tier_hits(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for replica in self.replicas:
            for name, tokens in replica.prefixes.from_tier.items():
                found[name] = found.get(name, 0.0) + tokens
        return found

    def _played(self) -> RequestOutcomes:
        if self.progress is not None:
            self.progress(len(self.requests), len(self.requests))
        return RequestOutcomes(
            arrival_s=np.array(self.arrival),
            first_s=np.array(self.first),
            done_s=np.array(self.done),
            isl=np.array(self.requests.isl, dtype=np.float64),
            osl=np.array(self.requests.osl, dtype=np.float64),
            replica=np.array(self.where, dtype=np.intp),
            refused=np.array(self.refused),
            preempted=sum(replica.preempted for replica in self.replicas),
            prefix_hits=sum(replica.prefixes.saved_tokens for replica in self.replicas),
            tier_hits=self._tier_hits(),
            end_s=self._end_s(),
            busy_s=np.array([replica.busy_s for replica in self.replicas]),
            series=self.series,
            replica_seconds=None
            if self.scaler is None
            else self.scaler.replica_seconds(self._end_s()),
            running=() if self.scaler is None else tuple(self.scaler.series),
        )

    def _end_s(self) -> float:
        return max((replica.now for replica in self.replicas), default=0.0)
