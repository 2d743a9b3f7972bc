"""The loop over replicas and arrivals: the earliest event goes next."""

import math
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush

import numpy as np

from foretell.errors import BadInput, wrong
from foretell.serving.requests.records import Clock, Fleet, RequestOutcomes, Requests, Series
from foretell.serving.requests.replica import Replica
from foretell.serving.requests.routing import Autoscaler, Router

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
        problems.append(wrong("requests", 0, "there are none", "at least one"))
    if requests.at_s is None and requests.concurrency < 1:
        problems.append(
            wrong(
                "concurrency",
                requests.concurrency,
                "a closed loop needs a concurrency",
                "at least 1",
            )
        )
    for name, rules in (("rules", fleet.rules), ("prefill", fleet.prefill)):
        if rules is not None and rules.kv_tokens <= 0.0:
            problems.append(
                wrong(
                    f"{name}.kv_tokens",
                    rules.kv_tokens,
                    "no memory is left for the cache",
                    "more GPUs, narrower weights or a larger memory fraction",
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
        self.entry = self.fronts or self.backs
        """Replicas to which requests come."""
        self.shared = len(self.replicas) > 1 and not self._independent()
        """Whether what one replica does may bear on another."""
        self.router = Router(fleet.routing, requests, self.replicas)
        count = len(requests)
        self.arrival = [math.nan] * count
        self.first, self.done = [math.nan] * count, [math.nan] * count
        self.where = [-1] * count
        self.refused = [False] * count
        self.answered = 0
        self.next_turn = self._next_turns()
        """Request -> those that come a pause after its answer."""
        self.scaler = self._scaler(fleet.replicas, fleet.able_per_s)
        self.prefill_scaler = self._scaler(many, fleet.prefill_able_per_s)
        self.moving: list[tuple[float, int]] = []
        """(when, request) of caches on their way to the replicas that decode, a heap."""
        self.heads: deque[int] = deque()
        """Of a closed loop, requests that are yet to come and wait for no other's answer."""
        self.coming: list[tuple[float, int]] = self._coming()
        """(when it reaches the engine, request), a heap."""
        self.now = 0.0
        self.ends: list[tuple[float, int, int]] = []
        """(when its event ends, replica, version of that event), a heap."""
        self.version = [0] * len(self.replicas)
        """The event of each replica that counts: a request may cut decode steps short."""
        self.works = [False] * len(self.replicas)
        """Whether an event of a replica is under way, or next."""
        self.decodes = [False] * len(self.replicas)
        """Whether it is decode steps, which are yet to be done."""
        self.failed: Replica | None = None
        """The replica that failed."""
        self.starts: deque[Replica] = deque()
        """Replicas whose next event begins now."""

    def _scaler(self, replicas: int, able_per_s: float) -> Autoscaler | None:
        rule = self.fleet.autoscale
        return None if rule is None or not replicas else Autoscaler(rule, replicas, able_per_s)

    def _coming(self) -> list[tuple[float, int]]:
        requests = self.requests
        sent = requests.at_s
        after = requests.after
        heads = (i for i in range(len(requests)) if after is None or after[i] < 0)
        if sent is None:
            self.heads = deque(heads)
            many = min(requests.concurrency, len(self.heads))
            found = [(self._sent(i, 0.0), i) for i in (self.heads.popleft() for _ in range(many))]
        else:
            found = [(self._sent(i, float(sent[i])), i) for i in heads]
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
        if self.shared:
            self._together()
        elif len(self.replicas) > 1:
            self._apart()
        else:
            self._alone(self.replicas[0])
        return self._played()

    def _alone(self, replica: Replica) -> None:
        """One replica: it jumps from event to event, no further than the next arrival."""
        coming = self.coming
        while coming or replica.load:
            comes = coming[0][0] if coming else math.inf
            if comes <= replica.now or not replica.load:
                self._arrive()
                continue
            replica.event(comes)
            while coming and coming[0][0] < replica.now:
                self._arrive()  # before the answers of this event bring others
            if replica.first or replica.done:
                self._take(replica)

    def _independent(self) -> bool:
        """Whether no replica bears on another: each request's replica and moment are known beforehand."""
        requests, fleet = self.requests, self.fleet
        return (
            requests.at_s is not None
            and requests.after is None
            and fleet.routing == "round-robin"
            and fleet.prefill is None
            and fleet.autoscale is None
            and math.isinf(fleet.fails_s)
        )

    def _apart(self) -> None:
        """Independent replicas, one after another: none waits for the arrivals of the others."""
        dealt: list[list[tuple[float, int]]] = [[] for _ in self.replicas]
        turn = 0
        for at, request in sorted(self.coming):
            dealt[turn % len(dealt)].append((at, request))
            turn += not self._too_long(request)
        for replica, own in zip(self.replicas, dealt, strict=True):
            self.coming, self.entry = own, [replica]
            self._alone(replica)
        self.series.sort()

    def _together(self) -> None:
        """Replicas that share what comes: a heap of the moments when their events end.

        Decode steps are done when they end, or when a request comes to their replica; a step with prompts
        is done when it begins. At one moment events end first, then requests come, then events begin.
        """
        heap, version, coming, moving = self.ends, self.version, self.coming, self.moving
        never = math.inf
        while True:
            while heap and heap[0][2] != version[heap[0][1]]:
                heappop(heap)  # decode steps that a request cut short
            comes = coming[0][0] if coming else never
            moves = moving[0][0] if moving else never
            ends = heap[0][0] if heap else never
            soonest = min(comes, moves, ends)
            if self.failed is None and self.fleet.fails_s <= soonest < never:
                self._fail()
                continue
            if self.starts and soonest > self.now:
                self._begin(self.starts.popleft())
                continue
            if soonest == never:
                break
            self.now = soonest
            if ends == soonest:
                self._end(self.replicas[heappop(heap)[1]])
            elif comes == soonest:
                self._arrive()
            else:
                self._arrive_moved()

    def _begin(self, replica: Replica) -> None:
        """The next event of a replica begins: its end goes on the heap."""
        i = replica.index
        decodes = self.decodes[i] = replica.begin()
        if replica.done:
            self.router.note(replica)
        self.version[i] += 1
        ends_s = replica.plan() if decodes else replica.now
        heappush(self.ends, (ends_s, i, self.version[i]))

    def _end(self, replica: Replica) -> None:
        """An event ends: its tokens reach their users, and the next begins."""
        i = replica.index
        if self.decodes[i]:
            replica.decode()
            self.decodes[i] = False
        if replica.first or replica.done:
            self.router.note(replica)
            self._take(replica)
        self.works[i] = not replica.idle
        if self.works[i]:
            self.starts.append(replica)

    def _fail(self) -> None:
        """The last replica stops: the requests that it has are sent to the others at that moment."""
        lost = self.failed = self.backs[-1]
        self.version[lost.index] += 1
        self.starts = deque(one for one in self.starts if one is not lost)
        done = {request for request, _ in lost.done}
        for request, where in enumerate(self.where):
            if where == lost.index and math.isnan(self.done[request]) and request not in done:
                heappush(self.coming, (self.fleet.fails_s, request))

    def _hand(self, request: int, at: float, replica: Replica) -> None:
        """A request reaches a replica, whose decode steps go on to the first that ends after it came."""
        i = replica.index
        if self.decodes[i]:
            replica.decode(at)
            self.decodes[i] = False
            self.version[i] += 1
            heappush(self.ends, (replica.now, i, self.version[i]))
        elif not self.works[i]:
            replica.now = max(replica.now, at)
            self.works[i] = True
            self.starts.append(replica)
        replica.push(request)
        self.router.note(replica)

    def _too_long(self, request: int) -> bool:
        """Whether a request is longer than a cache."""
        rules, front = self.fleet.rules, self.fleet.prefill
        prompt = self.requests.isl[request] + rules.slack_tokens
        longest = prompt + self.requests.osl[request]
        return longest > rules.kv_tokens or (front is not None and prompt > front.kv_tokens)

    def _arrive(self) -> None:
        at, request = heappop(self.coming)
        if self._too_long(request):
            self.refused[request] = True
            self._follow(at, request)
            return
        self._deal(request, at, self.entry)

    def _arrive_moved(self) -> None:
        at, request = heappop(self.moving)
        self._deal(request, at, self.backs)

    def _deal(self, request: int, at: float, replicas: list[Replica]) -> None:
        """Give a request to a replica."""
        scaler = self.scaler if replicas is self.backs else self.prefill_scaler
        if scaler is not None:
            scaler.observe(at, sum(replica.waiting for replica in replicas))
            replicas = [replicas[i] for i in scaler.active(at)]
        if self.failed is not None:
            replicas = [one for one in replicas if one is not self.failed]
        chosen = replicas[0] if len(replicas) == 1 else self.router.choose(request, replicas)
        # A request whose prompt is done elsewhere was let in there.
        limit = 0 if chosen.rules.decode_only else self.fleet.queue_limit
        if limit and chosen.waiting >= limit:
            self.refused[request] = True
            self._follow(at, request)
            return
        self.where[request] = chosen.index
        if self.shared:
            self._hand(request, at, chosen)
            return
        if chosen.idle:
            chosen.now = max(chosen.now, at)
        chosen.push(request)

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
        if self.heads and request not in self.next_turn:
            head = self.heads.popleft()
            heappush(self.coming, (self._sent(head, at), head))

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
            scaled=None if self.scaler is None else self.scaler.pool(self._end_s()),
            prefill_scaled=None
            if self.prefill_scaler is None
            else self.prefill_scaler.pool(self._end_s()),
        )

    def _end_s(self) -> float:
        return max((replica.now for replica in self.replicas), default=0.0)
