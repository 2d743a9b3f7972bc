"""Which replica a request goes to, and which replicas run: start-up times, and what is paid for."""

import math
from collections.abc import Sequence

import numpy as np

from foretell.errors import BadInput, wrong
from foretell.serving.requests.records import AutoscaleRule, Requests, Routing, ScaledPool
from foretell.serving.requests.replica import Replica
from foretell.serving.requests.words import read_words

WARM_SHARE, WARM_MORE = 1.5, 4
"""A warm cache is worth a queue half as long again, and a few more."""


class Router:
    """Deals requests to replicas; it keeps the load of each, so that a thousand are looked at in one pass."""

    def __init__(self, routing: Routing, requests: Requests, replicas: Sequence[Replica]) -> None:
        self.routing, self.requests = routing, requests
        self.by_index = {replica.index: replica for replica in replicas}
        self.loads = np.zeros(len(replicas), np.int64)
        """Requests at each, by its index."""
        self.turn = 0
        self.homes: dict[int, int] = {}
        """Session -> the replica that its requests stay on."""
        self.by_load = routing != "round-robin"

    def note(self, replica: Replica) -> None:
        """A replica has more or fewer requests."""
        if self.by_load:
            self.loads[replica.index] = replica.load

    def choose(self, request: int, replicas: Sequence[Replica]) -> Replica:
        """The replica of a request, of some whose indices follow one another or of those that run."""
        match self.routing:
            case "round-robin":
                self.turn += 1
                return replicas[(self.turn - 1) % len(replicas)]
            case "prefix-aware":
                return self._warm(request, replicas)
            case "sticky" if self.requests.session is not None:
                name = self.requests.session[request]
                own = self.by_index.get(self.homes.get(name, -1))
                chosen = own if own is not None and own in replicas else self._least(replicas)
                self.homes[name] = chosen.index
                return chosen
            case _:
                return self._least(replicas)

    def _of(self, replicas: Sequence[Replica]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        first, last = replicas[0].index, replicas[-1].index
        if last - first + 1 == len(replicas):
            return self.loads[first : last + 1]
        return self.loads[[replica.index for replica in replicas]]

    def _least(self, replicas: Sequence[Replica]) -> Replica:
        return replicas[int(self._of(replicas).argmin())]

    def _warm(self, request: int, replicas: Sequence[Replica]) -> Replica:
        loads = self._of(replicas)
        near = np.flatnonzero(loads <= WARM_SHARE * loads.min() + WARM_MORE)
        warm = [i for i in near.tolist() if replicas[i].prefixes.has(request, self.requests)]
        if not warm:
            return self._least(replicas)
        return replicas[min(warm, key=lambda i: loads[i])]


def read_autoscale(text: str) -> AutoscaleRule:
    """A rule of words such as `min=1 max=16 start=120 period=60 target=0.7`; seconds and shares."""
    usual = AutoscaleRule()
    values, problems = read_words(
        "autoscale",
        text,
        {
            "min": usual.least, "max": usual.most, "start": usual.start_s,
            "period": usual.period_s, "target": usual.target,
        },
    )  # fmt: skip
    if not 0.0 < values["target"] <= 1.0:
        problems.append(wrong("autoscale", text, "target is out of range", "above 0, at most 1"))
    if 0.0 < values["max"] < values["min"]:
        problems.append(wrong("autoscale", text, "min is above max", "min up to max"))
    if problems:
        raise BadInput(problems)
    return AutoscaleRule(
        least=max(int(values["min"]), 1),
        most=int(values["max"]),
        start_s=values["start"],
        period_s=max(values["period"], 1e-3),
        target=values["target"],
    )


class Autoscaler:
    """Which replicas run, by the arrivals of the last period."""

    def __init__(self, rule: AutoscaleRule, replicas: int, able_per_s: float) -> None:
        self.rule, self.able_per_s = rule, able_per_s
        self.most = min(rule.most or replicas, replicas)
        least = min(rule.least, self.most)
        self.ready = [0.0] * least + [math.inf] * (replicas - least)
        """When each replica takes requests; infinite: it does not run."""
        self.since = [0.0] * least + [math.nan] * (replicas - least)
        """From when on each is paid for."""
        self.paid_s = 0.0
        """Replica-seconds of those that were stopped."""
        self.came, self.checked = 0, 0.0
        self.series: list[tuple[float, int]] = [(0.0, least)]
        """(when, replicas that run or start)."""

    def observe(self, at: float, waiting: int) -> None:
        """A request comes while others wait: the number is looked at again where the time has come."""
        self.came += 1
        if at < self.checked + self.rule.period_s:
            return
        span = max(at - self.checked, 1e-9)
        # What waits is to be answered within the next period.
        wanted_per_s = self.came / span + waiting / self.rule.period_s
        wanted = math.ceil(wanted_per_s / (self.rule.target * self.able_per_s) - 1e-9)
        self._set(at, min(max(wanted, min(self.rule.least, self.most), 1), self.most))
        self.came, self.checked = 0, at

    def _set(self, at: float, wanted: int) -> None:
        running = [i for i, ready in enumerate(self.ready) if ready < math.inf]
        for i in range(len(self.ready)):
            if len(running) < wanted and i not in running:
                self.ready[i], self.since[i] = at + self.rule.start_s, at
                running.append(i)
        while len(running) > wanted:
            i = running.pop()
            self.paid_s += at - self.since[i]
            self.ready[i], self.since[i] = math.inf, math.nan
        if self.series[-1][1] != wanted:
            self.series.append((at, wanted))

    def active(self, at: float) -> list[int]:
        """Places of the replicas that take requests."""
        found = [i for i, ready in enumerate(self.ready) if ready <= at]
        return found or [0]

    def pool(self, end_s: float) -> ScaledPool:
        """What ran, and is paid for, up to the end."""
        running = sum(
            max(end_s - since, 0.0)
            for since, ready in zip(self.since, self.ready, strict=True)
            if ready < math.inf
        )
        return ScaledPool(replica_seconds=self.paid_s + running, running=tuple(self.series))
